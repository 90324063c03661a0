#include <hyperframes/actors/reply.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "cluster.hpp"
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

namespace {

/// Fails, in the way that a request names.
class Failing final : public demo::OtherCounter::Actor {
 public:
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    const std::string how(request.name());
    if (how == "plain") throw hf::Error(Errc::rejected, "add", "enough", "ask for less");
    if (how == "plain crash") throw std::runtime_error("a crash");
    if (how == "caught") {
      try {
        drop(std::move(reply));
      } catch (const hf::Error&) {
      }
      return {};
    }
    if (how == "busy") return wait(std::move(reply));
    return leave_to_helper(how == "suspended", std::move(reply));
  }

 private:
  static void drop(hf::Reply<demo::Sum> reply) {
    const auto own = std::move(reply);
    throw hf::Error(Errc::rejected, "add", "enough", "ask for less");
  }
  static Task<void> wait(hf::Reply<demo::Sum> reply) {
    co_await hf::sleep_for(1ms);
    reply.send({});
  }
  static Task<void> leave_to_helper(bool suspended, hf::Reply<demo::Sum> reply) {
    co_await helper(suspended, std::move(reply));
  }
  static Task<void> helper(bool suspended, hf::Reply<demo::Sum> reply) {
    const auto own = std::move(reply);
    if (suspended) co_await hf::sleep_for(1ms);
    throw hf::Error(Errc::rejected, "add", "enough", "ask for less");
  }
};

Task<void> ask_failing(demo::OtherCounterRef failing, bool busy) {
  const std::pair<std::string, Errc> cases[] = {{"plain", Errc::rejected},
                                                {"helper", Errc::rejected},
                                                {"suspended", Errc::rejected},
                                                {"caught", Errc::no_reply},
                                                {"plain crash", Errc::actor_down}};
  for (const auto& [how, code] : cases) {
    // It takes the next one out of its mailbox then.
    if (busy) co_await failing.tell_add({.name = "busy"});
    const hf::Time begun = hf::Clock::now();
    std::error_code seen;
    std::string text;
    try {
      co_await failing.add({.name = how});
    } catch (const hf::Error& error) {
      seen = error.code();
      text = error.tried() + "|" + error.found() + "|" + error.remedy();
    }
    CHECK(seen == code);
    if (code == Errc::rejected) CHECK(text == "add|enough|ask for less");
    if (code == Errc::actor_down) CHECK(text.find("a crash") != text.npos);
    CHECK(hf::Clock::now() - begun < 1s);
  }
}

}  // namespace

TEST_CASE("what a handler throws is the answer also if it is no coroutine, or moved its Reply on") {
  for (const bool busy : {false, true}) {
    for (const unsigned shard : {0u, 1u}) {
      Log log;
      World world(2);
      world.run([&, busy, shard]() -> Task<void> {
        auto failing = co_await world.node.spawn<Failing>({.shard = shard});
        co_await ask_failing(failing, busy);
      });
    }
    Log log;
    Cluster cluster(2, 2);
    cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
      co_await cluster.server->spawn<Failing>({.name = "failing", .shard = 1});
    });
    cluster.run([&, busy]() -> Task<void> {
      hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
      auto failing = co_await remote.find<demo::OtherCounter>("failing");
      co_await ask_failing(failing, busy);
    });
  }
}

TEST_CASE("a node that ends while an exception unwinds answers what its actors kept") {
  std::error_code code;
  try {
    World world;
    static_cast<void>(world.sim.start(world.machine, 0, [&](hf::Runtime&) -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>("counter");
      code = co_await code_of<demo::Total>(counter.keep({.delta = 1}));
    }));
    world.sim.run_for(1ms);
    throw std::runtime_error("of the program");
  } catch (const std::runtime_error&) {
  }
  CHECK(code != Errc::deadline_exceeded);
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
