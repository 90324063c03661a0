#include <hyperframes/runtime/await_chain.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <string>
#include <vector>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;

namespace {

Task<void> wait_here(Event* event) { co_await event->wait(); }

Task<void> deeper(Event* event, int levels) {
  if (levels == 0) {
    co_await wait_here(event);
  } else {
    co_await deeper(event, levels - 1);
  }
}

Task<void> beside(Event* event, int tasks, int levels) {
  std::vector<Task<void>> all;
  for (int i = 0; i < tasks; ++i)
    all.push_back(levels == 0 ? wait_here(event) : beside(event, tasks, levels - 1));
  co_await when_all(std::move(all));
}

Task<void> join_later(Event* event, Event* join) {
  Scope scope;
  scope.spawn(wait_here(event));
  co_await join->wait();
  co_await scope.join();
}

/// The only task's chain.
AwaitChain chain_of_task(Manual& manual) {
  return manual.on(0, [&] {
    auto tasks = manual.shard().tasks().shown;
    REQUIRE(tasks.size() == 1);
    CHECK(tasks[0].spawned_at.file == "manual.hpp");
    return tasks[0].chain;
  });
}

const AwaitChain& innermost(const AwaitChain& chain) {
  return chain.branches.empty() ? chain : innermost(chain.branches.front());
}

}  // namespace

TEST_CASE("a chain names function, file and line of each co_await, the innermost last") {
  Manual manual;
  Event event;
  manual.spawn([&] { return deeper(&event, 1); });
  manual.settle();
  const AwaitChain chain = chain_of_task(manual);
  REQUIRE(chain.places.size() == 3);
  CHECK(chain.places.front().function.find("deeper") != std::string::npos);
  CHECK(chain.places.back().function.find("wait_here") != std::string::npos);
  for (const AwaitPlace& place : chain.places) {
    CHECK(place.file == "await_chain_test.cpp");
    CHECK(place.line > 0);
  }
  CHECK(!chain.ready);
  CHECK(chain.to_string().find(" > ") != std::string::npos);
  manual.on(0, [&] { event.set(); });
  manual.settle();
}

TEST_CASE("a chain that has been woken says that it waits for its turn only") {
  Manual manual;
  Event event;
  manual.spawn([&] { return deeper(&event, 1); });
  manual.settle();
  manual.on(0, [&] { event.set(); });
  const AwaitChain chain = chain_of_task(manual);
  CHECK(chain.ready);
  CHECK(chain.to_string().ends_with("(ready to run)"));
  manual.settle();
}

TEST_CASE("a long chain keeps its beginning and its end, and counts what is between") {
  Manual manual;
  Event event;
  constexpr int levels = 500;
  manual.spawn([&] { return deeper(&event, levels); });
  manual.settle();
  const AwaitChain chain = chain_of_task(manual);
  CHECK(chain.places.size() == AwaitChain::most_places);
  CHECK(chain.places.size() + chain.places_left_out == levels + 2);
  CHECK(chain.places.back().function.find("wait_here") != std::string::npos);
  CHECK(chain.to_string().find("more ... > ") != std::string::npos);
  manual.on(0, [&] { event.set(); });
  manual.settle();
}

TEST_CASE("tasks side by side are followed to a bounded number and depth, and the rest counted") {
  Manual manual;
  Event event;
  constexpr int tasks = 10, levels = 5;
  manual.spawn([&] { return beside(&event, tasks, levels - 3); });
  manual.settle();
  const AwaitChain chain = chain_of_task(manual);
  CHECK(chain.branches.size() == AwaitChain::most_branches);
  CHECK(chain.branches_left_out == tasks - AwaitChain::most_branches);
  const AwaitChain& last = innermost(chain);
  REQUIRE(!last.places.empty());
  CHECK(last.places.back().function.find("wait_here") != std::string::npos);
  manual.on(0, [&] { event.set(); });
  manual.settle();
}

TEST_CASE("branches below the deepest level are counted, not followed") {
  Manual manual;
  Event event;
  manual.spawn([&] { return beside(&event, 2, AwaitChain::most_levels + 2); });
  manual.settle();
  const AwaitChain chain = chain_of_task(manual);
  CHECK(innermost(chain).branches_left_out == 2);
  manual.on(0, [&] { event.set(); });
  manual.settle();
}

TEST_CASE("of very many tasks the oldest are listed, and a dump counts the others") {
  Manual manual;
  Event event;
  for (std::size_t i = 0; i < Shard::shown_tasks + 5; ++i)
    manual.spawn([&] { return wait_here(&event); });
  manual.settle();
  manual.on(0, [&] {
    CHECK(manual.shard().tasks().shown.size() == Shard::shown_tasks);
    CHECK(manual.shard().tasks().left_out == 5);
    CHECK(manual.shard().tasks(3).shown.size() == 3);
    CHECK(manual.shard().dump().find("and 5 more tasks") != std::string::npos);
    event.set();
  });
  manual.settle();
}

TEST_CASE(
    "very long chains of many tasks are shown up to a number of lines, and the rest counted") {
  Manual manual;
  Event event;
  constexpr std::size_t count = 120;
  for (std::size_t i = 0; i < count; ++i) manual.spawn([&] { return beside(&event, 8, 2); });
  manual.settle();
  manual.on(0, [&] {
    const Shard::Tasks tasks = manual.shard().tasks();
    CHECK(tasks.shown.size() < count);
    CHECK(tasks.shown.size() + tasks.left_out == count);
    std::size_t places = 0;
    for (const auto& task : tasks.shown) places += task.chain.place_count();
    CHECK(places >= Shard::shown_places);
    CHECK(places < Shard::shown_places + Shard::shown_places / 10);
    event.set();
  });
  manual.settle();
}

TEST_CASE("a scope's tasks are seen before anybody joins it, and as branches from then on") {
  Manual manual;
  Event event, join;
  manual.spawn([&] { return join_later(&event, &join); });
  manual.settle();
  manual.on(0, [&] {
    const auto tasks = manual.shard().tasks().shown;
    REQUIRE(tasks.size() == 2);
    CHECK(!tasks[0].in_scope);
    CHECK(tasks[0].chain.branches.empty());
    CHECK(tasks[1].in_scope);
    CHECK(tasks[1].spawned_at.file == "await_chain_test.cpp");
    CHECK(tasks[1].chain.to_string().find("wait_here") != std::string::npos);
    CHECK(tasks[1].to_string().starts_with("in a scope, spawned at await_chain_test.cpp:"));
    join.set();
  });
  manual.settle();
  const AwaitChain chain = chain_of_task(manual);
  CHECK(chain.branches.size() == 1);
  manual.on(0, [&] { event.set(); });
  manual.settle();
}
