// How a sender on another shard learns that a full mailbox took its message after all.
#pragma once

#include <hyperframes/actors/detail/letter.hpp>
#include <memory>
#include <optional>

namespace hyperframes::detail {

/// Made by the sender's shard, travels with the letter, and comes home when that was admitted.
struct Receipt : Work {
  Receipt(NodeShard& home, SendWaiter& waiter) noexcept
      : Work(nullptr), home(&home), waiter(&waiter) {}
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  /// On the mailbox's shard. `error`: it was not admitted.
  void send_home(NodeShard& from, std::optional<Error> error) noexcept;

  NodeShard* home;
  SendWaiter* waiter;  ///< The home shard's; null once it gave up.
  std::unique_ptr<Error> failure;
};

}  // namespace hyperframes::detail
