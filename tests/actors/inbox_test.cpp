#include <hyperframes/actors/inbox.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "support.hpp"

using actor_test::code_of;
using actor_test::DeadLetters;
using actor_test::Journal;
using actor_test::Log;
using actor_test::World;
using demo::Counter;
using hf::Errc;
using hf::Task;
using namespace std::chrono_literals;

namespace {

Task<void> counting(Counter::Inbox self, long start) {
  long total = start;
  while (auto letter = co_await self.recv()) {
    if (auto call = letter.as<Counter::AddMethod>()) {
      call->reply.send({.total = total += call->request.delta()});
    } else if (auto named = letter.as<Counter::AddNamedMethod>()) {
      total += named->request.delta();
      named->reply.send({.total = total, .note = std::string(named->request.name())});
    } else if (auto noted = letter.as<Counter::NoteMethod>()) {
      total += noted->request.delta();
    } else if (auto echo = letter.as<Counter::EchoMethod>()) {
      echo->reply.send({.total = 1}, std::move(echo->segments));
    } else if (auto crash = letter.as<Counter::CrashMethod>()) {
      throw std::runtime_error(std::string(crash->request.name()));
    }
  }
}

}  // namespace

TEST_CASE("a coroutine with an inbox is an actor") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter =
          co_await world.node.spawn<Counter>({.name = "counter", .shard = shard}, &counting, 10L);
      co_await counter.note({.delta = 1});
      const auto value = co_await counter.add({.delta = 2});
      CHECK(value.total() == 13);
      const auto sum = co_await counter.add_named({.name = "Ada", .delta = 2});
      CHECK(sum.note() == "Ada");
      const auto echo = co_await counter.echo({}, hf::Segments(hf::Buffer::copy_of("data")));
      CHECK(echo.segments[0].text() == "data");
      CHECK(world.node.find<Counter>("counter").value() == counter);
    });
  }
}

TEST_CASE("a request that an inbox leaves unanswered gets no_reply") {
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>("counter", &counting, 0L);
    CHECK(co_await code_of<demo::Total>(counter.keep({.delta = 1})) == Errc::no_reply);
  });
}

TEST_CASE("an inbox that is told to stop receives nothing more, and ends when its function does") {
  Journal journal;
  DeadLetters dead;
  World world(1, dead.options());
  world.run([&]() -> Task<void> {
    auto body = [](Counter::Inbox self, Journal* journal) -> Task<void> {
      while (auto letter = co_await self.recv()) journal->lines.push_back("letter");
      journal->lines.push_back("end");
    };
    auto counter = co_await world.node.spawn<Counter>("counter", body, &journal);
    co_await counter.note({.delta = 1});
    co_await hf::sleep_for(1ms);
    world.node.stop(counter);
    co_await hf::yield();
    const auto down = co_await world.node.join(counter);
    CHECK(down.reason == hf::ExitReason::stopped);
  });
  CHECK(journal.lines == std::vector<std::string>{"letter", "end"});
}

TEST_CASE("an inbox whose function returns has ended normally") {
  World world;
  world.run([&]() -> Task<void> {
    auto once = [](Counter::Inbox self) -> Task<void> {
      auto letter = co_await self.recv();
      if (auto call = letter.as<Counter::AddMethod>()) call->reply.send({.total = 1});
    };
    auto counter = co_await world.node.spawn<Counter>("counter", once);
    co_await counter.add({.delta = 1});
    CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::actor_down);
  });
}

TEST_CASE("an inbox that crashes is restarted by its policy, and keeps its letters") {
  Log log;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        {.name = "counter", .restart = {.kind = hf::Restart::permanent}}, &counting, 100L);
    co_await counter.tell_add({.delta = 1});
    co_await counter.tell_crash({.name = "oops"});
    co_await counter.tell_add({.delta = 5});
    const auto value = co_await counter.add({.delta = 1});
    CHECK(value.total() == 106);
  });
  CHECK(log.has("oops"));
}

TEST_CASE("an inbox learns of the end of who it monitors, also when its mailbox is full") {
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto other = co_await world.node.spawn<actor_test::Counter>("other");
    auto body = [](Counter::Inbox self, demo::CounterRef other, Journal* journal) -> Task<void> {
      self.monitor(other);
      co_await hf::sleep_for(10ms);
      while (auto letter = co_await self.recv())
        journal->lines.push_back(letter.down() ? "down " + letter.down()->name : "letter");
    };
    auto counter = co_await world.node.spawn<Counter>(
        {.mailbox = {.messages = 2, .overflow = hf::Overflow::fail}}, body, other, &journal);
    while (counter.try_note({.delta = 1})) {
    }
    world.node.stop(other);
    co_await hf::sleep_for(50ms);
  });
  CHECK(journal.lines == std::vector<std::string>{"down other", "letter", "letter"});
}

TEST_CASE("an inbox with a full queue lets others run") {
  int received = 0;
  long ran_after = -1;
  World world;
  world.run([&]() -> Task<void> {
    auto body = [](Counter::Inbox self, int* received) -> Task<void> {
      while (auto letter = co_await self.recv()) ++*received;
    };
    auto counter = co_await world.node.spawn<Counter>("counter", body, &received);
    for (int i = 0; i < 1000; ++i) counter.try_note({.delta = 1});
    co_await hf::yield();
    co_await hf::yield();
    ran_after = received;
    co_await hf::sleep_for(10ms);
  });
  CHECK(received == 1000);
  CHECK(ran_after < 200);
}
