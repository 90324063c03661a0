#include <hyperframes/apps/sim/fault.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/sim/scenario.hpp>
#include <hyperframes/runtime/error.hpp>

using namespace hyperframes;
using namespace hyperframes::sim;

namespace {

FaultMenu menu() {
  FaultMenu menu;
  menu.dishes = {{.kind = FaultKind::kill, .nodes = {1, 2}, .least = 1s, .most = 2s},
                 {.kind = FaultKind::partition,
                  .weight = 3,
                  .nodes = {0, 1, 2},
                  .least = 10ms,
                  .most = 1s,
                  .any_pair = true}};
  menu.from = 5s;
  menu.until = 50s;
  menu.nodes = 3;
  return menu;
}

}  // namespace

TEST_CASE("a plan is its seed's, in order, and keeps to the menu") {
  CHECK(make_plan(7, menu()) == make_plan(7, menu()));
  CHECK(make_plan(7, menu()) != make_plan(8, menu()));
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto plan = make_plan(seed, menu());
    CHECK(plan.size() >= 20);
    CHECK(plan.size() <= 30);
    CHECK(std::ranges::is_sorted(plan, {}, &Fault::at));
    for (const Fault& fault : plan) {
      CHECK(fault.at >= 5s);
      CHECK(fault.at <= 50s);
      if (fault.kind == FaultKind::kill) CHECK((fault.node == 1 || fault.node == 2));
      if (fault.kind == FaultKind::partition) CHECK(fault.node != fault.other);
    }
  }
}

TEST_CASE("a plan strikes a start, too, and is the same without that from then on") {
  auto with_early = menu();
  with_early.early = 3;
  std::size_t most = 0, in_milliseconds = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    auto plan = make_plan(seed, with_early);
    const auto start =
        std::ranges::find_if(plan, [](const Fault& fault) { return fault.at >= 5s; });
    const auto early = static_cast<std::size_t>(start - plan.begin());
    most = std::max(most, early);
    in_milliseconds += early != 0 && plan.front().at < 30ms;
    CHECK(std::ranges::equal(std::ranges::subrange(start, plan.end()), make_plan(seed, menu())));
  }
  CHECK(most == 3);
  CHECK(in_milliseconds >= 30);
}

TEST_CASE("a part of a plan is named by places, which can be read again") {
  const auto plan = make_plan(7, menu());
  const std::vector<std::size_t> places = {0, 3, 4, 5, 9};
  CHECK(parse_places(places_text(places)) == places);
  CHECK(parse_places("9,3-5,0,4") == places);
  const auto part = only(plan, places);
  REQUIRE(part.size() == 5);
  CHECK(part[1] == plan[3]);
  CHECK_THROWS_AS(parse_places("3,,4"), Error);
  CHECK_THROWS_AS(parse_places("3;4"), Error);
  CHECK_THROWS_AS(parse_places("a"), Error);
  CHECK_THROWS_AS(only(plan, std::vector<std::size_t>{1000}), Error);
}

TEST_CASE("every fault on every scenario's menu has a name, and says what it does") {
  for (const auto& scenario : scenarios())
    for (const FaultKind kind : scenario->kinds()) {
      CHECK_FALSE(name(kind).empty());
      CHECK(describe({.kind = kind, .at = 1500ms}, {}).starts_with("  1.500 s: "));
    }
}
