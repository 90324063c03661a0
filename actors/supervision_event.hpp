// What supervisors have decided: for each actor that ended, why it did and what follows.
//
//   hf::SupervisionEvents seen = node.events();
//   for (const hf::SupervisionEvent& event : seen.events) std::puts(event.to_string().c_str());
//   seen = node.events(seen.latest);              // what came since
//
// Each decision is one event, and one line in the log. A node keeps the latest
// Node::Options::kept_events of them; `hyperframes events` shows them from outside. Orderly ends of
// actors that are not to be restarted are no events (they may be many, and nothing is decided), nor
// is Node::stop, nor a first start that fails, which its spawner is told.
#pragma once

#include <cstdint>
#include <hyperframes/actors/down.hpp>
#include <hyperframes/actors/restart.hpp>
#include <hyperframes/runtime/time.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes {

enum class Decision : std::uint8_t {
  restart,  ///< It starts again, after a pause.
  give_up,  ///< Its restarts are used up: it is down, and its supervisor fails.
  end,      ///< It stays down, as its policy, or somebody by hand, says.
  destroy,  ///< It had not ended when its time was over, and was destroyed.
};
/// As it stands above: "give_up".
std::string_view name(Decision decision) noexcept;

/// An end that led to another one.
struct Cause {
  std::uint64_t actor = 0;  ///< Its id.
  std::string name;         ///< Or empty.
  ExitReason reason = ExitReason::crashed;
  std::string text;
};

struct SupervisionEvent {
  std::uint64_t number = 0;  ///< In its node, from 1, without gaps.
  Time at{};                 ///< By the shards' clock (no time of day).
  Decision decision = Decision::end;
  bool by_hand = false;  ///< Somebody asked for it: no restart of the budget is used.

  std::uint64_t actor = 0;  ///< Who ended.
  std::string name;         ///< Or empty.
  unsigned shard = 0;
  std::uint64_t supervisor = 0;  ///< Its id; 0: the node itself.
  ExitReason reason = ExitReason::normal;
  std::string text;           ///< Why, in words, down to the first cause.
  std::vector<Cause> causes;  ///< The same, one by one: this end's first, the first cause last.

  /// Used within `period`: with this one (restart), or all there were (give_up). By hand, or with a
  /// sibling: none is used.
  std::uint32_t restarts = 0;
  std::uint32_t intensity = 0;  ///< As many are allowed.
  Duration period{};
  Duration pause{};  ///< Before it starts again.
  Strategy strategy = Strategy::one_for_one;
  /// Siblings that are restarted with it, the oldest first: their names; the ids (16 hexadecimal
  /// digits) of those that have none.
  std::vector<std::string> along;
  std::vector<std::string> ended;  ///< Temporary ones, which end for its sake and stay down.

  /// One line: "actor 'store' crashed: disk full; restart 1 of 3 in 10 ms, with 'cache'".
  std::string to_string() const;
};

/// A plain value.
struct SupervisionEvents {
  std::vector<SupervisionEvent> events;  ///< The oldest first.
  std::uint64_t latest = 0;              ///< The last one's number, also where `events` is empty.
  std::uint64_t lost =
      0;              ///< So many of those asked for are not here: they were not kept any more.
  Time now{};         ///< By the clock of `SupervisionEvent::at`.
  Time node_begun{};  ///< By the same: another node numbers its own from 1.

  std::string to_json() const;
};

}  // namespace hyperframes
