// How actors and their children end: in order, each by its own deadline, and who did not.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/spawn_options.hpp>

#include "family.hpp"

using namespace actor_test;
using hf::Errc;
using hf::ExitReason;
using hf::Strategy;
using hf::Task;

namespace {

hf::SpawnOptions ending_within(std::string name, hf::Duration shutdown, unsigned shard = 0) {
  hf::SpawnOptions options = named(std::move(name), permanent, shard);
  options.shutdown = shutdown;
  return options;
}

/// Its start fails when it is cancelled, as that of any actor does.
Task<void> start(World* world, hf::SpawnOptions options, hf::Supervision plan) {
  try {
    co_await world->node.spawn<hf::Supervisor>(std::move(options), std::move(plan));
  } catch (const hf::Error&) {
  }
}

/// Ends "root" and says how that was told.
Task<hf::Down> end(World* world, hf::SupervisorRef root) {
  world->node.stop(root);
  co_return co_await world->node.join(root, hf::after(3h));
}

}  // namespace

TEST_CASE("a supervisor that ends has its children end in reverse order, one after the other") {
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    hf::Supervision plan;
    plan.children = {worker(journal, named("a", permanent, 1), {.ends_in = 1ms}),
                     worker(journal, named("b", permanent, 2), {.ends_in = 2s}),
                     worker(journal, named("c"), {.ends_in = 1s})};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    world.node.stop(root);
    co_await hf::sleep_for(900ms);
    CHECK(text(journal).empty());
    co_await hf::sleep_for(1s);
    CHECK(text(journal) == "-c");
    const auto down = co_await world.node.join(root, hf::after(5s));
    CHECK(down.reason == ExitReason::stopped);
    CHECK(down.text.empty());
    CHECK(text(journal) == "-c -b -a");
  });
}

TEST_CASE("a tree ends from its youngest leaf to its root, across shards") {
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    hf::Supervision pool{.children = {worker(journal, named("p", permanent, 0)),
                                      worker(journal, named("q", permanent, 2))}};
    hf::Supervision plan;
    plan.children = {worker(journal, named("a", permanent, 1)),
                     supervisor(named("pool", permanent, 1), pool),
                     worker(journal, named("b", permanent, 2))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await end(&world, root);
    CHECK(text(journal) == "-b -q -p -a");
  });
}

TEST_CASE("a child that outlasts its deadline is destroyed and named, and others end in order") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision pool{
        .children = {worker(journal, ending_within("slow", 2s, 1), {.ends_in = 1h}),
                     worker(journal, named("q"))}};
    hf::Supervision plan;
    plan.children = {worker(journal, named("a")), supervisor(named("pool", permanent, 1), pool),
                     worker(journal, ending_within("stuck", 1s), {.ends_in = 1h}),
                     worker(journal, ending_within("patient", 3s), {.ends_in = 2s})};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    const hf::Time begun = hf::Clock::now();
    const auto down = co_await end(&world, root);
    CHECK(hf::Clock::now() - begun < 6s);
    CHECK(text(journal) == "-patient -q -a");
    CHECK(down.reason == ExitReason::stopped);
    CHECK(down.text == "destroyed, since they had not ended in time: 'stuck', 'slow'");
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 2);
    CHECK(seen.events[0].name == "stuck");
    CHECK(seen.events[0].decision == hf::Decision::destroy);
    CHECK(seen.events[0].text.find("stopping") != std::string::npos);  // where it was
    CHECK(seen.events[1].name == "slow");
  });
  CHECK(log.has("actor 'stuck' had not ended when its grace period was over, and was destroyed"));
}

TEST_CASE("a deadline of 0 destroys at once, without stopping(), and is nobody's fault") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan;
    plan.children = {worker(journal, named("a")), worker(journal, ending_within("b", 0s, 1)),
                     worker(journal, ending_within("c", 0s))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await tell(ref(world, "c"), "wait", 3'600'000);
    co_await settle();
    journal.lines.clear();
    const auto down = co_await end(&world, root);
    CHECK(down.text.empty());
    CHECK(text(journal) == "-a");
    CHECK(journal.numbers["lives of c"] == 0);
    CHECK(world.node.events().events.empty());
  });
}

TEST_CASE("without a limit a child ends when it has ended") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    hf::Supervision plan;
    plan.children = {worker(journal, ending_within("a", hf::Duration::max()), {.ends_in = 30min})};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    const hf::Time begun = hf::Clock::now();
    const auto down = co_await end(&world, root);
    CHECK(hf::Clock::now() - begun >= 30min);
    CHECK(down.text.empty());
    CHECK(journal.lines.back() == "-a");
  });
}

TEST_CASE("a deadline that is negative is refused") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    CHECK(co_await code_of(world.node.spawn<Worker>(ending_within("a", -1s), &journal,
                                                    std::string("a"), Habits())) ==
          Errc::invalid_argument);
  });
}

TEST_CASE("a sibling that does not end in time for a restart is destroyed, and comes back too") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, ending_within("a", 500ms, 1), {.ends_in = 1h}),
                     worker(journal, named("b"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await crash(&world, "b");
    CHECK(text(journal) == "+a +b !b +a +b");
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 2);
    CHECK(seen.events[1].decision == hf::Decision::destroy);
    CHECK(seen.events[1].name == "a");
  });
}

TEST_CASE("a supervisor that is told to stop during a restart ends them all, and starts nobody") {
  for (const auto after : {0ms, 300ms, 700ms, 1200ms, 1800ms, 2500ms}) {
    INFO(after.count());
    Log log;
    Journal journal;
    World world(3);
    world.run([&, after]() -> Task<void> {
      hf::RestartPolicy slow = permanent;
      slow.backoff_min = 500ms;
      hf::Supervision plan{.strategy = Strategy::one_for_all};
      plan.children = {worker(journal, named("a", slow, 1), {.starts_in = 500ms, .ends_in = 500ms}),
                       worker(journal, named("b", slow, 2), {.starts_in = 500ms, .ends_in = 500ms}),
                       worker(journal, named("c", slow))};
      const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      co_await tell(ref(world, "c"), "crash");
      co_await hf::sleep_for(after);
      const auto down = co_await end(&world, root);
      CHECK(down.reason == ExitReason::stopped);
      CHECK(world.node.names().empty());
      const auto lines = journal.lines.size();
      for (const char* name : {"a", "b", "c"})
        CHECK(journal.numbers["lives of " + std::string(name)] == 0);
      co_await hf::sleep_for(30s);
      CHECK(journal.lines.size() == lines);
    });
  }
}

TEST_CASE("a supervisor that is told to stop while it starts ends what its children have started") {
  for (const unsigned shard : {0, 1}) {
    Log log;
    Journal journal;
    World world(3);
    world.run([&, shard]() -> Task<void> {
      hf::Supervision pool{
          .children = {worker(journal, named("a"), {.ends_in = 2s}),
                       worker(journal, named("b", permanent, 2), {.starts_in = 10s})}};
      hf::Supervision plan{.children = {worker(journal, named("x")),
                                        supervisor(named("pool", permanent, shard), pool)}};
      hf::Scope scope;
      scope.spawn(start(&world, named("root"), plan));
      co_await settle();
      CHECK(text(journal) == "+x +a");
      co_await end(&world, world.node.find<hf::Supervisor>("root").value());
      CHECK(text(journal) == "+x +a -a -x");
      CHECK(world.node.names().empty());
      co_await scope.join();
    });
  }
}

TEST_CASE("a supervisor that is restarted while it starts begins when what it had has ended") {
  Log log;
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    hf::Supervision pool{.children = {worker(journal, named("a"), {.ends_in = 2s}),
                                      worker(journal, named("b"), {.starts_in = 1s})}};
    hf::Supervision lower{.children = {supervisor(named("pool", permanent, 2), pool)}};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("x")),
                     supervisor(named("lower", {.kind = hf::Restart::permanent}, 1), lower)};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await tell(ref(world, "x"), "crash");
    co_await hf::sleep_for(2500ms);  // b starts again
    journal.lines.clear();
    co_await tell(ref(world, "x"), "crash");
    co_await hf::sleep_for(10s);
    CHECK(text(journal) == "!x -a +x +a +b");
    for (const auto& event : world.node.events().events) CHECK(event.name == "x");
    CHECK((co_await end(&world, root)).reason == ExitReason::stopped);
  });
}

TEST_CASE("a node that closes while a tree starts waits for all of it") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision pool{.children = {worker(journal, named("a"), {.ends_in = 2s}),
                                      worker(journal, named("b"), {.starts_in = 10s})}};
    hf::Supervision plan{.children = {supervisor(named("pool", permanent, 1), pool)}};
    hf::Scope scope;
    scope.spawn(start(&world, named("root"), plan));
    co_await settle();
    CHECK((co_await world.node.close(30s)).empty());
    CHECK(text(journal) == "+a -a");
    CHECK(world.node.names().empty());
    co_await scope.join();
  });
}

TEST_CASE("a child whose spawner was destroyed when it had just started ends all the same") {
  // At the end of its start it stops its supervisor, which is destroyed before it knows, if that
  // comes in the right turn.
  struct Fatal final : demo::OtherCounter::Actor {
    Fatal(Journal* journal, int turns) : journal(journal), turns(turns) {}
    Task<void> started() override {
      co_await hf::sleep_for(1s);
      stop(node().find<hf::Supervisor>("root").value());
      for (int i = 0; i < turns; ++i) co_await hf::yield();
    }
    Task<void> stopping() override {
      journal->lines.push_back("-fatal");
      return {};
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
    Journal* journal;
    const int turns;
  };
  for (int turns = 0; turns < 6; ++turns) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      INFO("seed " << seed << ", turns " << turns);
      Log log;
      Journal journal;
      World world(2, {}, seed);
      world.run([&, turns]() -> Task<void> {
        hf::Supervision plan{
            .children = {hf::child<Fatal>(named("fatal", permanent, 1), &journal, turns)}};
        hf::Scope scope;
        scope.spawn(start(&world, ending_within("root", 0s), plan));
        co_await scope.join();
        co_await settle();
        CHECK(world.node.names().empty());
      });
    }
  }
}

TEST_CASE("a node that closes ends the trees that are left, and names who did not end in time") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan;
    plan.children = {worker(journal, named("a", permanent, 1)),
                     worker(journal, ending_within("stuck", 1h), {.ends_in = 2h})};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    const auto left = co_await world.node.close(2s);
    CHECK(left == std::vector<std::string>{"root"});
  });
}
