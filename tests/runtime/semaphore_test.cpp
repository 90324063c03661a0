#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/semaphore.hpp>
#include <random>
#include <vector>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;

namespace {

/// Takes `count` permits and notes its name; keeps them until the frame is destroyed or `release`.
Task<void> take(Semaphore& semaphore, std::size_t count, int name, std::vector<int>& order,
                Event* release = nullptr, Time deadline = no_deadline) {
  auto permit = co_await semaphore.acquire(count, deadline);
  order.push_back(name);
  if (release) co_await release->wait();
}

}  // namespace

TEST_CASE("permits are given first come first served, also when a later need is smaller") {
  Manual manual;
  Semaphore semaphore(2);
  Event release;
  std::vector<int> order;
  manual.spawn([&] { return take(semaphore, 2, 1, order, &release); });
  manual.spawn([&] { return take(semaphore, 2, 2, order); });
  manual.spawn([&] { return take(semaphore, 1, 3, order); });
  manual.settle();
  CHECK(order == std::vector<int>{1});
  CHECK_FALSE(semaphore.try_take(1));
  manual.on(0, [&] { release.set(); });
  manual.settle();
  CHECK(order == std::vector<int>{1, 2, 3});
  CHECK(semaphore.available() == 2);
}

TEST_CASE("a permit moves, is given back once, and early if asked") {
  Manual manual;
  Semaphore semaphore(3);
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      Semaphore::Permit kept;
      {
        auto permit = co_await semaphore.acquire(2);
        CHECK(semaphore.available() == 1);
        kept = std::move(permit);
      }
      CHECK(semaphore.available() == 1);
      kept = co_await semaphore.acquire(1);
      CHECK(semaphore.available() == 2);
      kept.release();
      kept.release();
      CHECK(semaphore.available() == 3);
    });
  });
  manual.settle();
  CHECK(semaphore.available() == 3);
}

TEST_CASE("when the first in line leaves, those behind it get what there is") {
  for (const std::string how : {"deadline", "cancelled", "destroyed", "cancelled and destroyed"}) {
    DYNAMIC_SECTION("because of: " << how) {
      Manual manual;
      Semaphore semaphore(3);
      (void)semaphore.try_take(1);
      std::vector<int> order;
      auto scope = manual.on(0, [&] {
        auto scope = std::make_unique<Scope>();
        const Time deadline = how == "deadline" ? manual.now() + 5ms : no_deadline;
        scope->spawn(take(semaphore, 3, 1, order, nullptr, deadline));
        return scope;
      });
      manual.settle();
      manual.spawn([&] { return take(semaphore, 1, 2, order); });
      manual.spawn([&] { return take(semaphore, 2, 3, order); });
      manual.settle();
      CHECK(order.empty());
      if (how == "deadline") manual.advance(10ms);
      manual.on(0, [&] {
        if (how.starts_with("cancelled")) scope->cancel();
        if (how.ends_with("destroyed")) scope.reset();
      });
      manual.settle();
      CHECK(order == std::vector<int>{2, 3});
      CHECK(semaphore.available() == 2);
      manual.on(0, [&] { scope.reset(); });
    }
  }
}

TEST_CASE("a permit that was granted to a frame that is destroyed goes to the next in line") {
  Manual manual;
  Semaphore semaphore(1);
  (void)semaphore.try_take(1);
  std::vector<int> order;
  auto scope = manual.on(0, [&] {
    auto scope = std::make_unique<Scope>();
    scope->spawn(take(semaphore, 1, 1, order));
    return scope;
  });
  manual.settle();
  manual.spawn([&] { return take(semaphore, 1, 2, order); });
  manual.settle();
  manual.on(0, [&] {
    semaphore.release(1);
    scope.reset();
  });
  manual.settle();
  CHECK(order == std::vector<int>{2});
  CHECK(semaphore.available() == 1);
}

TEST_CASE("permits are neither lost nor made under random use") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Manual manual;
  Semaphore semaphore(5);
  std::size_t held = 0, highest = 0;
  int ended = 0;
  auto user = [&](unsigned steps, std::uint32_t own) -> Task<void> {
    std::mt19937 random(own);
    for (unsigned i = 0; i < steps; ++i) {
      const std::size_t count = 1 + random() % 5;
      try {
        auto permit = co_await semaphore.acquire(
            count, random() % 3 ? no_deadline : after(Duration(random() % 3'000'000)));
        held += count;
        highest = std::max(highest, held);
        co_await sleep_for(Duration(random() % 1'000'000));
        held -= count;
      } catch (const Error& error) {
        if (!error.is(Errc::deadline_exceeded)) throw;
      }
    }
    ++ended;
  };
  for (int i = 0; i < 50; ++i)
    manual.spawn([&] { return user(20, static_cast<std::uint32_t>(random())); });
  for (int i = 0; i < 20'000 && ended < 50; ++i) manual.advance(200us);
  CHECK(ended == 50);
  CHECK(held == 0);
  CHECK(highest <= 5);
  CHECK(semaphore.available() == 5);
}
