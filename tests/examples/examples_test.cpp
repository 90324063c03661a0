// Runs the example programs, and compares what they print.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

extern char** environ;

namespace {

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
    REQUIRE(posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(), environ) ==
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

}  // namespace

TEST_CASE("the counter example serves a client in another process") {
  Program server({EXAMPLE_COUNTER, "serve", "tcp://127.0.0.1:0"});
  const std::string listening = server.line();
  REQUIRE(listening.starts_with("listening on tcp://127.0.0.1:"));
  const std::string address = listening.substr(listening.find("tcp://"));

  Program client({EXAMPLE_COUNTER, "ask", address});
  CHECK(client.rest() ==
        "added 1: 1\nadded 2: 3\nadded 3: 6\nMy name is Ada\n"
        "rename the counter: the name is empty [invalid_argument]; give it one\n");
  CHECK(client.wait() == 0);

  Program second({EXAMPLE_COUNTER, "ask", address});
  CHECK(second.line() == "added 1: 7");
  second.rest();
  CHECK(second.wait() == 0);
  CHECK(server.end() == 0);
}

TEST_CASE("the counter example says what is wrong when nobody listens") {
  Program client({EXAMPLE_COUNTER, "ask", "tcp://127.0.0.1:1"});
  CHECK(client.rest().empty());
  CHECK(client.wait() == 1);
}

TEST_CASE("the examples explain themselves") {
  for (const char* program : {EXAMPLE_COUNTER, EXAMPLE_INBOX, EXAMPLE_SUPERVISED}) {
    Program help({program, "--help"});
    CHECK(help.line().starts_with("usage: example_"));
    help.rest();
    CHECK(help.wait() == 0);
    Program wrong({program, "--nosuch"});
    CHECK(wrong.rest().empty());
    CHECK(wrong.wait() == 2);
  }
}

TEST_CASE("the inbox example counts words") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "to be or not to be\n";
  Program words({EXAMPLE_INBOX, "be"}, text);
  CHECK(words.rest() == "be: 200\nthe actor knew 4 words\n");
  CHECK(words.wait() == 0);
}

TEST_CASE("the supervised example crashes, comes back, and is given up in the end") {
  Program supervised({EXAMPLE_SUPERVISED});
  CHECK(supervised.rest() ==
        "started\n6 / 3 = 2\n"
        "1 / 0 failed: the actor ended before it answered: division by zero\nstarted\n8 / 2 = 4\n"
        "1 / 0 failed: the actor ended before it answered: division by zero\nstarted\n8 / 2 = 4\n"
        "1 / 0 failed: the actor ended before it answered: division by zero\n"
        "divider is down (exhausted): division by zero\n"
        "8 / 2 failed: the actor has ended\n");
  CHECK(supervised.wait() == 0);
}
