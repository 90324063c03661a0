#include <hyperframes/actors/within.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "cluster.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

namespace {

enum class Way { plain, deeper, beside, regardless, background };

/// Asks the kept-forever method of a counter, and notes how long that took.
class Middle final : public demo::OtherCounter::Actor {
 public:
  Middle(Journal* journal, demo::CounterRef next, Way way)
      : journal_(journal), next_(next), way_(way) {}
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (way_ == Way::background) {
      start(ask(hf::within(1s)));
      co_await hf::sleep_for(2s);
    } else if (way_ == Way::plain) {
      co_await ask(hf::within(1h));
    } else if (way_ == Way::deeper) {
      co_await deeper();
    } else if (way_ == Way::beside) {
      co_await hf::when_all(ask(hf::within(1h)), ask({}));
    } else {
      co_await ask(hf::within(1s).regardless());
    }
    reply.send({});
  }

 private:
  Task<void> deeper() { co_await ask({}); }
  Task<void> ask(hf::Within within) {
    const hf::Time begun = hf::Clock::now();
    const auto code = co_await code_of<demo::Total>(next_.keep({.delta = 1}, within));
    CHECK(code == Errc::deadline_exceeded);
    const auto took =
        std::chrono::duration_cast<std::chrono::milliseconds>(hf::Clock::now() - begun + 500us);
    journal_->lines.push_back(std::to_string(took.count()) + " ms");
  }
  Journal* journal_;
  demo::CounterRef next_;
  Way way_;
};

std::vector<std::string> times_of(Way way, unsigned shard) {
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    auto last = co_await world.node.spawn<Counter>({.shard = shard});
    auto middle = co_await world.node.spawn<Middle>({.shard = shard}, &journal, last, way);
    co_await code_of<demo::Sum>(middle.add({}, hf::within(100ms)));
    co_await hf::sleep_for(5s);
  });
  return journal.lines;
}

}  // namespace

TEST_CASE("an ask made in a handler ends with the ask that is handled, however long it was given") {
  for (unsigned shard : {0u, 1u}) {
    CHECK(times_of(Way::plain, shard) == std::vector<std::string>{"100 ms"});
    CHECK(times_of(Way::deeper, shard) == std::vector<std::string>{"100 ms"});
    CHECK(times_of(Way::beside, shard) == std::vector<std::string>{"100 ms", "100 ms"});
  }
}

TEST_CASE("an ask that is told to go on regardless, and a task beside the handler, outlast it") {
  for (unsigned shard : {0u, 1u}) {
    CHECK(times_of(Way::regardless, shard) == std::vector<std::string>{"1000 ms"});
    CHECK(times_of(Way::background, shard) == std::vector<std::string>{"1000 ms"});
  }
}

TEST_CASE("a deadline is passed on through several processes") {
  Journal journal;
  Cluster cluster(2);
  cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
    auto last = co_await cluster.server->spawn<Counter>({.shard = 0});
    co_await cluster.server->spawn<Middle>({.name = "middle", .shard = 1}, &journal, last,
                                           Way::plain);
  });
  cluster.run([&]() -> Task<void> {
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    auto middle = co_await remote.find<demo::OtherCounter>("middle");
    CHECK(co_await code_of<demo::Sum>(middle.add({}, hf::within(100ms))) ==
          Errc::deadline_exceeded);
    co_await hf::sleep_for(5s);
  });
  REQUIRE(journal.lines.size() == 1);
  CHECK(std::stoi(journal.lines[0]) <= 101);
}

TEST_CASE(
    "what a handler tells has the time of its ask to find room, and is sent if there is room") {
  struct Teller final : demo::OtherCounter::Actor {
    Teller(Journal* journal, demo::CounterRef next) : journal(journal), next(next) {}
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      co_await hf::sleep_for(50ms);
      co_await next.note({.delta = 1});
      try {
        co_await next.note({.delta = 2}, hf::within(1h));
      } catch (const hf::Error& error) {
        journal->lines.push_back(error.is(Errc::deadline_exceeded) ? "late" : error.what());
      }
      reply.send({});
    }
    Journal* journal;
    demo::CounterRef next;
  };
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto next = co_await world.node.spawn<Counter>({.mailbox = {.messages = 1}});
    co_await next.tell_add_slowly({.delta = 1000});
    co_await hf::sleep_for(1ms);
    auto teller = co_await world.node.spawn<Teller>("teller", &journal, next);
    CHECK(co_await code_of<demo::Sum>(teller.add({}, hf::within(100ms))) ==
          Errc::deadline_exceeded);
    co_await hf::sleep_for(2s);
    const auto total = co_await next.add({.delta = 0});
    CHECK(total.total() == 1001);
  });
  CHECK(journal.lines == std::vector<std::string>{"late"});
}
