#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/mutex.hpp>
#include <mutex>
#include <string>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;

TEST_CASE("a mutex admits one coroutine at a time, in order, across suspensions") {
  Manual manual;
  Mutex mutex;
  int inside = 0, highest = 0;
  std::vector<int> order;
  auto user = [&](int name) -> Task<void> {
    auto lock = co_await mutex.lock();
    highest = std::max(highest, ++inside);
    order.push_back(name);
    co_await yield();
    co_await sleep_for(100us);
    --inside;
  };
  for (int i = 0; i < 5; ++i) manual.spawn([&] { return user(i); });
  manual.settle();
  CHECK(mutex.locked());
  for (int i = 0; i < 20; ++i) manual.advance(200us);
  CHECK(highest == 1);
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
  CHECK_FALSE(mutex.locked());
}

TEST_CASE("waiting for a mutex ends at its deadline, and the mutex stays usable") {
  Manual manual;
  Mutex mutex;
  bool late = false, done = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      auto lock = co_await mutex.lock();
      co_await sleep_for(20ms);
    });
  });
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      try {
        auto lock = co_await mutex.lock(after(5ms));
      } catch (const Error& error) {
        late = error.is(Errc::deadline_exceeded);
      }
      auto lock = co_await mutex.lock();
      done = true;
    });
  });
  manual.settle();
  manual.advance(10ms);
  CHECK(late);
  CHECK_FALSE(done);
  manual.advance(20ms);
  CHECK(done);
}

TEST_CASE("a blocking section holds its lock while it lives") {
  std::mutex mutex;
  {
    BlockingSection section(mutex);
    CHECK_FALSE(mutex.try_lock());
  }
  REQUIRE(mutex.try_lock());
  mutex.unlock();
}

#ifndef NDEBUG
namespace {

/// What a child process printed to standard error before it died, and how it died.
struct Death {
  int signal = 0;
  std::string text;
};

template <class Function>
Death die(Function function) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);  // the test framework's handler would report here
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    ::close(ends[1]);
    function();
    ::_exit(0);
  }
  ::close(ends[1]);
  Death death;
  char bytes[512];
  for (ssize_t got; (got = ::read(ends[0], bytes, sizeof bytes)) > 0;)
    death.text.append(bytes, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) death.signal = WTERMSIG(status);
  return death;
}

}  // namespace

TEST_CASE("suspending with a standard lock held aborts with the line in debug builds") {
  const Death death = die([] {
    Manual manual;
    std::mutex mutex;
    manual.spawn([&] {
      return co_invoke([&]() -> Task<void> {
        BlockingSection section(mutex);
        co_await yield();
      });
    });
    manual.settle();
  });
  CHECK(death.signal == SIGABRT);
  CHECK(death.text.find("mutex_test.cpp:") != std::string::npos);
  CHECK(death.text.find("hf::Mutex") != std::string::npos);
}

TEST_CASE("a blocking section between two suspensions is fine") {
  const Death death = die([] {
    Manual manual;
    std::mutex mutex;
    manual.spawn([&] {
      return co_invoke([&]() -> Task<void> {
        co_await yield();
        {
          BlockingSection section(mutex);
        }
        co_await yield();
      });
    });
    manual.settle();
  });
  CHECK(death.signal == 0);
  CHECK(death.text.empty());
}
#endif
