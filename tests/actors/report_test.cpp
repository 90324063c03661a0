// What a node says of its actors: on simulated shards, and on real ones that get stuck.
#include <hyperframes/actors/report.hpp>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <thread>
#include <vector>

#include "../runtime/captured_log.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::ActorReport;
using hf::NodeReport;
using hf::Task;

namespace {

const ActorReport* find(const NodeReport& report, std::string_view name) {
  const auto found = std::ranges::find(report.actors, name, &ActorReport::name);
  return found == report.actors.end() ? nullptr : &*found;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Has a child, and a task of its own beside its letters.
class Parent final : public demo::OtherCounter::Actor {
 public:
  Task<void> started() override {
    start(idle_beside());
    co_await spawn<Counter>({.name = "child"}, nullptr);
  }
  Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
    reply.send({.total = 0});
    co_return;
  }

 private:
  Task<void> idle_beside() { co_await never_.wait(); }
  hf::Event never_;
};

/// Computes until it is let go.
class Stubborn final : public demo::OtherCounter::Actor {
 public:
  explicit Stubborn(const std::atomic<bool>* released) : released_(released) {}
  Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
    while (!*released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    co_return;
  }

 private:
  const std::atomic<bool>* released_;
};

/// Tells somebody else something, and then computes.
class Teller final : public demo::OtherCounter::Actor {
 public:
  Teller(demo::CounterRef other, const std::atomic<bool>* released)
      : other_(std::move(other)), released_(released) {}
  Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
    co_await other_.note({.delta = 1});  // handled before this goes on
    while (!*released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  demo::CounterRef other_;
  const std::atomic<bool>* released_;
};

/// Starts tasks in a scope, and waits for something else.
class Scoped final : public demo::OtherCounter::Actor {
 public:
  Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
    hf::Scope scope;
    scope.spawn(beside());
    co_await never_.wait();
  }

 private:
  Task<void> beside() { co_await never_.wait(); }
  hf::Event never_;
};

/// Has another one below it, and so on.
class Link final : public demo::OtherCounter::Actor {
 public:
  explicit Link(int below) : below_(below) {}
  Task<void> started() override {
    if (below_ > 0)
      co_await spawn<Link>({.name = "link-" + std::to_string(below_ - 1)}, below_ - 1);
  }
  Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { co_return; }

 private:
  int below_;
};

/// Waits for many things at a time, in many coroutines.
class Wide final : public demo::OtherCounter::Actor {
 public:
  Task<void> started() override {
    for (int i = 0; i < 8; ++i) start(beside(2));
    return {};
  }
  Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { co_return; }

 private:
  Task<void> wait() { co_await never_.wait(); }
  Task<void> beside(int levels) {
    std::vector<Task<void>> all;
    for (int i = 0; i < 8; ++i) all.push_back(levels == 0 ? wait() : beside(levels - 1));
    co_await hf::when_all(std::move(all));
  }
  hf::Event never_;
};

Task<void> add_slowly_in(hf::Scope& scope, demo::CounterRef ref, int count) {
  for (int i = 0; i < count; ++i)
    scope.spawn([](demo::CounterRef ref) -> Task<void> {
      co_await ref.add_slowly({.delta = 50'000}, hf::within(60s));
    }(ref));
  co_await hf::sleep_for(1s);
}

}  // namespace

TEST_CASE(
    "a suspended actor is reported with its mailbox, and the line that its handler waits on") {
  World world;
  world.run([&]() -> Task<void> {
    const auto ref =
        co_await world.node.spawn<Counter>({.name = "slow", .mailbox = {.messages = 64}}, nullptr);
    hf::Scope scope;
    co_await add_slowly_in(scope, ref, 4);
    const NodeReport report = co_await world.node.inspect();
    const ActorReport* slow = find(report, "slow");
    REQUIRE(slow);
    CHECK(slow->service == "demo.Counter");
    CHECK(slow->id == ref.id());
    CHECK(slow->state == std::string_view("open"));
    CHECK(slow->busy);
    CHECK(slow->mailbox_messages == 3);
    CHECK(slow->mailbox_limit == 64);
    CHECK(slow->handled == 1);
    CHECK(slow->restarts == 0);
    CHECK(slow->parent == 0);
    REQUIRE(slow->turns.size() == 1);
    CHECK(slow->turns[0].kind == std::string_view("letter"));
    CHECK(slow->turns[0].method == "demo.Counter.AddSlowly");
    CHECK(slow->turns[0].exclusive);
    CHECK(slow->turns[0].suspended_for >= 900ms);
    REQUIRE(slow->turns[0].chain.places.size() == 1);
    CHECK(slow->turns[0].chain.places[0].file == "support.hpp");
    CHECK(contains(slow->turns[0].chain.places[0].function, "add_slowly"));
    CHECK(contains(slow->to_string(), "letter demo.Counter.AddSlowly, begun 1.0 s ago: "));
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const hf::Error&) {
    }
  });
}

TEST_CASE("a child is reported with its parent, and a parent with the task beside its letters") {
  World world(2);
  world.run([&]() -> Task<void> {
    co_await world.node.spawn<Parent>({.name = "parent", .shard = 1});
    const NodeReport report = co_await world.node.inspect();
    const ActorReport* parent = find(report, "parent");
    const ActorReport* child = find(report, "child");
    REQUIRE(parent);
    REQUIRE(child);
    CHECK(parent->shard == 1);
    CHECK(child->parent == parent->id);
    REQUIRE(parent->turns.size() == 1);
    CHECK(parent->turns[0].kind == std::string_view("background"));
    CHECK(!parent->turns[0].exclusive);
    CHECK(!parent->busy);
    CHECK(contains(parent->turns[0].chain.to_string(), "idle_beside"));
    CHECK(child->turns.empty());
    // In the tree the child stands below its parent, further in.
    const std::string text = report.to_string();
    CHECK(contains(text, "\nparent (demo.OtherCounter): open"));
    CHECK(contains(text, "\n  child (demo.Counter): open"));
    CHECK(text.find("parent (") < text.find("child ("));
  });
}

TEST_CASE("a restarted actor tells how often, and what the last crash said") {
  World world;
  const Log log;
  world.run([&]() -> Task<void> {
    const auto ref = co_await world.node.spawn<Counter>(
        {.name = "fragile",
         .restart = {.kind = hf::Restart::permanent, .intensity = 5, .backoff_min = 1ms}},
        nullptr);
    for (const char* cause : {"first", "second"}) {
      CHECK(co_await code_of<demo::Nothing>(ref.crash({.name = cause})) ==
            hf::make_error_code(hf::Errc::actor_down));
      co_await hf::sleep_for(100ms);
    }
    const NodeReport report = co_await world.node.inspect();
    const ActorReport* fragile = find(report, "fragile");
    REQUIRE(fragile);
    CHECK(fragile->restarts == 2);
    CHECK(fragile->last_failure == "second");
    CHECK(contains(fragile->to_string(), "restarts 2, last crash: second"));
  });
}

TEST_CASE("of very many actors those that work are reported, and the others counted") {
  World world;
  world.run([&]() -> Task<void> {
    constexpr int idle = 3000;
    for (int i = 0; i < idle; ++i) co_await world.node.spawn<Counter>({}, nullptr);
    const auto busy = co_await world.node.spawn<Counter>({}, nullptr);
    co_await world.node.spawn<Counter>("named", nullptr);
    hf::Scope scope;
    co_await add_slowly_in(scope, busy, 1);
    hf::InspectOptions options;
    options.actors_per_shard = 10;
    const NodeReport report = co_await world.node.inspect(options);
    CHECK(report.actors.size() == 10);
    CHECK(report.shards[0].actors == idle + 3);  // and the directory
    CHECK(report.shards[0].actors_left_out == idle + 3 - 10);
    CHECK(find(report, "named"));
    CHECK(std::ranges::count_if(report.actors, &ActorReport::busy) == 1);
    CHECK(std::ranges::is_sorted(report.actors, {}, &ActorReport::id));
    CHECK(contains(report.to_string(), std::to_string(idle + 3 - 10) + " of its actors"));
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const hf::Error&) {
    }
  });
}

TEST_CASE("of very many turns of one actor a few are reported, and the others counted") {
  World world;
  world.run([&]() -> Task<void> {
    const auto ref = co_await world.node.spawn<Counter>("many", nullptr);
    hf::Scope scope;
    for (int i = 0; i < 20; ++i)
      scope.spawn([](demo::CounterRef ref) -> Task<void> {
        co_await ref.add_beside({.delta = 50'000}, hf::within(60s));
      }(ref));
    co_await hf::sleep_for(1s);
    hf::InspectOptions options;
    options.turns_per_actor = 3;
    const NodeReport report = co_await world.node.inspect(options);
    const ActorReport* many = find(report, "many");
    REQUIRE(many);
    CHECK(many->turns.size() == 3);
    CHECK(many->turns_left_out == 17);
    CHECK(!many->turns[0].exclusive);
    CHECK(contains(many->to_string(), "and 17 more turns"));
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const hf::Error&) {
    }
  });
}

TEST_CASE("what an actor has in a scope that it has not joined yet is reported with it") {
  World world;
  world.run([&]() -> Task<void> {
    const auto ref = co_await world.node.spawn<Scoped>("scoped");
    co_await ref.tell_add({.delta = 1});
    co_await hf::sleep_for(1s);
    const NodeReport report = co_await world.node.inspect();
    const ActorReport* scoped = find(report, "scoped");
    REQUIRE(scoped);
    REQUIRE(scoped->turns.size() == 2);
    CHECK(scoped->turns[0].kind == std::string_view("letter"));
    CHECK(scoped->turns[1].kind == std::string_view("task"));
    CHECK(contains(scoped->turns[1].chain.to_string(), "beside"));
    for (const auto& task : report.shards[0].tasks) CHECK(!task.in_scope);
  });
}

TEST_CASE("of a long chain of actors, each spawned by the one before, all are shown") {
  World world;
  world.run([&]() -> Task<void> {
    co_await world.node.spawn<Link>("link-200", 200);
    const NodeReport report = co_await world.node.inspect();
    const std::string text = report.to_string();
    for (int i = 0; i <= 200; ++i)
      if (!contains(text, "link-" + std::to_string(i) + " (")) FAIL_CHECK("link " << i);
  });
}

TEST_CASE("a report holds a bounded number of lines, and counts the turns that are beyond") {
  World world;
  world.run([&]() -> Task<void> {
    constexpr int count = 15;
    for (int i = 0; i < count; ++i) co_await world.node.spawn<Wide>("wide-" + std::to_string(i));
    co_await hf::sleep_for(1s);
    const NodeReport report = co_await world.node.inspect();
    std::size_t places = 0, turns = 0;
    for (const ActorReport& actor : report.actors) {
      turns += actor.turns.size() + actor.turns_left_out;
      for (const auto& turn : actor.turns) places += turn.chain.place_count();
    }
    CHECK(turns == 8 * count);
    CHECK(places > 50'000);
    CHECK(places < 150'000);
  });
}

TEST_CASE("a report as JSON holds names of any bytes") {
  NodeReport report;
  report.node = "n\xff";
  report.actors.emplace_back().name = "a\"b\n\xc3";
  const std::string text = report.to_json();
  CHECK(contains(text, "a\\\"b\\n\xef\xbf\xbd"));
  CHECK(contains(text, "\"node\":\"n\xef\xbf\xbd\""));
}

TEST_CASE("a report does not wait for a shard that is stuck, and says which actor holds it up") {
  hf::Runtime runtime({.shards = 2, .stall_threshold = 20ms});
  std::atomic<bool> released{false};
  hf::test::CapturedLog log;
  {
    hf::Node node(runtime, {.name = "here"});
    const auto stubborn = runtime.run([&](hf::Runtime&) {
      return node.spawn<Stubborn>({.name = "stubborn", .shard = 1}, &released);
    });
    runtime.run([&](hf::Runtime&) -> Task<void> { co_await stubborn.tell_add({.delta = 1}); });
    hf::InspectOptions options;
    options.patience = 10ms;
    NodeReport report;
    // It is stuck as soon as it has come to the letter.
    do {
      report = node.inspect_from_outside(options);
    } while (report.shards[1].answered || !report.shards[0].answered);
    CHECK(contains(report.shards[1].doing, "shard 1 has been in one turn for"));
    CHECK(contains(report.shards[1].doing, "in actor 'stubborn' of node 'here'"));
    CHECK(contains(report.to_string(), "shard 1 did not answer"));
    CHECK(contains(report.to_json(), "\"answered\":false"));
    // The same from the other shard.
    report = runtime.run([&](hf::Runtime&) { return node.inspect(options); });
    CHECK(contains(report.shards[1].doing, "in actor 'stubborn' of node 'here'"));
    while (runtime.stall_count() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    released = true;
    // The node's end waits for what the shard still has to come to.
  }
  CHECK(contains(log.text(), "in actor 'stubborn' of node 'here'"));
}

TEST_CASE("an actor that computes after it has told another one something is blamed for it") {
  hf::Runtime runtime({.shards = 1, .stall_threshold = hf::Duration::zero()});
  std::atomic<bool> released{false};
  hf::Node node(runtime, {.name = "here"});
  std::string turn;
  std::thread release([&] {
    const hf::Time limit = hf::Clock::read_system() + hf::timing().scaled(60s);
    // The actor is named from the moment its letter is taken, a little before its handler begins.
    while (!(contains(turn, "in actor 'teller' of node 'here'") && contains(turn, "Teller::add")) &&
           hf::Clock::read_system() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      turn = runtime.describe_turn(0);
    }
    released = true;
  });
  runtime.run([&](hf::Runtime&) -> Task<void> {
    const auto counter = co_await node.spawn<Counter>("counter", nullptr);
    const auto teller = co_await node.spawn<Teller>("teller", counter, &released);
    co_await teller.tell_add({.delta = 1});
  });
  release.join();
  CHECK(contains(turn, "in actor 'teller' of node 'here'"));
  CHECK(contains(turn, "Teller::add"));
}

TEST_CASE("a dump of the runtime holds the actors that wait, and not the idle ones") {
  hf::Runtime runtime({.shards = 2});
  hf::Node node(runtime, {.name = "here"});
  std::string dump;
  runtime.run([&](hf::Runtime&) -> Task<void> {
    co_await node.spawn<Parent>({.name = "parent", .shard = 1});
  });
  dump = runtime.dump();
  CHECK(contains(dump, "parent (demo.OtherCounter): open"));
  CHECK(contains(dump, "idle_beside"));
  CHECK(contains(dump, "report_test.cpp:"));
  CHECK(!contains(dump, "child"));
  runtime.run([&](hf::Runtime&) { return node.close(2s); });
}

TEST_CASE("a shard that would wait for a report is refused instead of blocked") {
  World world;
  world.run([&]() -> Task<void> {
    CHECK_THROWS_AS(world.node.inspect_from_outside(), hf::Error);
    co_return;
  });
}

TEST_CASE("reports are asked for while actors come and go, from shards and from outside") {
  hf::Runtime runtime({.shards = 2});
  hf::Node node(runtime, {.name = "here"});
  std::atomic<bool> done{false};
  // Counted, and checked when one thread is left: Catch2 checks on one at a time.
  std::atomic<int> empty{0}, incomplete{0};
  std::thread outside([&] {
    while (!done) empty += node.inspect_from_outside().shards.empty();
  });
  runtime.run([&](hf::Runtime&) -> Task<void> {
    for (int i = 0; i < 300; ++i) {
      const auto ref = co_await node.spawn<Counter>(
          {.name = "n" + std::to_string(i), .shard = static_cast<unsigned>(i % 2)}, nullptr);
      co_await ref.add({.delta = 1});
      if (i % 10 == 0) {
        const NodeReport report = co_await node.inspect();
        incomplete += !find(report, "n" + std::to_string(i));
      }
      node.stop(ref);
    }
  });
  done = true;
  outside.join();
  CHECK(empty == 0);
  CHECK(incomplete == 0);
  runtime.run([&](hf::Runtime&) { return node.close(2s); });
}
