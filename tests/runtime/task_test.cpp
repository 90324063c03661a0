// The hazards of coroutines: what compilers got wrong, and what a careless runtime gets wrong.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <string>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;
using test::Tracked;

namespace {

/// Fails the test if a Tracked was leaked, or destroyed twice, while this lived.
struct Balance {
  int alive = Tracked::alive(), misused = Tracked::misused();
  ~Balance() {
    CHECK(Tracked::alive() == alive);
    CHECK(Tracked::misused() == misused);
  }
};

struct Settings {
  Tracked first;
  std::string name;
  Tracked second;
};

Task<int> use_settings(Settings settings) {
  co_await yield();
  co_return settings.first.value + settings.second.value + static_cast<int>(settings.name.size());
}

Task<int> later(Tracked value) {
  co_await yield();
  co_return value.value;
}

Task<Tracked> make_tracked(int value) {
  co_await yield();
  co_return Tracked(value);
}

Task<int> at_once(int value) { co_return value; }

/// Runs the task that `make` returns to its end and gives back its value.
template <class Make>
auto run(Manual& manual, Make make) {
  using Value = typename std::invoke_result_t<Make&>::value_type;
  std::optional<Value> value;
  manual.spawn([&] {
    return co_invoke(
        [](Make make, std::optional<Value>& value) -> Task<void> {
          value.emplace(co_await make());
        },
        make, std::ref(value));
  });
  manual.settle();
  REQUIRE(value);
  return std::move(*value);
}

std::uintptr_t stack_position() {
  return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
}

/// How far apart the stack positions were at which some code ran.
struct StackSpan {
  std::uintptr_t lowest = UINTPTR_MAX, highest = 0;
  void note() {
    lowest = std::min(lowest, stack_position());
    highest = std::max(highest, stack_position());
  }
  std::size_t bytes() const { return highest - lowest; }
};

// Room for the few hundred transfers after which a chain goes through the ready queue, on a
// compiler that nests them.
constexpr std::size_t stack_bound = 512 << 10;

}  // namespace

TEST_CASE("a braced aggregate as an argument of an awaited call is destroyed once") {
  Balance balance;
  Manual manual;
  CHECK(run(manual, []() -> Task<int> {
          co_return co_await use_settings(
              {.first = Tracked(1), .name = "four", .second = Tracked(2)});
        }) == 7);
}

TEST_CASE("a braced aggregate built from awaited values is destroyed once") {
  Balance balance;
  Manual manual;
  CHECK(run(manual, []() -> Task<int> {
          const Settings settings{co_await make_tracked(1), "ab", co_await make_tracked(4)};
          co_return settings.first.value * 100 + settings.second.value;
        }) == 104);
}

TEST_CASE("a capturing lambda lives in co_invoke's frame until its task has ended") {
  Balance balance;
  Manual manual;
  CHECK(run(manual, []() -> Task<int> {
          co_return co_await co_invoke(
              [captured = Tracked(5), text = std::string(100, 'x')](Tracked argument) -> Task<int> {
                co_await yield();
                co_await sleep_for(Duration(0));
                co_return captured.value + argument.value + static_cast<int>(text.size());
              },
              Tracked(2));
        }) == 107);
}

TEST_CASE("a spawned capturing lambda outlives the expression that made it") {
  Balance balance;
  Manual manual;
  int seen = 0;
  manual.spawn([&] {
    return co_invoke([captured = Tracked(9), &seen]() -> Task<void> {
      co_await sleep_for(1ms);
      seen = captured.value;
    });
  });
  manual.settle();
  manual.advance(5ms);
  CHECK(seen == 9);
}

TEST_CASE("the temporaries of both branches of an awaited conditional are destroyed once") {
  for (const bool flag : {true, false}) {
    Balance balance;
    Manual manual;
    CHECK(run(manual, [flag]() -> Task<int> {
            co_return co_await (flag ? later(Tracked(1)) : later(Tracked(2)));
          }) == (flag ? 1 : 2));
    CHECK(run(manual, [flag]() -> Task<int> {
            const Tracked got = co_await (flag ? make_tracked(3) : make_tracked(4));
            co_return got.value;
          }) == (flag ? 3 : 4));
    CHECK(run(manual, [flag]() -> Task<int> {
            co_return flag ? co_await later(Tracked(5)) : co_await later(Tracked(6));
          }) == (flag ? 5 : 6));
  }
}

TEST_CASE("two awaits in one braced list run from left to right") {
  Balance balance;
  Manual manual;
  CHECK(run(manual, []() -> Task<std::vector<int>> {
          co_return std::vector<int>{co_await later(Tracked(1)), co_await at_once(2),
                                     co_await later(Tracked(3))};
        }) == std::vector<int>{1, 2, 3});
  CHECK(run(manual, []() -> Task<int> {
          const std::array<int, 2> pair{co_await later(Tracked(4)), co_await later(Tracked(5))};
          co_return pair[0] * 10 + pair[1];
        }) == 45);
}

TEST_CASE("a temporary lives until the end of the full expression that awaits") {
  Balance balance;
  Manual manual;
  CHECK(run(manual, []() -> Task<int> {
          struct View {
            const Tracked& of;
            Task<int> read() const {
              return [](const Tracked& of) -> Task<int> {
                co_await yield();
                co_return of.value;
              }(of);
            }
          };
          co_return co_await View{Tracked(8)}.read() + co_await at_once(1);
        }) == 9);
}

TEST_CASE("an exception between two awaits destroys what was made so far, once") {
#if defined(__GNUC__) && !defined(__clang__)
  SKIP("GCC 14 forgets what a braced list has made when a later co_await in it throws");
#endif
  Balance balance;
  Manual manual;
  CHECK(run(manual, []() -> Task<int> {
          auto fails = [](Tracked) -> Task<Tracked> {
            co_await yield();
            throw Error(Errc::corrupt, "try");
          };
          try {
            const Settings settings{co_await make_tracked(1), "x", co_await fails(Tracked(2))};
            co_return settings.first.value;
          } catch (const Error& error) {
            co_return error.is(Errc::corrupt) ? -1 : -2;
          }
        }) == -1);
}

TEST_CASE("a value type without default constructor or copies comes out of a task") {
  struct Only {
    explicit Only(int value) : value(std::make_unique<int>(value)) {}
    std::unique_ptr<int> value;
  };
  Manual manual;
  CHECK(*run(manual, []() -> Task<Only> {
           co_await yield();
           co_return Only(3);
         }).value == 3);
}

TEST_CASE("an exception thrown by the constructor of a result reaches who awaits it") {
  struct Refuses {
    Refuses(int) { throw Error(Errc::corrupt, "construct"); }
  };
  Manual manual;
  CHECK(run(manual, []() -> Task<bool> {
    auto make = []() -> Task<Refuses> { co_return 1; };
    try {
      co_await make();
    } catch (const Error& error) {
      co_return error.is(Errc::corrupt);
    }
    co_return false;
  }));
}

TEST_CASE("a million awaits of a ready child need no more stack than one") {
  Manual manual;
  StackSpan span;
  const auto before = manual.frames();
  const int sum = run(manual, [&span]() -> Task<int> {
    auto child = [](StackSpan& span, int i) -> Task<int> {
      span.note();
      co_return i & 1;
    };
    int sum = 0;
    for (int i = 0; i < 1'000'000; ++i) sum += co_await child(span, i);
    co_return sum;
  });
  CHECK(sum == 500'000);
  CHECK(span.bytes() < stack_bound);
  CHECK(manual.frames() == before);
}

TEST_CASE("two million awaits over a chain of children need no more stack than one") {
  Manual manual;
  StackSpan span;
  const auto before = manual.frames();
  const int sum = run(manual, [&span]() -> Task<int> {
    auto leaf = [](StackSpan& span) -> Task<int> {
      span.note();
      co_return 1;
    };
    auto middle = [leaf](StackSpan& span) -> Task<int> { co_return co_await leaf(span); };
    int sum = 0;
    for (int i = 0; i < 1'000'000; ++i) sum += co_await middle(span);
    co_return sum;
  });
  CHECK(sum == 1'000'000);
  CHECK(span.bytes() < stack_bound);
  CHECK(manual.frames() == before);
}

TEST_CASE("a recursion of a hundred thousand tasks needs no more stack than one") {
  struct Recursion {
    static Task<int> run(StackSpan& span, int depth) {
      span.note();
      const int below = depth == 0 ? 0 : co_await run(span, depth - 1);
      span.note();
      co_return below + 1;
    }
  };
  Manual manual;
  StackSpan span;
  const auto before = manual.frames();
  CHECK(run(manual, [&span] { return Recursion::run(span, 100'000); }) == 100'001);
  CHECK(span.bytes() < stack_bound);
  CHECK(manual.frames() == before);
}

TEST_CASE("a chain of ready awaits lets others run") {
  Manual manual;
  bool stop = false;
  std::uint64_t rounds = 0;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      while (!stop && rounds < 10'000'000) rounds += static_cast<unsigned>(co_await at_once(1));
    });
  });
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      stop = true;
      co_return;
    });
  });
  manual.settle();
  CHECK(rounds < 10'000);
}

TEST_CASE("a task that was never awaited is destroyed with its arguments") {
  Balance balance;
  Manual manual;
  const auto before = manual.frames();
  manual.on(0, [&] {
    Task<int> task = later(Tracked(1));
    CHECK(task);
    CHECK_FALSE(task.done());
    Task<int> moved = std::move(task);
    CHECK_FALSE(task);
    moved = later(Tracked(2));
    CHECK(Tracked::alive() == balance.alive + 1);
  });
  CHECK(manual.frames() == before);
}

TEST_CASE("a suspended chain is destroyed from its root, innermost locals first") {
  Balance balance;
  Manual manual;
  const auto before = manual.frames();
  Event never;
  std::vector<int> order;
  struct Note {
    std::vector<int>& order;
    int value;
    ~Note() { order.push_back(value); }
  };
  {
    Scope* scope = nullptr;
    manual.on(0, [&] {
      scope = new Scope;
      scope->spawn(co_invoke([&]() -> Task<void> {
        Note outer{order, 1};
        co_await co_invoke([&, tracked = Tracked()]() -> Task<void> {
          Note inner{order, 2};
          co_await never.wait();
        });
      }));
    });
    manual.settle();
    manual.on(0, [&] { delete scope; });
  }
  CHECK(order == std::vector<int>{2, 1});
  CHECK(manual.frames() == before);
  manual.on(0, [&] { never.set(); });
  manual.settle();
}

TEST_CASE("a chain of a thousand suspended tasks is destroyed from its root") {
  struct Recursion {
    static Task<void> run(Event& event, int depth, Tracked) {
      if (depth == 0) {
        co_await event.wait();
      } else {
        co_await run(event, depth - 1, Tracked());
      }
    }
  };
  Balance balance;
  Manual manual;
  Event never;
  manual.spawn([&] { return Recursion::run(never, 1000, Tracked()); });
  manual.settle();
  CHECK(Tracked::alive() > balance.alive + 1000);
  manual.end();
  CHECK(Tracked::alive() == balance.alive);
}

TEST_CASE("a task's chain names each line it is suspended on, outermost first") {
  Manual manual;
  Event never;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      co_await co_invoke([&]() -> Task<void> { co_await never.wait(); });
    });
  });
  manual.settle();
  const std::string dump = manual.on(0, [&] { return manual.shard().dump(); });
  CHECK(dump.find("task_test.cpp:") != std::string::npos);
  CHECK(dump.find(" > ") != std::string::npos);
  CHECK(dump.find("launch.cpp") == std::string::npos);
}
