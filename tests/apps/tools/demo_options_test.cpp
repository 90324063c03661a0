#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/model.hpp>
#include <hyperframes/apps/tools/demo_options.hpp>
#include <hyperframes/runtime/error.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools {
namespace {

std::string refusal_of(const DemoOptions& options) {
  try {
    options.check();
  } catch (const Error& error) {
    CHECK(error.is(Errc::invalid_argument));
    CHECK_FALSE(error.remedy().empty());
    return error.what();
  }
  return "";
}

TEST_CASE("one kill falls in the middle of the first run") {
  CHECK(kill_fractions(1, 6, 0) == std::vector<double>{.5});
  for (unsigned run = 1; run < 6; ++run) CHECK(kill_fractions(1, 6, run).empty());
}

TEST_CASE("kills are spread over the runs, none is left out, and none falls at a run's ends") {
  for (unsigned kills = 0; kills < 30; ++kills) {
    std::size_t count = 0;
    for (unsigned run = 0; run < 6; ++run) {
      const std::vector<double> fractions = kill_fractions(kills, 6, run);
      count += fractions.size();
      CHECK(std::is_sorted(fractions.begin(), fractions.end()));
      for (const double fraction : fractions) CHECK((fraction > 0 && fraction < 1));
    }
    CHECK(count == kills);
  }
}

TEST_CASE("a demo that can't work is refused with a remedy before anything starts") {
  CHECK(refusal_of({}).empty());
  CHECK(refusal_of({.servers = 4, .shards = 3}).find("3 parameter shards are too few") !=
        std::string::npos);
  CHECK(refusal_of({.ratings = "/nowhere/ratings.csv"}).find("/nowhere/ratings.csv") !=
        std::string::npos);
  CHECK(refusal_of({.workdir = std::filesystem::temp_directory_path().root_path()})
            .find("not empty") != std::string::npos);
}

TEST_CASE(
    "a result's file and a work folder that can't be used are refused before anything starts") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("hyperframes-demo-options-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto text_of = [](const DemoOptions& options) -> std::string {
    try {
      options.check();
    } catch (const Error& error) {
      CHECK_FALSE(error.remedy().empty());
      return error.what();
    }
    return "";
  };
  CHECK(text_of({.json = folder / "none/result.json"}).find("--json") != std::string::npos);
  CHECK(text_of({.json = folder}).find("folder") != std::string::npos);
  CHECK(text_of({.json = folder / "result.json"}).empty());
  CHECK(std::filesystem::is_empty(folder));
  std::ofstream(folder / "file") << "kept";
  CHECK(text_of({.json = folder / "file"}).empty());
  CHECK(std::filesystem::file_size(folder / "file") == 4);
  CHECK(text_of({.workdir = folder / "file"}).find("no folder") != std::string::npos);
  CHECK(text_of({.workdir = folder / "file/work"}).find("--workdir") != std::string::npos);
  CHECK(text_of({.workdir = folder / "work"}).empty());
  std::filesystem::remove_all(folder);
}

TEST_CASE("the model files that the demo brings along are models") {
  REQUIRE(demo_models().size() >= 2);
  for (const DemoModel& model : demo_models()) {
    const ps::ModelConfig config = ps::ModelConfig::parse(std::string(model.yaml), model.name);
    CHECK(config.kind == ps::ModelConfig::Kind::factorization_machine);
    CHECK(config.fields.size() == 4);
    CHECK(config.epochs == 10);
  }
}

}  // namespace
}  // namespace hyperframes::tools
