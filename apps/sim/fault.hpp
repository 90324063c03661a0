// What a simulated cluster is struck with, and when: all of it decided by the seed before the run.
//
//   std::vector<sim::Fault> plan = sim::make_plan(seed, menu);      // by time
//   std::string line = sim::describe(plan[3], names);               // "12.250 s: cut the power ..."
//   plan = sim::only(plan, {3, 7, 9});                              // what shrinking leaves
//
// As the plan is a list, a run with fewer faults is the same list with some left out: that is how a
// failing seed is made small (shrink.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <hyperframes/runtime/time.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::sim {

enum class FaultKind : std::uint8_t {
  kill,           ///< SIGKILL; started again after `span`.
  power_cut,      ///< What was not synced is lost; started again after `span`.
  power_cut_at,   ///< The same in place of a disk operation, `amount` from now.
  kill_at,        ///< SIGKILL there.
  pause,          ///< SIGSTOP, SIGCONT after `span`.
  partition,      ///< Silence between `node` and `other`.
  one_way,        ///< What `node` sends to `other` is lost.
  isolate,        ///< Silence between `node` and all.
  reset,          ///< Every connection between `node` and `other` breaks.
  reset_burst,    ///< For `span` each piece breaks its connection with 1 %.
  loss,           ///< For `span` `amount` % of all pieces are sent again, and late.
  delay,          ///< For `span` `amount` % of all pieces are up to half a second late.
  refuse,         ///< For `span` `amount` % of all connects are refused.
  reply_lost,     ///< What `node` answers `other` is lost, and then the connection.
  slow_disk,      ///< For `span` a third of a node's disk operations take up to half a second more.
  full_disk,      ///< For `span` a node's disk has room for `amount` more bytes.
  sync_error,     ///< The next `amount` syncs of a node fail.
  write_error,    ///< The next `amount` writes of a node fail.
  read_error,     ///< The next `amount` reads of a node fail.
  clock_jump,     ///< A node's clock leaps ahead by `span`.
  calendar_back,  ///< A node's calendar is set back by `span`.
  code_throws,    ///< At a place in the code, by failpoint number `amount`.
  actor_throws,   ///< An actor of a node's tree, some times in a row, as `amount` says.
  no_memory,      ///< For `span` no pool of any node gets memory from its system.
};
inline constexpr std::size_t fault_kinds = 24;
std::string_view name(FaultKind kind) noexcept;

struct Fault {
  FaultKind kind = FaultKind::kill;
  Duration at{};    ///< From the beginning of the run.
  Duration span{};  ///< How long it lasts.
  unsigned node = 0, other = 0;
  std::uint64_t amount = 0;
  friend bool operator==(const Fault&, const Fault&) = default;
};

/// What may happen in a scenario.
struct FaultMenu {
  struct Dish {
    FaultKind kind = FaultKind::kill;
    unsigned weight = 1;
    std::vector<unsigned> nodes{};  ///< Whom it may strike.
    Duration least{}, most{};       ///< Its span.
    std::uint64_t amount_least = 0, amount_most = 0;
    bool any_pair = false;  ///< `other` is any other node; false: one of `others`.
    std::vector<unsigned> others{};
  };
  std::vector<Dish> dishes{};
  Duration from{}, until{};  ///< When faults begin.
  std::size_t least = 20, most = 30;
  std::size_t early = 0;  ///< Up to so many more begin before `from`.
  unsigned nodes = 0;
};

/// Those on the menu, each once.
std::vector<FaultKind> kinds_of(const FaultMenu& menu);
/// By time. The same for the same seed and menu, whatever the compiler.
std::vector<Fault> make_plan(std::uint64_t seed, const FaultMenu& menu);
/// Those at the given places.
std::vector<Fault> only(std::span<const Fault> plan, std::span<const std::size_t> places);
/// One line: when, what, whom, how long.
std::string describe(const Fault& fault, std::span<const std::string> names);
/// The same without when.
std::string effect_of(const Fault& fault, std::span<const std::string> names);
/// "3,7,9" and "3-5,9". Throws invalid_argument for other text.
std::vector<std::size_t> parse_places(const std::string& text);
std::string places_text(std::span<const std::size_t> places);

}  // namespace hyperframes::sim
