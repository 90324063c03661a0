#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <hyperframes/apps/sim/fault.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/reactor/sim_random.hpp>
#include <tuple>

namespace hyperframes::sim {
namespace {

double seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

const FaultMenu::Dish& choose(SimRandom& random, const FaultMenu& menu) {
  std::uint64_t total = 0;
  for (const auto& dish : menu.dishes) total += dish.weight;
  std::uint64_t left = random.below(total);
  for (const auto& dish : menu.dishes) {
    if (left < dish.weight) return dish;
    left -= dish.weight;
  }
  return menu.dishes.back();
}

unsigned choose_other(SimRandom& random, const FaultMenu& menu, const FaultMenu::Dish& dish,
                      unsigned node) {
  std::vector<unsigned> others = dish.others;
  if (dish.any_pair)
    for (unsigned each = 0; each < menu.nodes; ++each) others.push_back(each);
  std::erase(others, node);
  return others.empty() ? node : others[random.below(others.size())];
}

/// `time`: draws when it begins.
template <class Time>
Fault make_fault(SimRandom& random, const FaultMenu& menu, Time time) {
  const auto& dish = choose(random, menu);
  Fault fault;
  fault.kind = dish.kind;
  fault.at = time();
  // Short ones more often than long ones.
  const Duration most = dish.least + (dish.most - dish.least) / (random.below(3) == 0 ? 1 : 4);
  fault.span = random.between(dish.least, most);
  if (!dish.nodes.empty()) fault.node = dish.nodes[random.below(dish.nodes.size())];
  fault.other = choose_other(random, menu, dish, fault.node);
  fault.amount = random.between(dish.amount_least, dish.amount_most);
  return fault;
}

}  // namespace

std::string_view name(FaultKind kind) noexcept {
  static constexpr std::array<std::string_view, fault_kinds> names = {
      "kill",       "power_cut",  "power_cut_at",  "kill_at",     "pause",        "partition",
      "one_way",    "isolate",    "reset",         "reset_burst", "loss",         "delay",
      "refuse",     "reply_lost", "slow_disk",     "full_disk",   "sync_error",   "write_error",
      "read_error", "clock_jump", "calendar_back", "code_throws", "actor_throws", "no_memory"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<FaultKind> kinds_of(const FaultMenu& menu) {
  std::vector<FaultKind> kinds;
  for (const auto& dish : menu.dishes) kinds.push_back(dish.kind);
  std::ranges::sort(kinds);
  kinds.erase(std::ranges::unique(kinds).begin(), kinds.end());
  return kinds;
}

std::vector<Fault> make_plan(std::uint64_t seed, const FaultMenu& menu) {
  SimRandom random(SimRandom::mix(seed ^ 0x66617574u));
  const auto any_time = [&] { return random.between(menu.from, menu.until); };
  // A start takes some milliseconds: the earlier, the denser.
  const auto early = [&] {
    const Duration at = random.between(Duration(0), menu.from);
    return at / (1 << random.below(9));
  };
  std::vector<Fault> plan(random.between(menu.least, menu.most));
  for (Fault& fault : plan) fault = make_fault(random, menu, any_time);
  for (auto left = random.between(std::size_t{0}, menu.early); left > 0; --left)
    plan.push_back(make_fault(random, menu, early));
  std::ranges::sort(plan, {}, [](const Fault& fault) {
    return std::tuple(fault.at, fault.kind, fault.node, fault.other, fault.span, fault.amount);
  });
  return plan;
}

std::vector<Fault> only(std::span<const Fault> plan, std::span<const std::size_t> places) {
  std::vector<Fault> kept;
  for (const std::size_t place : places) {
    if (place >= plan.size())
      throw Error(Errc::invalid_argument, "choose faults of a plan",
                  fmt::format("it has {}, and no number {}", plan.size(), place),
                  fmt::format("choose from 0 to {}", plan.size() - 1));
    kept.push_back(plan[place]);
  }
  return kept;
}

std::string effect_of(const Fault& fault, std::span<const std::string> names) {
  const auto who = [&](unsigned node) {
    return node < names.size() ? names[node] : fmt::format("node {}", node);
  };
  const std::string node = who(fault.node), other = who(fault.other);
  const double span = seconds(fault.span);
  switch (fault.kind) {
    using enum FaultKind;
    case kill: return fmt::format("kill {}, down for {:.2f} s", node, span);
    case power_cut: return fmt::format("cut the power of {}, down for {:.2f} s", node, span);
    case power_cut_at:
      return fmt::format("cut the power of {} at its disk operation {} from then", node,
                         fault.amount);
    case kill_at:
      return fmt::format("kill {} at its disk operation {} from then", node, fault.amount);
    case pause: return fmt::format("pause {} for {:.2f} s", node, span);
    case partition: return fmt::format("part {} and {} for {:.2f} s", node, other, span);
    case one_way: return fmt::format("lose what {} sends {} for {:.2f} s", node, other, span);
    case isolate: return fmt::format("cut {} off from all for {:.2f} s", node, span);
    case reset: return fmt::format("break the connections of {} and {}", node, other);
    case reset_burst: return fmt::format("break connections at random for {:.2f} s", span);
    case loss: return fmt::format("lose {} % of all pieces for {:.2f} s", fault.amount, span);
    case delay: return fmt::format("delay {} % of all pieces for {:.2f} s", fault.amount, span);
    case refuse: return fmt::format("refuse {} % of all connects for {:.2f} s", fault.amount, span);
    case reply_lost:
      return fmt::format("lose what {} answers {} for {:.2f} s, and then the connection", node,
                         other, span);
    case slow_disk: return fmt::format("slow down the disk of {} for {:.2f} s", node, span);
    case full_disk:
      return fmt::format("leave {} bytes on the disk of {} for {:.2f} s", fault.amount, node, span);
    case sync_error: return fmt::format("fail {} syncs of {}", fault.amount, node);
    case write_error: return fmt::format("fail {} writes of {}", fault.amount, node);
    case read_error: return fmt::format("fail {} reads of {}", fault.amount, node);
    case clock_jump: return fmt::format("let the clock of {} leap by {:.2f} s", node, span);
    case calendar_back: return fmt::format("set the calendar of {} back by {:.2f} s", node, span);
    case code_throws:
      return fmt::format("throw at failpoint {} within {:.2f} s", fault.amount, span);
    case no_memory: return fmt::format("have no memory for any pool for {:.2f} s", span);
    case actor_throws: return fmt::format("throw in actor {} of {}", fault.amount, node);
  }
  return "nothing";
}

std::string describe(const Fault& fault, std::span<const std::string> names) {
  return fmt::format("{:7.3f} s: {}", seconds(fault.at), effect_of(fault, names));
}

std::vector<std::size_t> parse_places(const std::string& text) {
  std::vector<std::size_t> places;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    std::size_t value = 0;
    const auto [rest, failure] = std::from_chars(at, end, value);
    if (failure != std::errc() || value > 1'000'000)
      throw Error(Errc::invalid_argument, "read the places '" + text + "'",
                  "they are no list of numbers", "give them as 3,7,9 or 3-5,9");
    at = rest;
    return value;
  };
  while (at != end) {
    const std::size_t first = number();
    const std::size_t last = at != end && *at == '-' ? (++at, number()) : first;
    for (std::size_t place = first; place <= last; ++place) places.push_back(place);
    if (at != end && *at++ != ',')
      throw Error(Errc::invalid_argument, "read the places '" + text + "'",
                  "there is no comma between two", "give them as 3,7,9 or 3-5,9");
  }
  std::ranges::sort(places);
  places.erase(std::ranges::unique(places).begin(), places.end());
  return places;
}

std::string places_text(std::span<const std::size_t> places) {
  return fmt::format("{}", fmt::join(places, ","));
}

}  // namespace hyperframes::sim
