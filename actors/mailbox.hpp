// The bounds of an actor's mailbox, and what happens to a letter that finds it full.
//
//   co_await node.spawn<Store>({.name = "store", .mailbox = {.messages = 256}});
//   co_await node.spawn<Cache>({.name = "cache", .mailbox = {.overflow = hf::Overflow::fail}});
//   bool taken = store.try_put({.key = 7});   // never suspends
//
// What is dropped is reported to Node::Options::on_dead_letter with the cause `overloaded`, and
// counted by hyperframes_dropped_letters_total; only who asks is told.
//
// Bounds hold for what actors and programs send. What the system says to an actor (a monitored
// actor ended, stop) goes through a lane of its own, which no bound and no policy touches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperframes {

enum class Overflow : std::uint8_t {
  suspend,      ///< The sender waits for room, until its deadline.
  fail,         ///< The sender gets Errc::overloaded.
  drop_newest,  ///< The letter goes to the dead letters; an ask gets Errc::overloaded.
  drop_oldest,  ///< The oldest letters go there instead, until there is room.
};

struct MailboxOptions {
  std::uint32_t messages = 1024;  ///< At least one. Those being handled do not count.
  /// Of requests and their segments. A larger one passes when the mailbox is empty.
  std::size_t bytes = std::size_t{64} << 20;
  Overflow overflow = Overflow::suspend;
};

}  // namespace hyperframes
