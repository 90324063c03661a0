#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <vector>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;

TEST_CASE("a sleep never ends early, and ends within a tick and a turn") {
  Manual manual;
  for (const Duration span : {Duration(1), Duration(65'536), Duration(1ms), Duration(1h)}) {
    Time ended{};
    const Time started = manual.now();
    manual.spawn([&] {
      return co_invoke([&]() -> Task<void> {
        co_await sleep_for(span);
        ended = Clock::now();
      });
    });
    manual.settle();
    while (ended == Time{}) {
      manual.let_pass(std::max<Duration>(
          1ns, std::min<Duration>(manual.shard().next_turn() - manual.now(), 1h)));
      manual.settle();
    }
    CHECK(ended - started >= span);
    CHECK(ended - started <= span + 2 * Duration(65'536));
  }
}

TEST_CASE("a sleep until a time in the past does not suspend") {
  Manual manual;
  bool done = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      co_await sleep_until(Clock::now());
      co_await sleep_until(Clock::now() - 1s);
      co_await sleep_for(Duration(-5));
      done = true;
    });
  });
  manual.turn();
  CHECK(done);
}

TEST_CASE("yielding goes to the end of the queue") {
  Manual manual;
  std::vector<int> order;
  auto body = [&](int name) -> Task<void> {
    order.push_back(name);
    co_await yield();
    order.push_back(name + 10);
  };
  for (int i = 0; i < 3; ++i) manual.spawn([&] { return body(i); });
  manual.settle();
  CHECK(order == std::vector<int>{0, 1, 2, 10, 11, 12});
}

TEST_CASE("a sleep for longer than the clock counts never ends and costs no wake-ups") {
  Manual manual;
  bool done = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      co_await sleep_for(Duration::max());
      done = true;
    });
  });
  manual.settle();
  CHECK_FALSE(done);
  CHECK(manual.shard().next_turn() == Time::max());
}
