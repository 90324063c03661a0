// One of each thing that a coroutine can be suspended on, so that a test can take all of them
// through the same states.
#pragma once

#include <functional>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/local_channel.hpp>
#include <hyperframes/runtime/mutex.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/semaphore.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <string>

#include "manual.hpp"

namespace hyperframes::test {

/// What the awaitables below wait for. Shard 0 is where they wait.
struct World {
  World() : manual(2, {.send_quota_bytes = 4096}) {
    manual.on(0, [this] {
      all_memory = manual.shard().send_pool().try_allocate(4096).value();
      permit_taken = semaphore.try_take(1);
      (void)full.try_send(seven);
    });
  }
  ~World() {
    manual.on(0, [this] { all_memory = {}; });
  }

  Manual manual;
  int seven = 7;
  Buffer all_memory;
  Event event, far_event;
  Semaphore semaphore{1};
  bool permit_taken = false;
  LocalChannel<int> full{1}, empty{1};
};

struct Awaitable {
  std::string name;
  std::function<Task<void>(World&)> wait;  ///< Suspends until `wake`.
  std::function<void(World&)> wake;  ///< As code of shard 0, with a turn of every shard after.
  bool ends_when_cancelled = true;   ///< False: it goes on to its own end first.
};

inline std::vector<Awaitable> awaitables() {
  std::vector<Awaitable> all;
  auto set_event = [](World& world) { world.event.set(); };
  all.push_back({"sleep", [](World&) -> Task<void> { co_await sleep_for(1h); },
                 [](World& world) { world.manual.let_pass(2h); }});
  all.push_back(
      {"an event", [](World& world) -> Task<void> { co_await world.event.wait(); }, set_event});
  all.push_back({"an event with a deadline",
                 [](World& world) -> Task<void> { co_await world.event.wait(after(1h)); },
                 set_event});
  all.push_back(
      {"a semaphore",
       [](World& world) -> Task<void> { auto permit = co_await world.semaphore.acquire(); },
       [](World& world) { world.semaphore.release(1); }});
  all.push_back({"a full channel", [](World& world) -> Task<void> { co_await world.full.send(8); },
                 [](World& world) { (void)world.full.try_receive(); }});
  all.push_back({"an empty channel",
                 [](World& world) -> Task<void> { co_await world.empty.receive(); },
                 [](World& world) { (void)world.empty.try_send(world.seven); }});
  all.push_back({"a buffer pool",
                 [](World& world) -> Task<void> {
                   auto buffer = co_await world.manual.shard().send_pool().allocate(1024);
                 },
                 [](World& world) { world.all_memory = {}; }});
  all.push_back({"an operation",
                 [](World& world) -> Task<void> {
                   detail::OperationAwaiter waiting(Operation::create(Operation::Kind::receive, 5));
                   co_await waiting;
                 },
                 [](World& world) {
                   ManualReactor& reactor = world.manual.reactor();
                   if (!reactor.started.empty()) reactor.complete(reactor.started.front(), 0);
                 }});
  all.push_back({"a child task",
                 [](World& world) -> Task<void> {
                   co_await co_invoke([&world]() -> Task<void> { co_await world.event.wait(); });
                 },
                 set_event});
  all.push_back(
      {"a scope's join",
       [](World& world) -> Task<void> {
         Scope scope;
         scope.spawn(co_invoke([&world]() -> Task<void> { co_await world.event.wait(); }));
         scope.spawn(co_invoke([&world]() -> Task<void> { co_await world.event.wait(); }));
         co_await scope.join();
       },
       set_event});
  static constexpr auto wait_event = [](World& world) -> Task<void> {
    co_await world.event.wait();
  };
  all.push_back(
      {"when_all",
       [](World& world) -> Task<void> { co_await when_all(wait_event(world), wait_event(world)); },
       set_event});
  all.push_back(
      {"when_any",
       [](World& world) -> Task<void> { co_await when_any(wait_event(world), wait_event(world)); },
       set_event});
  all.push_back(
      {"with_deadline",
       [](World& world) -> Task<void> { co_await with_deadline(wait_event(world), after(1h)); },
       set_event});
  all.push_back({"a call to another shard",
                 [](World& world) -> Task<void> {
                   co_await call_on(world.manual.shard(1),
                                    [&world]() -> Task<void> { co_await world.far_event.wait(); });
                 },
                 [](World& world) { world.manual.on(1, [&] { world.far_event.set(); }); }});
  all.push_back({"a shielded task",
                 [](World& world) -> Task<void> { co_await shielded(wait_event(world)); },
                 set_event, false});
  all.push_back({"an offloaded call", [](World&) -> Task<void> { co_await offload([] {}); },
                 [](World& world) {
                   if (!world.manual.jobs.empty()) ManualOffload::run_first(world.manual.jobs);
                 },
                 false});
  return all;
}

}  // namespace hyperframes::test
