#include <fcntl.h>
#include <flatbuffers/base.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <hyperframes/actors/protocol/flatc.hpp>
#include <hyperframes/actors/protocol/prepare.hpp>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>

extern char** environ;

namespace hyperframes::protocol {
namespace {

const std::string built_with = std::to_string(FLATBUFFERS_VERSION_MAJOR) + "." +
                               std::to_string(FLATBUFFERS_VERSION_MINOR) + "." +
                               std::to_string(FLATBUFFERS_VERSION_REVISION);

/// Starts the program; what it says goes to `output`.
pid_t start(const std::string& program, const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  pid_t child = -1;
  const int error = posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw SchemaError("can't run '" + program + "': " + std::generic_category().message(error) +
                      ". It is FlatBuffers' compiler, version " + built_with +
                      "; on Debian: apt-get install flatbuffers-compiler, or name it with --flatc");
  return child;
}

bool succeeds(pid_t child, const std::string& program) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw SchemaError("lost track of '" + program + "'");
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Outcome {
  std::string said;
  bool succeeded = false;
};

Outcome run_to_end(const std::string& program, const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw SchemaError("can't make a pipe: " + std::generic_category().message(errno));
  pid_t child = -1;
  try {
    child = start(program, arguments, ends[1]);
  } catch (...) {
    close(ends[0]);
    close(ends[1]);
    throw;
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> part{};
  ssize_t count = 0;
  while ((count = read(ends[0], part.data(), part.size())) > 0 || (count < 0 && errno == EINTR))
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
  close(ends[0]);
  const bool succeeded = succeeds(child, program);
  return {std::move(text), succeeded};
}

}  // namespace

Flatc::Flatc(std::string program) : program_(std::move(program)) {
  const std::string text = run_to_end(program_, {"--version"}).said;
  constexpr std::string_view label = "flatc version ";
  const auto at = text.find(label);
  std::string version = at == std::string::npos ? text : text.substr(at + label.size());
  version.erase(version.find_last_not_of(" \n") + 1);
  if (version != built_with)
    throw SchemaError("'" + program_ + "' is version " + version +
                      ", and this Hyperframes was built with FlatBuffers " + built_with +
                      ": code from one does not fit the other. Install FlatBuffers " + built_with +
                      ", or name its flatc with --flatc (FLATC_EXECUTABLE in CMake)");
}

void Flatc::run(const std::vector<std::string>& arguments,
                const std::function<std::string(std::string)>& in_words_of_ours) const {
  const Outcome outcome = run_to_end(program_, arguments);
  if (!outcome.said.empty()) std::cerr << in_words_of_ours(outcome.said);
  if (!outcome.succeeded) throw SchemaError("'" + program_ + "' failed: what it says is above");
}

}  // namespace hyperframes::protocol
