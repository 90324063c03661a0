#include <hyperframes/apps/tools/signal_notes.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>

using hyperframes::tools::SignalNotes;

TEST_CASE("a signal is noted once, and the same one again ends the process") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const SignalNotes notes;
    ::raise(SIGTERM);
    if (notes.seen() == SIGTERM) ::raise(SIGTERM);
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}
