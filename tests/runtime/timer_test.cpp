#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <functional>
#include <hyperframes/runtime/timer.hpp>
#include <memory>
#include <random>
#include <vector>

using namespace hyperframes;

namespace {

constexpr Duration tick{1 << 16};
constexpr std::size_t unlimited = SIZE_MAX;

struct TestTimer : Timer {
  TestTimer() : Timer(&TestTimer::run) {}
  explicit TestTimer(std::function<void()> act) : Timer(&TestTimer::run), act(std::move(act)) {}
  static void run(Timer& timer) noexcept {
    auto& self = static_cast<TestTimer&>(timer);
    ++self.fired;
    if (self.act) self.act();
  }
  int fired = 0;
  std::function<void()> act;
};

std::int64_t tick_of(Time time) {
  return std::max<std::int64_t>(0, time.time_since_epoch().count()) >> 16;
}

}  // namespace

TEST_CASE("timers fire as the model says under random use") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    Time now{Duration(static_cast<std::int64_t>(random() % (std::int64_t{1} << (20 + round * 2))))};
    TimerWheel wheel(now);
    std::deque<TestTimer> timers(200);
    struct Model {
      bool running = false;
      std::int64_t due = 0;  ///< The tick in which it fires.
      int fired = 0;
    };
    std::int64_t next_tick = tick_of(now);  ///< The first that has not been dealt with.
    std::vector<Model> model(timers.size());
    // Spans of all magnitudes, from below a tick to years, and some in the past.
    auto any_span = [&] {
      const auto span =
          Duration(static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 58))));
      return random() % 8 == 0 ? -span / 1024 : span;
    };
    for (int step = 0; step < 2000; ++step) {
      const std::size_t i = random() % timers.size();
      switch (random() % 4) {
        case 0:
        case 1: {
          const Time deadline = random() % 50 == 0 ? Time::max() : now + any_span();
          wheel.start(timers[i], deadline);
          model[i] = {deadline != Time::max(), std::max(tick_of(deadline) + 1, next_tick),
                      model[i].fired};
          break;
        }
        case 2:
          timers[i].stop();
          model[i].running = false;
          break;
        default: {
          const Time next = wheel.next_expiry();
          const std::uint64_t kind = random() % 3;
          Time to = now;
          if (kind == 0) to += Duration(static_cast<std::int64_t>(random() % 1'000'000));
          if (kind == 1)
            to += Duration(
                static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 45))));
          if (kind == 2 && next != Time::max()) to = std::max(now, next);
          // Nothing fires before next_expiry.
          if (to < next) {
            for (const Model& expected : model)
              CHECK_FALSE((expected.running && expected.due <= tick_of(to)));
          }
          now = to;
          const std::size_t budget = random() % 4 ? unlimited : 1 + random() % 3;
          while (wheel.advance(now, budget) == budget) {
          }
          next_tick = std::max(next_tick, tick_of(now) + 1);
          for (std::size_t k = 0; k < timers.size(); ++k) {
            if (model[k].running && model[k].due <= tick_of(now)) {
              model[k].running = false;
              ++model[k].fired;
            }
          }
        }
      }
      CHECK(timers[i].running() == model[i].running);
      CHECK(timers[i].fired == model[i].fired);
    }
    for (std::size_t k = 0; k < timers.size(); ++k) {
      CHECK(timers[k].fired == model[k].fired);
      CHECK(timers[k].running() == model[k].running);
    }
  }
}

TEST_CASE("waiting for one timer takes few wake-ups, however far it is") {
  for (const Duration span : {Duration(1ms), Duration(1s), Duration(1h), Duration(24h * 365 * 5)}) {
    Time now{Duration(123'456'789'012)};
    TimerWheel wheel(now);
    TestTimer timer;
    wheel.start(timer, now + span);
    int wakes = 0;
    while (!timer.fired && wakes < 100) {
      const Time next = wheel.next_expiry();
      REQUIRE(next > now);
      CHECK(next <= now + span + 2 * tick);
      now = next;
      ++wakes;
      wheel.advance(now, unlimited);
    }
    CHECK(timer.fired == 1);
    CHECK(wakes <= 8);
  }
}

TEST_CASE("a timer that never fires costs no wake-ups") {
  const Time now{Duration(1'000'000'000'000)};
  TimerWheel wheel(now);
  TestTimer never, far;
  wheel.start(never, Time::max());
  CHECK(wheel.next_expiry() == Time::max());
  // Nor does one that is beyond the wheel's reach, for a long time.
  wheel.start(far, now + Duration(24h * 365 * 50));
  CHECK(wheel.next_expiry() > now + 24h);
  wheel.advance(now + 1h, unlimited);
  CHECK(wheel.next_expiry() > now + 24h);
  CHECK(never.fired == 0);
  CHECK(far.fired == 0);
}

TEST_CASE("a timer beyond the wheel's reach fires in its time") {
  Time now{Duration(5'000'000'000)};
  const Time deadline = now + Duration(24h * 365 * 30);
  TimerWheel wheel(now);
  TestTimer timer;
  wheel.start(timer, deadline);
  int wakes = 0;
  while (!timer.fired && ++wakes < 1000) {
    const Time next = wheel.next_expiry();
    REQUIRE(next > now);
    REQUIRE(next != Time::max());
    now = next;
    wheel.advance(now, unlimited);
    if (timer.fired) {
      CHECK(now > deadline);
      CHECK(now <= deadline + 2 * tick);
    }
  }
  CHECK(timer.fired == 1);
}

TEST_CASE("a stopped timer does not fire, nor one that is destroyed or restarted later") {
  Time now{Duration(1'000'000'000)};
  TimerWheel wheel(now);
  TestTimer stopped, restarted;
  auto destroyed = std::make_unique<TestTimer>();
  for (TestTimer* timer : {&stopped, &restarted, destroyed.get()}) wheel.start(*timer, now + 1ms);
  stopped.stop();
  stopped.stop();
  destroyed.reset();
  wheel.start(restarted, now + 10ms);
  CHECK(restarted.deadline() == now + 10ms);
  CHECK(wheel.advance(now + 5ms, unlimited) == 0);
  CHECK(wheel.advance(now + 20ms, unlimited) == 1);
  CHECK(restarted.fired == 1);
  CHECK(stopped.fired == 0);
  CHECK(wheel.next_expiry() == Time::max());
}

TEST_CASE("timers may start, stop and destroy each other while they fire") {
  Time now{Duration(1'000'000'000)};
  TimerWheel wheel(now);
  TestTimer victim, again, later;
  auto destroyed = std::make_unique<TestTimer>();
  int rounds = 0;
  TestTimer first([&] {
    victim.stop();
    destroyed.reset();
    wheel.start(later, now);  // in the past: at the next advance at the latest
  });
  again.act = [&] {
    if (++rounds < 5) wheel.start(again, now);
  };
  wheel.start(first, now + 1ms);
  wheel.start(victim, now + 1ms);
  wheel.start(*destroyed, now + 1ms);
  wheel.start(again, now + 1ms);
  now += 2ms;
  CHECK(wheel.advance(now, unlimited) < 20);
  for (int i = 0; i < 10; ++i) {
    now += 1ms;
    wheel.advance(now, unlimited);
  }
  CHECK(victim.fired == 0);
  CHECK(later.fired == 1);
  CHECK(rounds == 5);
}

TEST_CASE("a timer that always restarts itself does not keep the wheel from returning") {
  Time now{Duration(1'000'000'000)};
  TimerWheel wheel(now);
  TestTimer eager;
  eager.act = [&] { wheel.start(eager, now - 1s); };
  wheel.start(eager, now);
  now += 1ms;
  CHECK(wheel.advance(now, 100) <= 100);
  CHECK(eager.fired >= 1);
}

TEST_CASE("many timers of one moment are run in the order in which they were started") {
  Time now{Duration(1'000'000'000)};
  TimerWheel wheel(now);
  std::vector<int> order;
  std::deque<TestTimer> timers;
  for (int i = 0; i < 1000; ++i) timers.emplace_back([&order, i] { order.push_back(i); });
  for (auto& timer : timers) wheel.start(timer, now + 3ms);
  now += 10ms;
  std::size_t turns = 0;
  while (wheel.advance(now, 256) == 256) {
    ++turns;
    CHECK(wheel.next_expiry() <= now);
  }
  CHECK(turns == 3);
  CHECK(order.size() == 1000);
  CHECK(std::ranges::is_sorted(order));
}
