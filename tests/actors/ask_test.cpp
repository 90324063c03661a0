#include <hyperframes/actors/ask.hpp>

#include <catch2/catch_test_macros.hpp>

#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

TEST_CASE("an ask with a struct gets its answer") {
  World world;
  const long total = world.run([&]() -> Task<long> {
    auto counter = co_await world.node.spawn<Counter>("counter");
    co_await counter.add({.delta = 2});
    const auto value = co_await counter.add({.delta = 3}, hf::within(50ms));
    co_return value.total();
  });
  CHECK(total == 5);
}

TEST_CASE("an ask with a table gets its answer") {
  World world;
  const auto sum = world.run([&]() -> Task<std::string> {
    auto counter = co_await world.node.spawn<Counter>("counter");
    const auto answer = co_await counter.add_named({.name = "Ada", .delta = 7});
    co_return std::to_string(answer.total()) + " " + std::string(answer.note());
  });
  CHECK(sum == "7 for Ada");
}

TEST_CASE("an actor on another shard is asked in the same way") {
  World world(3);
  const auto sum = world.run([&]() -> Task<std::string> {
    auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = 2});
    co_await counter.note({.delta = 1});
    co_await counter.add({.delta = 2});
    const auto answer = co_await counter.add_named({.name = "Ada", .delta = 7});
    co_return std::to_string(answer.total()) + " " + std::string(answer.note());
  });
  CHECK(sum == "10 for Ada");
}

TEST_CASE("segments travel beside a request and its answer, between shards too") {
  World world(2);
  for (unsigned shard : {0u, 1u}) {
    const auto text = world.run([&, shard]() -> Task<std::string> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      auto& pool = hf::Shard::current()->send_pool();
      hf::Buffer page = co_await pool.allocate(8);
      std::memcpy(page.data(), "onetwo!!", 8);
      hf::Segments segments;
      segments.push_back(page.slice(0, 3));  // they share a block, also with `page`
      segments.push_back(page.slice(3, 3));
      auto answer = co_await counter.echo({.name = "x", .delta = 4}, std::move(segments));
      co_return std::string(answer.segments[0].text()) + "-" +
          std::string(answer.segments[1].text()) + std::to_string(answer.value.total());
    });
    CHECK(text == "one-two4");
  }
}

TEST_CASE("an ask ends at its deadline, and its late answer reaches nobody") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    const auto code = world.run([&, shard]() -> Task<std::error_code> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      auto code =
          co_await code_of<demo::Total>(counter.add_slowly({.delta = 100}, hf::within(10ms)));
      co_await hf::sleep_for(200ms);
      const auto value = co_await counter.add({.delta = 0});
      CHECK(value.total() == 100);  // it was done nevertheless
      co_return code;
    });
    CHECK(code == Errc::deadline_exceeded);
    CHECK(world.metric("hyperframes_late_replies_total") == 1);
  }
}

TEST_CASE("work whose deadline passed in the mailbox is not begun") {
  for (unsigned shard : {0u, 1u}) {
    DeadLetters dead;
    World world(2, dead.options());
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
      co_await counter.tell_add_slowly({.delta = 100});
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1000}, hf::within(10ms))) ==
            Errc::deadline_exceeded);
      const auto value = co_await counter.add({.delta = 0});
      CHECK(value.total() == 100);
    });
    REQUIRE(dead.letters.size() == 1);
    CHECK(dead.letters[0].cause == Errc::deadline_exceeded);
    CHECK(dead.letters[0].method == "demo.Counter.Add");
    CHECK(dead.letters[0].actor == "counter");
    CHECK(world.metric("hyperframes_expired_letters_total") == 1);
  }
}

TEST_CASE("a cancelled ask ends at once, and its work is not begun") {
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>("counter");
    co_await counter.tell_add_slowly({.delta = 100});
    hf::CancelSource source;
    hf::Scope scope;
    auto ask = [](hf::CancelSource* source, demo::CounterRef counter) -> Task<void> {
      CHECK(co_await code_of<demo::Total>(hf::with_cancellation(
                *source, Task<demo::Total>(counter.add({.delta = 1000})))) == Errc::cancelled);
    };
    scope.spawn(ask(&source, counter));
    co_await hf::sleep_for(10ms);
    source.cancel();
    co_await scope.join();
    const auto value = co_await counter.add({.delta = 0});
    CHECK(value.total() == 100);
  });
}

TEST_CASE("an asker that is destroyed leaves nothing behind") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      {
        hf::Scope scope;
        auto ask = [](demo::CounterRef counter) -> Task<void> {
          co_await counter.add_slowly({.delta = 20});
        };
        scope.spawn(ask(counter));
        co_await hf::sleep_for(1ms);
      }
      co_await hf::sleep_for(100ms);
      const auto value = co_await counter.add({.delta = 1});
      CHECK(value.total() == 21);
    });
  }
}

TEST_CASE("an ask converts to a task, so that many can be awaited together") {
  World world(2);
  const long sum = world.run([&]() -> Task<long> {
    auto near = co_await world.node.spawn<Counter>({});
    auto far = co_await world.node.spawn<Counter>({.shard = 1});
    std::vector<Task<demo::Total>> asks;
    for (int i = 1; i <= 10; ++i) {
      asks.push_back(near.add({.delta = i}));
      asks.push_back(far.add({.delta = i}));
    }
    long sum = 0;
    for (const auto& value : co_await hf::when_all(std::move(asks))) sum += value.total();
    co_return sum;
  });
  CHECK(sum == 2 * 220);
}

TEST_CASE("what a handler throws as hf::Error is the answer") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    const auto text = world.run([&, shard]() -> Task<std::string> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      std::string text;
      try {
        co_await counter.refuse({.name = "Bob"});
      } catch (const hf::Error& error) {
        text = error.tried() + "|" + error.found() + "|" + error.remedy();
      }
      co_await counter.add({.delta = 1});  // the actor lives on
      co_return text;
    });
    CHECK(text == "add for Bob|it is refused|ask another one");
  }
}

TEST_CASE("an ask of an actor that has ended fails at once") {
  for (unsigned shard : {0u, 1u}) {
    DeadLetters dead;
    World world(2, dead.options());
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      world.node.stop(counter);
      co_await world.node.join(counter);
      const hf::Time before = hf::Clock::now();
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::actor_down);
      CHECK(hf::Clock::now() - before < 10ms);
      // A new actor in the same place is not taken for the old one.
      auto other = co_await world.node.spawn<Counter>({.shard = shard});
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::actor_down);
      const auto value = co_await other.add({.delta = 5});
      CHECK(value.total() == 5);
    });
    CHECK(dead.letters.size() == 2);
  }
}

TEST_CASE("an empty reference is refused with a text") {
  World world;
  const auto code = world.run([&]() -> Task<std::error_code> {
    co_return co_await code_of<demo::Total>(demo::CounterRef().add({.delta = 1}));
  });
  CHECK(code == Errc::invalid_argument);
}

TEST_CASE("a tell is done when the mailbox took it") {
  for (unsigned shard : {0u, 1u}) {
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard}, &journal);
      for (int i = 1; i <= 5; ++i) co_await counter.note({.delta = i});
      CHECK(counter.try_note({.delta = 6}));
      co_await counter.tell_add({.delta = 1});
      const auto value = co_await counter.add({.delta = 0});
      CHECK(value.total() == 22);
    });
    CHECK(journal.lines ==
          std::vector<std::string>{"note 1", "note 2", "note 3", "note 4", "note 5", "note 6"});
  }
}
