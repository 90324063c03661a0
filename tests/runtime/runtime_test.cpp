#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/local_channel.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <optional>
#include <thread>

using namespace hyperframes;

namespace {

Task<int> answer() {
  co_await sleep_for(1ms);
  co_return 42;
}

Task<void> echo(Listener listener) {
  Socket socket = co_await listener.accept();
  while (true) {
    Buffer chunk = co_await socket.receive();
    if (chunk.empty()) break;
    co_await socket.send(Segments(std::move(chunk)));
  }
}

Task<std::string> ask_echo(Address address, std::string text) {
  Socket socket = co_await Socket::connect(address, after(5s));
  co_await socket.send(Segments(Buffer::copy_of(text)));
  co_await socket.shutdown_send();
  std::string got;
  while (true) {
    Buffer chunk = co_await socket.receive(after(5s));
    if (chunk.empty()) break;
    got += chunk.text();
  }
  co_return got;
}

}  // namespace

TEST_CASE("a task's value reaches the thread that ran it") {
  Runtime runtime({.shards = 2});
  CHECK(runtime.run([](Runtime&) { return answer(); }) == 42);
  CHECK(runtime.run([](Runtime&) { return answer(); }, 1) == 42);
}

TEST_CASE("an exception reaches the thread that ran the task") {
  Runtime runtime({.shards = 1});
  auto fails = [](Runtime&) -> Task<void> {
    co_await yield();
    throw Error(Errc::not_found, "look for it");
  };
  CHECK_THROWS_AS(runtime.run(fails), Error);
}

TEST_CASE("a call runs on the other shard and returns to this one") {
  Runtime runtime({.shards = 2});
  auto indexes = runtime.run([](Runtime& runtime) -> Task<std::vector<unsigned>> {
    std::vector<unsigned> seen;
    seen.push_back(Shard::current()->index());
    seen.push_back(co_await call_on(runtime.shard(1), [] { return Shard::current()->index(); }));
    seen.push_back(Shard::current()->index());
    seen.push_back(co_await call_on(runtime.shard(1), []() -> Task<unsigned> {
      co_await sleep_for(1ms);
      co_return Shard::current()->index() + 10;
    }));
    co_return seen;
  });
  CHECK(indexes == std::vector<unsigned>{0, 1, 0, 11});
}

TEST_CASE("bytes sent over a socket come back from an echo") {
  Runtime runtime({.shards = 1});
  std::string big(300'000, 'x');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>('a' + i % 23);
  auto run = [big](Runtime&) -> Task<std::string> {
    Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
    const Address address = listener.address();
    auto both = co_await when_all(echo(std::move(listener)), ask_echo(address, big));
    co_return std::get<1>(std::move(both));
  };
  CHECK(runtime.run(run) == big);
}

TEST_CASE("what is written to a file is read back") {
  Runtime runtime({.shards = 1});
  const std::string path = "runtime_test_file.tmp";
  auto text = runtime.run([path](Runtime&) -> Task<std::string> {
    co_await write_whole_file(path, Buffer::copy_of("durable"));
    Buffer back = co_await read_whole_file(path);
    co_await remove_file(path);
    co_return std::string(back.text());
  });
  CHECK(text == "durable");
}

TEST_CASE("a deadline ends a wait and says so") {
  Runtime runtime({.shards = 1});
  auto run = [](Runtime&) -> Task<bool> {
    Event never;
    try {
      co_await with_deadline(co_invoke([&never]() -> Task<void> { co_await never.wait(); }),
                             after(5ms));
    } catch (const Error& error) {
      co_return error.is(Errc::deadline_exceeded);
    }
    co_return false;
  };
  CHECK(runtime.run(run));
}

TEST_CASE("stopping names a task that does not end, with the line it waits on") {
  Runtime runtime({.shards = 1});
  runtime.on_every_shard([](Shard& shard) {
    shard.spawn(shielded(co_invoke([]() -> Task<void> {
      Event never;
      co_await never.wait();
    })));
  });
  const auto report = runtime.stop(50ms);
  CHECK_FALSE(report.clean);
  REQUIRE(report.stragglers.size() == 1);
  CHECK(report.stragglers[0].find("runtime_test.cpp") != std::string::npos);
}

namespace {

/// Counts the destructions of what a straggler's frame holds.
struct CountEnd {
  explicit CountEnd(std::atomic<int>& count) : count(&count) {}
  CountEnd(CountEnd&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
  ~CountEnd() {
    if (count) ++*count;
  }
  std::atomic<int>* count;
};

}  // namespace

TEST_CASE("stopping ends tasks in every kind of wait, and nothing is left") {
  std::atomic<int> ended{0};
  {
    Runtime runtime({.shards = 2});
    runtime.on_every_shard([&](Shard& shard) {
      auto keep = [](CountEnd, Task<void> task) -> Task<void> { co_await std::move(task); };
      auto spawn = [&](Task<void> task) { shard.spawn(keep(CountEnd(ended), std::move(task))); };
      spawn(co_invoke([]() -> Task<void> { co_await sleep_for(1h); }));
      spawn(co_invoke([]() -> Task<void> {
        while (true) co_await yield();
      }));
      spawn(co_invoke([]() -> Task<void> {
        Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
        Socket socket = co_await listener.accept();
      }));
      spawn(co_invoke([&shard]() -> Task<void> {
        co_await call_on(shard.runtime().shard(1 - shard.index()),
                         []() -> Task<void> { co_await sleep_for(1h); });
      }));
      spawn(co_invoke([]() -> Task<void> {
        co_await when_all(co_invoke([]() -> Task<void> { co_await sleep_for(1h); }),
                          co_invoke([]() -> Task<void> { co_await sleep_for(2h); }));
      }));
      spawn(co_invoke([]() -> Task<void> {
        LocalChannel<int> channel(1);
        co_await channel.receive();
      }));
    });
    const auto report = runtime.stop(timing().scaled(10s));
    CHECK(report.clean);
    CHECK(report.stragglers.empty());
    CHECK(ended == 12);
  }
  CHECK(ended == 12);
}

TEST_CASE("a straggler in a kernel operation is destroyed with the operation's memory") {
  std::atomic<int> ended{0};
  {
    Runtime runtime({.shards = 1});
    runtime.on_every_shard([&](Shard& shard) {
      shard.spawn(shielded(co_invoke([end = CountEnd(ended)]() -> Task<void> {
        Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
        Socket there = co_await Socket::connect(listener.address());
        Socket here = co_await listener.accept();
        Buffer into = co_await Shard::current()->receive_pool().allocate(128 << 10);
        co_await here.receive_exactly(into);
      })));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto report = runtime.stop(20ms);
    CHECK_FALSE(report.clean);
    REQUIRE(report.stragglers.size() == 1);
    CHECK(report.stragglers[0].find("runtime_test.cpp") != std::string::npos);
    CHECK(ended == 1);
  }
  CHECK(ended == 1);
}

TEST_CASE("stopping twice, from two threads, or again at the end gives one report") {
  Runtime runtime({.shards = 2});
  runtime.on_every_shard([](Shard& shard) {
    shard.spawn(shielded(co_invoke([]() -> Task<void> { co_await sleep_for(1h); })));
  });
  Runtime::StopReport other;
  std::thread second([&] { other = runtime.stop(30ms); });
  const auto report = runtime.stop(30ms);
  second.join();
  CHECK_FALSE(report.clean);
  CHECK(report.stragglers.size() == 2);
  CHECK(other.stragglers == report.stragglers);
  CHECK(runtime.stop(1h).stragglers == report.stragglers);
}

TEST_CASE("a shard that is stuck does not hold up the stop, and is named with its line") {
  std::atomic<bool> began{false}, let_go{false};
  std::atomic<int> resumed_after_stop{0};
  std::atomic<bool> stopped{false};
  std::thread releaser;
  {
    Runtime runtime({.shards = 2});
    runtime.on_every_shard([&](Shard& shard) {
      if (shard.index() != 1) return;
      shard.spawn(co_invoke([&]() -> Task<void> {
        co_await yield();
        began = true;
        while (!let_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }));
      // Queued behind it: must not run once the runtime has been stopped.
      for (int i = 0; i < 50; ++i)
        shard.spawn(co_invoke([&]() -> Task<void> {
          while (true) {
            co_await yield();
            if (stopped) ++resumed_after_stop;
          }
        }));
    });
    while (!began) std::this_thread::yield();
    const auto report = runtime.stop(50ms);
    stopped = true;
    CHECK_FALSE(report.clean);
    REQUIRE(report.stragglers.size() == 1);
    CHECK(report.stragglers[0].find("shard 1") != std::string::npos);
    CHECK(report.stragglers[0].find("runtime_test.cpp:") != std::string::npos);
    releaser = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      let_go = true;
    });
  }  // waits for it
  CHECK(let_go);
  releaser.join();
  CHECK(resumed_after_stop == 0);
}

TEST_CASE("what is posted to a shard that was stuck is answered when it comes back") {
  std::atomic<bool> began{false}, let_go{false};
  std::atomic<int> ended{0};
  {
    Runtime runtime({.shards = 2});
    runtime.on_every_shard([&](Shard& shard) {
      if (shard.index() != 1) return;
      // They wait in the kernel, and are never told to stop: their shard is stuck until it ends.
      shard.spawn(co_invoke([end = CountEnd(ended)]() -> Task<void> {
        Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
        Socket there = co_await Socket::connect(listener.address());
        Socket here = co_await listener.accept();
        co_await here.receive();
      }));
      shard.spawn(co_invoke([&, end = CountEnd(ended)]() -> Task<void> {
        Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
        Socket there = co_await Socket::connect(listener.address());
        Socket here = co_await listener.accept();
        Scope scope;
        scope.spawn(here.receive_exactly(Buffer::heap(1 << 20)));
        co_await sleep_for(50ms);
        began = true;
        while (!let_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        co_await scope.join();
      }));
    });
    while (!began) std::this_thread::yield();
    CHECK(runtime.stop(50ms).stragglers.size() == 1);
    std::optional<Error> refused;
    std::string dump;
    std::thread poster([&] {
      try {
        runtime.run([](Runtime&) { return answer(); }, 1);
      } catch (const Error& error) {
        refused = error;
      }
      dump = runtime.dump();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    let_go = true;
    poster.join();
    REQUIRE(refused);
    CHECK(refused->is(Errc::shutting_down));
    CHECK(dump.find("shard 1") != std::string::npos);
    CHECK(ended == 2);
  }
  CHECK(ended == 2);
}

TEST_CASE("a stop takes little longer than its deadline when a shard gets stuck in the very end") {
  // Runs on and on, and sticks as soon as the tasks have been destroyed.
  struct Sticks : detail::Work {
    Sticks() : Work(&Sticks::run) {}
    static void run(Work* work) noexcept {
      auto* self = static_cast<Sticks*>(work);
      while (self->destroyed > 0 && !self->let_go)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (self->destroyed == 0) Shard::current()->schedule(self);
    }
    std::atomic<int> destroyed{0};
    std::atomic<bool> let_go{false};
  };
  Sticks sticks;  // its shard may still run it while the runtime is destroyed
  Runtime runtime({.shards = 1});
  // Without a bound the stop would wait for this.
  std::atomic<bool> returned{false}, gave_up{false};
  std::thread releaser([&] {
    for (int i = 0; i < 20'000 && !returned; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gave_up = !returned;
    sticks.let_go = true;
  });
  runtime.on_every_shard([&](Shard& shard) {
    shard.spawn(shielded(co_invoke([end = CountEnd(sticks.destroyed)]() -> Task<void> {
      Event never;
      co_await never.wait();
    })));
    shard.schedule(&sticks);
  });
  const auto report = runtime.stop(10ms);
  returned = true;
  releaser.join();
  CHECK_FALSE(gave_up);
  REQUIRE(report.stragglers.size() == 2);
  CHECK(report.stragglers[1].find("shard 0 has been in one turn for") != std::string::npos);
}

TEST_CASE("running a task on a stopped runtime is an error at once") {
  Runtime runtime({.shards = 2});
  runtime.stop(1s);
  for (unsigned shard : {0u, 1u}) {
    try {
      runtime.run([](Runtime&) { return answer(); }, shard);
      FAIL("it ran");
    } catch (const Error& error) {
      CHECK(error.is(Errc::shutting_down));
    }
  }
  int asked = 0;
  runtime.on_every_shard([&](Shard&) { ++asked; });
  CHECK(asked == 2);
}

TEST_CASE(
    "threads that run tasks while the runtime stops get a value or an error, and never wait") {
  for (int round = 0; round < 10; ++round) {
    Runtime runtime({.shards = 2});
    std::atomic<int> values{0}, errors{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 1'000'000; ++i) {
          try {
            if (runtime.run(
                    [](Runtime&) -> Task<int> {
                      co_await yield();
                      co_return 1;
                    },
                    t % 2) == 1)
              ++values;
          } catch (const Error& error) {
            if (!error.is(Errc::shutting_down)) std::abort();
            ++errors;
            return;
          }
        }
      });
    while (values < 20) std::this_thread::yield();
    CHECK(runtime.stop(timing().scaled(10s)).clean);
    for (auto& thread : threads) thread.join();
    CHECK(errors == 3);
  }
}

TEST_CASE("a task that the stop destroys gives its waiting thread an error") {
  Runtime runtime({.shards = 1});
  std::atomic<bool> began{false};
  std::atomic<int> ended{0};
  std::optional<Error> error;
  std::thread waiter([&] {
    try {
      runtime.run([&](Runtime&) -> Task<int> {
        co_return co_await shielded(co_invoke([&, end = CountEnd(ended)]() -> Task<int> {
          began = true;
          co_await sleep_for(1h);
          co_return 1;
        }));
      });
    } catch (const Error& failure) {
      error = failure;
    }
  });
  while (!began) std::this_thread::yield();
  runtime.stop(10ms);
  waiter.join();
  REQUIRE(error);
  CHECK(error->is(Errc::shutting_down));
  CHECK(ended == 1);
}

TEST_CASE("when run returns, nothing of the task is left") {
  Runtime runtime({.shards = 1});
  std::atomic<int> ended{0};
  for (int i = 1; i <= 200; ++i) {
    const int value = runtime.run([&](Runtime&) -> Task<int> {
      auto inner = [](CountEnd, int value) -> Task<int> {
        co_await yield();
        co_return value;
      };
      co_return co_await inner(CountEnd(ended), i);
    });
    CHECK(value == i);
    CHECK(ended == i);
  }
}

TEST_CASE("stopping from one of the runtime's own shards is refused") {
  Runtime runtime({.shards = 1});
  const bool refused = runtime.run([](Runtime& runtime) -> Task<bool> {
    try {
      runtime.stop(1s);
    } catch (const Error& error) {
      co_return error.is(Errc::invalid_argument);
    }
    co_return false;
  });
  CHECK(refused);
}

TEST_CASE("whatever would make a shard wait for itself is refused there") {
  Runtime runtime({.shards = 2});
  const auto refusal = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return error.is(Errc::invalid_argument) &&
             error.found().find("own shards") != std::string::npos;
    }
    return false;
  };
  runtime.run([&](Runtime& runtime) -> Task<void> {
    CHECK(refusal([&] { runtime.run([](Runtime&) -> Task<void> { co_return; }); }));
    CHECK(refusal([&] { runtime.run([](Runtime&) -> Task<void> { co_return; }, 1); }));
    CHECK(refusal([&] { runtime.on_every_shard([](Shard&) {}); }));
    CHECK(refusal([&] { runtime.collect_metrics(); }));
    co_return;
  });
  CHECK(runtime.stop(timing().scaled(5s)).clean);
}

TEST_CASE("a task for a shard that the runtime has not is refused") {
  Runtime runtime({.shards = 2});
  for (const unsigned shard : {2u, 7u, ~0u}) {
    std::optional<Error> refused;
    try {
      runtime.run([](Runtime&) -> Task<void> { co_return; }, shard);
    } catch (const Error& error) {
      refused = error;
    }
    REQUIRE(refused);
    CHECK(refused->is(Errc::invalid_argument));
    CHECK(refused->found() == "there is no shard " + std::to_string(shard) + "; the runtime has 2");
  }
}

TEST_CASE("a runtime with limits under which nothing can run is refused, with the limit's name") {
  const auto refused = [](Shard::Options shard, const char* name) {
    try {
      Runtime runtime({.shards = 1, .shard = shard});
    } catch (const Error& error) {
      return error.is(Errc::invalid_argument) && error.found().find(name) != std::string::npos;
    }
    return false;
  };
  CHECK(refused({.turn_work_limit = 0}, "turn_work_limit"));
  CHECK(refused({.turn_time_limit = 0us}, "turn_time_limit"));
  CHECK(refused({.ring_capacity = 0}, "ring_capacity"));
}

TEST_CASE("a task for a group that the runtime has not is refused, not queued for nobody") {
  Runtime runtime({.shards = 1});
  const bool refused = runtime.run([](Runtime&) -> Task<bool> {
    bool told = false;
    try {
      Shard::current()->spawn(co_invoke([]() -> Task<void> { co_return; }), Group{5});
    } catch (const Error& error) {
      told = error.is(Errc::invalid_argument);
    }
    co_return told;
  });
  CHECK(refused);
}

TEST_CASE("stopping with calls and offloaded work in flight leaks and resumes nothing") {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended{0};
    std::atomic<int> started{0};
    {
      Runtime runtime({.shards = 3, .shard = {.ring_capacity = 16}});
      runtime.on_every_shard([&](Shard& shard) {
        for (unsigned i = 0; i < 30; ++i) {
          ++started;
          shard.spawn(co_invoke([&shard, i, end = CountEnd(ended)]() -> Task<void> {
            Shard& to = shard.runtime().shard((shard.index() + 1 + i % 2) % 3);
            while (true) {
              co_await call_on(to, [&shard]() -> Task<void> {
                co_await call_on(shard, [] {});
                co_await offload([] {});
              });
            }
          }));
        }
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 5));
      if (round % 2) runtime.stop(round % 4 == 1 ? 0ms : 1s);
    }
    CHECK(ended == started);
  }
}

TEST_CASE("two runtimes live side by side and call each other") {
  Runtime first({.shards = 1}), second({.shards = 1});
  auto body = [&second](Runtime&) -> Task<int> {
    int sum = 0;
    for (int i = 0; i < 100; ++i)
      sum += co_await call_on(second.shard(0), []() -> Task<int> {
        co_await yield();
        co_return 1;
      });
    co_return sum;
  };
  CHECK(first.run(body) == 100);
}

TEST_CASE("a runtime that no task was given starts and ends") {
  for (int i = 0; i < 20; ++i) Runtime runtime({.shards = 3});
}
