#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdio>
#include <future>
#include <hyperframes/apps/ps/signal_watch.hpp>
#include <hyperframes/runtime/time.hpp>

using namespace hyperframes;
using hyperframes::ps::SignalWatch;

TEST_CASE("each signal to end is a call, the end of the terminal too") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    SignalWatch watch;
    std::promise<void> arrived;
    watch.start([&] { arrived.set_value(); });
    ::kill(::getpid(), signal);
    REQUIRE(arrived.get_future().wait_for(timing().scaled(10s)) == std::future_status::ready);
    CHECK(watch.received() == signal);
  }
}

TEST_CASE("who is to outlive the terminal does") {
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGHUP, &ignore, &before) == 0);
  {
    SignalWatch watch;
    std::promise<void> arrived;
    ::kill(::getpid(), SIGHUP);
    ::kill(::getpid(), SIGTERM);
    watch.start([&] { arrived.set_value(); });
    REQUIRE(arrived.get_future().wait_for(timing().scaled(10s)) == std::future_status::ready);
    CHECK(watch.received() == SIGTERM);
  }
  ::sigaction(SIGHUP, &before, nullptr);
}

TEST_CASE("a file at its limit is an error of the write, and no signal") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  int written = 0, failure = 0;
  {
    const SignalWatch watch;
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    rlimit none = before;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
    written = static_cast<int>(::write(::fileno(file), "x", 1));
    failure = errno;
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::fclose(file);
  }
  CHECK(written == -1);
  CHECK(failure == EFBIG);
}
