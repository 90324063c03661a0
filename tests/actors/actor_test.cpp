#include <hyperframes/actors/actor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

TEST_CASE("a turn is not re-entered while its handler is suspended") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>("counter", &journal);
    for (int delta : {30, 10, 20}) co_await counter.tell_add_slowly({.delta = delta});
    co_await counter.add({.delta = 0});
  });
  CHECK(journal.lines ==
        std::vector<std::string>{"begin 30", "end 30", "begin 10", "end 10", "begin 20", "end 20"});
}

TEST_CASE("turns of an interleaved method run beside each other") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>("counter", &journal);
    for (int delta : {30, 10, 20}) co_await counter.tell_add_beside({.delta = delta});
    co_await counter.add({.delta = 0});
    CHECK(journal.lines.size() == 3);  // all have begun, none has ended
    co_await hf::sleep_for(100ms);
  });
  CHECK(journal.lines ==
        std::vector<std::string>{"begin 30", "begin 10", "begin 20", "end 10", "end 20", "end 30"});
}

TEST_CASE("nothing overtakes an exclusive turn, interleaved or not") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>("counter", &journal);
    co_await counter.tell_add_slowly({.delta = 30});
    co_await counter.tell_add_beside({.delta = 10});
    co_await counter.note({.delta = 1});
    co_await hf::sleep_for(100ms);
  });
  CHECK(journal.lines ==
        std::vector<std::string>{"begin 30", "end 30", "begin 10", "note 1", "end 10"});
}

TEST_CASE("an actor without suspended turns handles the backlog fairly with others") {
  // A second actor's letter must not wait until the first one's long queue is empty.
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto busy = co_await world.node.spawn<Counter>("busy", &journal);
    auto other = co_await world.node.spawn<Counter>("other", &journal);
    for (int i = 0; i < 1000; ++i) busy.try_note({.delta = 0});
    other.try_note({.delta = 777});
    co_await busy.add({.delta = 0});
  });
  const auto at = std::ranges::find(journal.lines, "note 777") - journal.lines.begin();
  CHECK(at < 100);
}

TEST_CASE("an actor that stops itself handles no more letters, and its turns are cancelled") {
  struct Quitter final : demo::Counter::Actor {
    explicit Quitter(Journal* journal) : journal(journal) {}
    Task<void> add(demo::Increment, hf::Reply<demo::Total> reply) override {
      stop();
      reply.send({});
      journal->lines.push_back("quit");
      return {};
    }
    Task<void> add_beside(demo::Increment, hf::Reply<demo::Total> reply) override {
      try {
        co_await hf::sleep_for(1h);
      } catch (const hf::Error& error) {
        journal->lines.push_back(error.is(Errc::cancelled) ? "cancelled" : error.what());
        throw;
      }
      reply.send({});
    }
    Task<void> stopping() override {
      co_await hf::sleep_for(5ms);  // not cancelled
      journal->lines.push_back("stopping");
    }
    ~Quitter() override { journal->lines.push_back("destroyed"); }
    Task<void> note(demo::Increment) override {
      journal->lines.push_back("note");
      return {};
    }
    Task<void> add_named(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
    Task<void> add_slowly(demo::Increment, hf::Reply<demo::Total>) override { return {}; }
    Task<void> keep(demo::Increment, hf::Reply<demo::Total>) override { return {}; }
    Task<void> release(demo::Nothing, hf::Reply<demo::Nothing>) override { return {}; }
    Task<void> forget(demo::Nothing, hf::Reply<demo::Nothing>) override { return {}; }
    Task<void> refuse(demo::Named, hf::Reply<demo::Total>) override { return {}; }
    Task<void> crash(demo::Named, hf::Reply<demo::Nothing>) override { return {}; }
    Task<void> echo(demo::Named, hf::Segments, hf::Reply<hf::WithSegments<demo::Sum>>) override {
      return {};
    }
    Journal* journal;
  };
  Journal journal;
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto quitter = co_await world.node.spawn<Quitter>("quitter", &journal);
    co_await quitter.tell_add_beside({});
    co_await quitter.tell_add({});
    co_await quitter.note({});
    const auto down = co_await world.node.join(quitter);
    CHECK(down.reason == hf::ExitReason::normal);
    CHECK(down.name == "quitter");
  });
  CHECK(journal.lines == std::vector<std::string>{"quit", "cancelled", "stopping", "destroyed"});
  CHECK(dead.letters.size() == 1);
}

TEST_CASE("an actor that does not end in its grace period is destroyed, and named") {
  struct Stubborn final : demo::OtherCounter::Actor {
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      co_await hf::shielded(wait());
      reply.send({});
    }
    static Task<void> wait() { co_await hf::sleep_for(1h); }
  };
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    auto stubborn = co_await world.node.spawn<Stubborn>("stubborn");
    hf::Scope scope;
    auto ask = [](demo::OtherCounterRef stubborn) -> Task<void> {
      CHECK(co_await code_of<demo::Sum>(stubborn.add({}, hf::within(1h))) == Errc::actor_down);
    };
    scope.spawn(ask(stubborn));
    co_await hf::sleep_for(1ms);
    world.node.stop(stubborn);
    const hf::Time before = hf::Clock::now();
    co_await world.node.join(stubborn);
    CHECK(hf::Clock::now() - before >= hf::timing().default_deadline());
    co_await scope.join();
  });
  CHECK(log.has("stubborn"));
}

TEST_CASE("closing a node names the actor that is slow, and not those that only come after it") {
  Log log;
  World world(2);
  const auto left = world.run([&]() -> Task<std::vector<std::string>> {
    struct Slow final : demo::OtherCounter::Actor {
      Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
        co_await hf::shielded(wait());
        reply.send({});
      }
      static Task<void> wait() { co_await hf::sleep_for(1h); }
    };
    auto slow = co_await world.node.spawn<Slow>({.name = "slow", .shard = 0});
    co_await world.node.spawn<Counter>({.name = "quick", .shard = 1});
    co_await slow.tell_add({});
    co_await hf::sleep_for(1ms);
    co_return co_await world.node.close(1s);
  });
  CHECK(left == std::vector<std::string>{"slow"});
}

TEST_CASE("spawn waits for started, and throws what it throws") {
  struct Slow final : demo::OtherCounter::Actor {
    explicit Slow(bool fails) : fails(fails) {}
    Task<void> started() override {
      co_await hf::sleep_for(20ms);
      if (fails) throw hf::Error(Errc::not_found, "open its file", "it is not there");
      ready = true;
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      reply.send({.total = ready});
      return {};
    }
    bool fails, ready = false;
  };
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      const hf::Time before = hf::Clock::now();
      auto slow = co_await world.node.spawn<Slow>({.name = "slow", .shard = shard}, false);
      CHECK(hf::Clock::now() - before >= 20ms);
      const auto answer = co_await slow.add({});
      CHECK(answer.total() == 1);
      CHECK(co_await code_of<demo::OtherCounterRef>(world.node.spawn<Slow>(
                {.name = "fails", .shard = shard, .restart = {.kind = hf::Restart::permanent}},
                true)) == Errc::not_found);
      CHECK(!world.node.find<demo::OtherCounter>("fails"));
      // The name is free again.
      co_await world.node.spawn<Slow>({.name = "fails", .shard = shard}, false);
    });
  }
}

TEST_CASE("spawn throws what a constructor throws") {
  struct Broken final : demo::OtherCounter::Actor {
    Broken() {
      start(work());
      throw hf::Error(Errc::unsupported, "construct", "never");
    }
    static Task<void> work() { co_await hf::sleep_for(1s); }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  World world;
  world.run([&]() -> Task<void> {
    CHECK(co_await code_of<demo::OtherCounterRef>(world.node.spawn<Broken>("broken")) ==
          Errc::unsupported);
    CHECK(world.node.actor_count() == 0);
  });
}

TEST_CASE("a spawner that gives up takes the starting actor with it") {
  struct Never final : demo::OtherCounter::Actor {
    Task<void> started() override { co_await hf::sleep_for(1h); }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  World world;
  world.run([&]() -> Task<void> {
    {
      hf::Scope scope;
      auto spawn = [](hf::Node* node) -> Task<void> { co_await node->spawn<Never>("never"); };
      scope.spawn(spawn(&world.node));
      co_await hf::sleep_for(1ms);
      CHECK(world.node.actor_count() == 1);
    }
    co_await hf::sleep_for(1ms);
    CHECK(world.node.actor_count() == 0);
  });
}

TEST_CASE("a task that an actor started runs beside its handlers and ends with it") {
  struct Ticker final : demo::OtherCounter::Actor {
    explicit Ticker(Journal* journal) : journal(journal) { start(tick()); }
    Task<void> tick() {
      try {
        while (true) {
          co_await hf::sleep_for(10ms);
          ++ticks;
        }
      } catch (const hf::Error&) {
        journal->lines.push_back("tick cancelled");
        throw;
      }
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      reply.send({.total = ticks});
      return {};
    }
    Journal* journal;
    long ticks = 0;
  };
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto ticker = co_await world.node.spawn<Ticker>("ticker", &journal);
    co_await hf::sleep_for(105ms);
    const auto answer = co_await ticker.add({});
    CHECK(answer.total() == 10);
    world.node.stop(ticker);
    co_await world.node.join(ticker);
  });
  CHECK(journal.lines == std::vector<std::string>{"tick cancelled"});
}

TEST_CASE("an exception that leaves an actor's own task crashes it") {
  struct Fragile final : demo::OtherCounter::Actor {
    Fragile() { start(work()); }
    static Task<void> work() {
      co_await hf::sleep_for(10ms);
      throw std::runtime_error("broken");
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    auto fragile = co_await world.node.spawn<Fragile>("fragile");
    const auto down = co_await world.node.join(fragile);
    CHECK(down.reason == hf::ExitReason::crashed);
    CHECK(down.text == "broken");
  });
}

TEST_CASE("actors stop their children before they end") {
  struct Parent final : demo::OtherCounter::Actor {
    explicit Parent(Journal* journal) : journal(journal) {}
    Task<void> started() override {
      co_await spawn<Counter>({.name = "child-1"}, journal);
      co_await spawn<Counter>({.name = "child-2", .shard = 1}, journal);
    }
    ~Parent() override {
      journal->lines.push_back("parent ends after " + std::to_string(journal->destroyed));
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
    Journal* journal;
  };
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    auto parent = co_await world.node.spawn<Parent>("parent", &journal);
    CHECK(world.node.names() == std::vector<std::string>{"child-1", "child-2", "parent"});
    world.node.stop(parent);
    co_await world.node.join(parent);
    CHECK(world.node.names().empty());
  });
  CHECK(journal.lines == std::vector<std::string>{"parent ends after 2"});
}

TEST_CASE("a node may be destroyed after its runtime was stopped") {
  hf::Runtime runtime({.shards = 2});
  Journal journal;
  {
    hf::Node node(runtime);
    runtime.run([&](hf::Runtime&) -> Task<void> {
      for (unsigned shard : {0u, 1u}) {
        auto counter = co_await node.spawn<Counter>({.shard = shard}, &journal);
        co_await counter.tell_add_slowly({.delta = 1'000'000});
        co_await counter.tell_keep({.delta = 1});
        co_await counter.note({.delta = 1});
        auto ask = [](demo::CounterRef counter) -> Task<void> {
          co_await counter.add({.delta = 1}, hf::within(1h));
        };
        hf::Shard::current()->spawn(ask(counter));
      }
      co_await hf::sleep_for(1ms);
    });
    CHECK(runtime.stop(5s).clean);
  }
  CHECK(journal.destroyed == 2);
}

TEST_CASE(
    "a node that is started on a shard of its runtime is refused, and nothing of it is left") {
  hf::Runtime runtime({.shards = 2});
  const bool refused = runtime.run([](hf::Runtime& runtime) -> Task<bool> {
    try {
      hf::Node node(runtime);
    } catch (const hf::Error& error) {
      co_return error.is(Errc::invalid_argument) && error.tried() == "start a node";
    }
    co_return false;
  });
  CHECK(refused);
  const hf::Node node(runtime);
}

TEST_CASE("a node that ends with actors in the ready queues leaves none of them there") {
  World world(2);
  for (unsigned shard : {0u, 1u})
    world.run(
        [&]() -> Task<void> {
          auto node = std::make_unique<hf::Node>(world.machine.runtime());
          for (const auto group : {hf::Group::user, hf::Group::system})
            for (int i = 0; i < 1000; ++i) {
              auto counter = co_await node->spawn<Counter>({.group = group});
              CHECK(counter.try_note({.delta = 1}));
            }
          node.reset();
          co_await hf::sleep_for(1ms);
        },
        shard);
}

TEST_CASE("an actor that spawns another and then fails to start says so to its spawner") {
  struct Failing final : demo::OtherCounter::Actor {
    Task<void> started() override {
      co_await spawn<Counter>({}, nullptr);
      throw hf::Error(Errc::not_found, "open its file", "it is not there");
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  World world;
  world.run([&]() -> Task<void> {
    CHECK(co_await code_of<demo::OtherCounterRef>(world.node.spawn<Failing>("failing")) ==
          Errc::not_found);
    CHECK(world.node.actor_count() == 0);
  });
}

TEST_CASE("a spawner that is destroyed by what it starts takes it along") {
  struct Ungrateful final : demo::OtherCounter::Actor {
    Ungrateful(std::unique_ptr<hf::Scope>* spawners, bool suspends, Journal* journal)
        : spawners(spawners), suspends(suspends), journal(journal) {}
    ~Ungrateful() override { ++journal->destroyed; }
    Task<void> started() override {
      ++journal->started;
      spawners->reset();
      if (!suspends) return {};
      return nap();
    }
    static Task<void> nap() { co_await hf::sleep_for(1h); }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
    std::unique_ptr<hf::Scope>* spawners;
    bool suspends;
    Journal* journal;
  };
  for (const bool suspends : {false, true}) {
    Journal journal;
    World world;
    world.run([&]() -> Task<void> {
      auto spawners = std::make_unique<hf::Scope>();
      auto spawn = [](hf::Node* node, std::unique_ptr<hf::Scope>* spawners, bool suspends,
                      Journal* journal) -> Task<void> {
        co_await node->spawn<Ungrateful>({}, spawners, suspends, journal);
        ++journal->started;
      };
      spawners->spawn(spawn(&world.node, &spawners, suspends, &journal));
      co_await hf::sleep_for(10ms);
      CHECK(world.node.actor_count() == 0);
    });
    CHECK(journal.started == 1);
    CHECK(journal.destroyed == 1);
  }
}

TEST_CASE("an actor that stops itself in its constructor ends once it has started") {
  struct Brief final : demo::OtherCounter::Actor {
    Brief() { stop(); }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  World world;
  world.run([&]() -> Task<void> {
    auto brief = co_await world.node.spawn<Brief>("brief");
    co_await world.node.join(brief, hf::after(1s));
    CHECK(!world.node.find<demo::OtherCounter>("brief"));
  });
}

namespace {

/// Shows where it lives.
class Placed final : public demo::OtherCounter::Actor {
 public:
  explicit Placed(hf::detail::ActorCell** cell) { *cell = hf::detail::cell_being_constructed(); }
  Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
    reply.send({});
    return {};
  }
};

}  // namespace

TEST_CASE("an actor's id never comes back, also when the numbers of its place are used up") {
  World world;
  world.run([&]() -> Task<void> {
    hf::detail::ActorCell *first = nullptr, *last = nullptr, *next = nullptr;
    auto stale = co_await world.node.spawn<Placed>("first", &first);
    world.node.stop(stale);
    co_await hf::sleep_for(1ms);
    first->generation = (1u << hf::detail::actor_id::generation_bits) - 2;
    auto older = co_await world.node.spawn<Placed>("last", &last);
    CHECK(last == first);
    world.node.stop(older);
    co_await hf::sleep_for(1ms);
    auto newer = co_await world.node.spawn<Placed>("next", &next);
    CHECK(next != first);
    CHECK(co_await code_of<demo::Sum>(older.add({.name = "nobody"})) == Errc::actor_down);
    CHECK(co_await code_of<demo::Sum>(stale.add({.name = "nobody"})) == Errc::actor_down);
    co_await newer.add({.name = "somebody"});
  });
}
