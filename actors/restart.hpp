// What happens when an actor crashes: its supervisor's rule for it, and for those beside it.
//
//   hf::RestartPolicy policy{.kind = hf::Restart::permanent, .intensity = 3, .period = 5s};
//   co_await node.spawn<Store>({.name = "store", .restart = policy}, path);
//   // up to 3 restarts within 5 s, each after a pause that doubles; then it is given up
//
// The budget is the actor's own: a neighbour that keeps crashing does not use it up. A restart
// makes a new object from copies of the constructor's arguments (what can't be copied can't be
// restarted); references to the actor, and its name, stay. An actor whose first start fails is not
// restarted.
//
// What a life leaves to the next one: an actor with these two members, public (private ones are not
// seen), of any movable type State, is asked for a snapshot when a life that had started ends and
// another follows, and the new object gets it, once, before `started()`.
//
//   std::optional<State> snapshot(hf::ExitReason why);   // empty: begin anew
//   hf::Task<void> restore(State state);
//
// After a crash (`why` is ExitReason::crashed) only the actor itself can know what of its state is
// worth keeping. A snapshot that throws is logged, and the next life begins anew; a `restore` that
// throws counts as a crash, and the one after it begins anew too. A life that is ended in
// `started()` for a sibling's sake is asked again, if it was given something; in `restore` itself
// that is lost.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/time.hpp>
#include <string_view>

namespace hyperframes {

enum class Restart : std::uint8_t {
  temporary,  ///< Never restarted.
  transient,  ///< Restarted after a crash, not after a normal end.
  permanent,  ///< Restarted after a crash and after a normal end, unless it was told to stop.
};

/// Which children are restarted when one of them is. Those that are taken along end in order, the
/// youngest first, as if they were told to stop; then all start again, the oldest first, each when
/// the one before it has started. Their budgets are untouched, and their references stay. Of a
/// Supervisor's children those begin again too that had ended by themselves; of Actor::spawn's they
/// do not.
enum class Strategy : std::uint8_t {
  one_for_one,   ///< It alone.
  one_for_all,   ///< All of them.
  rest_for_one,  ///< It, and those that were started after it.
};
/// As it stands above: "one_for_all".
std::string_view name(Strategy strategy) noexcept;

/// When the budget is used up, the actor ends (ExitReason::exhausted), and its parent crashes;
/// without a parent, the log and who joins or monitors it are all that learn it. Restarts with a
/// sibling or by hand use up none. No span may be negative, nor backoff_max below backoff_min.
struct RestartPolicy {
  Restart kind = Restart::temporary;
  /// Restarts allowed within `period`; one more and it is given up. 0: none.
  std::uint32_t intensity = 3;
  Duration period = 5s;         ///< Duration::max(): none is ever forgotten.
  Duration backoff_min = 10ms;  ///< Before the first restart; doubles with each within `period`.
  Duration backoff_max = 1s;
};

}  // namespace hyperframes
