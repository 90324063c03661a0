#include <hyperframes/actors/reply.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

TEST_CASE("a reply may be kept and sent after its handler returned, while others are handled") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      hf::Scope scope;
      long kept = 0;
      auto keep = [](demo::CounterRef counter, long* kept) -> Task<void> {
        const auto value = co_await counter.keep({.delta = 5});
        *kept = value.total();
      };
      scope.spawn(keep(counter, &kept));
      co_await hf::sleep_for(1ms);
      const auto meanwhile = co_await counter.add({.delta = 1});
      CHECK(meanwhile.total() == 1);
      CHECK(kept == 0);
      co_await counter.release({});
      co_await scope.join();
      CHECK(kept == 6);
    });
  }
}

TEST_CASE("a reply that is dropped unanswered sends no_reply") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      CHECK(co_await code_of<demo::Nothing>(counter.forget({})) == Errc::no_reply);
    });
  }
}

TEST_CASE("replies that an actor still keeps at its end are answered with actor_down") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      hf::Scope scope;
      auto keep = [](demo::CounterRef counter) -> Task<void> {
        CHECK(co_await code_of<demo::Total>(counter.keep({.delta = 5})) == Errc::actor_down);
      };
      scope.spawn(keep(counter));
      co_await hf::sleep_for(1ms);
      world.node.stop(counter);
      co_await scope.join();
    });
  }
}

TEST_CASE("a kept reply knows when nobody waits for it any more") {
  struct Keeper final : demo::OtherCounter::Actor {
    explicit Keeper(std::vector<bool>* seen) : seen(seen) {}
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      seen->push_back(reply.wanted());
      co_await hf::sleep_for(50ms);
      seen->push_back(reply.wanted());
      reply.send({.total = 1});
      CHECK(!reply);
      reply.send({.total = 2});  // nothing happens
    }
    std::vector<bool>* seen;
  };
  std::vector<bool> seen;
  World world;
  world.run([&]() -> Task<void> {
    auto keeper = co_await world.node.spawn<Keeper>("keeper", &seen);
    const auto answer = co_await keeper.add({});
    CHECK(answer.total() == 1);
    CHECK(co_await code_of<demo::Sum>(keeper.add({}, hf::within(20ms))) == Errc::deadline_exceeded);
    co_await hf::sleep_for(100ms);
    co_await keeper.tell_add({});
    co_await hf::sleep_for(100ms);
  });
  CHECK(seen == std::vector<bool>{true, true, true, false, false, false});
}

TEST_CASE("a reply that is assigned over answers its first asker with no_reply") {
  struct Swapper final : demo::OtherCounter::Actor {
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      if (!kept) {
        kept.emplace(std::move(reply));
      } else {
        *kept = std::move(reply);
        kept->send({.total = 2});
      }
      co_return;
    }
    std::optional<hf::Reply<demo::Sum>> kept;
  };
  World world;
  world.run([&]() -> Task<void> {
    auto swapper = co_await world.node.spawn<Swapper>("swapper");
    hf::Scope scope;
    auto ask = [](demo::OtherCounterRef swapper) -> Task<void> {
      CHECK(co_await code_of<demo::Sum>(swapper.add({})) == Errc::no_reply);
    };
    scope.spawn(ask(swapper));
    co_await hf::sleep_for(1ms);
    const auto answer = co_await swapper.add({});
    CHECK(answer.total() == 2);
    co_await scope.join();
  });
}
