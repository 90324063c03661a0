// Letters that reached no handler, and why.
//
//   hf::Node node(runtime, {.on_dead_letter = [](const hf::DeadLetter& letter) {
//     hf::log::warning(std::string(letter.method) + " to " + letter.actor + ": " + letter.why);
//   }});
//
// Each is counted, by cause, in the metrics `hyperframes_dead_letters_total` and
// `hyperframes_expired_letters_total`. The asker of a dead ask gets the cause as its error.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/error.hpp>
#include <string>
#include <string_view>

namespace hyperframes {

struct DeadLetter {
  std::uint64_t target = 0;  ///< `ActorRef::id()` of the addressee.
  std::string actor;         ///< Its registered name, or empty.
  /// Such as "demo.Counter.Add"; empty for what another process sent to an actor that has ended.
  std::string_view method;
  /// actor_down, overloaded, or deadline_exceeded for what expired in the mailbox.
  Errc cause = Errc::actor_down;
  /// The cause in words, such as "actor 'store' crashed: disk full; its mailbox is not kept over a
  /// restart".
  std::string why;
};

}  // namespace hyperframes
