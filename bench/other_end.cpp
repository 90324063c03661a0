#include "other_end.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <stdexcept>
#include <thread>

#include "harness.hpp"
#include "sessions.hpp"
#if HYPERFRAMES_BENCH_NNG
#include "peers/nng.hpp"
#endif
#if HYPERFRAMES_BENCH_UCX
#include "peers/ucx.hpp"
#endif
#if HYPERFRAMES_BENCH_ZMQ
#include "peers/zmq.hpp"
#endif

namespace hyperframes::bench {
namespace {

constexpr const char* flag = "--other-end";
constexpr const char* question = "cpu";

using Serve = void (*)(Starter& starter, const std::vector<std::string>& arguments);

const std::map<std::string, Serve>& roles() {
  static const std::map<std::string, Serve> all = {
      {"sessions", &serve_sessions},
#if HYPERFRAMES_BENCH_NNG
      {"nng", &nng_peer::serve},
#endif
#if HYPERFRAMES_BENCH_UCX
      {"ucx", &ucx_peer::serve},
#endif
#if HYPERFRAMES_BENCH_ZMQ
      {"zmq", &zmq_peer::serve},
#endif
  };
  return all;
}

}  // namespace

OtherEnd::OtherEnd(const std::vector<std::string>& role) {
  std::vector<std::string> words = {"hyperframes_bench", flag};
  words.insert(words.end(), role.begin(), role.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  int down[2], up[2];
  if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0)
    throw std::runtime_error("could not make a pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, down[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, up[1], STDOUT_FILENO);
  const int failure =
      ::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(down[0]);
  ::close(up[1]);
  to_ = ::fdopen(down[1], "w");
  from_ = ::fdopen(up[0], "r");
  if (failure != 0)
    throw std::runtime_error(std::string("could not start the other end: ") + ::strerror(failure));
}

OtherEnd::~OtherEnd() {
  std::fclose(to_);  // it ends at that
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
  std::fclose(from_);
}

std::string OtherEnd::hear() {
  std::string line;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    if (c == EOF) throw std::runtime_error("the other end has ended; its reason is above");
    line += static_cast<char>(c);
  }
  return line;
}

void OtherEnd::say(const std::string& line) {
  fmt::print(to_, "{}\n", line);
  std::fflush(to_);
}

double OtherEnd::cpu_seconds() {
  say(question);
  return std::stod(hear());
}

std::string Starter::hear() {
  std::string line;
  if (!std::getline(std::cin, line)) ::_exit(0);  // nobody wants it any more
  return line;
}

void Starter::say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Starter::attend() {
  std::thread([this] {
    while (hear() == question) say(fmt::format("{:.6f}", bench::cpu_seconds()));
    ::_exit(1);
  }).detach();
}

std::optional<int> run_other_end(int argc, char** argv) {
  if (argc < 3 || std::strcmp(argv[1], flag) != 0) return std::nullopt;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    static Starter starter;  // its thread goes on until the process ends
    roles().at(argv[2])(starter, {argv + 3, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "the other end, {}: {}\n", argv[2], error.what());
    return 1;
  }
}

}  // namespace hyperframes::bench
