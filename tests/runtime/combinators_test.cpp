#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <string>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;
using test::Tracked;

namespace {

Task<int> number(int value) {
  co_await yield();
  co_return value;
}

Task<std::string> text(std::string value) { co_return value; }

Task<void> fail_after(Duration span, std::string what) {
  co_await sleep_for(span);
  throw Error(Errc::corrupt, what);
}

/// Notes that it was cancelled, and takes its time to end.
Task<int> loser(int& ended) {
  try {
    co_await sleep_for(1h);
  } catch (const Error&) {
  }
  co_await shielded(co_invoke([]() -> Task<void> { co_await sleep_for(5ms); }));
  ++ended;
  co_return 0;
}

template <class Make>
void run(Manual& manual, Make make) {
  bool ended = false;
  manual.spawn([&] {
    return co_invoke(
        [](Make make, bool& ended) -> Task<void> {
          co_await make();
          ended = true;
        },
        make, std::ref(ended));
  });
  manual.settle();
  for (int i = 0; i < 100 && !ended; ++i) manual.advance(1ms);
  CHECK(ended);
}

std::string error_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return std::string(name(static_cast<Errc>(error.code().value()))) + ": " + error.tried();
  }
}

}  // namespace

TEST_CASE("when_all gives every value in the order of its tasks") {
  Manual manual;
  run(manual, []() -> Task<void> {
    const auto all = co_await when_all(number(1), text("two"),
                                       co_invoke([]() -> Task<void> { co_await yield(); }));
    CHECK(std::get<0>(all) == 1);
    CHECK(std::get<1>(all) == "two");
    CHECK(std::get<2>(all) == std::monostate{});
    std::vector<Task<int>> tasks;
    for (int i = 0; i < 100; ++i) tasks.push_back(number(i));
    const auto values = co_await when_all(std::move(tasks));
    REQUIRE(values.size() == 100);
    for (int i = 0; i < 100; ++i) CHECK(values[static_cast<std::size_t>(i)] == i);
    CHECK((co_await when_all(std::vector<Task<int>>{})).empty());
    co_await when_all();
  });
}

TEST_CASE("when_all throws the first failure after all others have ended") {
  Manual manual;
  const auto frames = manual.frames();
  int ended = 0;
  std::string failure;
  run(manual, [&]() -> Task<void> {
    try {
      co_await when_all(loser(ended), fail_after(2ms, "second"), fail_after(1ms, "first"),
                        loser(ended));
    } catch (const Error& error) {
      failure = error.tried();
      CHECK(ended == 2);
    }
  });
  CHECK(failure == "first");
  CHECK(manual.frames() == frames);
}

TEST_CASE("when_any gives the first outcome after the losers were cancelled and have ended") {
  Manual manual;
  const auto frames = manual.frames();
  int ended = 0;
  run(manual, [&]() -> Task<void> {
    auto first = co_await when_any(loser(ended), number(7), loser(ended));
    CHECK(first.index() == 1);
    CHECK(std::get<1>(first) == 7);
    CHECK(ended == 2);
    auto nothing = co_await when_any(co_invoke([]() -> Task<void> { co_return; }), number(8));
    CHECK(nothing.index() == 0);
  });
  CHECK(manual.frames() == frames);
}

TEST_CASE("when_any throws if the first to end failed, and forgets later failures") {
  Manual manual;
  int ended = 0;
  std::string failure;
  run(manual, [&]() -> Task<void> {
    try {
      co_await when_any(fail_after(3ms, "late"), fail_after(1ms, "early"), loser(ended));
    } catch (const Error& error) {
      failure = error.tried();
    }
    CHECK(ended == 1);
    auto won = co_await when_any(fail_after(3ms, "late"), number(1));
    CHECK(won.index() == 1);
  });
  CHECK(failure == "early");
}

TEST_CASE("when two tasks of when_any end in one turn, the first one wins alone") {
  const int alive = Tracked::alive(), misused = Tracked::misused();
  {
    Manual manual;
    Event event;
    int winner = -1;
    manual.spawn([&] {
      return co_invoke([&]() -> Task<void> {
        auto wait = [](Event& event, int value) -> Task<Tracked> {
          co_await event.wait();
          co_return Tracked(value);
        };
        auto first = co_await when_any(wait(event, 1), wait(event, 2));
        winner = std::visit([](auto& value) { return value.value; }, first);
      });
    });
    manual.settle();
    manual.on(0, [&] { event.set(); });
    manual.settle();
    CHECK(winner == 1);
  }
  CHECK(Tracked::alive() == alive);
  CHECK(Tracked::misused() == misused);
}

TEST_CASE("with_deadline gives the value in time, and its error after it") {
  Manual manual;
  const auto frames = manual.frames();
  int ended = 0;
  run(manual, [&]() -> Task<void> {
    CHECK(co_await with_deadline(number(3), after(1s)) == 3);
    CHECK(co_await with_deadline(number(4), no_deadline) == 4);
    std::exception_ptr failure;
    try {
      co_await with_deadline(fail_after(1h, "never"), after(5ms));
    } catch (...) {
      failure = std::current_exception();
    }
    CHECK(error_of(failure) == "deadline_exceeded: sleep");
    // One that ends well although it was told is a success.
    CHECK(co_await with_deadline(loser(ended), after(5ms)) == 0);
    CHECK(ended == 1);
  });
  CHECK(manual.frames() == frames);
}

TEST_CASE("with_deadline in the past ends the task at its first wait") {
  Manual manual;
  bool went_on = false;
  run(manual, [&]() -> Task<void> {
    co_await sleep_for(5ms);
    try {
      co_await with_deadline(co_invoke([&]() -> Task<void> {
                               co_await sleep_for(1us);
                               went_on = true;
                             }),
                             Clock::now() - 1ms);
      CHECK(false);
    } catch (const Error& error) {
      CHECK(error.is(Errc::deadline_exceeded));
    }
  });
  CHECK_FALSE(went_on);
}

TEST_CASE("the nearest of nested deadlines counts") {
  Manual manual;
  run(manual, []() -> Task<void> {
    const Time started = Clock::now();
    try {
      co_await with_deadline(with_deadline(fail_after(1h, "never"), after(50ms)), after(3ms));
    } catch (const Error& error) {
      CHECK(error.is(Errc::deadline_exceeded));
    }
    CHECK(Clock::now() - started < 10ms);
  });
}

TEST_CASE("with_cancellation follows its source and not the caller's") {
  Manual manual;
  CancelSource source;
  bool outer_cancelled = false, inner_cancelled = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      Scope scope;
      scope.spawn(co_invoke([&]() -> Task<void> {
        try {
          co_await with_cancellation(source, fail_after(1h, "never"));
        } catch (const Error&) {
          inner_cancelled = true;
        }
        try {
          co_await sleep_for(1h);
        } catch (const Error&) {
          outer_cancelled = true;
        }
      }));
      co_await yield();
      scope.cancel();
      co_await scope.join();
    });
  });
  manual.settle();
  CHECK_FALSE(inner_cancelled);
  manual.on(0, [&] { source.cancel(); });
  manual.settle();
  CHECK(inner_cancelled);
  CHECK(outer_cancelled);
}

TEST_CASE("exceptions pass every combinator unchanged, of any type") {
  Manual manual;
  struct Odd {
    int value;
  };
  auto odd = []() -> Task<int> {
    co_await yield();
    throw Odd{5};
  };
  int caught = 0;
  run(manual, [&]() -> Task<void> {
    std::vector<Task<void>> attempts;
    auto drop = [](auto task) -> Task<void> { (void)co_await std::move(task); };
    attempts.push_back(drop(when_all(odd(), number(1))));
    attempts.push_back(drop(when_any(odd(), co_invoke([]() -> Task<int> {
                                       co_await sleep_for(1h);
                                       co_return 1;
                                     }))));
    attempts.push_back(drop(with_deadline(odd(), after(1s))));
    attempts.push_back(drop(shielded(odd())));
    attempts.push_back(drop(co_invoke(odd)));
    CancelSource source;
    attempts.push_back(drop(with_cancellation(source, odd())));
    std::vector<Task<int>> list;
    list.push_back(odd());
    attempts.push_back(drop(when_all(std::move(list))));
    for (auto& attempt : attempts) {
      try {
        co_await std::move(attempt);
      } catch (const Odd& failure) {
        caught += failure.value;
      }
    }
  });
  CHECK(caught == 35);
}
