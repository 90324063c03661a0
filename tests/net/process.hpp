// A peer in a process of its own: this program again, running one hidden test case as its `main`.
//
//   TEST_CASE("peer process: listens", "[.][peer]") {
//     if (report_descriptor() < 0) return;      // nobody asked for it
//     report(node.listen().to_string());        // a line for the test
//     while (true) ::pause();
//   }
//   Process peer("peer process: listens");      // killed at the latest when it goes out of scope
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <hyperframes/net/endpoint.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"

namespace net_test {

class Process {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  explicit Process(const char* test_case, Environment environment = {}) {
    const Environment way = Over::environment();
    environment.insert(environment.end(), way.begin(), way.end());
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    from_ = ends[0];
    const std::string descriptor = std::to_string(100);
    id_ = ::fork();
    REQUIRE(id_ >= 0);
    if (id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(ends[1], 100);  // without close-on-exec
      ::setenv("HYPERFRAMES_TEST_REPORT", descriptor.c_str(), 1);
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      ::execl("/proc/self/exe", "peer", test_case, static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(ends[1]);
  }
  Process(const Process&) = delete;
  ~Process() {
    if (id_ > 0) {
      signal(SIGKILL);
      wait();
    }
    ::close(from_);
  }

  /// The next line that it reports; empty if it ended.
  std::string line() {
    std::string text;
    char c;
    while (::read(from_, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  hf::net::Endpoint endpoint() { return hf::net::Endpoint::parse(line()); }
  void signal(int number) { ::kill(id_, number); }
  /// It does nothing any more, until it is continued.
  void stop() {
    signal(SIGSTOP);
    siginfo_t found{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(id_), &found, WSTOPPED) == 0);
  }
  /// It is over, and was not waited for.
  bool ended() const {
    siginfo_t found{};
    return ::waitid(P_PID, static_cast<id_t>(id_), &found, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           found.si_pid == id_;
  }
  /// Its status, as waitpid(2) gives it.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(id_, -1), &status, 0);
    return status;
  }

 private:
  pid_t id_ = -1;
  int from_ = -1;
};

inline int report_descriptor() {
  const char* text = std::getenv("HYPERFRAMES_TEST_REPORT");
  return text ? std::atoi(text) : -1;
}

inline void report(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto written = ::write(report_descriptor(), text.data(), text.size());
}

}  // namespace net_test
