// A program that a test runs.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace example_test {

/// A child process whose standard output is read here. Ended with SIGTERM at the latest.
class Program {
 public:
  Program(std::vector<std::string> command, const std::string& input = {}) {
    int in[2], out[2];
    REQUIRE(pipe(in) == 0);
    REQUIRE(pipe(out) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    for (int descriptor : {in[0], in[1], out[0], out[1]})
      posix_spawn_file_actions_addclose(&actions, descriptor);
    std::vector<char*> arguments;
    for (auto& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    REQUIRE(posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(), ::environ) ==
            0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    REQUIRE(write(in[1], input.data(), input.size()) == static_cast<ssize_t>(input.size()));
    close(in[1]);
    output_ = out[0];
  }
  Program(const Program&) = delete;
  ~Program() {
    if (process_) end();
    close(output_);
  }

  /// Up to and without the next line's end; what there was if the output ended first.
  std::string line() {
    std::string text;
    char c = 0;
    while (read(output_, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  std::string rest() {
    std::string text;
    char buffer[4096];
    for (ssize_t size; (size = read(output_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(size));
    return text;
  }
  int end() {
    kill(process_, SIGTERM);
    return wait();
  }
  int wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t process_ = 0;
  int output_ = -1;
};

}  // namespace example_test
