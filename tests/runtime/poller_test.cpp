#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <hyperframes/runtime/poller.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <random>
#include <thread>

#include "conformance.hpp"
#include "manual.hpp"

using namespace hyperframes;
using namespace hyperframes::test;

namespace {

/// A number that another thread writes.
class Number final : public Poller {
 public:
  std::size_t poll() noexcept override {
    const int now = written.load(std::memory_order_acquire);
    if (now == seen.load(std::memory_order_relaxed)) return 0;
    seen.store(now, std::memory_order_release);
    return 1;
  }
  void arm() noexcept override {
    armed.store(true, std::memory_order_relaxed);
    ++times_armed;
  }
  bool ready() const noexcept override {
    return written.load(std::memory_order_relaxed) != seen.load(std::memory_order_relaxed);
  }
  void disarm() noexcept override { armed.store(false, std::memory_order_relaxed); }

  std::atomic<int> written{0}, seen{0};
  std::atomic<bool> armed{false};
  std::atomic<int> times_armed{0};
};

}  // namespace

TEST_CASE("what a poller looks at is seen, whether its shard is awake or has to be woken",
          "[threads]") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  Bed bed(GENERATE(Catch::Generators::range(first_bed, 1)), 1);
  INFO(bed.name());
  Number number;
  Shard* shard = nullptr;
  bed.run([&](Runtime& runtime) {
    shard = &runtime.shard(0);
    return co_invoke(
        [](Number* number) -> Task<void> {
          Shard::current()->add_poller(*number);
          co_return;
        },
        &number);
  });
  std::mt19937_64 random(seed);
  bool all_seen = true;
  for (int value = 1; value <= 3000 && all_seen; ++value) {
    number.written.store(value, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (number.armed.load(std::memory_order_relaxed)) shard->reactor().wake();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (number.seen.load(std::memory_order_acquire) != value && all_seen) {
      all_seen = std::chrono::steady_clock::now() < limit;
      std::this_thread::yield();
    }
    if (random() % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
  CHECK(all_seen);
  CHECK(number.times_armed > 0);
  bed.run([&](Runtime&) {
    return co_invoke(
        [](Number* number) -> Task<void> {
          Shard::current()->remove_poller(*number);
          Shard::current()->remove_poller(*number);  // does nothing
          co_return;
        },
        &number);
  });
}

namespace {

/// Does something to the others once.
class Meddler final : public Poller {
 public:
  std::size_t poll() noexcept override {
    ++polls;
    if (act) std::exchange(act, {})();
    return 0;
  }
  void arm() noexcept override {}
  bool ready() const noexcept override { return false; }
  void disarm() noexcept override {}
  std::function<void()> act;
  int polls = 0;
};

Task<void> meddle() {
  Shard& shard = *Shard::current();
  Meddler first, second, third, late;
  for (Meddler* poller : {&first, &second, &third}) shard.add_poller(*poller);
  co_await sleep_for(1ms);
  CHECK(third.polls > 0);
  second.act = [&] {
    for (Meddler* poller : {&first, &second, &third}) shard.remove_poller(*poller);
    shard.add_poller(late);
  };
  const int before = second.polls;
  co_await sleep_for(1ms);
  CHECK(second.polls == before + 1);
  CHECK(late.polls > 0);
  CHECK(third.polls <= first.polls);
  const int polls = first.polls + second.polls + third.polls;
  co_await sleep_for(1ms);
  CHECK(first.polls + second.polls + third.polls == polls);
  shard.remove_poller(late);
}

}  // namespace

TEST_CASE("a poller may take itself and others out, and add some, while it is polled") {
  Bed bed(GENERATE(Catch::Generators::range(first_bed, 1)), 1);
  INFO(bed.name());
  bed.run([](Runtime&) { return meddle(); });
}

namespace {

/// Has something to do in each turn, for which it takes that long.
class Busy final : public Poller {
 public:
  Busy(Manual& manual, Duration takes) : manual_(manual), takes_(takes) {}
  std::size_t poll() noexcept override {
    ++polls;
    manual_.let_pass(takes_);
    return 1;
  }
  void arm() noexcept override {}
  bool ready() const noexcept override { return true; }
  void disarm() noexcept override {}
  int polls = 0;

 private:
  Manual& manual_;
  Duration takes_;
};

}  // namespace

TEST_CASE("pollers have a part of a turn's time together, and those left out come first next") {
  Manual manual;
  std::deque<Busy> slow, quick;
  for (int i = 0; i < 5; ++i) slow.emplace_back(manual, 1ms);
  for (int i = 0; i < 5; ++i) quick.emplace_back(manual, 1us);
  const auto add = [&](std::deque<Busy>& pollers) {
    manual.on(0, [&] {
      for (Busy& poller : pollers) manual.shard(0).add_poller(poller);
    });
  };
  const auto most = [](const std::deque<Busy>& pollers) {
    return std::ranges::max_element(pollers, {}, &Busy::polls)->polls;
  };
  const auto least = [](const std::deque<Busy>& pollers) {
    return std::ranges::min_element(pollers, {}, &Busy::polls)->polls;
  };
  add(slow);
  for (int turn = 0; turn < 15; ++turn) manual.turn(0);
  CHECK(most(slow) == 3);  // one of the five in each turn
  CHECK(least(slow) == 3);
  manual.on(0, [&] {
    for (Busy& poller : slow) manual.shard(0).remove_poller(poller);
  });
  add(quick);
  for (int turn = 0; turn < 15; ++turn) manual.turn(0);
  CHECK(least(quick) == 15);
  manual.on(0, [&] {
    for (Busy& poller : quick) manual.shard(0).remove_poller(poller);
  });
}

namespace {

/// Never has anything to do.
class Idle final : public Poller {
 public:
  std::size_t poll() noexcept override {
    ++polls;
    return 0;
  }
  void arm() noexcept override {}
  bool ready() const noexcept override {
    ++looks;
    return false;
  }
  void disarm() noexcept override {}
  std::uint64_t polls = 0;
  mutable std::uint64_t looks = 0;
};

}  // namespace

TEST_CASE("between two turns a shard with many pollers looks at each of them once") {
  Runtime::Options options;
  options.shards = 1;
  options.shard.spin_always = true;
  Runtime runtime(options);
  std::deque<Idle> pollers(1000);
  const auto stay_awake = [](std::deque<Idle>* pollers) -> Task<void> {
    for (Idle& poller : *pollers) Shard::current()->add_poller(poller);
    const std::uint64_t before = pollers->back().polls;
    while (pollers->back().polls < before + 20) co_await sleep_for(1ms);
    for (Idle& poller : *pollers) Shard::current()->remove_poller(poller);
  };
  runtime.run([&](Runtime&) { return stay_awake(&pollers); });
  CHECK(pollers.back().polls >= 20);
  CHECK(pollers.back().looks <= pollers.back().polls + 1);
}
