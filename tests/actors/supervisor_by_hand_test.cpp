// Children that are added, stopped, restarted and removed while their supervisor runs.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/supervisor.hpp>

#include "family.hpp"

using namespace actor_test;
using hf::Errc;
using hf::ExitReason;
using hf::Strategy;
using hf::SupervisorRef;
using hf::Task;
using State = hf::ChildState::State;

namespace {

/// A supervisor on shard 1 of children on shards 0 and 1, asked from shard 0.
Task<SupervisorRef> family(World* world, Journal* journal, Strategy strategy) {
  hf::Supervision plan{.strategy = strategy};
  plan.children = {worker(*journal, named("a", permanent, 0)),
                   worker(*journal, named("b", permanent, 1))};
  const auto root =
      co_await world->node.spawn<hf::Supervisor>({.name = "root", .shard = 1}, std::move(plan));
  journal->lines.clear();
  co_return root;
}

Task<bool> fails(Task<hf::ActorRef> asked) {
  try {
    co_await std::move(asked);
  } catch (const std::runtime_error&) {
    co_return true;
  }
  co_return false;
}

Task<void> restart(SupervisorRef root, std::string name) { co_await root.restart(name, soon()); }

}  // namespace

TEST_CASE("a child that is added is the youngest, and is supervised as the others are") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::rest_for_one);
    const auto c = co_await root.add(worker(journal, named("c")), soon());
    CHECK(c == ref(world, "c"));
    co_await crash(&world, "b");
    CHECK(text(journal) == "+c !b -c +b +c");
    journal.lines.clear();
    world.node.stop(root);
    co_await world.node.join(root);
    CHECK(text(journal) == "-c -b -a");
  });
}

TEST_CASE("adding throws what the child's start throws, and then there is no such child") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_all);
    std::string what;
    try {
      co_await root.add(worker(journal, named("c"), {.never_starts = true}));
    } catch (const std::runtime_error& error) {
      what = error.what();
    }
    CHECK(what == "c does not start");
    CHECK((co_await root.children()).size() == 2);
    co_await root.add(worker(journal, named("c")));  // its name is free
    CHECK(text(journal) == "?c +c");
  });
}

TEST_CASE("a name that a child has is refused to another one, and so is none at all") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_one);
    CHECK(co_await code_of(root.add(worker(journal, named("a")))) == Errc::already_exists);
    std::error_code code;
    try {
      co_await root.add(worker(journal, named("")));
    } catch (const hf::Error& error) {
      code = error.code();
    }
    CHECK(code == Errc::invalid_argument);
    CHECK(journal.lines.empty());
  });
}

TEST_CASE(
    "what was added is gone when its supervisor is restarted, which begins as it was planned") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy never{.kind = hf::Restart::permanent, .intensity = 0};
    hf::Supervision pool{.children = {worker(journal, named("planned"))}};
    hf::Supervision plan{.children = {supervisor(named("pool", permanent, 1), pool)}};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    const auto pool_ref = world.node.find<hf::Supervisor>("pool").value();
    co_await pool_ref.add(worker(journal, named("added", never)));
    journal.lines.clear();
    co_await crash(&world, "added");
    CHECK(text(journal) == "!added -planned +planned");
    const auto children = co_await pool_ref.children();
    REQUIRE(children.size() == 1);
    CHECK(children[0].name == "planned");
  });
}

TEST_CASE("a child that is stopped by hand stays down when its siblings are restarted") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_all);
    const auto down = co_await root.stop("a");
    CHECK(down.reason == ExitReason::stopped);
    CHECK(down.name == "a");
    co_await crash(&world, "b");
    CHECK(text(journal) == "-a !b +b");
    const auto children = co_await root.children();
    REQUIRE(children.size() == 2);
    CHECK(children[0].state == State::ended);
    CHECK(children[1].state == State::running);
    co_await root.stop("a");  // once more changes nothing
    CHECK(text(journal) == "-a !b +b");
  });
}

TEST_CASE("a child that had ended is started again by hand, in the place that it had") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::rest_for_one);
    co_await root.stop("a");
    const auto a = co_await root.restart("a");
    CHECK(a == ref(world, "a"));
    journal.lines.clear();
    co_await crash(&world, "a");
    CHECK(text(journal) == "!a -b +a +b");  // it is the older one still
  });
}

TEST_CASE("a restart by hand keeps the reference, uses up no restart, and touches nobody else") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy once{.kind = hf::Restart::permanent, .intensity = 1, .period = 1h};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", once, 1)), worker(journal, named("b"))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    const auto a = ref(world, "a");
    CHECK(co_await add(a, 5) == 5);
    journal.lines.clear();
    for (int i = 0; i < 3; ++i) CHECK(co_await root.restart("a") == a);
    CHECK(text(journal) == "-a +a -a +a -a +a");
    CHECK(co_await add(a, 1) == 1);
    co_await crash(&world, "a");  // the one that it has
    CHECK(co_await add(a, 1) == 1);
  });
}

TEST_CASE("a child is restarted by hand while it pauses: at once, or with its group") {
  for (const auto strategy : {Strategy::one_for_one, Strategy::one_for_all}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, strategy]() -> Task<void> {
      hf::RestartPolicy slow = permanent;
      slow.backoff_min = slow.backoff_max = 10s;
      hf::Supervision plan{.strategy = strategy};
      plan.children = {worker(journal, named("a", slow, 1))};
      const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      co_await crash(&world, "a");
      CHECK(text(journal) == "+a !a");
      const hf::Time begun = hf::Clock::now();
      co_await root.restart("a", soon());
      const auto took = hf::Clock::now() - begun;
      if (strategy == Strategy::one_for_one) {
        CHECK(took < 100ms);
      } else {
        CHECK(took > 8s);
      }
      CHECK(text(journal) == "+a !a +a");
      co_await hf::sleep_for(20s);
      CHECK(text(journal) == "+a !a +a");
    });
  }
}

TEST_CASE("a child is restarted by hand while another one that was is starting") {
  for (const auto strategy : {Strategy::one_for_one, Strategy::one_for_all}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, strategy]() -> Task<void> {
      hf::Supervision plan{.strategy = strategy};
      plan.children = {worker(journal, named("a", permanent, 1), {.starts_in = 10s}),
                       worker(journal, named("b"))};
      const auto root =
          co_await world.node.spawn<hf::Supervisor>(hf::SpawnOptions{.name = "root"}, plan);
      journal.lines.clear();
      hf::Scope scope;
      scope.spawn(restart(root, "a"));
      co_await settle();
      CHECK(co_await root.restart("b") == ref(world, "b"));
      CHECK(text(journal) == "-a -b +b");
      co_await scope.join();
      CHECK(text(journal) == "-a -b +b +a");
      CHECK(journal.numbers["starts of a"] == 2);
    });
  }
}

TEST_CASE(
    "a child that hangs in a restart of all is restarted by hand, and the others wait for it") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", permanent, 1), {.starts_in = 10s}),
                     worker(journal, named("b"))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await crash(&world, "b");
    CHECK(text(journal) == "!b -a");
    co_await root.restart("a", soon());
    CHECK(journal.numbers["starts of a"] == 3);
    co_await settle();
    CHECK(text(journal) == "!b -a +a +b");
  });
}

TEST_CASE(
    "a child that is told to stop while its siblings restart is down, until it is asked for") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", permanent, 1), {.ends_in = 1s}),
                     worker(journal, named("b"))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await tell(ref(world, "b"), "crash");
    co_await hf::sleep_for(500ms);
    world.node.stop(ref(world, "a"));
    co_await settle();
    CHECK((co_await root.children())[0].state == State::ended);
    journal.lines.clear();
    co_await root.restart("a");
    co_await settle();
    CHECK(text(journal) == "+a");
  });
}

TEST_CASE("a child that fails to start by hand stays down, also when its siblings restart") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", permanent, 1), {.bad_starts = 1}),
                     worker(journal, named("b"))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await root.stop("a");
    journal.lines.clear();
    std::string what;
    try {
      co_await root.restart("a");
    } catch (const std::runtime_error& error) {
      what = error.what();
    }
    CHECK(what == "a does not start");
    co_await crash(&world, "b");
    CHECK(text(journal) == "?a !b +b");
    co_await root.restart("a");
    CHECK(text(journal) == "?a !b +b +a");
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 4);
    CHECK(seen.events[3].to_string() == "actor 'a' is restarted by hand");
    CHECK(seen.events[3].actor == ref(world, "a").id());
    CHECK(seen.events[3].shard == 1);
  });
}

TEST_CASE("a child that is given up while it is restarted by hand begins no other life") {
  for (const unsigned shard : {0u, 1u}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      hf::Supervision plan;
      const hf::RestartPolicy usual{.kind = hf::Restart::permanent};
      plan.children = {worker(journal, named("a")),
                       worker(journal, named("b", usual, shard), {.bad_starts = 4})};
      const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      journal.lines.clear();
      CHECK(co_await code_of(root.restart("b", soon())) == Errc::actor_down);
      const auto down = co_await world.node.join(root, hf::after(60s));
      CHECK(down.text == "child 'b' was given up after 3 restarts in 5 s: b does not start");
      CHECK(text(journal) == "-b ?b ?b ?b ?b -a");
    });
    CHECK(journal.numbers["starts of b"] == 5);
  }
}

TEST_CASE("a child that hangs while it starts is stopped, and its name is free") {
  for (const unsigned shard : {0u, 1u}) {
    for (const bool deaf : {false, true}) {
      CAPTURE(shard, deaf);
      Log log;
      Journal journal;
      World world(2);
      world.run([&, shard, deaf]() -> Task<void> {
        const auto root = co_await family(&world, &journal, Strategy::one_for_one);
        hf::SpawnOptions options = named("slow", temporary, shard);
        options.shutdown = 300ms;
        const auto slow = worker(journal, options, {.starts_in = 1h, .deaf = deaf});
        CHECK(co_await code_of(root.add(slow, hf::within(500ms))) == Errc::deadline_exceeded);
        const auto down = co_await root.stop("slow", hf::within(1s));
        CHECK(down.reason == ExitReason::stopped);
        CHECK(down.text == (deaf ? "destroyed, since they had not ended in time: 'slow'" : ""));
        CHECK((co_await root.children()).size() == 2);
        co_await root.add(worker(journal, options));
      });
    }
  }
}

TEST_CASE("a child that hangs while it starts again is stopped and removed") {
  for (const auto strategy : {Strategy::one_for_one, Strategy::one_for_all}) {
    for (const bool by_hand : {false, true}) {
      for (const bool deaf : {false, true}) {
        CAPTURE(hf::name(strategy), by_hand, deaf);
        Log log;
        Journal journal;
        World world(2);
        world.run([&, strategy, by_hand, deaf]() -> Task<void> {
          const auto root = co_await family(&world, &journal, strategy);
          hf::SpawnOptions options = named("slow", permanent, 1);
          options.shutdown = 300ms;
          co_await root.add(worker(journal, options, {.restarts_in = 1h, .deaf = deaf}));
          if (by_hand) {
            CHECK(co_await code_of(root.restart("slow", hf::within(500ms))) ==
                  Errc::deadline_exceeded);
          } else {
            co_await crash(&world, "slow");
          }
          const auto down = co_await root.stop("slow", hf::within(1s));
          CHECK(down.reason == ExitReason::stopped);
          CHECK((co_await root.children())[2].state == State::ended);
          CHECK(co_await code_of(root.restart("slow", hf::within(500ms))) ==
                Errc::deadline_exceeded);
          co_await root.remove("slow", hf::within(1s));
          co_await root.add(worker(journal, options));
          CHECK(co_await add(ref(world, "a"), 1) == 1);
        });
      }
    }
  }
}

TEST_CASE("a child that fails to start by hand is an event, which says why it is down") {
  for (const unsigned shard : {0u, 1u}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      hf::Supervision plan;
      plan.children = {
          worker(journal, named("a", permanent, shard), {.bad_starts = 1}),
          worker(journal, named("b", transient, shard), {.ends_in = 1s, .bad_starts = 1})};
      const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      co_await root.stop("a");
      CHECK(co_await fails(root.restart("a")));
      CHECK((co_await root.children())[0].state == State::ended);
      auto seen = world.node.events(1);
      REQUIRE(seen.events.size() == 1);
      CHECK(seen.events[0].decision == hf::Decision::end);
      CHECK(seen.events[0].reason == ExitReason::crashed);
      CHECK(seen.events[0].shard == shard);
      CHECK(seen.events[0].to_string() ==
            "actor 'a' was to be restarted by hand, but does not start: a does not start; it stays "
            "down");
      // One that ends by itself before it is told to.
      co_await tell(ref(world, "b"), "finish");
      co_await hf::sleep_for(100ms);
      CHECK(co_await fails(root.restart("b")));
      seen = world.node.events(2);
      REQUIRE(!seen.events.empty());
      CHECK(seen.events.back().to_string() ==
            "actor 'b' was to be restarted by hand, but does not start: b does not start; it stays "
            "down");
    });
  }
}

TEST_CASE("a temporary child is not restarted by hand") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_one);
    co_await root.add(worker(journal, named("c", temporary)));
    CHECK(co_await code_of(root.restart("c")) == Errc::invalid_argument);
    CHECK(co_await add(ref(world, "c"), 1) == 1);
  });
}

TEST_CASE("a child that is removed is ended and forgotten, and its name is free") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_all);
    co_await root.remove("a");
    CHECK((co_await root.children()).size() == 1);
    CHECK(co_await code_of(root.restart("a")) == Errc::not_found);
    co_await root.add(worker(journal, named("a")));
    CHECK(text(journal) == "-a +a");
    co_await root.stop("a");
    co_await root.remove("a");  // one that had ended, too
    CHECK((co_await root.children()).size() == 1);
  });
}

TEST_CASE("who asks for a child that there is not learns which ones there are") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_one);
    std::string what;
    try {
      co_await root.stop("c");
    } catch (const hf::Error& error) {
      CHECK(error.is(Errc::not_found));
      what = error.what();
    }
    CHECK(what.find("it has 'a', 'b'") != std::string::npos);
  });
}

TEST_CASE("a child that takes longer to end than the asker waits is stopped all the same") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_one);
    hf::SpawnOptions options = named("slow");
    options.shutdown = 10s;
    co_await root.add(worker(journal, std::move(options), {.ends_in = 3s}));
    std::string what;
    try {
      co_await root.remove("slow", hf::within(1s));
    } catch (const hf::Error& error) {
      what = error.what();
    }
    CHECK(what.find("remove child 'slow' of a supervisor: it was not done when the deadline "
                    "passed") != std::string::npos);
    CHECK(co_await code_of(root.stop("slow", hf::within(1s))) == Errc::deadline_exceeded);
    co_await hf::sleep_for(3s);
    CHECK(journal.lines.back() == "-slow");
    CHECK((co_await root.children()).size() == 2);
    CHECK(world.node.events().events.size() == 1);  // asked for twice, decided once
  });
}

TEST_CASE("a child that had to be destroyed is removed, and who asked is told") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_one);
    hf::SpawnOptions options = named("stuck", permanent, 1);
    options.shutdown = 1s;
    co_await root.add(worker(journal, std::move(options), {.ends_in = 1h}));
    const auto down = co_await root.remove("stuck");
    CHECK(down.text == "destroyed, since they had not ended in time: 'stuck'");
  });
}

TEST_CASE("an actor that is no supervisor is not asked as one") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    co_await family(&world, &journal, Strategy::one_for_one);
    const SupervisorRef a(ref(world, "a"));
    CHECK(co_await code_of(a.children()) == Errc::invalid_argument);
    CHECK(co_await code_of(a.add(worker(journal, named("c")))) == Errc::invalid_argument);
    CHECK(journal.lines.empty());
  });
}

TEST_CASE("a specification that was moved from can be copied, and is refused") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    hf::ChildSpec spec = worker(journal, named("a"));
    const hf::ChildSpec moved = std::move(spec);
    const hf::ChildSpec copy = spec;  // NOLINT(bugprone-use-after-move)
    CHECK(co_await code_of(world.node.spawn<hf::Supervisor>(
              "root", hf::Supervision{.children = {copy}})) == Errc::invalid_argument);
  });
}

TEST_CASE("a supervisor that has ended, or ends meanwhile, says so to who asks") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const auto root = co_await family(&world, &journal, Strategy::one_for_one);
    hf::SpawnOptions options = named("slow");
    options.shutdown = 10s;
    co_await root.add(worker(journal, std::move(options), {.ends_in = 3s}));
    hf::Scope scope;
    auto asks = [](SupervisorRef root) -> Task<void> {
      CHECK(co_await code_of(root.restart("slow", soon())) == Errc::actor_down);
    };
    scope.spawn(asks(root));
    co_await settle();
    world.node.stop(root);
    co_await scope.join();
    co_await world.node.join(root);
    CHECK(co_await code_of(root.children()) == Errc::actor_down);
    CHECK(co_await code_of(SupervisorRef().children()) == Errc::invalid_argument);
  });
}
