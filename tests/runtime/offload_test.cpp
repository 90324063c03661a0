#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <memory>
#include <set>
#include <thread>

#include "captured_log.hpp"
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
  struct Count : detail::OffloadJob {
    explicit Count(std::atomic<int>& ran) : OffloadJob(&Count::run), ran(ran) {}
    std::string description() const override { return "count"; }
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

TEST_CASE("an offloaded call that never returns is named, and the runtime ends without it") {
  test::CapturedLog log;
  struct Shared {
    std::atomic<bool> began{false}, let_go{false}, over{false};
  };
  auto shared = std::make_shared<Shared>();
  std::atomic<bool> gave_up{false};
  std::thread releaser([&, shared] {
    for (int i = 0; i < 60'000 && !shared->over; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gave_up = !shared->over;
    shared->let_go = true;
  });
  {
    Runtime runtime({.shards = 1, .offload_threads = 1, .stop_deadline = 50ms});
    auto hang = [](std::shared_ptr<Shared> shared) -> Task<void> {
      co_await offload([shared] {
        shared->began = true;
        while (!shared->let_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    };
    // The second is never begun.
    for (int i = 0; i < 2; ++i)
      runtime.on_every_shard([&](Shard& shard) { shard.spawn(hang(shared)); });
    while (!shared->began) std::this_thread::yield();
    const auto report = runtime.stop(50ms);
    REQUIRE(report.stragglers.size() == 2);
    CHECK(report.stragglers[0].find("offload_test.cpp:") != std::string::npos);
  }
  shared->over = true;
  releaser.join();
  CHECK_FALSE(gave_up);
  CHECK(log.text().find("left behind: a call offloaded at ") != std::string::npos);
  CHECK(log.text().find("offload_test.cpp:") != std::string::npos);
  CHECK(log.text().find("not begun") != std::string::npos);
}
