#include <hyperframes/actors/restart.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Restart;
using hf::Task;

namespace {

Task<void> crash(demo::CounterRef counter, std::string why) {
  CHECK(co_await code_of<demo::Nothing>(counter.crash({.name = why})) == Errc::actor_down);
}

hf::SpawnOptions supervised(std::string name, hf::RestartPolicy policy) {
  return {.name = std::move(name), .restart = policy};
}

/// Has a child, which has one, and so on, one for each further duration; each takes as long as its
/// duration says to stop in order.
class Family final : public demo::OtherCounter::Actor {
 public:
  Family(Journal* journal, std::vector<hf::Duration> ends)
      : journal_(journal), ends_(std::move(ends)) {}
  Task<void> started() override {
    write("start ");
    if (ends_.size() == 1) co_return;
    const std::vector<hf::Duration> rest(ends_.begin() + 1, ends_.end());
    co_await spawn<Family>({.name = "family " + std::to_string(rest.size())}, journal_, rest);
  }
  Task<void> stopping() override {
    co_await hf::sleep_for(ends_[0]);
    write("end ");
  }
  Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { throw std::runtime_error("crash"); }

 private:
  void write(std::string what) {
    journal_->lines.push_back(std::move(what) + std::to_string(ends_.size()));
  }
  Journal* journal_;
  std::vector<hf::Duration> ends_;
};

}  // namespace

TEST_CASE("an exception that is no hf::Error crashes the actor, and its asker learns why") {
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>("counter");
    std::string text;
    try {
      co_await counter.crash({.name = "out of luck"});
    } catch (const hf::Error& error) {
      text = error.what();
    }
    CHECK(text.find("out of luck") != std::string::npos);
    CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::actor_down);
    CHECK(!world.node.find<demo::Counter>("counter"));
  });
  CHECK(log.has("out of luck"));
  CHECK(world.metric("hyperframes_crashes_total") == 1);
}

TEST_CASE("a permanent actor is restarted, and its references go on working") {
  for (unsigned shard : {0u, 1u}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>(
          {.name = "counter", .shard = shard, .restart = {.kind = Restart::permanent}}, &journal,
          100);
      co_await counter.add({.delta = 5});
      co_await crash(counter, "first");
      const auto value = co_await counter.add({.delta = 1});
      CHECK(value.total() == 101);  // it began anew, with its arguments
      CHECK(world.node.find<demo::Counter>("counter").value() == counter);
    });
    CHECK(journal.started == 2);
    CHECK(log.has("restart 1 of 3"));
    CHECK(world.metric("hyperframes_restarts_total") == 1);
  }
}

TEST_CASE("restarts pause, each longer than the one before") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter =
        co_await world.node.spawn<Counter>(supervised("counter", {.kind = Restart::permanent,
                                                                  .intensity = 5,
                                                                  .period = 10s,
                                                                  .backoff_min = 10ms,
                                                                  .backoff_max = 50ms}),
                                           &journal);
    for (const auto pause : {10ms, 20ms, 40ms, 50ms, 50ms}) {
      co_await crash(counter, "again");
      const hf::Time before = hf::Clock::now();
      co_await counter.add({.delta = 1});
      const auto waited = hf::Clock::now() - before;
      CHECK(waited > pause - 3ms);
      CHECK(waited < pause + 5ms);
    }
  });
}

TEST_CASE("an actor that crashes more often than allowed is given up") {
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        supervised("counter", {.kind = Restart::permanent, .intensity = 2}));
    for (int i = 0; i < 3; ++i) co_await crash(counter, "again");
    const auto down = co_await world.node.join(counter);
    // It had ended before it was joined: there is no such actor any more.
    CHECK(down.reason == hf::ExitReason::not_found);
    CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::actor_down);
  });
  CHECK(log.has("given up"));
}

TEST_CASE("a period without an end never forgets a restart") {
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(supervised(
        "counter", {.kind = Restart::permanent, .intensity = 1, .period = hf::Duration::max()}));
    co_await crash(counter, "first");
    co_await hf::sleep_for(30min);
    CHECK((co_await counter.add({.delta = 1})).total() == 1);
    co_await crash(counter, "second");
    CHECK((co_await world.node.join(counter)).reason == hf::ExitReason::not_found);
  });
}

TEST_CASE("a restart policy with a negative span, or pauses that shrink, is refused") {
  World world;
  world.run([&]() -> Task<void> {
    for (const hf::RestartPolicy wrong :
         {hf::RestartPolicy{.period = -1s}, hf::RestartPolicy{.backoff_min = -1ms},
          hf::RestartPolicy{.backoff_min = 2s}, hf::RestartPolicy{.backoff_max = -1s}})
      CHECK(co_await code_of(world.node.spawn<Counter>(supervised("counter", wrong))) ==
            Errc::invalid_argument);
    CHECK(world.node.names().empty());
  });
}

TEST_CASE("restarts of long ago are forgotten") {
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        supervised("counter", {.kind = Restart::permanent, .intensity = 1, .period = 1s}));
    for (int i = 0; i < 10; ++i) {
      co_await crash(counter, "now and then");
      co_await counter.add({.delta = 1});
      co_await hf::sleep_for(2s);
    }
  });
}

TEST_CASE("a restart budget is the actor's own") {
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    const hf::RestartPolicy policy{.kind = Restart::permanent, .intensity = 2};
    auto bad = co_await world.node.spawn<Counter>(supervised("bad", policy));
    auto good = co_await world.node.spawn<Counter>(supervised("good", policy));
    for (int i = 0; i < 3; ++i) co_await crash(bad, "again");
    for (int i = 0; i < 2; ++i) co_await crash(good, "once or twice");
    const auto value = co_await good.add({.delta = 1});
    CHECK(value.total() == 1);
    CHECK(co_await code_of<demo::Total>(bad.add({.delta = 1})) == Errc::actor_down);
  });
}

TEST_CASE("a temporary actor is not restarted, a transient one only after a crash") {
  struct Ending final : demo::OtherCounter::Actor {
    explicit Ending(int* starts) { ++*starts; }
    Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
      if (request.delta()) throw std::runtime_error("crash");
      reply.send({});
      stop();
      return {};
    }
  };
  Log log;
  for (const auto& [kind, after_end, after_crash] :
       {std::tuple(Restart::temporary, 1, 1), std::tuple(Restart::transient, 1, 2),
        std::tuple(Restart::permanent, 2, 2)}) {
    for (const bool crashes : {false, true}) {
      int starts = 0;
      World world;
      world.run([&, kind, crashes]() -> Task<void> {
        auto ending =
            co_await world.node.spawn<Ending>(supervised("ending", {.kind = kind}), &starts);
        co_await ending.tell_add({.delta = crashes});
        co_await hf::sleep_for(1s);
      });
      CHECK(starts == (crashes ? after_crash : after_end));
    }
  }
}

TEST_CASE("an actor that was told to stop is not restarted, nor one that pauses") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        supervised("counter", {.kind = Restart::permanent}), &journal);
    world.node.stop(counter);
    const auto down = co_await world.node.join(counter);
    CHECK(down.reason == hf::ExitReason::stopped);

    auto pausing = co_await world.node.spawn<Counter>(
        supervised("pausing", {.kind = Restart::permanent, .backoff_min = 1s, .backoff_max = 1s}),
        &journal);
    co_await crash(pausing, "now");
    world.node.stop(pausing);
    co_await world.node.join(pausing, hf::after(100ms));
    co_await hf::sleep_for(3s);
  });
  CHECK(journal.started == 2);
}

TEST_CASE("what was in the mailbox of a crashed actor goes to its successor") {
  Log log;
  Journal journal;
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        supervised("counter", {.kind = Restart::permanent}), &journal);
    hf::Scope scope;
    scope.spawn(crash(counter, "now"));
    auto later = [](demo::CounterRef counter) -> Task<void> {
      co_await hf::yield();
      co_await counter.note({.delta = 1});
      const auto value = co_await counter.add({.delta = 2});
      CHECK(value.total() == 3);
    };
    scope.spawn(later(counter));
    co_await scope.join();
  });
  CHECK(dead.letters.empty());
  CHECK(journal.started == 2);
}

TEST_CASE("or to the dead letters, if its specification says so") {
  Log log;
  Journal journal;
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        {.name = "counter", .restart = {.kind = Restart::permanent}, .keep_mailbox = false},
        &journal);
    CHECK(counter.try_crash({.name = "now"}));
    CHECK(counter.try_note({.delta = 1}));
    CHECK(co_await code_of<demo::Total>(counter.add({.delta = 2})) == Errc::actor_down);
    const auto value = co_await counter.add({.delta = 4});
    CHECK(value.total() == 4);
  });
  REQUIRE(dead.letters.size() == 2);
  CHECK(dead.letters[0].method == "demo.Counter.Note");
  CHECK(dead.letters[0].cause == Errc::actor_down);
  CHECK(dead.letters[0].actor == "counter");
}

TEST_CASE("undelivered messages of an actor that ends reach the dead letters") {
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto counter =
        co_await world.node.spawn<Counter>({.name = "counter", .mailbox = {.messages = 2}});
    co_await counter.tell_add_slowly({.delta = 1000});
    co_await hf::sleep_for(1ms);
    co_await counter.note({.delta = 1});
    co_await counter.note({.delta = 2});
    hf::Scope scope;
    auto waits = [](demo::CounterRef counter) -> Task<void> {
      CHECK(co_await code_of<void>(counter.note({.delta = 3})) == Errc::actor_down);
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 3})) == Errc::actor_down);
    };
    scope.spawn(waits(counter));
    co_await hf::sleep_for(1ms);
    world.node.stop(counter);
    co_await scope.join();
  });
  CHECK(dead.letters.size() == 4);
  CHECK(world.metric("hyperframes_dead_letters_total") == 4);
}

TEST_CASE("an actor whose start fails at a restart is tried again, within its budget") {
  struct Unlucky final : demo::OtherCounter::Actor {
    explicit Unlucky(int* starts) : starts(starts) {}
    Task<void> started() override {
      if (++*starts == 1) co_return;
      co_await hf::sleep_for(1ms);
      if (*starts < 4) throw hf::Error(Errc::not_found, "open its file", "not yet");
    }
    Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
      if (request.delta()) throw std::runtime_error("crash");
      reply.send({.total = *starts});
      return {};
    }
    int* starts;
  };
  Log log;
  int starts = 0;
  World world;
  world.run([&]() -> Task<void> {
    auto unlucky = co_await world.node.spawn<Unlucky>(
        supervised("unlucky", {.kind = Restart::permanent, .intensity = 3}), &starts);
    co_await unlucky.tell_add({.delta = 1});
    const auto answer = co_await unlucky.add({});
    CHECK(answer.total() == 4);
  });
}

TEST_CASE("a constructor that throws at a restart counts as a crash") {
  struct Breaking final : demo::OtherCounter::Actor {
    explicit Breaking(int* made) {
      if (++*made > 1) throw std::runtime_error("no more");
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      throw std::runtime_error("crash");
    }
  };
  Log log;
  int made = 0;
  World world;
  world.run([&]() -> Task<void> {
    auto breaking = co_await world.node.spawn<Breaking>(
        supervised("breaking", {.kind = Restart::permanent, .intensity = 3}), &made);
    co_await breaking.tell_add({});
    const auto down = co_await world.node.join(breaking);
    CHECK(down.reason == hf::ExitReason::exhausted);
    CHECK(down.text == "no more");
  });
  CHECK(made == 4);
}

TEST_CASE("what a constructor had chosen before it threw is not the next one's choice") {
  struct Choosing final : demo::OtherCounter::Actor {
    Choosing(int* made, hf::ActorRef other) : made(made) {
      if (++*made == 2) {
        trap_exits();
        throw std::runtime_error("not this time");
      }
      if (*made == 3) link(other);
    }
    Task<void> on_down(hf::Down) override {
      *made = 100;
      return {};
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      throw std::runtime_error("crash");
    }
    int* made;
  };
  Log log;
  int made = 0;
  World world;
  world.run([&]() -> Task<void> {
    const auto other = co_await world.node.spawn<Counter>({.name = "other"});
    const auto choosing = co_await world.node.spawn<Choosing>(
        supervised("choosing", {.kind = Restart::permanent}), &made, other);
    co_await choosing.tell_add({});
    co_await hf::sleep_for(1s);
    CHECK(made == 3);
    co_await crash(other, "linked");
    co_await hf::sleep_for(1s);
    CHECK(made == 4);
  });
}

TEST_CASE("what fails while an actor stops is no crash of it") {
  struct Slow final : demo::OtherCounter::Actor {
    explicit Slow(hf::ActorRef other) { link(other); }
    Task<void> stopping() override { co_await hf::sleep_for(2s); }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    const auto other = co_await world.node.spawn<Counter>({.name = "other"});
    const auto slow = co_await world.node.spawn<Slow>({.name = "slow"}, other);
    world.node.stop(slow);
    co_await hf::sleep_for(1s);
    co_await crash(other, "linked");
    const auto down = co_await world.node.join(slow);
    CHECK(down.reason == hf::ExitReason::stopped);
  });
  CHECK(world.metric("hyperframes_crashes_total") == 1);  // the other one's
}

TEST_CASE("a child that is given up crashes its parent") {
  struct Parent final : demo::OtherCounter::Actor {
    explicit Parent(Journal* journal) : journal(journal) { ++journal->started; }
    Task<void> started() override {
      child = co_await spawn<Counter>(
          {.name = "child", .restart = {.kind = Restart::permanent, .intensity = 1}}, nullptr);
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      return child.tell_crash({.name = "again"});
    }
    Journal* journal;
    demo::CounterRef child;
  };
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto parent = co_await world.node.spawn<Parent>(
        supervised("parent", {.kind = Restart::permanent}), &journal);
    for (int i = 0; i < 2; ++i) {
      co_await parent.tell_add({});
      co_await hf::sleep_for(200ms);
    }
    CHECK(journal.started == 2);  // the second crash of the child was one too many
    auto child = world.node.find<demo::Counter>("child");
    REQUIRE(child);  // the parent's successor has started a new one
    const auto value = co_await child->add({.delta = 1});
    CHECK(value.total() == 1);
  });
}

TEST_CASE("a child that ends before its parent knows it keeps the parent from nothing") {
  struct Hasty final : demo::OtherCounter::Actor {
    Task<void> started() override {
      start(fail());
      return {};
    }
    Task<void> fail() {
      throw std::logic_error("at once");
      co_return;
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  struct Parent final : demo::OtherCounter::Actor {
    explicit Parent(Journal* journal) : journal(journal) { ++journal->started; }
    Task<void> started() override {
      for (unsigned shard : {0u, 1u}) co_await spawn<Hasty>({.shard = shard});
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      throw std::logic_error("later");
      co_return;
    }
    Journal* journal;
  };
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    auto parent = co_await world.node.spawn<Parent>(
        supervised("parent", {.kind = Restart::permanent}), &journal);
    co_await parent.tell_add({});
    co_await hf::sleep_for(1s);
    CHECK(journal.started == 2);
    world.node.stop(parent);
    const auto down = co_await world.node.join(parent, hf::after(1s));
    CHECK(down.reason == hf::ExitReason::stopped);
  });
}

TEST_CASE("an actor whose arguments can't be copied can't be restarted, and spawn says so") {
  struct Owning final : demo::OtherCounter::Actor {
    explicit Owning(std::unique_ptr<int> number) : number(std::move(number)) {}
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      reply.send({.total = *number});
      return {};
    }
    std::unique_ptr<int> number;
  };
  World world;
  world.run([&]() -> Task<void> {
    CHECK(co_await code_of<demo::OtherCounterRef>(world.node.spawn<Owning>(
              supervised("owning", {.kind = Restart::permanent}), std::make_unique<int>(1))) ==
          Errc::invalid_argument);
    auto owning = co_await world.node.spawn<Owning>("owning", std::make_unique<int>(7));
    const auto answer = co_await owning.add({});
    CHECK(answer.total() == 7);
  });
}

TEST_CASE("an actor that is told to stop while it ends after a crash is not restarted") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto parent =
        co_await world.node.spawn<Family>(supervised("parent", {.kind = Restart::permanent}),
                                          &journal, std::vector<hf::Duration>{0s, 1s});
    co_await parent.tell_add({});
    co_await hf::sleep_for(500ms);  // it waits for its child
    world.node.stop(parent);
    const auto down = co_await world.node.join(parent, hf::after(4s));
    CHECK(down.reason == hf::ExitReason::stopped);
    CHECK(down.text == "crash");
    co_await hf::sleep_for(3s);
  });
  CHECK(journal.lines == std::vector<std::string>{"start 2", "start 1", "end 1"});
}

TEST_CASE("an actor waits for its children, each of which has a grace period of its own") {
  const std::vector<std::string> begun{"start 3", "start 2", "start 1"};
  struct Case {
    std::vector<hf::Duration> ends;
    std::vector<std::string> lines;
  };
  for (const Case& now : {Case{{0s, 3s, 4s}, {"end 2", "end 1"}}, Case{{0s, 1h, 1s}, {"end 1"}},
                          Case{{0s, 1h, 1h}, {}}}) {
    Log log;
    Journal journal;
    World world;
    world.run([&]() -> Task<void> {
      auto parent = co_await world.node.spawn<Family>(
          supervised("parent", {.kind = Restart::permanent}), &journal, now.ends);
      co_await parent.tell_add({});
      co_await hf::sleep_for(hf::timing().scaled(20s));
      CHECK(world.node.find<demo::OtherCounter>("parent").value() == parent);
    });
    std::vector<std::string> expected = begun;
    expected.insert(expected.end(), now.lines.begin(), now.lines.end());
    expected.insert(expected.end(), begun.begin(), begun.end());
    CHECK(journal.lines == expected);
    CHECK(world.metric("hyperframes_restarts_total") == 1);
  }
}
