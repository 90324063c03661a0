#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/cancellation.hpp>
#include <thread>

#include "awaitables.hpp"

using namespace hyperframes;
using test::awaitables;
using test::Manual;
using test::World;

namespace {

/// How a task ended that ran under a source of its own.
struct Ending {
  bool ended = false;
  std::optional<Error> error;
};

Task<void> note_ending(Task<void> task, Ending& ending) {
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    ending.error = error;
  }
  ending.ended = true;
}

Task<void> under(CancelSource& source, Task<void> task, Ending& ending) {
  co_await with_cancellation(source, note_ending(std::move(task), ending));
}

}  // namespace

TEST_CASE("cancelling ends each kind of wait") {
  for (const auto& kind : awaitables()) {
    DYNAMIC_SECTION("a task suspended on " << kind.name) {
      World world;
      const auto frames = world.manual.frames();
      CancelSource source;
      Ending ending;
      world.manual.spawn([&] { return under(source, kind.wait(world), ending); });
      world.manual.settle();
      REQUIRE_FALSE(ending.ended);
      world.manual.on(0, [&] { source.cancel(); });
      world.manual.settle();
      CHECK(ending.ended == kind.ends_when_cancelled);
      if (kind.ends_when_cancelled) {
        REQUIRE(ending.error);
        CHECK(ending.error->is(Errc::cancelled));
      }
      // What it waited for comes too late, and finds nobody.
      world.manual.on(0, [&] { kind.wake(world); });
      world.manual.settle();
      CHECK(ending.ended);
      CHECK(ending.error.has_value() == kind.ends_when_cancelled);
      CHECK(world.manual.frames() == frames);
    }
  }
}

TEST_CASE("a task that starts cancelled ends at its first wait") {
  for (const auto& kind : awaitables()) {
    if (!kind.ends_when_cancelled) continue;
    DYNAMIC_SECTION("on " << kind.name) {
      World world;
      CancelSource source;
      source.cancel(Errc::shutting_down);
      Ending ending;
      world.manual.spawn([&] { return under(source, kind.wait(world), ending); });
      world.manual.settle();
      CHECK(ending.ended);
      REQUIRE(ending.error);
      CHECK(ending.error->is(Errc::shutting_down));
    }
  }
}

TEST_CASE("a wake-up that comes before the cancellation wins") {
  for (const auto& kind : awaitables()) {
    DYNAMIC_SECTION("on " << kind.name) {
      World world;
      CancelSource source;
      Ending ending;
      world.manual.spawn([&] { return under(source, kind.wait(world), ending); });
      world.manual.settle();
      world.manual.on(0, [&] { kind.wake(world); });
      // Let it come through, up to the queue of what is ready, before the cancellation.
      if (kind.name == "a call to another shard" || kind.name == "sleep" ||
          kind.name == "an offloaded call" || kind.name == "an operation")
        world.manual.settle();
      world.manual.on(0, [&] { source.cancel(); });
      world.manual.settle();
      CHECK(ending.ended);
      // What consists of several waits may meet the cancellation in a later one.
      if (kind.name != "when_any") CHECK_FALSE(ending.error);
    }
  }
}

TEST_CASE("cancelling twice, or after the end, does nothing") {
  for (const auto& kind : awaitables()) {
    DYNAMIC_SECTION("on " << kind.name) {
      World world;
      CancelSource source;
      Ending ending;
      world.manual.spawn([&] { return under(source, kind.wait(world), ending); });
      world.manual.settle();
      world.manual.on(0, [&] {
        source.cancel(Errc::cancelled);
        source.cancel(Errc::shutting_down);
        kind.wake(world);
      });
      world.manual.settle();
      CHECK(ending.ended);
      // A call's result may pass the cancellation on its way over there.
      if (kind.ends_when_cancelled && kind.name != "a call to another shard") REQUIRE(ending.error);
      if (ending.error) CHECK(ending.error->is(Errc::cancelled));
      world.manual.on(0, [&] { source.cancel(); });
      world.manual.settle();
    }
  }
}

TEST_CASE("a deadline's reason reaches each kind of wait") {
  for (const auto& kind : awaitables()) {
    if (!kind.ends_when_cancelled) continue;
    DYNAMIC_SECTION("on " << kind.name) {
      World world;
      Ending ending;
      world.manual.spawn([&] {
        return note_ending(with_deadline(kind.wait(world), world.manual.now() + 10ms), ending);
      });
      world.manual.settle();
      CHECK_FALSE(ending.ended);
      world.manual.advance(20ms);
      CHECK(ending.ended);
      REQUIRE(ending.error);
      CHECK(ending.error->is(Errc::deadline_exceeded));
    }
  }
}

TEST_CASE(
    "a child source is cancelled with its parent, for the same reason, and not the other way") {
  CancelSource parent;
  CancelSource first(&parent), second(&parent);
  CancelSource below(&first);
  second.cancel();
  CHECK_FALSE(parent.cancelled());
  CHECK_FALSE(first.cancelled());
  parent.cancel(Errc::deadline_exceeded);
  CHECK(below.cancelled());
  CHECK(below.reason() == Errc::deadline_exceeded);
  CHECK(second.reason() == Errc::cancelled);
  CancelSource late(&parent);
  CHECK(late.cancelled());
  CHECK(late.reason() == Errc::deadline_exceeded);
}

TEST_CASE("a callback may destroy, add and cancel others while the source is being cancelled") {
  struct Callback : detail::CancelCallback {
    explicit Callback(std::function<void()> act)
        : CancelCallback(&Callback::run), act(std::move(act)) {}
    static void run(CancelCallback& self) noexcept { static_cast<Callback&>(self).act(); }
    std::function<void()> act;
  };
  CancelSource source;
  int ran = 0;
  std::unique_ptr<Callback> victim, added;
  auto child = std::make_unique<CancelSource>(&source);
  Callback first([&] {
    ++ran;
    victim.reset();
    child.reset();
    source.cancel(Errc::internal);
    CHECK_FALSE(added->linked());
  });
  victim = std::make_unique<Callback>([&] { ran += 100; });
  added = std::make_unique<Callback>([&] { ++ran; });
  source.add(first);
  source.add(*victim);
  source.add(*added);
  Callback last([&] { ++ran; });
  added->unlink();
  source.add(last);
  source.cancel();
  CHECK(ran == 2);
  CHECK(source.reason() == Errc::cancelled);
}

TEST_CASE("a source that is gone takes its children's links with it") {
  auto parent = std::make_unique<CancelSource>();
  CancelSource child(parent.get());
  parent.reset();
  CHECK_FALSE(child.cancelled());
  child.cancel();
  CHECK(child.cancelled());
}

TEST_CASE("cancellation passes through scopes that stand in each other") {
  World world;
  const auto frames = world.manual.frames();
  CancelSource source;
  Ending ending;
  int ended = 0;
  auto leaf = [&]() -> Task<void> {
    try {
      co_await world.event.wait();
    } catch (const Error&) {
      ++ended;
      throw;
    }
  };
  auto level = [&](auto& self, int depth) -> Task<void> {
    Scope scope;
    for (int i = 0; i < 3; ++i) {
      if (depth == 0) {
        scope.spawn(leaf());
      } else {
        scope.spawn(self(self, depth - 1));
      }
    }
    co_await scope.join();
  };
  world.manual.spawn([&] { return under(source, level(level, 3), ending); });
  world.manual.settle();
  world.manual.on(0, [&] { source.cancel(); });
  world.manual.settle();
  CHECK(ended == 81);
  REQUIRE(ending.error);
  CHECK(ending.error->is(Errc::cancelled));
  CHECK(world.manual.frames() == frames);
}

TEST_CASE("a shielded task goes on under a cancelled caller, and the caller's next wait ends") {
  World world;
  CancelSource source;
  Ending ending;
  bool cleaned_up = false;
  auto body = [&]() -> Task<void> {
    co_await shielded(co_invoke([&]() -> Task<void> {
      co_await world.event.wait();
      co_await sleep_for(1ms);
      cleaned_up = true;
    }));
    co_await sleep_for(1h);
  };
  world.manual.spawn([&] { return under(source, body(), ending); });
  world.manual.settle();
  world.manual.on(0, [&] { source.cancel(); });
  world.manual.settle();
  CHECK_FALSE(ending.ended);
  world.manual.on(0, [&] { world.event.set(); });
  world.manual.settle();
  world.manual.advance(5ms);
  CHECK(cleaned_up);
  REQUIRE(ending.error);
  CHECK(ending.error->is(Errc::cancelled));
}

TEST_CASE("a loop that only yields can be cancelled") {
  World world;
  CancelSource source;
  Ending ending;
  auto body = []() -> Task<void> {
    while (true) co_await yield();
  };
  world.manual.spawn([&] { return under(source, body(), ending); });
  for (int i = 0; i < 10; ++i) world.manual.turn();
  CHECK_FALSE(ending.ended);
  world.manual.on(0, [&] { source.cancel(); });
  world.manual.settle();
  REQUIRE(ending.error);
  CHECK(ending.error->is(Errc::cancelled));
}

TEST_CASE("cancelling from other threads, by way of the shard, races safely with the wake-up") {
  Runtime runtime({.shards = 2});
  auto body = [](Runtime& runtime) -> Task<int> {
    int woken = 0;
    for (int round = 0; round < 300; ++round) {
      CancelSource source(nullptr);
      Event event;
      auto far = [&runtime, home = Shard::current()](auto act) -> Task<void> {
        co_await call_on(runtime.shard(1),
                         [home, act]() -> Task<void> { co_await call_on(*home, act); });
      };
      Ending ending;
      co_await when_all(
          under(source, co_invoke([&event]() -> Task<void> { co_await event.wait(); }), ending),
          far([&source] { source.cancel(); }), far([&event] { event.set(); }));
      if (!ending.ended) co_return -1;
      if (!ending.error) ++woken;
    }
    co_return woken;
  };
  CHECK(runtime.run(body) >= 0);
}
