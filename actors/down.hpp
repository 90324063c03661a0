// The end of an actor, as told to those who monitor or join it.
//
//   hf::Down down = co_await node.join(worker);
//   if (down.reason == hf::ExitReason::crashed) report(down.name, down.text);
//
// An actor that is restarted has not ended: its reference stays valid, and nothing is told until
// it ends for good. The end of an actor of another process is told alike, and once; when that
// process, or the connection with it, is lost, its actors' ends are told as `lost`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hyperframes {

enum class ExitReason : std::uint8_t {
  normal,   ///< It stopped itself, or its inbox coroutine returned.
  stopped,  ///< It was told to stop, by its parent, its node or a program.
  crashed,  ///< An exception left it, a child of it was given up, or a linked actor crashed; and it
            ///< was not to be restarted.
  exhausted,  ///< It ended more often than its restart policy allows.
  not_found,  ///< There was no such actor when it was asked for.
  lost,       ///< Its process can't be reached any more; it may still run there.
};
/// As it stands above: "crashed".
std::string_view name(ExitReason reason) noexcept;
/// What takes linked actors along: every reason but `normal` and `stopped`.
constexpr bool is_abnormal(ExitReason reason) noexcept {
  return reason != ExitReason::normal && reason != ExitReason::stopped;
}

/// A plain value.
struct Down {
  std::uint64_t id = 0;  ///< `ActorRef::id()` of the actor that ended.
  std::string name;      ///< Its registered name, or empty.
  ExitReason reason = ExitReason::normal;
  /// The cause, for a crash or a loss: down to the first one, where a child was given up. For any
  /// end, who did not end in time and was destroyed.
  std::string text;
  bool linked = false;  ///< It was linked, and not only monitored.
};

}  // namespace hyperframes
