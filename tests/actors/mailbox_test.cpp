#include <hyperframes/actors/mailbox.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "cluster.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Overflow;
using hf::Task;

namespace {

/// Tells `count` numbers and says how far it came.
Task<void> tell_numbers(demo::CounterRef counter, int count, int* told) {
  for (int i = 1; i <= count; ++i) {
    co_await counter.note({.delta = i}, hf::within(1h));
    *told = i;
  }
}

hf::SpawnOptions with_mailbox(hf::MailboxOptions mailbox, unsigned shard = 0) {
  return {.name = "counter", .shard = shard, .mailbox = mailbox};
}

}  // namespace

TEST_CASE("a full mailbox suspends its senders, and a stalled consumer keeps memory flat") {
  for (unsigned shard : {0u, 1u}) {
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter =
          co_await world.node.spawn<Counter>(with_mailbox({.messages = 8}, shard), &journal);
      co_await counter.tell_add_slowly({.delta = 10'000});
      hf::Scope scope;
      int told = 0;
      scope.spawn(tell_numbers(counter, 10'000, &told));
      co_await hf::sleep_for(5s);
      // What one mailbox, and one ring between two shards, hold at most.
      const int stalled_at = told;
      CHECK(stalled_at <= (shard == 0 ? 8 : 8 + 1024 + 1));
      co_await hf::sleep_for(4s);
      CHECK(told == stalled_at);
      co_await scope.join();
      CHECK(told == 10'000);
      co_await counter.add({.delta = 0}, hf::within(1h));
    });
    REQUIRE(journal.lines.size() == 10'002);
    bool in_order = true;
    for (int i = 1; i <= 10'000; ++i)
      in_order &= journal.lines[static_cast<std::size_t>(i + 1)] == "note " + std::to_string(i);
    CHECK(in_order);
  }
}

TEST_CASE("a sender that waits for room gives up at its deadline") {
  for (unsigned shard : {0u, 1u}) {
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter =
          co_await world.node.spawn<Counter>(with_mailbox({.messages = 2}, shard), &journal);
      co_await counter.tell_add_slowly({.delta = 100'000});
      co_await hf::sleep_for(1ms);
      for (int i = 0; i < 2; ++i) co_await counter.note({.delta = 1});
      co_await hf::sleep_for(1ms);
      // Again and again: what was given up does not pile up in the mailbox.
      for (int i = 0; i < 100; ++i) {
        CHECK(co_await code_of<void>(counter.note({.delta = 2}, hf::within(10ms))) ==
              Errc::deadline_exceeded);
        CHECK(co_await code_of<demo::Total>(counter.add({.delta = 2}, hf::within(10ms))) ==
              Errc::deadline_exceeded);
      }
      co_await hf::sleep_for(100s);
      const auto value = co_await counter.add({.delta = 0});
      CHECK(value.total() == 100'002);
    });
  }
}

TEST_CASE("a mailbox is bounded in bytes, too") {
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        with_mailbox({.bytes = 1 << 20, .overflow = Overflow::fail}));
    co_await counter.tell_add_slowly({.delta = 1000});
    co_await hf::sleep_for(1ms);
    const std::string text(300 << 10, 'x');
    int taken = 0;
    while (counter.try_add_named({.name = text})) ++taken;
    CHECK(taken == 3);
    CHECK(counter.try_note({.delta = 1}));  // a small one still fits
  });
}

TEST_CASE("a message larger than the whole mailbox passes when it is empty") {
  World world;
  const long total = world.run([&]() -> Task<long> {
    auto counter = co_await world.node.spawn<Counter>(with_mailbox({.bytes = 1000}));
    const auto sum = co_await counter.add_named({.name = std::string(10'000, 'x'), .delta = 3});
    co_return sum.total();
  });
  CHECK(total == 3);
}

TEST_CASE("with the policy to fail, a full mailbox gives the sender an error at once") {
  for (unsigned shard : {0u, 1u}) {
    DeadLetters dead;
    World world(2, dead.options());
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>(
          with_mailbox({.messages = 2, .overflow = Overflow::fail}, shard));
      co_await counter.tell_add_slowly({.delta = 1000});
      co_await hf::sleep_for(1ms);
      for (int i = 0; i < 2; ++i) co_await counter.note({.delta = 1});
      co_await hf::sleep_for(1ms);
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 2})) == Errc::overloaded);
      CHECK(co_await code_of<void>(counter.note({.delta = 2})) == Errc::overloaded);
      CHECK(!counter.try_note({.delta = 2}));
      co_await hf::sleep_for(2s);
      const auto value = co_await counter.add({.delta = 0});
      CHECK(value.total() == 1002);
    });
    CHECK(dead.letters.size() >= 2);
    CHECK(dead.letters[0].cause == Errc::overloaded);
  }
}

TEST_CASE("the policy to drop the newest keeps what came first, and counts") {
  Journal journal;
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        with_mailbox({.messages = 3, .overflow = Overflow::drop_newest}), &journal);
    co_await counter.tell_add_slowly({.delta = 10});
    co_await hf::sleep_for(1ms);
    for (int i = 1; i <= 6; ++i) co_await counter.note({.delta = i});
    CHECK(co_await code_of<demo::Total>(counter.add({.delta = 0})) == Errc::overloaded);
    co_await hf::sleep_for(1s);
  });
  CHECK(journal.lines ==
        std::vector<std::string>{"begin 10", "end 10", "note 1", "note 2", "note 3"});
  CHECK(dead.letters.size() == 4);
  CHECK(world.metric("hyperframes_dead_letters_total") == 4);
}

TEST_CASE("the policy to drop the oldest keeps what came last, and counts") {
  Journal journal;
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        with_mailbox({.messages = 3, .overflow = Overflow::drop_oldest}), &journal);
    co_await counter.tell_add_slowly({.delta = 10});
    co_await hf::sleep_for(1ms);
    for (int i = 1; i <= 6; ++i) co_await counter.note({.delta = i});
    co_await hf::sleep_for(1s);
  });
  CHECK(journal.lines ==
        std::vector<std::string>{"begin 10", "end 10", "note 4", "note 5", "note 6"});
  CHECK(dead.letters.size() == 3);
}

TEST_CASE("what the system says passes a full mailbox, whatever its policy") {
  for (Overflow overflow :
       {Overflow::suspend, Overflow::fail, Overflow::drop_newest, Overflow::drop_oldest}) {
    Journal journal;
    World world;
    world.run([&, overflow]() -> Task<void> {
      struct Watcher final : demo::OtherCounter::Actor {
        Watcher(Journal* journal, demo::CounterRef other) : journal(journal) { monitor(other); }
        Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
          co_await hf::sleep_for(100ms);
          reply.send({});
        }
        Task<void> on_down(hf::Down down) override {
          journal->lines.push_back("down " + down.name);
          return {};
        }
        Journal* journal;
      };
      auto other = co_await world.node.spawn<Counter>("other");
      auto watcher = co_await world.node.spawn<Watcher>(
          {.mailbox = {.messages = 2, .overflow = overflow}}, &journal, other);
      for (int i = 0; i < 10; ++i) watcher.try_add({});
      co_await hf::sleep_for(1ms);
      for (int i = 0; i < 10; ++i) watcher.try_add({});
      world.node.stop(other);
      co_await world.node.join(other);
      co_await hf::sleep_for(110ms);  // at most until the turn that runs has ended
      CHECK(journal.lines == std::vector<std::string>{"down other"});
      world.node.stop(watcher);
      const auto down = co_await world.node.join(watcher, hf::after(1s));
      CHECK(down.reason == hf::ExitReason::stopped);
    });
  }
}

TEST_CASE("two actors that send to each other with full mailboxes are freed by their deadlines") {
  struct Partner final : demo::OtherCounter::Actor {
    explicit Partner(int* failures) : failures(failures) {}
    Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
      reply.send({});
      if (request.delta() == 0) co_return;
      // With its turn suspended here, nothing makes room in its own mailbox.
      auto other = node().find<demo::OtherCounter>(std::string(request.name()));
      for (int i = 0; i < 4; ++i) {
        co_await hf::sleep_for(1ms);  // so that it is known, on the other shard too, what is full
        try {
          co_await other->tell_add({}, hf::within(1s));
        } catch (const hf::Error& error) {
          if (error.is(Errc::deadline_exceeded)) ++*failures;
        }
      }
    }
    int* failures;
  };
  for (unsigned shard : {0u, 1u}) {
    int failures = 0;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto one = co_await world.node.spawn<Partner>({.name = "one", .mailbox = {.messages = 2}},
                                                    &failures);
      auto two = co_await world.node.spawn<Partner>(
          {.name = "two", .shard = shard, .mailbox = {.messages = 2}}, &failures);
      co_await one.tell_add({.name = "two", .delta = 1});
      co_await two.tell_add({.name = "one", .delta = 1});
      co_await hf::sleep_for(20s);
      co_await one.add({});
      co_await two.add({});
    });
    CHECK(failures >= 1);
  }
}

TEST_CASE("senders are admitted in the order in which they began to wait") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(with_mailbox({.messages = 1}), &journal);
    co_await counter.tell_add_slowly({.delta = 10});
    co_await hf::sleep_for(1ms);
    hf::Scope scope;
    auto tell = [](demo::CounterRef counter, int number) -> Task<void> {
      co_await counter.note({.delta = number});
    };
    for (int i = 1; i <= 5; ++i) scope.spawn(tell(counter, i));
    co_await scope.join();
    co_await counter.add({.delta = 0});
  });
  CHECK(journal.lines == std::vector<std::string>{"begin 10", "end 10", "note 1", "note 2",
                                                  "note 3", "note 4", "note 5"});
}

TEST_CASE("letters that expired before a full mailbox don't pile up behind one that has time") {
  DeadLetters dead;
  World world(2, dead.options());
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>({.shard = 1, .mailbox = {.messages = 1}});
    co_await counter.tell_add_slowly({.delta = 1'000'000});
    co_await hf::sleep_for(1ms);
    co_await counter.note({.delta = 1});  // it is full now
    hf::Scope scope;
    auto patient = [](demo::CounterRef counter) -> Task<void> {
      const auto value = co_await counter.add({.delta = 1}, hf::within(1h));
      CHECK(value.total() == 1'000'002);
    };
    scope.spawn(patient(counter));
    co_await hf::sleep_for(1ms);
    for (int i = 0; i < 1000; ++i)
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1}, hf::within(1ms))) ==
            Errc::deadline_exceeded);
    CHECK(dead.letters.size() > 800);  // while it is still stalled
    co_await scope.join();
  });
  CHECK(dead.letters.size() == 1000);
}

namespace {

/// 6 notes to a counter that is busy and holds 3: what it handles then, and what died.
struct Dropping {
  Journal journal;
  DeadLetters dead;
};

}  // namespace

TEST_CASE("what is dropped between shards is what the policy says, counted, and holds up nobody") {
  for (const Overflow overflow : {Overflow::drop_newest, Overflow::drop_oldest}) {
    Dropping seen;
    World world(2, seen.dead.options());
    world.run([&, overflow]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>(
          with_mailbox({.messages = 3, .overflow = overflow}, 1), &seen.journal);
      co_await counter.tell_add_slowly({.delta = 1000});
      co_await hf::sleep_for(1ms);
      const hf::Time begun = hf::Clock::now();
      for (int i = 1; i <= 6; ++i) co_await counter.note({.delta = i});
      CHECK(hf::Clock::now() == begun);  // without a wait, even for the other shard
      co_await hf::sleep_for(1ms);
      const auto code = co_await code_of<demo::Total>(counter.add({.delta = 0}, hf::within(10ms)));
      CHECK(code ==
            (overflow == Overflow::drop_newest ? Errc::overloaded : Errc::deadline_exceeded));
      co_await hf::sleep_for(2s);
    });
    const bool newest = overflow == Overflow::drop_newest;
    const auto expected =
        newest ? std::vector<std::string>{"begin 1000", "end 1000", "note 1", "note 2", "note 3"}
               : std::vector<std::string>{"begin 1000", "end 1000", "note 5", "note 6"};
    CHECK(seen.journal.lines == expected);
    CHECK(world.metric("hyperframes_dropped_letters_total") == 4);
    for (const auto& letter : seen.dead.letters)
      CHECK((letter.cause == Errc::overloaded || letter.cause == Errc::deadline_exceeded));
  }
}

TEST_CASE("what peers send is dropped by the same policies, and counted") {
  for (const Overflow overflow : {Overflow::drop_newest, Overflow::drop_oldest}) {
    for (unsigned server_shards : {1u, 2u}) {
      Journal journal;
      Cluster cluster(server_shards);
      cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
        co_await cluster.server->spawn<Counter>({.name = "dropping",
                                                 .shard = server_shards - 1,
                                                 .mailbox = {.messages = 3, .overflow = overflow}},
                                                &journal);
      });
      cluster.run([&]() -> Task<void> {
        hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
        auto counter = co_await remote.find<demo::Counter>("dropping");
        co_await counter.tell_add_slowly({.delta = 1000});
        co_await hf::sleep_for(10ms);
        // Far more than the connection's window would take, were it not given back.
        for (int i = 1; i <= 50'000; ++i) co_await counter.note({.delta = i}, hf::within(1s));
        co_await hf::sleep_for(10ms);
        if (overflow == Overflow::drop_newest)
          CHECK(co_await code_of<demo::Total>(counter.add({.delta = 0})) == Errc::overloaded);
        co_await hf::sleep_for(2s);
      });
      REQUIRE(journal.lines.size() == 5);
      const bool newest = overflow == Overflow::drop_newest;
      CHECK(journal.lines[2] == (newest ? "note 1" : "note 49998"));
      CHECK(journal.lines[4] == (newest ? "note 3" : "note 50000"));
      CHECK(cluster.metric(cluster.server_machine, "hyperframes_dropped_letters_total") ==
            (newest ? 49'998u : 49'997u));
    }
  }
}

TEST_CASE("dropping the oldest makes room in bytes, and an ask that is dropped says so") {
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        with_mailbox({.bytes = 1 << 20, .overflow = Overflow::drop_oldest}));
    co_await counter.tell_add_slowly({.delta = 1000});
    co_await hf::sleep_for(1ms);
    hf::Scope scope;
    auto ask = [](demo::CounterRef counter) -> Task<void> {
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::overloaded);
    };
    scope.spawn(ask(counter));
    co_await hf::sleep_for(1ms);
    const std::string text(300 << 10, 'x');
    for (int i = 0; i < 5; ++i) CHECK(counter.try_add_named({.name = text, .delta = 1}));
    co_await scope.join();
    co_await hf::sleep_for(2s);
    const auto total = co_await counter.add({.delta = 0});
    CHECK(total.total() == 1003);
  });
  CHECK(world.metric("hyperframes_dropped_letters_total") == 3);
}
