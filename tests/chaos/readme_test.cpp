// The command lines of the README's "Seeing what runs" and "Measuring a connection", as they stand
// there, but for folders and ports. Its quick starts are followed by tests/docs.
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

TEST_CASE("the README's server shows what it does as it says") {
  Processes scene;
  const std::string page = fmt::format("127.0.0.1:{}", free_port());
  const std::vector<std::pair<std::string, std::string>> replacements = {
      {"~/hyperframes/bin/", Processes::program("")},
      {"/tmp/ps", scene.path("ps")},
      {"127.0.0.1:9464", page}};
  const auto commands = commands_behind("## Seeing what runs");
  REQUIRE(commands.size() == 4);
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
  Process& events = scene.start("events", adapted(commands[3], replacements));
  scene.require_success(events);
  CHECK(contains(events.output(), "nothing was decided so far"));
}

TEST_CASE("the README's measurement of a connection runs, and finds every byte right") {
  Processes scene;
  const auto commands = commands_behind("## Measuring a connection");
  REQUIRE(commands.size() == 1);
  Process& perf =
      scene.start("perf", adapted(commands[0], {{"~/hyperframes/bin/", Processes::program("")},
                                                {"perf.html", scene.path("perf.html")}}));
  scene.require_success(perf);
  CHECK(contains(perf.output(), "over tcp: tcp adds"));
  CHECK(contains(text_of(scene.path("perf.html")), "<svg"));
}

}  // namespace
}  // namespace hyperframes::tools
