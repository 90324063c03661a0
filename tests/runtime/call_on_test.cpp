#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/log.hpp>
#include <string>
#include <vector>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;
using test::Tracked;

namespace {

std::uint64_t expired_calls(Manual& manual, unsigned shard) {
  return manual.on(shard, [&] {
    return manual.shard(shard).metrics().counter("hyperframes_expired_calls_total").value();
  });
}

/// Notes how a call ended.
struct Outcome {
  bool ended = false;
  std::optional<Error> error;
};

template <class Make>
void start_call(Manual& manual, Outcome& outcome, Make make) {
  manual.spawn([&] {
    return co_invoke(
        [](Make make, Outcome& outcome) -> Task<void> {
          try {
            co_await make();
          } catch (const Error& error) {
            outcome.error = error;
          }
          outcome.ended = true;
        },
        make, std::ref(outcome));
  });
}

}  // namespace

TEST_CASE("a call gives back values, nothing, task results and exceptions") {
  const int alive = Tracked::alive(), misused = Tracked::misused();
  {
    Manual manual(2);
    const auto here = manual.frames(0), there = manual.frames(1);
    Shard& far = manual.shard(1);
    bool done = false;
    manual.spawn([&] {
      return co_invoke([&]() -> Task<void> {
        CHECK((co_await call_on(far, [value = Tracked(3)] { return value; })).value == 3);
        co_await call_on(far, [] {});
        CHECK(*co_await call_on(far, []() -> Task<std::unique_ptr<int>> {
          co_await yield();
          co_return std::make_unique<int>(4);
        }) == 4);
        co_await call_on(far, []() -> Task<void> { co_return; });
        int caught = 0;
        try {
          co_await call_on(far, [] { throw Error(Errc::corrupt, "plain"); });
        } catch (const Error& error) {
          caught += error.tried() == "plain";
        }
        try {
          co_await call_on(far, []() -> Task<int> {
            co_await yield();
            throw Error(Errc::corrupt, "task");
          });
        } catch (const Error& error) {
          caught += error.tried() == "task";
        }
        CHECK(caught == 2);
        CHECK(co_await call_on(manual.shard(0), [] { return Shard::current()->index(); }) == 0);
        done = true;
      });
    });
    manual.settle();
    CHECK(done);
    CHECK(manual.frames(0) == here);
    CHECK(manual.frames(1) == there);
  }
  CHECK(Tracked::alive() == alive);
  CHECK(Tracked::misused() == misused);
}

TEST_CASE("a call whose deadline passed while it was queued is dropped and counted") {
  Manual manual(2);
  Outcome outcome;
  int ran = 0;
  start_call(manual, outcome, [&]() -> Task<void> {
    co_await call_on(manual.shard(1), [&ran] { ++ran; }, manual.now() + 10ms);
  });
  manual.turn(0);
  manual.let_pass(20ms);
  manual.turn(1);
  CHECK(ran == 0);
  CHECK(expired_calls(manual, 1) == 1);
  manual.settle();
  REQUIRE(outcome.error);
  CHECK(outcome.error->is(Errc::deadline_exceeded));
  CHECK(std::string(outcome.error->what()).find("shard 1") != std::string::npos);
  // One that is in time is not.
  start_call(manual, outcome, [&]() -> Task<void> {
    co_await call_on(manual.shard(1), [&ran] { ++ran; }, manual.now() + 10ms);
  });
  manual.settle();
  CHECK(ran == 1);
  CHECK(expired_calls(manual, 1) == 1);
}

TEST_CASE("a call that was cancelled while it was queued is dropped and counted") {
  Manual manual(2);
  Outcome outcome;
  int ran = 0;
  start_call(manual, outcome, [&]() -> Task<void> {
    co_await with_deadline(call_on(manual.shard(1), [&ran] { ++ran; }), manual.now() + 10ms);
  });
  manual.turn(0);
  manual.let_pass(20ms);
  manual.turn(0);
  CHECK_FALSE(outcome.ended);  // still waits for the other shard
  manual.settle();
  CHECK(ran == 0);
  CHECK(expired_calls(manual, 1) == 1);
  REQUIRE(outcome.error);
  CHECK(outcome.error->is(Errc::deadline_exceeded));
}

TEST_CASE("a call's deadline ends the task over there") {
  Manual manual(2);
  Outcome outcome;
  Errc seen = Errc::internal;
  start_call(manual, outcome, [&]() -> Task<void> {
    co_await call_on(
        manual.shard(1),
        [&seen]() -> Task<void> {
          try {
            co_await sleep_for(1h);
          } catch (const Error& error) {
            seen = static_cast<Errc>(error.code().value());
            throw;
          }
        },
        manual.now() + 10ms);
  });
  manual.settle();
  CHECK_FALSE(outcome.ended);
  manual.advance(20ms);
  CHECK(seen == Errc::deadline_exceeded);
  REQUIRE(outcome.error);
  CHECK(outcome.error->is(Errc::deadline_exceeded));
  CHECK(expired_calls(manual, 1) == 0);
}

TEST_CASE("a call whose caller is destroyed is cancelled over there, and freed") {
  const int alive = Tracked::alive();
  for (const bool begun : {true, false}) {
    Manual manual(2);
    const auto here = manual.frames(0), there = manual.frames(1);
    bool ran = false, cancelled = false;
    auto scope = manual.on(0, [&] {
      auto scope = std::make_unique<Scope>();
      scope->spawn(call_on(manual.shard(1), [&, tracked = Tracked()]() -> Task<void> {
        ran = true;
        try {
          co_await sleep_for(1h);
        } catch (const Error& error) {
          cancelled = error.is(Errc::cancelled);
        }
      }));
      return scope;
    });
    if (begun) {
      manual.settle();
    } else {
      manual.turn(0);
    }
    CHECK(ran == begun);
    manual.on(0, [&] { scope.reset(); });
    manual.settle();
    CHECK(ran == begun);
    CHECK(cancelled == begun);
    CHECK(manual.frames(0) == here);
    CHECK(manual.frames(1) == there);
  }
  CHECK(Tracked::alive() == alive);
}

TEST_CASE("a call whose task the other side destroys fails and does not invent a result") {
  Manual here;
  auto there = std::make_unique<Manual>();
  Outcome value, nothing;
  start_call(here, value, [&]() -> Task<void> {
    (void)co_await call_on(there->shard(), []() -> Task<std::string> {
      co_await sleep_for(1h);
      co_return "never";
    });
  });
  start_call(here, nothing, [&]() -> Task<void> {
    co_await call_on(there->shard(), []() -> Task<void> { co_await sleep_for(1h); });
  });
  here.settle();
  there->settle();
  there.reset();
  here.settle();
  REQUIRE(value.error);
  CHECK(value.error->is(Errc::shutting_down));
  REQUIRE(nothing.error);
  CHECK(nothing.error->is(Errc::shutting_down));
}

TEST_CASE("a stopping shard cancels the tasks that others called there") {
  Runtime runtime({.shards = 2});
  std::atomic<bool> began{false};
  runtime.on_every_shard([&](Shard& shard) {
    if (shard.index() != 0) return;
    // The caller does not hear of the cancellation, so the task over there has to.
    shard.spawn(shielded(co_invoke([&runtime, &began]() -> Task<void> {
      co_await call_on(runtime.shard(1), [&began]() -> Task<void> {
        began = true;
        co_await sleep_for(1h);
      });
    })));
  });
  while (!began) std::this_thread::yield();
  const auto report = runtime.stop(timing().scaled(10s));
  CHECK(report.clean);
}

TEST_CASE("what does not fit into a ring follows in order, group by group") {
  Manual manual(2, {.ring_capacity = 8});
  std::vector<int> seen;
  struct Item : detail::Work {
    Item(std::vector<int>& seen, int value) : Work(&Item::run), seen(seen), value(value) {}
    static void run(Work* work) noexcept {
      std::unique_ptr<Item> self(static_cast<Item*>(work));
      self->seen.push_back(self->value);
    }
    std::vector<int>& seen;
    int value;
  };
  std::vector<int> wanted_user, wanted_system;
  manual.on(0, [&] {
    for (int i = 0; i < 100; ++i) {
      const bool system = i % 3 == 0;
      manual.shard(1).post(new Item(seen, i), system ? Group::system : Group::user);
      (system ? wanted_system : wanted_user).push_back(i);
    }
    CHECK_FALSE(manual.shard(1).has_ring_room(Group::user));
    CHECK_FALSE(manual.shard(1).has_ring_room(Group::system));
  });
  manual.settle();
  REQUIRE(seen.size() == 100);
  std::vector<int> user, system;
  for (int value : seen) (value % 3 == 0 ? system : user).push_back(value);
  CHECK(user == wanted_user);
  CHECK(system == wanted_system);
}

TEST_CASE("a full ring suspends the senders until there is room") {
  Manual manual(2, {.ring_capacity = 16});
  int sent = 0, arrived = 0, ended = 0;
  for (int i = 0; i < 100; ++i) {
    manual.spawn([&] {
      return co_invoke([&]() -> Task<void> {
        co_await ring_room(manual.shard(1));
        ++sent;
        co_await call_on(manual.shard(1), [&arrived] { ++arrived; });
        ++ended;
      });
    });
  }
  for (int i = 0; i < 100; ++i) {
    manual.turn(0);
    manual.let_pass(1ms);
  }
  CHECK(sent <= 17);
  CHECK(arrived == 0);
  for (int i = 0; i < 1000 && ended < 100; ++i) manual.advance(1ms);
  CHECK(arrived == 100);
  CHECK(ended == 100);
}

TEST_CASE("waiting for ring room ends at the deadline, and when it is cancelled") {
  Manual manual(2, {.ring_capacity = 2});
  manual.on(0, [&] {
    struct Nothing : detail::Work {
      Nothing() : Work([](Work* self) noexcept { delete static_cast<Nothing*>(self); }) {}
    };
    for (int i = 0; i < 2; ++i) manual.shard(1).post(new Nothing);
  });
  Outcome late, cancelled;
  CancelSource source;
  start_call(manual, late,
             [&]() -> Task<void> { co_await call_on(manual.shard(1), [] {}, manual.now() + 5ms); });
  start_call(manual, cancelled, [&]() -> Task<void> {
    co_await with_cancellation(source, ring_room(manual.shard(1)));
  });
  for (int i = 0; i < 50; ++i) manual.turn(0);
  CHECK_FALSE(late.ended);
  manual.on(0, [&] { source.cancel(Errc::shutting_down); });
  manual.let_pass(10ms);
  for (int i = 0; i < 5; ++i) manual.turn(0);
  REQUIRE(late.error);
  CHECK(late.error->is(Errc::deadline_exceeded));
  REQUIRE(cancelled.error);
  CHECK(cancelled.error->is(Errc::shutting_down));
  manual.settle();
}

TEST_CASE("calls cross between shards in both directions at once, each answered once") {
  Runtime runtime({.shards = 3, .shard = {.ring_capacity = 32}});
  auto body = [](Runtime& runtime) -> Task<int> {
    struct Caller {
      static Task<int> run(Runtime& runtime, unsigned seed, int rounds) {
        int sum = 0;
        for (int i = 0; i < rounds; ++i) {
          seed = seed * 1664525 + 1013904223;
          Shard& to = runtime.shard((seed >> 16) % runtime.shard_count());
          if (seed & 1) {
            sum += co_await call_on(to, [i] { return i & 1; });
          } else {
            sum += co_await call_on(to, [i]() -> Task<int> {
              co_await yield();
              co_return i & 1;
            });
          }
        }
        co_return sum;
      }
      static Task<int> several(Runtime& runtime, unsigned seed) {
        std::vector<Task<int>> callers;
        for (unsigned i = 0; i < 50; ++i) callers.push_back(run(runtime, seed + i, 100));
        int sum = 0;
        for (int part : co_await when_all(std::move(callers))) sum += part;
        co_return sum;
      }
    };
    const auto sums = co_await when_all(
        call_on(runtime.shard(0), [&runtime] { return Caller::several(runtime, 1); }),
        call_on(runtime.shard(1), [&runtime] { return Caller::several(runtime, 1000); }),
        call_on(runtime.shard(2), [&runtime] { return Caller::several(runtime, 2000); }));
    co_return std::get<0>(sums) + std::get<1>(sums) + std::get<2>(sums);
  };
  CHECK(runtime.run(body) == 3 * 50 * 50);
}
