// The built tool, run as a user runs it, in a folder of its own.
//
//   const WorkFolder folder;
//   Outcome outcome = run(folder, "hyperframes inspect data");
//   CHECK(outcome.status == 1);
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tools_test {

namespace fs = std::filesystem;

class WorkFolder {
 public:
  WorkFolder() {
    std::string name = (fs::temp_directory_path() / "hyperframes-commands-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~WorkFolder() { fs::remove_all(path_); }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ / name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  fs::path path_;
};

struct Outcome {
  int status = 0;
  std::string text;  // both outputs
};

// A shell command in `folder`, with the built tool on its PATH.
inline Outcome run(const WorkFolder& folder, const std::string& command) {
  const fs::path tool = HYPERFRAMES_TOOL;
  const std::string line = "cd '" + folder.path().string() + "' && PATH='" +
                           tool.parent_path().string() + "':$PATH && { " + command + "\n} 2>&1";
  std::FILE* pipe = ::popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Outcome outcome;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
    outcome.text += static_cast<char>(c);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

inline Outcome succeed(const WorkFolder& folder, const std::string& command) {
  Outcome outcome = run(folder, command);
  INFO(command << "\n" << outcome.text);
  REQUIRE(outcome.status == 0);
  return outcome;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The commands of a help text's example, lines that go on joined.
inline std::vector<std::string> example_commands(const std::string& help) {
  std::vector<std::string> commands;
  std::istringstream lines(help.substr(help.find("Example:")));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  hyperframes ")) continue;
    while (line.ends_with('\\')) {
      line.pop_back();
      std::string next;
      std::getline(lines, next);
      line += next;
    }
    commands.push_back(line);
  }
  return commands;
}

inline void run_example(const WorkFolder& folder, const std::string& command) {
  const auto commands = example_commands(succeed(folder, command + " --help").text);
  REQUIRE(!commands.empty());
  for (const std::string& example : commands) succeed(folder, example);
}

}  // namespace tools_test
