// The rules of supervision, one test each: who is restarted with whom, how often, in which order,
// and what that leaves alone.
#include <hyperframes/actors/supervisor.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "family.hpp"

using namespace actor_test;
using hf::Errc;
using hf::ExitReason;
using hf::Restart;
using hf::Strategy;
using hf::SupervisorRef;
using hf::Task;

namespace {

/// a, b and c, permanent, below a supervisor "root"; on one shard, or each on its own.
Task<SupervisorRef> three(World* world, Journal* journal, Strategy strategy, bool apart = false) {
  hf::Supervision plan{.strategy = strategy};
  unsigned shard = 0;
  for (const char* name : {"a", "b", "c"})
    plan.children.push_back(worker(*journal, named(name, permanent, apart ? shard++ : 0)));
  co_return co_await world->node.spawn<hf::Supervisor>({.name = "root"}, std::move(plan));
}

Task<void> crash(World* world, std::string name, hf::Duration pause) {
  co_await hf::sleep_for(pause);
  co_await tell(ref(*world, name), "crash");
}

/// What became of three children after one of them crashed.
std::string after_crash_of(const std::string& name, Strategy strategy, bool apart = false) {
  Log log;
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    co_await three(&world, &journal, strategy, apart);
    journal.lines.clear();
    co_await crash(&world, name);
    for (const char* each : {"a", "b", "c"}) CHECK(co_await add(ref(world, each), 1) == 1);
  });
  return text(journal);
}

}  // namespace

// ---- starting ---------------------------------------------------------------

TEST_CASE("children start in the order of their specifications, each when the last has started") {
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    hf::Supervision plan;
    plan.children = {worker(journal, named("a", permanent, 2), {.starts_in = 3s}),
                     worker(journal, named("b", permanent, 0), {.starts_in = 1s}),
                     worker(journal, named("c", permanent, 1))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    CHECK(text(journal) == "+a +b +c");
  });
}

TEST_CASE(
    "a child that fails to start ends those before it, and the supervisor's spawn throws it") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan;
    plan.children = {worker(journal, named("a")), worker(journal, named("b", permanent, 1)),
                     worker(journal, named("c"), {.never_starts = true}),
                     worker(journal, named("d"))};
    std::string what;
    try {
      co_await world.node.spawn<hf::Supervisor>({.name = "root", .restart = permanent}, plan);
    } catch (const std::runtime_error& error) {
      what = error.what();
    }
    CHECK(what == "c does not start");
    CHECK(text(journal) == "+a +b ?c -b -a");
    co_await settle();
    CHECK(world.node.names().empty());
  });
}

TEST_CASE("a supervisor whose child is given up while it starts is not restarted, and says why") {
  for (const auto kind : {Restart::temporary, Restart::permanent}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, kind]() -> Task<void> {
      const hf::RestartPolicy never{.kind = Restart::permanent, .intensity = 0};
      hf::Supervision plan;
      plan.children = {worker(journal, named("a", never, 1)),
                       worker(journal, named("b"), {.starts_in = 10s})};
      hf::Scope scope;
      scope.spawn(crash(&world, "a", 1s));
      std::string what;
      try {
        co_await world.node.spawn<hf::Supervisor>(named("root", {.kind = kind}), plan);
      } catch (const hf::Error& error) {
        CHECK(error.is(Errc::actor_down));
        what = error.what();
      }
      INFO(what);
      CHECK(what.find("'root'") != std::string::npos);
      CHECK(what.find("child 'a' was given up after 0 restarts in 5 s: a is broken") !=
            std::string::npos);
      co_await scope.join();
      co_await settle();
      CHECK(text(journal) == "+a !a");
      CHECK(world.node.names().empty());
    });
  }
}

TEST_CASE("a supervisor refuses children without a name, and two of one name") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    hf::Supervision nameless{.children = {worker(journal, named(""))}};
    CHECK(co_await code_of(world.node.spawn<hf::Supervisor>("root", nameless)) ==
          Errc::invalid_argument);
    hf::Supervision twice{.children = {worker(journal, named("a")), worker(journal, named("a"))}};
    CHECK(co_await code_of(world.node.spawn<hf::Supervisor>("root", twice)) ==
          Errc::invalid_argument);
    CHECK(journal.lines.empty());
  });
}

// ---- strategies -------------------------------------------------------------

TEST_CASE("one-for-one restarts the child that crashed, and leaves its siblings alone") {
  CHECK(after_crash_of("b", Strategy::one_for_one) == "!b +b");
}

TEST_CASE("one-for-all ends the others, the youngest first, and starts all, the oldest first") {
  CHECK(after_crash_of("a", Strategy::one_for_all) == "!a -c -b +a +b +c");
  CHECK(after_crash_of("b", Strategy::one_for_all) == "!b -c -a +a +b +c");
}

TEST_CASE("rest-for-one restarts the child that crashed, and those that started after it") {
  CHECK(after_crash_of("a", Strategy::rest_for_one) == "!a -c -b +a +b +c");
  CHECK(after_crash_of("b", Strategy::rest_for_one) == "!b -c +b +c");
  CHECK(after_crash_of("c", Strategy::rest_for_one) == "!c +c");
}

TEST_CASE("children on other shards are ended and started in the same order") {
  CHECK(after_crash_of("b", Strategy::one_for_one, true) == "!b +b");
  CHECK(after_crash_of("b", Strategy::one_for_all, true) == "!b -c -a +a +b +c");
  CHECK(after_crash_of("b", Strategy::rest_for_one, true) == "!b -c +b +c");
}

TEST_CASE("each sibling ends before the next one is told, and starts before the next one begins") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a"), {.ends_in = 1ms}),
                     worker(journal, named("b", permanent, 1), {.starts_in = 2s, .ends_in = 1ms}),
                     worker(journal, named("c"), {.ends_in = 3s})};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await crash(&world, "b");
    CHECK(text(journal) == "!b");  // c takes its time
    co_await hf::sleep_for(3s);
    CHECK(text(journal) == "!b -c -a +a");
    co_await hf::sleep_for(2s);
    CHECK(text(journal) == "!b -c -a +a +b +c");
  });
}

TEST_CASE("references to children that were restarted with another one go on working") {
  Log log;
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    co_await three(&world, &journal, Strategy::one_for_all, true);
    const auto a = ref(world, "a"), c = ref(world, "c");
    CHECK(co_await add(a, 5) == 5);
    co_await crash(&world, "b");
    CHECK(co_await add(a, 1) == 1);  // it began anew
    CHECK(ref(world, "a") == a);
    CHECK(ref(world, "c") == c);
  });
}

TEST_CASE("a child that crashes while its siblings are restarted has all of them restarted") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a")),
                     worker(journal, named("b", permanent, 1), {.bad_starts = 1}),
                     worker(journal, named("c"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await crash(&world, "c");
    CHECK(text(journal) == "!c -b -a +a ?b -a +a +b +c");
  });
}

TEST_CASE("a child that had just begun when a sibling crashed begins again with the others") {
  // In its second life it crashes its elder at the end of its start: supervisors learn of both at
  // the same time.
  struct Second final : demo::OtherCounter::Actor {
    Second(World* world, Journal* journal) : world(world), journal(journal) {}
    Task<void> started() override {
      co_await hf::sleep_for(1ms);
      journal->lines.push_back("+b");
      if (++journal->numbers["starts of b"] == 2)
        CHECK(ref(*world, "a").try_add({.name = "crash"}));
    }
    Task<void> stopping() override {
      journal->lines.push_back("-b");
      return {};
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
    World* world;
    Journal* journal;
  };
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a")), hf::child<Second>(named("b"), &world, &journal),
                     worker(journal, named("c"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await crash(&world, "c");
    CHECK(text(journal) == "!c -b -a +a +b !a -b +a +b +c");
  });
}

TEST_CASE("a transient child that ends when it has just begun is not begun twice in one restart") {
  struct Brief final : demo::OtherCounter::Actor {
    explicit Brief(Journal* journal) : journal(journal) {}
    Task<void> started() override {
      journal->lines.push_back("+brief");
      if (++journal->numbers["starts of brief"] > 1) stop();
      return {};
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
    Journal* journal;
  };
  for (const unsigned shard : {0, 1}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      hf::Supervision plan{.strategy = Strategy::one_for_all};
      plan.children = {worker(journal, named("a")),
                       hf::child<Brief>(named("brief", transient, shard), &journal)};
      co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      journal.lines.clear();
      co_await crash(&world, "a");
      CHECK(text(journal) == "!a +a +brief");
    });
  }
}

TEST_CASE("an older child that crashes during a restart of the rest takes part from there on") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::rest_for_one};
    plan.children = {worker(journal, named("a")), worker(journal, named("b", permanent, 1)),
                     worker(journal, named("c"), {.starts_in = 3s})};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await crash(&world, "c");
    CHECK(text(journal) == "!c");  // it is starting
    co_await crash(&world, "a");
    co_await hf::sleep_for(5s);
    CHECK(text(journal) == "!c !a -b +a +b +c");
  });
}

TEST_CASE("any actor may supervise what it spawns by a strategy, which it chooses beforehand") {
  struct Parent final : demo::OtherCounter::Actor {
    explicit Parent(Journal* journal) : journal(journal) { supervise(Strategy::one_for_all); }
    Task<void> started() override {
      for (const char* name : {"a", "b"})
        co_await spawn<Worker>(named(name), journal, std::string(name), Habits());
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      Errc code{};
      try {
        supervise(Strategy::one_for_one);
      } catch (const hf::Error& error) {
        code = error.is(Errc::invalid_argument) ? Errc::invalid_argument : Errc::corrupt;
      }
      reply.send({.total = code == Errc::invalid_argument});
      return {};
    }
    Journal* journal;
  };
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    const auto parent = co_await world.node.spawn<Parent>("parent", &journal);
    co_await crash(&world, "b");
    CHECK(text(journal) == "+a +b !b -a +a +b");
    CHECK(co_await add(parent, 0) == 1);
  });
}

TEST_CASE("a supervisor whose own handler is suspended goes on supervising") {
  struct Parent final : demo::OtherCounter::Actor {
    explicit Parent(Journal* journal) : journal(journal) { supervise(Strategy::rest_for_one); }
    Task<void> started() override {
      for (const char* name : {"a", "b"})
        co_await spawn<Worker>(named(name), journal, std::string(name), Habits());
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      co_await hf::sleep_for(1h);
      reply.send({});
    }
    Journal* journal;
  };
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    const auto parent = co_await world.node.spawn<Parent>("parent", &journal);
    co_await parent.tell_add({});
    co_await crash(&world, "a");
    CHECK(text(journal) == "+a +b !a -b +a +b");
  });
}

// ---- permanent, transient, temporary ----------------------------------------

TEST_CASE("a permanent child comes back after a normal end too, and its siblings with it") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    co_await three(&world, &journal, Strategy::one_for_all);
    journal.lines.clear();
    co_await tell(ref(world, "b"), "finish");
    co_await settle();
    CHECK(text(journal) == "-b -c -a +a +b +c");
  });
}

TEST_CASE("a transient child comes back after a crash, while its normal end touches nobody") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a")), worker(journal, named("b", transient))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await crash(&world, "b");
    CHECK(text(journal) == "+a +b !b -a +a +b");
    journal.lines.clear();
    co_await tell(ref(world, "b"), "finish");
    co_await settle();
    CHECK(text(journal) == "-b");
    const auto children = co_await root.children();
    REQUIRE(children.size() == 2);
    CHECK(children[1].state == hf::ChildState::State::ended);
    CHECK(!children[1].actor);
  });
}

TEST_CASE("a transient child that had ended begins again when its siblings do") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a")), worker(journal, named("b", transient, 1)),
                     worker(journal, named("c"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    const auto before = ref(world, "b");
    co_await tell(before, "finish");
    co_await settle();
    journal.lines.clear();
    co_await crash(&world, "c");
    CHECK(text(journal) == "!c -a +a +b +c");
    CHECK(ref(world, "b") != before);  // that one has ended, and its monitors were told
    CHECK(co_await code_of(add(before, 1)) == Errc::actor_down);
  });
}

TEST_CASE("a child that had ended and fails to start again with its siblings is tried again") {
  for (const unsigned shard : {0, 1}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      hf::Supervision plan{.strategy = Strategy::one_for_all};
      plan.children = {worker(journal, named("a", transient, shard), {.bad_starts = 1}),
                       worker(journal, named("b"))};
      co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      co_await tell(ref(world, "a"), "finish");
      co_await settle();
      journal.lines.clear();
      co_await crash(&world, "b");
      CHECK(text(journal) == "!b ?a +a +b");
      const auto seen = world.node.events();
      REQUIRE(seen.events.size() == 3);  // its end, and the crash of b, before that
      CHECK(seen.events[2].to_string() ==
            "actor 'a' crashed: a does not start; restart 1 of 20 in 10 ms, with 'b' "
            "(one_for_all)");
      CHECK(seen.events[2].shard == shard);
    });
  }
}

TEST_CASE("a child that had ended and never starts again is given up, and named") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy twice{.kind = Restart::transient, .intensity = 2, .period = 1h};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", twice, 1), {.bad_starts = 10}),
                     worker(journal, named("b"))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await tell(ref(world, "a"), "finish");
    co_await settle();
    journal.lines.clear();
    co_await tell(ref(world, "b"), "crash");
    const auto down = co_await world.node.join(root);
    CHECK(down.reason == ExitReason::crashed);
    CHECK(down.text == "child 'a' was given up after 2 restarts in 3600 s: a does not start");
    CHECK(text(journal) == "!b ?a ?a ?a");
    CHECK(world.node.names().empty());
    const auto seen = world.node.events();
    // The end of a, the crash of b, two starts of a, its last one, and the root.
    REQUIRE(seen.events.size() == 6);
    CHECK(seen.events[4].decision == hf::Decision::give_up);
    CHECK(seen.events[4].name == "a");
    CHECK(seen.events[5].causes[1].name == "a");
  });
}

TEST_CASE("a temporary child is never restarted, and its supervisor forgets it") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a")), worker(journal, named("b", temporary))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await crash(&world, "b");
    CHECK(text(journal) == "!b");
    const auto children = co_await root.children();
    REQUIRE(children.size() == 1);
    CHECK(children[0].name == "a");
  });
}

TEST_CASE("a temporary child that is ended for its siblings' sake does not come back") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a")), worker(journal, named("b", temporary))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    const auto b = ref(world, "b");
    journal.lines.clear();
    co_await crash(&world, "a");
    CHECK(text(journal) == "!a -b +a");
    CHECK(world.node.events().events.at(0).ended == std::vector<std::string>{"b"});
    CHECK(co_await code_of(add(b, 1)) == Errc::actor_down);
    CHECK((co_await root.children()).size() == 1);
  });
}

// ---- intensity and back-off -------------------------------------------------

TEST_CASE("siblings that are restarted along use up nothing of their own restarts") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy once{.kind = Restart::permanent, .intensity = 1, .period = 1h};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", once)), worker(journal, named("b", permanent))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    for (int i = 0; i < 5; ++i) co_await crash(&world, "b");
    co_await crash(&world, "a");  // its first one
    CHECK(co_await add(ref(world, "a"), 1) == 1);
  });
}

TEST_CASE(
    "a child that crashes too often is given up; its siblings end, and its supervisor fails") {
  for (const auto strategy :
       {Strategy::one_for_one, Strategy::one_for_all, Strategy::rest_for_one}) {
    Log log;
    Journal journal;
    World world(3);
    world.run([&, strategy]() -> Task<void> {
      const hf::RestartPolicy once{.kind = Restart::permanent, .intensity = 1, .period = 1h};
      hf::Supervision plan{.strategy = strategy};
      plan.children = {worker(journal, named("a", permanent, 1)),
                       worker(journal, named("b", once, 2)), worker(journal, named("c"))};
      const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      co_await crash(&world, "b");
      journal.lines.clear();
      co_await tell(ref(world, "b"), "crash");
      const auto down = co_await world.node.join(root);
      CHECK(down.reason == ExitReason::crashed);
      CHECK(down.text == "child 'b' was given up after 1 restart in 3600 s: b is broken");
      CHECK(text(journal) == "!b -c -a");
      CHECK(world.node.names().empty());
    });
  }
}

TEST_CASE("restarts that are older than the period count no more, also of those with siblings") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy one_a_second{.kind = Restart::permanent, .intensity = 1, .period = 1s};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", one_a_second)), worker(journal, named("b"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    for (int i = 0; i < 5; ++i) {
      co_await crash(&world, "a");
      co_await hf::sleep_for(100ms);
    }
    CHECK(journal.numbers["starts of a"] == 6);
  });
}

TEST_CASE("a child that fails to start again uses up its restarts, and then fails its supervisor") {
  for (const auto strategy : {Strategy::one_for_one, Strategy::one_for_all}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, strategy]() -> Task<void> {
      const hf::RestartPolicy thrice{.kind = Restart::permanent, .intensity = 3, .period = 1h};
      hf::Supervision plan{.strategy = strategy};
      plan.children = {worker(journal, named("a", thrice, 1), {.bad_starts = 10})};
      const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      co_await tell(ref(world, "a"), "crash");
      const auto down = co_await world.node.join(root);
      CHECK(down.text == "child 'a' was given up after 3 restarts in 3600 s: a does not start");
      CHECK(text(journal) == "+a !a ?a ?a ?a");
    });
  }
}

TEST_CASE("when a child is given up, none of those that waited for it begins again") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy never{.kind = hf::Restart::permanent, .intensity = 0};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", never), {.bad_starts = 1}),
                     worker(journal, named("b"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    journal.lines.clear();
    co_await crash(&world, "b");
    CHECK(text(journal) == "!b -a ?a");
    CHECK(world.node.names().empty());
  });
}

TEST_CASE("those who are restarted together pause as long as the one that crashed has to") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy slow{.kind = Restart::permanent,
                                 .intensity = 10,
                                 .period = 1h,
                                 .backoff_min = 2s,
                                 .backoff_max = 6s};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", permanent, 1)), worker(journal, named("b", slow))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    for (const auto pause : {2s, 4s, 6s, 6s}) {
      co_await tell(ref(world, "b"), "crash");
      co_await hf::sleep_for(pause - 100ms);
      CHECK(journal.lines.back() == "-a");
      co_await hf::sleep_for(200ms);
      CHECK(journal.lines.back() == "+b");
    }
  });
}

// ---- trees ------------------------------------------------------------------

TEST_CASE("a supervisor that fails is restarted by its own one, and its children with it") {
  Log log;
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy never{.kind = Restart::permanent, .intensity = 0};
    hf::Supervision pool{.strategy = Strategy::one_for_one};
    pool.children = {worker(journal, named("a", permanent, 2)), worker(journal, named("b", never))};
    hf::Supervision plan{.strategy = Strategy::rest_for_one};
    plan.children = {worker(journal, named("x")), supervisor(named("pool", permanent, 1), pool),
                     worker(journal, named("y"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    CHECK(text(journal) == "+x +a +b +y");
    const auto pool_before = world.node.find<hf::Supervisor>("pool").value();
    const auto a_before = ref(world, "a");
    journal.lines.clear();
    co_await crash(&world, "b");
    CHECK(text(journal) == "!b -a -y +a +b +y");
    CHECK(world.node.find<hf::Supervisor>("pool").value() == pool_before);
    CHECK(ref(world, "a") != a_before);  // its supervisor's new life has a new one
  });
}

TEST_CASE("a failure goes up until a supervisor may be restarted, and no further") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy never{.kind = Restart::permanent, .intensity = 0};
    hf::Supervision lower{.children = {worker(journal, named("leaf", never))}};
    hf::Supervision middle{.children = {supervisor(named("lower", never), lower)}};
    hf::Supervision upper{.children = {supervisor(named("middle", permanent), middle),
                                       worker(journal, named("other"))}};
    co_await world.node.spawn<hf::Supervisor>("upper", std::move(upper));
    journal.lines.clear();
    co_await crash(&world, "leaf");
    CHECK(text(journal) == "!leaf +leaf");
  });
}

TEST_CASE("the end of a root is told with the whole chain of causes") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy never{.kind = Restart::permanent, .intensity = 0, .period = 5s};
    hf::Supervision lower{.children = {worker(journal, named("leaf", never, 1))}};
    hf::Supervision middle{.children = {supervisor(named("lower", never), lower)}};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(middle));
    co_await tell(ref(world, "leaf"), "crash");
    const auto down = co_await world.node.join(root);
    CHECK(down.text ==
          "child 'lower' was given up after 0 restarts in 5 s: "
          "child 'leaf' was given up after 0 restarts in 5 s: leaf is broken");
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 3);
    const auto& last = seen.events.back();
    CHECK(last.name == "root");
    CHECK(last.decision == hf::Decision::end);
    REQUIRE(last.causes.size() == 3);
    CHECK(last.causes[0].reason == ExitReason::crashed);
    CHECK(last.causes[1].name == "lower");
    CHECK(last.causes[1].reason == ExitReason::exhausted);
    CHECK(last.causes[2].name == "leaf");
    CHECK(last.causes[2].text == "leaf is broken");
  });
  CHECK(log.has("actor 'root' crashed: child 'lower' was given up"));
}

// ---- links, monitors, mailboxes ---------------------------------------------

TEST_CASE("restarts with a sibling tell no monitor, and break no link with an actor outside") {
  struct Outside final : demo::OtherCounter::Actor {
    Outside(Journal* journal, demo::OtherCounterRef one, demo::OtherCounterRef other)
        : journal(journal) {
      monitor(one);
      link(other);
    }
    Task<void> on_down(hf::Down down) override {
      journal->lines.push_back("down " + down.name);
      return {};
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      reply.send({.total = 7});
      return {};
    }
    Journal* journal;
  };
  Log log;
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy twice{.kind = Restart::permanent, .intensity = 2, .period = 1h};
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a", permanent, 1)), worker(journal, named("b", twice))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    const auto outside = co_await world.node.spawn<Outside>(
        {.name = "outside", .shard = 2}, &journal, ref(world, "a"), ref(world, "b"));
    journal.lines.clear();
    for (int i = 0; i < 2; ++i) co_await crash(&world, "b");
    CHECK(text(journal) == "!b -a +a +b !b -a +a +b");
    CHECK(co_await add(outside, 0) == 7);
    co_await tell(ref(world, "b"), "crash");  // one too many: this is its end
    const auto down = co_await world.node.join(outside);
    CHECK((down.reason == ExitReason::crashed || down.reason == ExitReason::not_found));
  });
}

TEST_CASE("what waits for a sibling is kept for its next life, or goes to the dead letters") {
  for (const bool keep : {true, false}) {
    Log log;
    Journal journal;
    DeadLetters dead;
    World world(2, dead.options());
    world.run([&, keep]() -> Task<void> {
      hf::SpawnOptions options = named("a", permanent, 1);
      options.keep_mailbox = keep;
      hf::Supervision plan{.strategy = Strategy::one_for_all};
      plan.children = {worker(journal, std::move(options)), worker(journal, named("b"))};
      co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
      const auto a = ref(world, "a");
      co_await tell(a, "wait", 10'000);
      for (long i = 1; i <= 3; ++i) co_await tell(a, "add", i);
      co_await settle();
      co_await crash(&world, "b");  // the handler of a is cancelled
      CHECK(co_await add(a, 0) == (keep ? 6 : 0));
    });
    REQUIRE(dead.letters.size() == (keep ? 0 : 3));
    if (keep) continue;
    CHECK(dead.letters[0].actor == "a");
    CHECK(dead.letters[0].cause == Errc::actor_down);
    CHECK(dead.letters[0].why ==
          "actor 'a' was told to stop; its mailbox is not kept over a restart");
  }
}

TEST_CASE("dead letters say in words what became of their addressee") {
  Log log;
  Journal journal;
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    const auto a = co_await world.node.spawn<Worker>(named("a", temporary), &journal,
                                                     std::string("a"), Habits());
    CHECK(a.try_add({.name = "crash"}));
    CHECK(a.try_add({.name = "add", .delta = 1}));
    co_await settle();
    CHECK(!a.try_add({.name = "add", .delta = 2}));
  });
  REQUIRE(dead.letters.size() == 2);
  CHECK(dead.letters[0].why == "actor 'a' crashed: a is broken");
  CHECK(dead.letters[1].why == "the actor has ended");
}

// ---- whatever happens -------------------------------------------------------

TEST_CASE("whoever crashes, in the end all run again with those who had to, never twice at once") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    Log log;
    Journal journal;
    World world(3, {}, seed);
    std::mt19937_64 random(seed);
    const auto strategy = static_cast<Strategy>(random() % 3);
    std::vector<std::string> names;
    world.run([&]() -> Task<void> {
      hf::RestartPolicy patient{.kind = Restart::permanent, .intensity = 1000, .period = 1h};
      patient.backoff_max = 100ms;
      const auto team = [&](const std::string& prefix) {
        hf::Supervision plan{.strategy = static_cast<Strategy>(random() % 3)};
        for (int i = 0; i < 3; ++i) {
          names.push_back(prefix + std::to_string(i));
          plan.children.push_back(worker(journal, named(names.back(), patient, random() % 3),
                                         {.starts_in = std::chrono::milliseconds(random() % 30),
                                          .ends_in = std::chrono::milliseconds(random() % 30)}));
        }
        return plan;
      };
      hf::Supervision plan = team("top");
      plan.strategy = strategy;
      for (unsigned i = 0; i < 2; ++i)
        plan.children.push_back(supervisor(named("team" + std::to_string(i), patient, i + 1),
                                           team("low" + std::to_string(i) + "-")));
      const auto root =
          co_await world.node.spawn<hf::Supervisor>(hf::SpawnOptions{.name = "root"}, plan);
      for (int i = 0; i < 40; ++i) {
        const auto victim = ref(world, names[random() % names.size()]);
        if (victim) static_cast<void>(victim.try_add({.name = "crash"}));
        co_await hf::sleep_for(std::chrono::milliseconds(random() % 100));
      }
      co_await hf::sleep_for(30s);
      for (const std::string& name : names) {
        INFO(name);
        const auto found = ref(world, name);
        REQUIRE(found);
        CHECK(co_await add(found, 1) == 1);
        CHECK(journal.numbers["lives of " + name] == 1);
      }
      for (const hf::SupervisionEvent& event : world.node.events().events) {
        INFO(event.to_string());
        CHECK(event.text.find("the name is taken") == std::string::npos);
        for (const std::string& name : names)
          if (std::ranges::find(event.along, name) != event.along.end())
            CHECK(journal.numbers["start of " + name] >= micros(event.at));
      }
      world.node.stop(root);
      const auto down = co_await world.node.join(root, hf::after(60s));
      CHECK((down.reason == ExitReason::stopped && down.text.empty()));
      CHECK(world.node.names().empty());
    });
    for (const std::string& line : journal.lines) CHECK(!line.starts_with("two lives"));
  }
}
