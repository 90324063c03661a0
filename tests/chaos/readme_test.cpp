// The command lines of the README, as they stand there, but for folders, ports and the data set.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "processes.hpp"

namespace hyperframes::tools {
namespace {

void replace(std::string& text, const std::string& old, const std::string& instead) {
  REQUIRE(!old.empty());
  for (auto at = text.find(old); at != std::string::npos; at = text.find(old, at + instead.size()))
    text.replace(at, old.size(), instead);
}

/// The words of each command in the first `sh` block behind `heading`.
std::vector<Arguments> commands_behind(const std::string& heading) {
  const std::string readme = text_of(HYPERFRAMES_README);
  const auto section = readme.find(heading);
  REQUIRE(section != std::string::npos);
  auto begin = readme.find("```sh\n", section);
  REQUIRE(begin != std::string::npos);
  begin += 6;
  std::string block = readme.substr(begin, readme.find("```", begin) - begin);
  replace(block, "\\\n", " ");
  std::vector<Arguments> commands;
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Arguments command;
    for (std::string word; words >> word && !word.starts_with('#');) command.push_back(word);
    if (!command.empty()) commands.push_back(std::move(command));
  }
  return commands;
}

/// As it stands there, with `replacements` in all words.
Arguments adapted(Arguments command,
                  const std::vector<std::pair<std::string, std::string>>& replacements) {
  for (auto& word : command)
    for (const auto& [old, instead] : replacements) replace(word, old, instead);
  return command;
}

TEST_CASE("the README's parameter server trains and scores as it says") {
  Processes scene;
  scene.training();
  const std::string port = std::to_string(free_port());
  const std::vector<std::pair<std::string, std::string>> replacements = {
      {"build/release/bin/", Processes::program("")},
      {"/tmp/ps", scene.path("ps")},
      {"data/movielens", scene.path("movielens")},
      {"apps/ps/models", HYPERFRAMES_MODELS},
      {"127.0.0.1:6000", "127.0.0.1:" + port}};
  const auto commands = commands_behind("## Quick start: the parameter server");
  REQUIRE(commands.size() == 3);
  Arguments serve = adapted(commands[0], replacements);
  serve.insert(serve.end(), {"--listen", "127.0.0.1:" + port});  // by default it is port 6000
  Process& server = scene.start("server", serve);
  scene.require_success(scene.start("worker", adapted(commands[1], replacements)));
  Process& scored = scene.start("evaluation", adapted(commands[2], replacements));
  scene.require_success(scored);
  CHECK(contains(scored.output(), "samples 8"));
  CHECK(contains(scored.output(), "auc     0."));
  CHECK(server.running());
}

TEST_CASE("the README's service answers as it says") {
  Processes scene;
  const std::vector<std::pair<std::string, std::string>> replacements = {
      {"build/release/bin/", Processes::program("")}, {":6000", fmt::format(":{}", free_port())}};
  const auto commands = commands_behind("## Quick start: a service");
  REQUIRE(commands.size() == 2);
  Process& server = scene.start("server", adapted(commands[0], replacements));
  // The terminals are started one after the other, and the first may take its time.
  scene.wait_for("the server", [&] { return !scene.text(server).empty(); });
  Process* asked = nullptr;
  for (unsigned attempt = 0; attempt < 100 && (!asked || !asked->ends().back().succeeded());
       ++attempt) {
    asked = &scene.start(fmt::format("ask-{}", attempt), adapted(commands[1], replacements));
    scene.end_of(*asked);
  }
  INFO(scene.text(*asked));
  CHECK(asked->ends().back().succeeded());
  CHECK(!asked->output().empty());
}

TEST_CASE("the README's asio server answers as it says") {
  const std::string curl = "/usr/bin/curl";
  if (!std::filesystem::exists(Processes::program("example_asio_http")))
    SKIP("asio is not installed (Debian: libasio-dev)");
  if (!std::filesystem::exists(curl)) SKIP("curl is not installed");
  Processes scene;
  const std::vector<std::pair<std::string, std::string>> replacements = {
      {"build/release/bin/", Processes::program("")},
      {"8080", std::to_string(free_port())},
      {"curl", curl}};
  const auto commands = commands_behind("## Quick start: actors in an asio server");
  REQUIRE(commands.size() == 2);
  Process& server = scene.start("server", adapted(commands[0], replacements));
  scene.wait_for("the server", [&] { return !scene.text(server).empty(); });
  Process& asked = scene.start("ask", adapted(commands[1], replacements));
  scene.end_of(asked);
  INFO(scene.text(asked));
  CHECK(asked.ends().back().succeeded());
  CHECK(asked.output() == "{\"page\":\"home\",\"visits\":1}\n");
}

TEST_CASE("the README's server shows what it does as it says") {
  Processes scene;
  const std::string page = fmt::format("127.0.0.1:{}", free_port());
  const std::vector<std::pair<std::string, std::string>> replacements = {
      {"build/release/bin/", Processes::program("")},
      {"/tmp/ps", scene.path("ps")},
      {"127.0.0.1:9464", page}};
  const auto commands = commands_behind("## Seeing what runs");
  REQUIRE(commands.size() == 3);
  Arguments serve = adapted(commands[0], replacements);
  serve.insert(serve.end(), {"--listen", "127.0.0.1:0"});  // by default it is port 6000
  Process& server = scene.start("server", serve);
  scene.wait_for("the server", [&] {
    return contains(scene.text(server), "all shards have recovered") ||
           contains(scene.text(server), "this build has no HTTP");
  });
  if (contains(scene.text(server), "this build has no HTTP"))
    SKIP("this build has no HTTP: libcpp-httplib-dev is missing");
  for (std::size_t i : {1u, 2u}) {
    Process& shown = scene.start(fmt::format("shown-{}", i), adapted(commands[i], replacements));
    scene.require_success(shown);
    CHECK(contains(shown.output(), "ps/shard/15"));
    CHECK(contains(shown.output(), "waits on"));
  }
}

}  // namespace
}  // namespace hyperframes::tools
