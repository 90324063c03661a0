#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/local_channel.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <random>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;
using test::Tracked;

namespace {

Task<void> produce(LocalChannel<int>& channel, int from, int count, int& sent) {
  for (int i = 0; i < count; ++i) {
    co_await channel.send(from + i);
    ++sent;
  }
}

Task<void> consume(LocalChannel<int>& channel, std::vector<int>& got) {
  while (auto value = co_await channel.receive()) got.push_back(*value);
}

}  // namespace

TEST_CASE("values come out of a channel in the order in which they went in") {
  Manual manual;
  LocalChannel<int> channel(4);
  int sent = 0;
  std::vector<int> got;
  manual.spawn([&] { return produce(channel, 0, 1000, sent); });
  manual.spawn([&] { return consume(channel, got); });
  manual.settle();
  REQUIRE(got.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(got[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("a consumer that stalls suspends the producers and keeps memory flat") {
  Manual manual;
  LocalChannel<int> channel(64);
  int sent = 0;
  for (int i = 0; i < 10; ++i) manual.spawn([&] { return produce(channel, 0, 100'000, sent); });
  manual.settle();
  CHECK(sent == 64);
  CHECK(channel.size() == 64);
  const auto frames = manual.frames();
  for (int i = 0; i < 100; ++i) manual.advance(1s);
  CHECK(sent == 64);
  CHECK(manual.frames() == frames);
  std::vector<int> got;
  manual.spawn([&] { return consume(channel, got); });
  manual.settle();
  CHECK(got.size() == 1'000'000);
}

TEST_CASE("senders that wait are admitted in their order") {
  Manual manual;
  LocalChannel<int> channel(1);
  int sent = 0;
  for (int i = 0; i < 5; ++i) manual.spawn([&] { return produce(channel, i, 1, sent); });
  manual.settle();
  CHECK(sent == 1);
  int late = 99;
  CHECK_FALSE(channel.try_send(late));
  std::vector<int> got;
  manual.on(0, [&] {
    while (auto value = channel.try_receive()) got.push_back(*value);
  });
  manual.settle();
  CHECK(got == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(sent == 5);
}

TEST_CASE("closing lets receivers drain, then ends them, and fails senders") {
  Manual manual;
  LocalChannel<int> channel(2);
  int sent = 0, closed = 0;
  std::vector<int> got;
  auto send = [&]() -> Task<void> {
    try {
      co_await produce(channel, 0, 3, sent);
    } catch (const Error& error) {
      closed += error.is(Errc::closed);
    }
  };
  manual.spawn([&] { return co_invoke(send); });
  manual.settle();
  manual.on(0, [&] { channel.close(); });
  manual.settle();
  CHECK(closed == 1);
  manual.spawn([&] { return consume(channel, got); });
  manual.settle();
  CHECK(got == std::vector<int>{0, 1});
  manual.spawn([&] { return co_invoke(send); });
  manual.settle();
  CHECK(closed == 2);
  int value = 7;
  CHECK_FALSE(channel.try_send(value));
  CHECK(value == 7);
}

TEST_CASE("closing wakes receivers that wait") {
  Manual manual;
  LocalChannel<int> channel(2);
  std::vector<int> got;
  manual.spawn([&] { return consume(channel, got); });
  manual.spawn([&] { return consume(channel, got); });
  manual.settle();
  CHECK(manual.on(0, [&] { return manual.shard().load().root_tasks; }) == 2);
  manual.on(0, [&] { channel.close(); });
  manual.settle();
  CHECK(manual.on(0, [&] { return manual.shard().load().root_tasks; }) == 0);
}

TEST_CASE("sending and receiving end at their deadlines, and nothing is sent then") {
  Manual manual;
  LocalChannel<Tracked> channel(1);
  int timeouts = 0;
  const int alive = Tracked::alive();
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      try {
        co_await channel.receive(after(1ms));
      } catch (const Error& error) {
        timeouts += error.is(Errc::deadline_exceeded);
      }
      co_await channel.send(Tracked(1));
      try {
        co_await channel.send(Tracked(2), after(1ms));
      } catch (const Error& error) {
        timeouts += error.is(Errc::deadline_exceeded);
      }
    });
  });
  manual.settle();
  manual.advance(5ms);
  manual.advance(5ms);
  CHECK(timeouts == 2);
  CHECK(channel.size() == 1);
  CHECK(channel.try_receive()->value == 1);
  CHECK(Tracked::alive() == alive);
}

TEST_CASE("every value sent is received once, whatever is cancelled in between") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Manual manual;
  LocalChannel<int> channel(3);
  std::vector<int> sent, got;
  int next = 0, running = 0;
  auto sender = [&](Time deadline) -> Task<void> {
    ++running;
    const int value = next++;
    try {
      co_await channel.send(value, deadline);
      sent.push_back(value);
    } catch (const Error&) {
    }
    --running;
  };
  auto receiver = [&](Time deadline) -> Task<void> {
    ++running;
    try {
      if (auto value = co_await channel.receive(deadline)) got.push_back(*value);
    } catch (const Error&) {
    }
    --running;
  };
  for (int i = 0; i < 5000; ++i) {
    const Time deadline = random() % 4 ? no_deadline : manual.now() + Duration(random() % 400'000);
    if (random() % 2) {
      manual.spawn([&] { return sender(deadline); });
    } else {
      manual.spawn([&] { return receiver(deadline); });
    }
    if (random() % 3 == 0) manual.advance(Duration(random() % 200'000));
  }
  manual.advance(1s);
  manual.on(0, [&] {
    while (auto value = channel.try_receive()) got.push_back(*value);
    channel.close();
  });
  manual.settle();
  CHECK(running == 0);
  std::ranges::sort(sent);
  std::ranges::sort(got);
  CHECK(sent == got);
}

TEST_CASE("a value that was handed to a receiver whose frame is destroyed is not lost") {
  for (const bool another_waits : {false, true}) {
    Manual manual;
    LocalChannel<int> channel(4);
    std::vector<int> lost, got;
    auto receive = [](LocalChannel<int>& channel, std::vector<int>& got) -> Task<void> {
      if (auto value = co_await channel.receive()) got.push_back(*value);
    };
    auto scope = manual.on(0, [&] {
      auto scope = std::make_unique<Scope>();
      scope->spawn(receive(channel, lost));
      return scope;
    });
    manual.settle();
    if (another_waits) manual.spawn([&] { return receive(channel, got); });
    manual.settle();
    manual.on(0, [&] {
      int first = 1, second = 2;
      CHECK(channel.try_send(first));  // to the receiver, which does not run before its end
      if (!another_waits) CHECK(channel.try_send(second));
      scope.reset();
    });
    if (!another_waits) manual.spawn([&] { return receive(channel, got); });
    manual.settle();
    CHECK(lost.empty());
    CHECK(got == std::vector<int>{1});
    CHECK(channel.size() == (another_waits ? 0 : 1));
  }
}

TEST_CASE("a channel may end before a receiver that has its value goes on") {
  Manual manual;
  auto channel = std::make_unique<LocalChannel<Tracked>>(4);
  int got = 0;
  auto receive = [](LocalChannel<Tracked>& channel, int& got) -> Task<void> {
    if (auto value = co_await channel.receive()) got = value->value;
  };
  manual.spawn([&] { return receive(*channel, got); });
  manual.settle();
  manual.on(0, [&] {
    Tracked value(7);
    CHECK(channel->try_send(value));
    channel.reset();
  });
  manual.settle();
  CHECK(got == 7);
}

TEST_CASE("a timer fires while a task is blocked in a send") {
  Manual manual;
  LocalChannel<int> channel(1);
  int sent = 0, fired = 0;
  manual.spawn([&] { return produce(channel, 0, 2, sent); });
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      while (fired < 10) {
        co_await sleep_for(1ms);
        ++fired;
      }
    });
  });
  for (int i = 0; i < 20; ++i) manual.advance(3ms);
  CHECK(sent == 1);
  CHECK(fired == 10);
  manual.on(0, [&] { CHECK(channel.try_receive()); });
  manual.settle();
  CHECK(sent == 2);
}
