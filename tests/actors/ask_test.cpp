#include <hyperframes/actors/ask.hpp>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <hyperframes/runtime/scope.hpp>
#include <memory>

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

// ---- handlers that run while their message is being sent --------------------

namespace {

using Action = std::function<Task<void>(hf::Reply<demo::Total>&)>;

/// Does with each message what a test says.
class Scripted final : public demo::Counter::Actor {
 public:
  explicit Scripted(Action action) : action_(std::move(action)) {}
  Task<void> add(demo::Increment, hf::Reply<demo::Total> reply) override {
    co_await action_(reply);
  }
  Task<void> note(demo::Increment) override {
    hf::Reply<demo::Total> none(nullptr);
    co_await action_(none);
  }
  Task<void> add_beside(demo::Increment request, hf::Reply<demo::Total> reply) override {
    return add(request, std::move(reply));
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

 private:
  Action action_;
};

Task<void> ask_once(demo::CounterRef counter, std::vector<std::string>* lines) {
  const auto value = co_await counter.add({.delta = 1});
  lines->push_back("answer " + std::to_string(value.total()));
}
Task<void> tell_once(demo::CounterRef counter, std::vector<std::string>* lines) {
  co_await counter.note({.delta = 1});
  lines->push_back("told");
}

}  // namespace

TEST_CASE("an idle actor handles a message before the send returns") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>({}, &journal);
    co_await counter.note({.delta = 1});
    CHECK(journal.lines == std::vector<std::string>{"note 1"});
    co_await counter.tell_add_slowly({.delta = 5});
    CHECK(journal.lines.back() == "begin 5");
    co_await counter.note({.delta = 2});  // waits its turn
    CHECK(journal.lines.back() == "begin 5");
    co_await counter.add({.delta = 0});
    CHECK(journal.lines == std::vector<std::string>{"note 1", "begin 5", "end 5", "note 2"});
  });
  CHECK(world.metric("hyperframes_letters_total") == 4);
}

TEST_CASE("what waits in a mailbox is handled before what is sent later") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>({}, &journal);
    for (int i = 0; i < 1000; i += 2) {
      CHECK(counter.try_note({.delta = i}));  // never runs anything
      if (i % 7 == 0) co_await hf::yield();
      co_await counter.note({.delta = i + 1});
    }
    co_await counter.add({.delta = 0});
  });
  REQUIRE(journal.lines.size() == 1000);
  bool in_order = true;
  for (std::size_t i = 0; i < 1000; ++i)
    in_order &= journal.lines[i] == "note " + std::to_string(i);
  CHECK(in_order);
}

TEST_CASE("a turn is not entered again by a handler that runs inside it") {
  std::vector<std::string> lines;
  World world;
  world.run([&]() -> Task<void> {
    demo::CounterRef first, second;
    first = co_await world.node.spawn<Scripted>({}, [&](auto& reply) -> Task<void> {
      lines.push_back(reply ? "first begins" : "first is told");
      if (!reply) co_return;
      co_await second.add({.delta = 1});
      lines.push_back("first ends");
      reply.send({.total = 1});
    });
    second = co_await world.node.spawn<Scripted>({}, [&](auto& reply) -> Task<void> {
      lines.push_back("second begins");
      co_await first.note({.delta = 1});
      lines.push_back("second ends");
      reply.send({.total = 2});
    });
    co_await first.add({.delta = 1});
    co_await hf::yield();
  });
  CHECK(lines == std::vector<std::string>{"first begins", "second begins", "second ends",
                                          "first ends", "first is told"});
}

TEST_CASE("a sender may be destroyed by the handler of what it sends") {
  for (const bool asks : {false, true}) {
    for (const bool suspends : {false, true}) {
      for (const bool answers : {false, true}) {
        std::vector<std::string> lines;
        World world;
        world.run([&]() -> Task<void> {
          auto senders = std::make_unique<hf::Scope>();
          auto actor = co_await world.node.spawn<Scripted>({}, [&](auto& reply) -> Task<void> {
            if (!senders) {
              if (reply) reply.send({.total = 7});
              co_return;
            }
            lines.push_back("handled");
            senders.reset();
            CHECK(!reply.wanted());
            if (suspends) co_await hf::sleep_for(1ms);
            if (reply && answers) reply.send({.total = 1});
          });
          senders->spawn(asks ? ask_once(actor, &lines) : tell_once(actor, &lines));
          co_await hf::sleep_for(10ms);
          const auto value = co_await actor.add({.delta = 0});
          CHECK(value.total() == 7);
        });
        CHECK(lines == std::vector<std::string>{"handled"});
        CHECK(world.metric("hyperframes_late_replies_total") == (asks ? 1 : 0));
      }
    }
  }
}

TEST_CASE("an asker that is destroyed after its handler answered leaves nothing behind") {
  std::vector<std::string> lines;
  World world;
  world.run([&]() -> Task<void> {
    auto senders = std::make_unique<hf::Scope>();
    auto actor = co_await world.node.spawn<Scripted>({}, [&](auto& reply) -> Task<void> {
      reply.send({.total = 1});
      senders.reset();
      co_return;
    });
    senders->spawn(ask_once(actor, &lines));
    co_await hf::sleep_for(10ms);
  });
  CHECK(lines.empty());
}

TEST_CASE("a handler that cancels its asker is answered for, or not, as it chose") {
  for (const bool answers : {false, true}) {
    World world;
    world.run([&]() -> Task<void> {
      hf::CancelSource source;
      std::vector<hf::Reply<demo::Total>> kept;
      auto actor = co_await world.node.spawn<Scripted>({}, [&](auto& reply) -> Task<void> {
        source.cancel();
        if (answers) reply.send({.total = 1});
        kept.push_back(std::move(reply));
        co_return;
      });
      const auto code = co_await code_of<demo::Total>(
          hf::with_cancellation(source, Task<demo::Total>(actor.add({.delta = 1}))));
      if (answers) {
        CHECK(!code);
      } else {
        CHECK(code == Errc::cancelled);
      }
      kept.clear();
    });
  }
}

TEST_CASE("an ask whose deadline has passed already is not begun") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1}, hf::within(-1ms))) ==
            Errc::deadline_exceeded);
      const auto value = co_await counter.add({.delta = 0});
      CHECK(value.total() == 0);
    });
  }
}

TEST_CASE("a coroutine that sends without pause leaves others their turn") {
  for (const bool asks : {false, true}) {
    World world;
    bool enough = false;
    world.run([&]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({});
      hf::Scope scope;
      auto send = [](demo::CounterRef counter, bool asks, bool* enough) -> Task<void> {
        while (!*enough) {
          if (asks) {
            co_await counter.add({.delta = 1});
          } else {
            co_await counter.note({.delta = 1});
          }
        }
      };
      scope.spawn(send(counter, asks, &enough));
      scope.spawn(send(counter, asks, &enough));
      for (int i = 0; i < 100; ++i) co_await hf::yield();
      enough = true;
      co_await scope.join();
    });
  }
}

TEST_CASE("a long chain of actors that ask each other does not use up the stack") {
  World world;
  const long total = world.run([&]() -> Task<long> {
    demo::CounterRef next;
    for (int i = 0; i < 5000; ++i) {
      auto forward = [next](auto& reply) mutable -> Task<void> {
        return hf::co_invoke(
            [](demo::CounterRef next, hf::Reply<demo::Total> reply) -> Task<void> {
              long total = 0;
              if (next) {
                const auto value = co_await next.add({.delta = 1});
                total = value.total();
              }
              reply.send({.total = total + 1});
            },
            next, std::move(reply));
      };
      next = co_await world.node.spawn<Scripted>({}, Action(forward));
    }
    const auto value = co_await next.add({.delta = 1}, hf::within(1h));
    co_return value.total();
  });
  CHECK(total == 5000);
}

TEST_CASE("an actor's own task may ask it, and it may crash over that") {
  struct Restless final : demo::OtherCounter::Actor {
    explicit Restless(Journal* journal) : journal(journal) { start(run(this)); }
    ~Restless() override { ++journal->destroyed; }
    static Task<void> run(Restless* actor) {
      Journal* const journal = actor->journal;
      try {
        co_await actor->self().add({.delta = 1});
      } catch (const hf::Error& error) {
        journal->lines.push_back(std::string(error.found()));
        throw;
      }
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      throw std::logic_error("no luck");
      co_return;
    }
    Journal* journal;
  };
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto actor = co_await world.node.spawn<Restless>({}, &journal);
    const auto down = co_await world.node.join(actor);
    CHECK(down.reason == hf::ExitReason::crashed);
    CHECK(down.text == "no luck");
  });
  CHECK(journal.destroyed == 1);
  REQUIRE(journal.lines.size() == 1);
  CHECK(journal.lines[0].find("no luck") != std::string::npos);
}

#ifndef NDEBUG

namespace {

/// Asks the actor of the given name, if there is one, whose name is first in the request.
class Asker final : public demo::OtherCounter::Actor {
 public:
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    const std::string path(request.name());
    if (path.empty()) {
      reply.send({});
      co_return;
    }
    const auto comma = path.find(',');
    const std::string rest = comma == path.npos ? "" : path.substr(comma + 1);
    auto next = node().find<demo::OtherCounter>(path.substr(0, comma));
    if (request.delta()) co_await hf::sleep_for(std::chrono::milliseconds(request.delta()));
    const auto sum = co_await next->add({.name = rest, .delta = request.delta()});
    reply.send({.total = sum.total() + 1});
  }
};

}  // namespace

TEST_CASE("an ask that waits on itself is reported, through any chain of actors and shards") {
  for (unsigned shard : {0u, 1u}) {
    for (const long pause : {0L, 3L}) {
      World world(2);
      world.run([&, shard, pause]() -> Task<void> {
        auto one = co_await world.node.spawn<Asker>("one");
        co_await world.node.spawn<Asker>({.name = "two", .shard = shard});
        co_await world.node.spawn<Asker>({.name = "three", .shard = 1 - shard});
        const hf::Time begun = hf::Clock::now();
        for (const std::string path : {"one", "two,one", "two,three,one", "two,three,two"})
          CHECK(co_await code_of<demo::Sum>(one.add({.name = path, .delta = pause})) ==
                Errc::would_deadlock);
        CHECK(hf::Clock::now() - begun < 1s);
        // The same actors, without a circle; also those that took part in one just now.
        for (int i = 0; i < 3; ++i) {
          const auto sum = co_await one.add({.name = "two,three", .delta = pause});
          CHECK(sum.total() == 2);
          auto two = world.node.find<demo::OtherCounter>("two").value();
          const auto back = co_await two.add({.name = "one,three", .delta = pause});
          CHECK(back.total() == 2);
        }
      });
    }
  }
}

namespace {

/// Answers first and then asks back; or asks back only when its asker has given up.
class AskingBack final : public demo::OtherCounter::Actor {
 public:
  AskingBack(bool answers, std::error_code* code) : answers_(answers), code_(code) {}
  Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
    if (answers_) {
      reply.send({.total = 1});
    } else {
      co_await hf::sleep_for(20ms);
    }
    auto one = node().find<demo::OtherCounter>("one");
    *code_ = co_await code_of<demo::Sum>(one->add({}, hf::within(1s).regardless()));
  }

 private:
  bool answers_;
  std::error_code* code_;
};

}  // namespace

TEST_CASE("who was answered, or has given up, may be asked back") {
  for (unsigned shard : {0u, 1u}) {
    for (const long pause : {0L, 3L}) {
      for (const bool answers : {true, false}) {
        World world(2);
        std::error_code code = Errc::internal;
        world.run([&, shard, pause, answers]() -> Task<void> {
          auto one = co_await world.node.spawn<Asker>("one");
          co_await world.node.spawn<AskingBack>({.name = "two", .shard = shard}, answers, &code);
          const auto asked = co_await code_of<demo::Sum>(
              one.add({.name = "two", .delta = pause}, hf::within(10ms)));
          CHECK(asked == (answers ? std::error_code() : Errc::deadline_exceeded));
          co_await hf::sleep_for(100ms);
        });
        CHECK(!code);
      }
    }
  }
}

TEST_CASE("an ask from beside a handler, or to one that is interleaved, is no circle") {
  struct Beside final : demo::Counter::Actor {
    Task<void> add(demo::Increment request, hf::Reply<demo::Total> reply) override {
      reply.send({.total = request.delta()});
      return {};
    }
    Task<void> add_beside(demo::Increment request, hf::Reply<demo::Total> reply) override {
      co_await hf::sleep_for(1ms);
      const auto total = co_await self().add(request);
      reply.send({.total = total.total()});
    }
    Task<void> note(demo::Increment) override {
      start(later());
      return {};
    }
    Task<void> later() {
      const auto total = co_await self().add({.delta = 4});
      seen += total.total();
    }
    Task<void> add_named(demo::Named, hf::Reply<demo::Sum> reply) override {
      reply.send({.total = seen});
      return {};
    }
    Task<void> add_slowly(demo::Increment, hf::Reply<demo::Total>) override { return {}; }
    Task<void> keep(demo::Increment, hf::Reply<demo::Total>) override { return {}; }
    Task<void> release(demo::Nothing, hf::Reply<demo::Nothing>) override { return {}; }
    Task<void> forget(demo::Nothing, hf::Reply<demo::Nothing>) override { return {}; }
    Task<void> refuse(demo::Named, hf::Reply<demo::Total>) override { return {}; }
    Task<void> crash(demo::Named, hf::Reply<demo::Nothing>) override { return {}; }
    Task<void> echo(demo::Named, hf::Segments, hf::Reply<hf::WithSegments<demo::Sum>>) override {
      return {};
    }
    long seen = 0;
  };
  World world;
  world.run([&]() -> Task<void> {
    auto beside = co_await world.node.spawn<Beside>("beside");
    const auto total = co_await beside.add_beside({.delta = 3});
    CHECK(total.total() == 3);
    co_await beside.note({.delta = 1});
    co_await hf::sleep_for(1ms);
    const auto sum = co_await beside.add_named({});
    CHECK(sum.total() == 4);
  });
}

#endif
