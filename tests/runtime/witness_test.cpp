#include <hyperframes/runtime/witness.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <string>
#include <thread>
#include <vector>

#include "captured_log.hpp"

using namespace hyperframes;

namespace {

struct Names final : Witness {
  explicit Names(Runtime& runtime) : runtime(runtime), first(runtime.add_witness(*this)) {}
  ~Names() { runtime.remove_witness(*this); }
  std::string owner_name(unsigned shard, std::uint32_t owner) const override {
    return "owner " + std::to_string(owner % owners) + " of shard " + std::to_string(shard);
  }
  void dump(Shard& shard, std::string& text) const override {
    text += "  witnessed on " + std::to_string(shard.index()) + "\n";
  }
  Runtime& runtime;
  const std::uint32_t first;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Task<void> until(const std::atomic<bool>* released) {
  co_await yield();
  while (!*released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Gets stuck again and again, in a turn of its own each time.
Task<void> stall_until(const std::atomic<bool>* released) {
  while (!*released) {
    co_await yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// Waits until that has been logged, or until it takes far too long.
bool await_logged(test::CapturedLog& log, const std::string& part) {
  const Time limit = Clock::read_system() + timing().scaled(60s);
  while (!contains(log.text(), part) && Clock::read_system() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return contains(log.text(), part);
}

/// Sets `released` when that has been logged, or when it takes far too long.
std::thread release_once_logged(test::CapturedLog& log, std::string part,
                                std::atomic<bool>* released) {
  return std::thread([&log, part = std::move(part), released] {
    await_logged(log, part);
    *released = true;
  });
}

Task<void> own(std::uint32_t owner, Task<void> task) {
  detail::PromiseBase& promise = co_await CurrentPromise{};
  promise.owner = owner;
  co_await yield();  // it counts from the next resumption on
  co_await std::move(task);
}

Task<void> in_a_scope(Task<void> task) {
  Scope scope;
  scope.spawn(std::move(task));
  co_await scope.join();
}

}  // namespace

TEST_CASE("a stall is reported with the owner of the coroutine that holds the shard up") {
  test::CapturedLog log;
  Runtime runtime({.shards = 2, .stall_threshold = 20ms});
  Names names(runtime);
  std::atomic<bool> released{false};
  std::thread release = release_once_logged(log, "in owner 7 of shard 1", &released);
  runtime.run([&](Runtime&) { return own(names.first + 7, stall_until(&released)); }, 1);
  release.join();
  CHECK(contains(log.text(), "shard 1 has been in one turn for"));
  CHECK(contains(log.text(), "in owner 7 of shard 1"));
}

TEST_CASE("a process that was stopped says so, and blames no task for it") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(120);
    test::CapturedLog log;
    Runtime runtime({.shards = 1, .stall_threshold = 1s});
    runtime.run([&](Runtime&) {
      return co_invoke([&]() -> Task<void> {
        co_await yield();
        ::kill(::getpid(), SIGSTOP);
        // Still in the turn: in the end it is blamed for what it does after the pause.
        while (!contains(log.text(), "ms"))
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    });
    const std::string text = log.text();
    std::fputs(text.c_str(), stderr);
    ::_exit(text.starts_with("this process stood still for ") ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ::kill(child, SIGCONT);
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a stall has every shard log what waits on it, the stuck one when it goes on") {
  test::CapturedLog log;
  Runtime runtime({.shards = 2, .stall_threshold = 20ms});
  Names names(runtime);
  std::atomic<bool> released{false};
  std::thread release =
      release_once_logged(log, "what waits on shard 0, because some shard was stuck:\n", &released);
  runtime.run([&](Runtime&) { return until(&released); }, 1);
  release.join();
  // Shard 0 may have answered before shard 1 was even asked.
  CHECK(await_logged(log, "what waits on shard 1, because some shard was stuck:\n"));
  CHECK(contains(log.text(), "witnessed on 0"));
  CHECK(contains(log.text(), "witnessed on 1"));
}

TEST_CASE("what an owner starts in a scope is its own as well") {
  test::CapturedLog log;
  Runtime runtime({.shards = 1, .stall_threshold = 20ms});
  Names names(runtime);
  std::atomic<bool> released{false};
  std::thread release = release_once_logged(log, "in owner 3 of shard 0", &released);
  runtime.run([&](Runtime&) { return own(names.first + 3, in_a_scope(stall_until(&released))); });
  release.join();
  CHECK(contains(log.text(), "in owner 3 of shard 0"));
}

TEST_CASE("a shard that is between turns is said to be so") {
  Runtime runtime({.shards = 2});
  runtime.run([](Runtime& runtime) -> Task<void> {
    CHECK(contains(runtime.describe_turn(0), "shard 0 has been in one turn for"));
    co_return;
  });
  while (!contains(runtime.describe_turn(1), "between turns")) std::this_thread::yield();
}

TEST_CASE("a dump holds what witnesses add, and says what a stuck shard does") {
  Runtime runtime({.shards = 2, .stall_threshold = Duration::zero()});
  std::atomic<bool> released{false}, began{false};
  Names names(runtime);
  std::thread sticks([&] {
    runtime.run(
        [&](Runtime&) {
          began = true;
          return own(names.first + 1, until(&released));
        },
        1);
  });
  while (!began) std::this_thread::yield();
  std::string dump;
  do {
    dump = runtime.dump(10ms);
  } while (!contains(dump, "in owner 1 of shard 1"));
  CHECK(contains(dump, "did not answer: shard 1 has been in one turn for"));
  released = true;
  sticks.join();
  CHECK(contains(runtime.dump(), "witnessed on 0"));
  CHECK(contains(runtime.dump(), "witnessed on 1"));
}

TEST_CASE("witnesses come and go, and each has numbers of its own") {
  Runtime runtime({.shards = 1});
  Names first(runtime);
  std::uint32_t freed = 0;
  {
    Names second(runtime);
    freed = second.first;
    CHECK(second.first - first.first == Witness::owners);
    CHECK(first.first == Witness::owners);  // 0 is nobody
  }
  CHECK(!contains(runtime.dump(), "witnessed on 1"));
  Names third(runtime);
  CHECK(third.first == freed);
}

TEST_CASE("witnesses beyond what there are numbers for have none, and are not asked") {
  Runtime runtime({.shards = 1});
  std::vector<std::unique_ptr<Names>> many;
  for (int i = 0; i < 255; ++i) many.push_back(std::make_unique<Names>(runtime));
  CHECK(many.back()->first == 255u * Witness::owners);
  Names late(runtime);
  CHECK(late.first == 0);
}

TEST_CASE("what is run on every shard until a limit names the shards that have not come to it") {
  Runtime runtime({.shards = 2, .stall_threshold = Duration::zero()});
  std::atomic<bool> released{false}, began{false};
  std::thread sticks([&] {
    runtime.run(
        [&](Runtime&) {
          began = true;
          return until(&released);
        },
        1);
  });
  while (!began) std::this_thread::yield();
  struct Counts {
    std::atomic<int> of[2] = {0, 0};
  };
  auto counts = std::make_shared<Counts>();
  int rounds = 0;
  std::vector<unsigned> missing;
  // Until only the other shard misses it; before it sticks, and on a busy machine, that is not so.
  while (missing != std::vector<unsigned>{1}) {
    missing = runtime.on_every_shard_until(after(10ms),
                                           [counts](Shard& shard) { ++counts->of[shard.index()]; });
    ++rounds;
  }
  CHECK(counts->of[1] < rounds);
  released = true;
  sticks.join();
  CHECK(runtime.on_every_shard_until(no_deadline, [](Shard&) {}).empty());
  CHECK(counts->of[0] == rounds);
  CHECK(counts->of[1] == rounds);  // it came to them later
}
