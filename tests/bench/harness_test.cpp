#include <hyperframes/bench/harness.hpp>

#include <unistd.h>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>

namespace bench = hyperframes::bench;

namespace {

bench::Row fixed(const std::string& name, double value, double peer_value) {
  return {.group = "group",
          .name = name,
          .unit = "ns",
          .subject = [=] { return value; },
          .peer = bench::Rival{"the peer", [=] { return peer_value; }},
          .family = "family"};
}

bench::Mean mean() {
  return {.group = "group", .name = "mean", .family = "family", .unit = "ns", .goal = 0.5};
}

struct Ran {
  bool well;
  nlohmann::json json;
  const nlohmann::json& row(const std::string& name) const {
    for (const auto& row : json["rows"])
      if (row["name"] == name) return row;
    throw std::out_of_range("no row " + name);
  }
};

Ran ran(bench::Runner& runner) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("hyperframes_harness_test_" + std::to_string(::getpid()) + ".json");
  const bool well = runner.run(path.string());
  std::ifstream file(path);
  Ran result{well, nlohmann::json::parse(file)};
  std::filesystem::remove(path);
  return result;
}

}  // namespace

TEST_CASE("a mean is the geometric one of its family's rows, and of their peers") {
  bench::Runner runner;
  runner.add(fixed("a", 2, 10));
  runner.add(fixed("b", 8, 1000));
  bench::Row other = fixed("c", 1e6, 1e6);
  other.family = "another family";
  runner.add(other);
  runner.add_mean(mean());
  const Ran result = ran(runner);
  REQUIRE(result.well);
  const auto& row = result.row("group/mean");
  REQUIRE(row["value"].get<double>() == Catch::Approx(4));
  REQUIRE(row["peer_value"].get<double>() == Catch::Approx(100));
  REQUIRE(row["goal_peer"] == 0.5);
  REQUIRE(row["peer"] == "the peer");
}

TEST_CASE("a mean stands behind the last row of its family") {
  bench::Runner runner;
  runner.add(fixed("a", 1, 1));
  bench::Row other = fixed("b", 1, 1);
  other.family.clear();
  runner.add_mean(mean());
  runner.add(other);
  const Ran result = ran(runner);
  REQUIRE(result.json["rows"].size() == 3);
  REQUIRE(result.json["rows"][1]["name"] == "group/mean");
}

TEST_CASE("a mean of rows without a peer has none, and a mean of no rows is no row") {
  bench::Runner runner;
  bench::Row alone = fixed("a", 3, 0);
  alone.peer.reset();
  runner.add(alone);
  runner.add_mean(mean());
  bench::Mean nothing = mean();
  nothing.name = "of nothing";
  nothing.family = "nothing";
  runner.add_mean(nothing);
  const Ran result = ran(runner);
  REQUIRE(result.json["rows"].size() == 2);
  REQUIRE(result.row("group/mean")["value"].get<double>() == Catch::Approx(3));
  REQUIRE(result.row("group/mean")["peer"].is_null());
}

TEST_CASE("a row that throws fails the run, is named with its cause, and the others are measured") {
  bench::Runner runner;
  bench::Row wrong = fixed("wrong", 1, 1);
  wrong.peer->measure = []() -> double { throw std::runtime_error("answers 3 instead of 4"); };
  runner.add(wrong);
  runner.add(fixed("right", 7, 1));
  const Ran result = ran(runner);
  REQUIRE_FALSE(result.well);
  REQUIRE(result.row("group/right")["value"] == 7);
  REQUIRE(result.json["rows"].size() == 1);
  REQUIRE(result.json["failed"][0]["what"] == "group/wrong");
  REQUIRE(result.json["failed"][0]["why"] == "answers 3 instead of 4");
}

TEST_CASE("a row that leaves a thread computing beside the next ones fails the run") {
  std::jthread polls;
  bench::Runner runner;
  bench::Row forgets = fixed("forgets", 1, 1);
  forgets.subject = [&polls] {
    polls = std::jthread([](std::stop_token stop) {
      while (!stop.stop_requested()) continue;
    });
    return 1.0;
  };
  bench::Row ends = forgets;
  ends.finish = [&polls] { polls = {}; };
  SECTION("unless it is ended in its finish") {
    runner.add(ends);
    REQUIRE(ran(runner).well);
  }
  SECTION("and is named") {
    runner.add(forgets);
    const Ran result = ran(runner);
    REQUIRE_FALSE(result.well);
    REQUIRE(result.json["failed"][0]["what"] == "group/forgets");
  }
}
