// What happens when an actor crashes: its supervisor's rule for it.
//
//   hf::RestartPolicy policy{.kind = hf::Restart::permanent, .intensity = 3, .period = 5s};
//   co_await node.spawn<Store>({.name = "store", .restart = policy}, path);
//   // up to 3 restarts within 5 s, each after a pause that doubles; then it is given up
//
// The budget is the actor's own: a neighbour that keeps crashing does not use it up. A restart
// makes a new object from copies of the constructor's arguments (what can't be copied can't be
// restarted); references to the actor, and its name, stay. An actor whose first start fails is not
// restarted.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/time.hpp>

namespace hyperframes {

enum class Restart : std::uint8_t {
  temporary,  ///< Never restarted.
  transient,  ///< Restarted after a crash, not after a normal end.
  permanent,  ///< Restarted after a crash and after a normal end, unless it was told to stop.
};

/// When the budget is used up, the actor ends (ExitReason::exhausted), and its parent crashes.
struct RestartPolicy {
  Restart kind = Restart::temporary;
  std::uint32_t intensity = 3;  ///< Restarts allowed within `period`; one more and it is given up.
  Duration period = 5s;
  Duration backoff_min = 10ms;  ///< Before the first restart; doubles with each within `period`.
  Duration backoff_max = 1s;
};

}  // namespace hyperframes
