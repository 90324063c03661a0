#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <memory>

#include "awaitables.hpp"

using namespace hyperframes;
using test::awaitables;
using test::Manual;
using test::Tracked;
using test::World;

namespace {

Task<void> hold(Task<void> task, Tracked) { co_await std::move(task); }
Task<void> wait_for(Event& event) { co_await event.wait(); }

/// A scope that the test destroys when it likes.
struct Held {
  explicit Held(Manual& manual) : manual(manual) {
    manual.on(0, [this] { scope = std::make_unique<Scope>(); });
  }
  ~Held() { destroy(); }
  void destroy() {
    manual.on(0, [this] { scope.reset(); });
  }
  template <class Make>
  void spawn(Make make) {
    manual.on(0, [&] { scope->spawn(make()); });
  }
  Manual& manual;
  std::unique_ptr<Scope> scope;
};

}  // namespace

TEST_CASE("a scope that is destroyed destroys its children in whatever state they are") {
  const int alive = Tracked::alive(), misused = Tracked::misused();
  for (const auto& kind : awaitables()) {
    DYNAMIC_SECTION("before they started, about to wait on " << kind.name) {
      World world;
      const auto frames = world.manual.frames();
      Held held(world.manual);
      held.spawn([&] { return hold(kind.wait(world), Tracked()); });
      held.destroy();
      world.manual.settle();
      CHECK(world.manual.frames() == frames);
    }
    DYNAMIC_SECTION("suspended on " << kind.name) {
      World world;
      const auto frames = world.manual.frames();
      const auto far_frames = world.manual.frames(1);
      Held held(world.manual);
      held.spawn([&] { return hold(kind.wait(world), Tracked()); });
      world.manual.settle();
      CHECK(held.scope->running() == 1);
      held.destroy();
      world.manual.settle();
      // The wake-up finds nobody.
      world.manual.on(0, [&] { kind.wake(world); });
      world.manual.settle();
      CHECK(world.manual.frames() == frames);
      CHECK(world.manual.frames(1) == far_frames);
    }
    DYNAMIC_SECTION("woken from " << kind.name << " and queued, not resumed") {
      World world;
      const auto frames = world.manual.frames();
      Held held(world.manual);
      held.spawn([&] { return hold(kind.wait(world), Tracked()); });
      world.manual.settle();
      world.manual.on(0, [&] { kind.wake(world); });
      held.destroy();
      world.manual.settle();
      CHECK(world.manual.frames() == frames);
    }
    DYNAMIC_SECTION("cancelled in " << kind.name << " and queued, not resumed") {
      World world;
      const auto frames = world.manual.frames();
      Held held(world.manual);
      held.spawn([&] { return hold(kind.wait(world), Tracked()); });
      world.manual.settle();
      world.manual.on(0, [&] { held.scope->cancel(); });
      held.destroy();
      world.manual.settle();
      world.manual.on(0, [&] { kind.wake(world); });
      world.manual.settle();
      CHECK(world.manual.frames() == frames);
    }
    DYNAMIC_SECTION("with the runtime, suspended on " << kind.name) {
      World world;
      world.manual.spawn([&] { return hold(kind.wait(world), Tracked()); });
      world.manual.settle();
      world.manual.on(0, [&] { world.all_memory = {}; });
    }
  }
  CHECK(Tracked::alive() == alive);
  CHECK(Tracked::misused() == misused);
}

TEST_CASE("a scope may be destroyed between a child's end and the moment it is told") {
  Manual manual;
  const auto frames = manual.frames();
  Event event;
  {
    Held held(manual);
    held.spawn([&] { return wait_for(event); });
    held.spawn([&] { return wait_for(event); });
    manual.settle();
    // Queued behind both children, and before the news of their ends.
    struct Destroy : detail::Work {
      explicit Destroy(Held& held) : Work(&Destroy::run), held(held) {}
      static void run(Work* self) noexcept { static_cast<Destroy*>(self)->held.scope.reset(); }
      Held& held;
    } destroy(held);
    manual.on(0, [&] {
      event.set();
      manual.shard().schedule(&destroy);
    });
    manual.settle();
    CHECK_FALSE(held.scope);
  }
  CHECK(manual.frames() == frames);
}

TEST_CASE("join waits for every child and rethrows the first failure") {
  Manual manual;
  Event event;
  std::string outcome;
  int ended = 0;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      Scope scope;
      for (int i = 0; i < 3; ++i)
        scope.spawn(co_invoke([&]() -> Task<void> {
          try {
            co_await event.wait();
          } catch (const Error& error) {
            ++ended;
            throw;
          }
        }));
      scope.spawn(co_invoke([&]() -> Task<void> {
        co_await yield();
        throw Error(Errc::corrupt, "first");
      }));
      try {
        co_await scope.join();
      } catch (const Error& error) {
        outcome = error.tried();
      }
      CHECK(scope.running() == 0);
      // The failure was handed over; the scope stays cancelled.
      co_await scope.join();
    });
  });
  manual.settle();
  CHECK(outcome == "first");
  CHECK(ended == 3);
}

TEST_CASE("a scope that is cancelled starts later children cancelled") {
  Manual manual;
  bool cancelled = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      Scope scope;
      scope.cancel(Errc::shutting_down);
      scope.spawn(co_invoke([&]() -> Task<void> {
        try {
          co_await sleep_for(1h);
        } catch (const Error& error) {
          cancelled = error.is(Errc::shutting_down);
        }
      }));
      co_await scope.join();
    });
  });
  manual.settle();
  CHECK(cancelled);
}

TEST_CASE("children that spawn more children into their scope are all joined") {
  Manual manual;
  const auto frames = manual.frames();
  int ran = 0;
  bool joined = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      Scope scope;
      struct Tree {
        static Task<void> grow(Scope& scope, int depth, int& ran) {
          ++ran;
          if (depth == 0) co_return;
          for (int i = 0; i < 2; ++i) scope.spawn(grow(scope, depth - 1, ran));
          co_await yield();
        }
      };
      scope.spawn(Tree::grow(scope, 8, ran));
      co_await scope.join();
      joined = true;
    });
  });
  manual.settle();
  CHECK(joined);
  CHECK(ran == 511);
  CHECK(manual.frames() == frames);
}

TEST_CASE("an exception that passes a scope destroys the children") {
  const int alive = Tracked::alive();
  Manual manual;
  Event never;
  bool caught = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      auto wait = [](Event& never, Tracked) -> Task<void> { co_await never.wait(); };
      try {
        Scope scope;
        for (int i = 0; i < 10; ++i) scope.spawn(wait(never, Tracked()));
        co_await yield();
        throw Error(Errc::internal, "pass");
      } catch (const Error&) {
        caught = true;
      }
    });
  });
  manual.settle();
  CHECK(caught);
  CHECK(Tracked::alive() == alive);
}

TEST_CASE("a scope that is destroyed while many children are queued does it quickly") {
  Manual manual;
  Event event;
  Held held(manual);
  constexpr int count = 20'000;
  for (int i = 0; i < count; ++i) held.spawn([&] { return wait_for(event); });
  manual.settle();
  manual.on(0, [&] { event.set(); });
  CHECK(manual.shard().load().ready_user == count);
  held.destroy();
  CHECK(manual.shard().load().ready_user == 0);
}

TEST_CASE("children run in the group of the code that spawned them unless told otherwise") {
  Manual manual;
  std::vector<int> groups;
  auto note = [&groups]() -> Task<void> {
    detail::PromiseBase& promise = co_await CurrentPromise{};
    groups.push_back(promise.group);
  };
  auto body = [&]() -> Task<void> {
    Scope scope;
    scope.spawn(note());
    co_await scope.join();
    co_await when_all(note(), note());
    scope.spawn(note(), static_cast<std::uint8_t>(Group::user));
    co_await scope.join();
  };
  manual.spawn([&] { return co_invoke(body); }, Group::system);
  manual.settle();
  CHECK(groups == std::vector<int>{0, 0, 0, 1});
  groups.clear();
  manual.spawn([&] { return co_invoke(body); }, Group::user);
  manual.settle();
  CHECK(groups == std::vector<int>{1, 1, 1, 1});
}
