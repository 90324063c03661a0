// What supervisors decided, as others see it.
#include <hyperframes/actors/supervision_event.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>

#include "family.hpp"

using namespace actor_test;
using hf::Decision;
using hf::ExitReason;
using hf::Strategy;
using hf::Task;

TEST_CASE("each decision is one event, which says who ended, why, and what is done") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy once{
        .kind = hf::Restart::permanent, .intensity = 1, .period = 10s, .backoff_min = 20ms};
    const auto a = co_await world.node.spawn<Worker>(named("a", once, 1), &journal,
                                                     std::string("a"), Habits());
    CHECK(world.node.events().events.empty());
    co_await crash(&world, "a");
    co_await crash(&world, "a");
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 2);
    const auto& first = seen.events[0];
    CHECK(first.number == 1);
    CHECK(first.decision == Decision::restart);
    CHECK(first.actor == a.id());
    CHECK(first.name == "a");
    CHECK(first.shard == 1);
    CHECK(first.supervisor == 0);
    CHECK(first.reason == ExitReason::crashed);
    CHECK(first.text == "a is broken");
    CHECK(first.restarts == 1);
    CHECK(first.intensity == 1);
    CHECK(first.period == 10s);
    CHECK(first.pause == 20ms);
    CHECK(first.to_string() == "actor 'a' crashed: a is broken; restart 1 of 1 in 20 ms");
    const auto& second = seen.events[1];
    CHECK(second.decision == Decision::give_up);
    CHECK(second.reason == ExitReason::exhausted);
    CHECK(second.to_string() ==
          "actor 'a' is given up after 1 restart in 10 s; last it crashed: a is broken");
    CHECK(second.at - first.at >= 1s);
  });
  for (const auto& event : world.node.events().events) CHECK(log.has(event.to_string() + "\n"));
}

TEST_CASE(
    "siblings that are restarted along are named in the event, which is one for all of them") {
  Log log;
  Journal journal;
  World world(3);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::rest_for_one};
    plan.children = {worker(journal, named("a", permanent, 1)),
                     worker(journal, named("b", permanent, 2)), worker(journal, named("c")),
                     worker(journal, named("d", temporary))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await crash(&world, "b");
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 1);
    CHECK(seen.events[0].supervisor == root.id());
    CHECK(seen.events[0].strategy == Strategy::rest_for_one);
    CHECK(seen.events[0].along == std::vector<std::string>{"c"});
    CHECK(seen.events[0].ended == std::vector<std::string>{"d"});
    CHECK(seen.events[0].to_string() ==
          "actor 'b' crashed: b is broken; restart 1 of 20 in 10 ms, with 'c'; ended for good: 'd' "
          "(rest_for_one)");
  });
}

TEST_CASE("siblings are named in an event as its own actor is, so that programs can join them") {
  struct Parent final : demo::OtherCounter::Actor {
    explicit Parent(Journal* journal) : journal(journal) { supervise(Strategy::one_for_all); }
    Task<void> started() override {
      co_await spawn<Worker>(named("a"), journal, std::string("a"), Habits());
      nameless = co_await spawn<Worker>(named(""), journal, std::string("b"), Habits());
      co_await spawn<Worker>(named("c"), journal, std::string("c"), Habits());
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      reply.send({.total = static_cast<long>(nameless.id())});
      return {};
    }
    Journal* journal;
    hf::ActorRef nameless;
  };
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    const auto parent = co_await world.node.spawn<Parent>("parent", &journal);
    const auto nameless = static_cast<std::uint64_t>(co_await add(parent, 0));
    co_await crash(&world, "a");
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 1);
    char id[17];
    std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(nameless));
    CHECK(seen.events[0].along == std::vector<std::string>{id, "c"});
    CHECK(seen.events[0].to_string() ==
          "actor 'a' crashed: a is broken; restart 1 of 20 in 10 ms, with " + std::string(id) +
              ", 'c' (one_for_all)");
    CHECK(seen.to_json().find("\"along\":[\"" + std::string(id) + "\",\"c\"]") !=
          std::string::npos);
  });
}

TEST_CASE(
    "an event with many siblings is one line that can be read, and names them all in its lists") {
  hf::SupervisionEvent event;
  event.decision = Decision::restart;
  event.name = "a";
  event.reason = ExitReason::normal;
  event.intensity = event.restarts = 1;
  for (int i = 0; i < 23; ++i) event.ended.push_back("t" + std::to_string(i));
  const std::string line = event.to_string();
  CHECK(line.starts_with("actor 'a' ended; restart 1 of 1 in 0 ms; ended for good: 't0', 't1', "));
  CHECK(line.ends_with("'t18', 't19' and 3 more (one_for_one)"));
}

TEST_CASE("a crash while the supervisor ends is an event and a line in the log, too") {
  for (const auto strategy : {Strategy::one_for_one, Strategy::one_for_all}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, strategy]() -> Task<void> {
      hf::SpawnOptions patient = named("c");
      patient.shutdown = 20s;
      hf::RestartPolicy slow = permanent;
      slow.backoff_min = slow.backoff_max = 1h;
      hf::Supervision plan{.strategy = strategy};
      plan.children = {worker(journal, named("a", slow, 1)),
                       worker(journal, std::move(patient), {.ends_in = 10s})};
      const auto root =
          co_await world.node.spawn<hf::Supervisor>(hf::SpawnOptions{.name = "root"}, plan);
      world.node.stop(root);
      co_await hf::sleep_for(1s);
      journal.lines.clear();
      co_await crash(&world, "a");
      co_await world.node.join(root, hf::after(60s));
      CHECK(text(journal) == "!a -c");
      const auto seen = world.node.events();
      REQUIRE(seen.events.size() == 1);
      CHECK(seen.events[0].name == "a");
      const bool told = strategy == Strategy::one_for_all;  // else its own cell decides
      CHECK(seen.events[0].decision == (told ? Decision::end : Decision::restart));
    });
    CHECK(log.has("actor 'a' crashed: a is broken"));
  }
}

TEST_CASE("what is done by hand is an event too, and what ends as it should is none") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.children = {worker(journal, named("a", permanent, 1)),
                                      worker(journal, named("b", temporary))}};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    co_await tell(ref(world, "b"), "finish");
    co_await root.restart("a");
    co_await root.remove("a");
    world.node.stop(root);
    co_await world.node.join(root);
    const auto seen = world.node.events();
    REQUIRE(seen.events.size() == 2);
    CHECK(seen.events[0].by_hand);
    CHECK(seen.events[0].to_string() == "actor 'a' is restarted by hand");
    CHECK(seen.events[1].to_string() == "actor 'a' is stopped by hand");
  });
}

TEST_CASE("a node keeps the latest events, and says how many are lost to who asks for older ones") {
  Log log;
  Journal journal;
  hf::Node::Options options;
  options.kept_events = 3;
  World world(1, options);
  world.run([&]() -> Task<void> {
    co_await world.node.spawn<Worker>(named("a"), &journal, std::string("a"), Habits());
    for (int i = 0; i < 5; ++i) co_await crash(&world, "a");
    auto seen = world.node.events();
    CHECK(seen.latest == 5);
    CHECK(seen.lost == 2);
    REQUIRE(seen.events.size() == 3);
    CHECK(seen.events.front().number == 3);
    CHECK(seen.events.back().number == 5);
    seen = world.node.events(4);
    CHECK(seen.lost == 0);
    REQUIRE(seen.events.size() == 1);
    CHECK(seen.events[0].number == 5);
    seen = world.node.events(5);
    CHECK(seen.events.empty());
    CHECK(seen.latest == 5);
  });
}

TEST_CASE("a node keeps one event at least") {
  Log log;
  Journal journal;
  hf::Node::Options options;
  options.kept_events = 0;
  World world(1, options);
  world.run([&]() -> Task<void> {
    co_await world.node.spawn<Worker>(named("a"), &journal, std::string("a"), Habits());
    for (int i = 0; i < 2; ++i) co_await crash(&world, "a");
    const auto seen = world.node.events();
    CHECK(seen.lost == 1);
    REQUIRE(seen.events.size() == 1);
    CHECK(seen.events[0].number == 2);
  });
}

TEST_CASE("a node's report has the latest events, as text and as JSON") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    co_await world.node.spawn<Worker>(named("a"), &journal, std::string("a"), Habits());
    for (int i = 0; i < 3; ++i) co_await crash(&world, "a");
    const auto report = co_await world.node.inspect({.events = 2});
    REQUIRE(report.events.size() == 2);
    CHECK(report.events[0].number == 2);
    CHECK(report.to_string().find("ago: actor 'a' crashed: a is broken; restart 3 of 20 in") !=
          std::string::npos);
    const std::string json = report.to_json();
    CHECK(json.find(R"("decision":"restart")") != std::string::npos);
    CHECK(json.find(R"("number":3)") != std::string::npos);
    CHECK(json.find(R"("number":1,)") == std::string::npos);
  });
}
