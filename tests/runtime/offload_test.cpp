#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <memory>
#include <set>
#include <thread>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;
using test::ManualOffload;
using test::Tracked;

TEST_CASE("an offloaded call gives back values, nothing and exceptions") {
  Runtime runtime({.shards = 1});
  auto body = [](Runtime&) -> Task<int> {
    int good = 0;
    const auto here = std::this_thread::get_id();
    good += co_await offload([here] { return std::this_thread::get_id() != here; });
    good += std::this_thread::get_id() == here;
    good += *co_await offload([] { return std::make_unique<int>(1); });
    co_await offload([] {});
    try {
      co_await offload([]() -> int { throw Error(Errc::corrupt, "offloaded"); });
    } catch (const Error& error) {
      good += error.tried() == "offloaded";
    }
    co_return good;
  };
  CHECK(runtime.run(body) == 4);
}

TEST_CASE("an offloaded call whose caller is destroyed finishes and frees itself") {
  const int alive = Tracked::alive();
  for (const bool ran : {false, true}) {
    Manual manual;
    const auto frames = manual.frames();
    bool called = false;
    auto scope = manual.on(0, [&] {
      auto scope = std::make_unique<Scope>();
      scope->spawn(co_invoke([&]() -> Task<void> {
        co_await offload([&called, tracked = Tracked()] { called = true; });
      }));
      return scope;
    });
    manual.settle();
    REQUIRE(manual.jobs.size() == 1);
    if (ran) ManualOffload::run_first(manual.jobs);
    manual.on(0, [&] { scope.reset(); });
    if (!ran) ManualOffload::run_first(manual.jobs);
    manual.settle();
    CHECK(called);
    CHECK(manual.frames() == frames);
    CHECK(Tracked::alive() == alive);
  }
}

TEST_CASE(
    "a cancelled caller waits for the function, and one that starts cancelled calls nothing") {
  Manual manual;
  CancelSource source;
  std::optional<Errc> ended;
  int called = 0;
  auto body = [&]() -> Task<void> {
    try {
      co_await offload([&called] { ++called; });
      ended = Errc::internal;
      co_await offload([&called] { ++called; });
    } catch (const Error& error) {
      ended = static_cast<Errc>(error.code().value());
    }
  };
  manual.spawn([&] { return with_cancellation(source, co_invoke(body)); });
  manual.settle();
  manual.on(0, [&] { source.cancel(Errc::shutting_down); });
  manual.settle();
  CHECK_FALSE(ended);
  ManualOffload::run_first(manual.jobs);
  manual.settle();
  CHECK(called == 1);
  CHECK(ended == Errc::shutting_down);
  CHECK(manual.jobs.empty());
}

TEST_CASE("an offloaded call's return is not held up by a backlog of the other group") {
  Manual manual(1, {.turn_work_limit = 4});
  bool returned = false;
  manual.spawn(
      [&] {
        return co_invoke([&]() -> Task<void> {
          co_await offload([] {});
          returned = true;
        });
      },
      Group::system);
  manual.settle();
  struct Nothing : detail::Work {
    Nothing() : Work([](Work*) noexcept {}) {}
  };
  std::vector<Nothing> backlog(1000);
  manual.on(0, [&] {
    for (auto& work : backlog) manual.shard().schedule(&work);
  });
  ManualOffload::run_first(manual.jobs);
  manual.turn();
  manual.turn();
  CHECK(returned);
  manual.settle();
}

TEST_CASE("the executor finishes what was queued before it ends") {
  std::atomic<int> ran{0};
  struct Count : detail::Work {
    explicit Count(std::atomic<int>& ran) : Work(&Count::run), ran(ran) {}
    static void run(Work* self) noexcept { ++static_cast<Count*>(self)->ran; }
    std::atomic<int>& ran;
  };
  std::vector<std::unique_ptr<Count>> jobs;
  for (int i = 0; i < 1000; ++i) jobs.push_back(std::make_unique<Count>(ran));
  {
    auto executor = make_thread_offload(3);
    for (auto& job : jobs) executor->execute(job.get());
  }
  CHECK(ran == 1000);
}
