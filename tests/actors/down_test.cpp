#include <hyperframes/actors/down.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::ExitReason;
using hf::Task;

namespace {

class Watcher final : public demo::OtherCounter::Actor {
 public:
  Watcher(Journal* journal, demo::CounterRef other) : journal_(journal) { monitor(other); }
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.delta()) throw std::runtime_error("crash");
    reply.send({});
    return {};
  }
  Task<void> on_down(hf::Down down) override {
    journal_->lines.push_back(down.name + " " + std::string(hf::name(down.reason)) + " " +
                              down.text);
    co_return;
  }

 private:
  Journal* journal_;
};

}  // namespace

TEST_CASE("a monitor is told of an actor's end, once, with the reason") {
  for (unsigned shard : {0u, 1u}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto stopped = co_await world.node.spawn<Counter>({.name = "stopped", .shard = shard});
      auto crashed = co_await world.node.spawn<Counter>({.name = "crashed", .shard = shard});
      co_await world.node.spawn<Watcher>("one", &journal, stopped);
      co_await world.node.spawn<Watcher>("two", &journal, crashed);
      co_await hf::sleep_for(1ms);
      world.node.stop(stopped);
      co_await hf::sleep_for(10ms);
      co_await crashed.tell_crash({.name = "why"});
      co_await hf::sleep_for(10ms);
    });
    CHECK(journal.lines == std::vector<std::string>{"stopped stopped ", "crashed crashed why"});
  }
}

TEST_CASE("a monitor of an actor that has ended is told at once") {
  for (unsigned shard : {0u, 1u}) {
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
      world.node.stop(counter);
      co_await world.node.join(counter);
      co_await world.node.spawn<Watcher>("watcher", &journal, counter);
      co_await hf::sleep_for(1ms);
    });
    CHECK(journal.lines == std::vector<std::string>{" not_found "});
  }
}

TEST_CASE("a restart tells no monitor, giving up does") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        {.name = "counter", .restart = {.kind = hf::Restart::permanent, .intensity = 1}});
    co_await world.node.spawn<Watcher>("watcher", &journal, counter);
    co_await counter.tell_crash({.name = "first"});
    co_await hf::sleep_for(100ms);
    CHECK(journal.lines.empty());
    co_await counter.tell_crash({.name = "second"});
    co_await hf::sleep_for(100ms);
  });
  CHECK(journal.lines == std::vector<std::string>{"counter exhausted second"});
}

TEST_CASE("a watcher that ends first leaves nothing at the watched actor") {
  for (unsigned shard : {0u, 1u}) {
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      for (int i = 0; i < 20; ++i) {
        auto watcher = co_await world.node.spawn<Watcher>("watcher", &journal, counter);
        if (i % 2) co_await hf::sleep_for(100us);
        world.node.stop(watcher);
        co_await world.node.join(watcher);
      }
      world.node.stop(counter);
      co_await world.node.join(counter);
    });
    CHECK(journal.lines.empty());
  }
}

TEST_CASE("join waits for an actor's end, or until its deadline") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
      for (int i = 0; i < 10; ++i)
        CHECK(co_await code_of<hf::Down>(world.node.join(counter, hf::after(10ms))) ==
              Errc::deadline_exceeded);
      hf::Scope scope;
      int ended = 0;
      auto join = [](hf::Node* node, demo::CounterRef counter, int* ended) -> Task<void> {
        const auto down = co_await node->join(counter);
        CHECK(down.reason == ExitReason::stopped);
        CHECK(down.name == "counter");
        ++*ended;
      };
      for (int i = 0; i < 3; ++i) scope.spawn(join(&world.node, counter, &ended));
      co_await hf::sleep_for(10ms);
      CHECK(ended == 0);
      world.node.stop(counter);
      co_await scope.join();
      CHECK(ended == 3);
      const auto down = co_await world.node.join(counter);
      CHECK(down.reason == ExitReason::not_found);
    });
  }
}

TEST_CASE("an actor joined and monitored at the moment of its end tells each of them once") {
  // The order of what crosses between two shards is drawn anew by each seed.
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Journal journal;
    World world(2, {}, seed);
    world.run([&]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = 1});
      world.node.stop(counter);
      co_await world.node.spawn<Watcher>("watcher", &journal, counter);
      co_await code_of<hf::Down>(world.node.join(counter, hf::after(3us)));
      co_await world.node.join(counter);
      co_await hf::sleep_for(10ms);
    });
    CHECK(journal.lines.size() == 1);
  }
}

TEST_CASE("a watcher that was restarted is told once, by the monitor of its last life") {
  for (unsigned shard : {0u, 1u}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
      auto watcher = co_await world.node.spawn<Watcher>(
          {.name = "watcher", .restart = {.kind = hf::Restart::permanent}}, &journal, counter);
      for (int i = 0; i < 2; ++i) {
        co_await watcher.tell_add({.delta = 1});
        co_await hf::sleep_for(1s);
      }
      world.node.stop(counter);
      co_await hf::sleep_for(1s);
    });
    CHECK(world.metric("hyperframes_restarts_total") == 2);
    CHECK(journal.lines == std::vector<std::string>{"counter stopped "});
  }
}

TEST_CASE("a constructor that throws after it monitored leaves nothing to the cell's next actor") {
  struct Failing final : demo::OtherCounter::Actor {
    explicit Failing(demo::CounterRef other) {
      monitor(other);
      throw std::runtime_error("no");
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  for (unsigned shard : {0u, 1u}) {
    for (const bool ended : {false, true}) {
      Journal journal;
      World world(2);
      world.run([&, shard, ended]() -> Task<void> {
        auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
        if (ended) {
          world.node.stop(counter);
          co_await world.node.join(counter);
        }
        bool thrown = false;
        try {
          co_await world.node.spawn<Failing>("failing", counter);
        } catch (const std::runtime_error&) {
          thrown = true;
        }
        CHECK(thrown);
        co_await world.node.spawn<Counter>("next", &journal);
        if (!ended) world.node.stop(counter);
        co_await hf::sleep_for(10ms);
      });
      CHECK(journal.lines.empty());
    }
  }
}
