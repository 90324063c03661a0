#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/event.hpp>
#include <memory>
#include <optional>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;

namespace {

Task<void> wait_and_count(Event& event, int& woken, Time deadline = no_deadline) {
  co_await event.wait(deadline);
  ++woken;
}

}  // namespace

TEST_CASE("setting an event wakes all who wait, and all who come later, until it is reset") {
  Manual manual;
  Event event;
  int woken = 0;
  for (int i = 0; i < 3; ++i) manual.spawn([&] { return wait_and_count(event, woken); });
  manual.settle();
  CHECK(woken == 0);
  manual.on(0, [&] { event.set(); });
  manual.settle();
  CHECK(woken == 3);
  manual.spawn([&] { return wait_and_count(event, woken); });
  manual.settle();
  CHECK(woken == 4);
  event.reset();
  manual.spawn([&] { return wait_and_count(event, woken); });
  manual.settle();
  CHECK(woken == 4);
  CHECK_FALSE(event.is_set());
}

TEST_CASE("a pulse wakes who waits now and nobody else") {
  Manual manual;
  Event event;
  int woken = 0;
  manual.spawn([&] { return wait_and_count(event, woken); });
  manual.settle();
  manual.on(0, [&] { event.pulse(); });
  manual.spawn([&] { return wait_and_count(event, woken); });
  manual.settle();
  CHECK(woken == 1);
}

TEST_CASE("waiting for an event ends at its deadline with an error that says so") {
  Manual manual;
  Event event;
  std::optional<Error> error;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      try {
        co_await event.wait(after(5ms));
      } catch (const Error& failure) {
        error = failure;
      }
    });
  });
  manual.settle();
  CHECK_FALSE(error);
  manual.advance(10ms);
  REQUIRE(error);
  CHECK(error->is(Errc::deadline_exceeded));
  CHECK(error->tried() == "wait for an event");
}

TEST_CASE("a deadline that passed before the wait throws unless the event is set") {
  Manual manual;
  Event event;
  int timeouts = 0, woken = 0;
  auto body = [&]() -> Task<void> {
    try {
      co_await event.wait(Clock::now() - 1ms);
      ++woken;
    } catch (const Error&) {
      ++timeouts;
    }
  };
  manual.spawn([&] { return co_invoke(body); });
  manual.settle();
  CHECK(timeouts == 1);
  event.set();
  manual.spawn([&] { return co_invoke(body); });
  manual.settle();
  CHECK(woken == 1);
}

TEST_CASE("a wake-up and a deadline in one turn resume a waiter once") {
  Manual manual;
  Event event;
  int woken = 0;
  manual.spawn([&] { return wait_and_count(event, woken, after(5ms)); });
  manual.settle();
  manual.let_pass(10ms);
  manual.on(0, [&] { event.set(); });
  manual.settle();
  CHECK(woken == 1);
}

TEST_CASE("an event that dies before its waiters leaves them to their cancellation") {
  Manual manual;
  auto event = std::make_unique<Event>();
  CancelSource source;
  bool cancelled = false;
  manual.spawn([&] {
    return with_cancellation(source, co_invoke([&]() -> Task<void> {
                               try {
                                 co_await event->wait();
                               } catch (const Error&) {
                                 cancelled = true;
                               }
                             }));
  });
  manual.settle();
  event.reset();
  manual.on(0, [&] { source.cancel(); });
  manual.settle();
  CHECK(cancelled);
}
