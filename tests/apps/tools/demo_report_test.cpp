#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/tools/demo_report.hpp>
#include <hyperframes/runtime/error.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools {
namespace {

DemoOutcome good_outcome() {
  DemoOutcome outcome;
  outcome.splits.push_back({.name = "random",
                            .needed_margin = .005,
                            .candidates = {{"firm", {.79, .55}}, {"loose", {.80, .54}}},
                            .chosen = "loose",
                            .runs = {{1, {.798, .546}, 800'000, 10},
                                     {2, {.797, .547}, 800'000, 10},
                                     {3, {.799, .545}, 800'000, 20}},
                            .baseline = {.789, .555}});
  outcome.splits.push_back({.name = "time",
                            .margin_is_strict = true,
                            .chosen = "firm",
                            .runs = {{1, {.690, .637}, 800'000, 10}},
                            .baseline = {.6776, .652}});
  outcome.audit = {.acknowledged = 1000, .applied = 1000, .in_doubt = 2};
  outcome.kills = {{"server-1", 412}};
  return outcome;
}

std::string only_failure(const DemoOutcome& outcome) {
  const std::vector<std::string> failures = failures_of(outcome);
  REQUIRE(failures.size() == 1);
  return failures[0];
}

TEST_CASE("a demo that keeps every promise has no failures") {
  CHECK(failures_of(good_outcome()).empty());
  const Screen screen({.file = -1, .terminal = false});
  CHECK(report_of(good_outcome(), screen).find("PASSED") != std::string::npos);
}

TEST_CASE("the mean of the seeds must win, not the best of them") {
  DemoOutcome outcome = good_outcome();
  outcome.splits[0].runs[0].test.auc = .780;
  CHECK(only_failure(outcome).find("at least 0.005 is needed") != std::string::npos);
}

TEST_CASE("on the random split a margin of exactly what is needed is enough, and less is not") {
  DemoOutcome outcome = good_outcome();
  SplitOutcome& split = outcome.splits[0];
  split.needed_margin = .5;
  split.baseline.auc = .25;
  for (FinalRun& run : split.runs) run.test.auc = .75;
  CHECK(failures_of(outcome).empty());
  split.runs[0].test.auc = .7499;
  CHECK(failures_of(outcome).size() == 1);
}

TEST_CASE("on the time split a tie loses") {
  DemoOutcome outcome = good_outcome();
  outcome.splits[1].runs[0].test.auc = outcome.splits[1].baseline.auc;
  CHECK(only_failure(outcome).starts_with("time split: "));
}

TEST_CASE("an AUC that is not a number loses") {
  DemoOutcome outcome = good_outcome();
  outcome.splits[0].runs[0].test.auc = 0.0 / 0.0;
  CHECK(failures_of(outcome).size() == 1);
}

TEST_CASE("a split without a run fails") {
  DemoOutcome outcome = good_outcome();
  outcome.splits[0].runs.clear();
  CHECK(only_failure(outcome) == "random split: no final run was scored");
}

TEST_CASE("an audit fails for each way of being off") {
  const auto failure_with = [](AuditOutcome audit) {
    DemoOutcome outcome = good_outcome();
    outcome.audit = audit;
    return only_failure(outcome);
  };
  CHECK(failure_with({.acknowledged = 5, .applied = 4, .lost = 1}).find("1 are lost") !=
        std::string::npos);
  CHECK(failure_with({.acknowledged = 5, .applied = 5, .duplicated = 1})
            .find("1 pushes were applied more than once") != std::string::npos);
  CHECK(failure_with({.acknowledged = 5, .applied = 4}).starts_with("audit: "));
  CHECK(failure_with({}) == "audit: no ledger holds an acknowledged push");
}

TEST_CASE("a server that never came back, and a process that ended by itself, fail the demo") {
  DemoOutcome outcome = good_outcome();
  outcome.kills.push_back({"server-0", -1});
  outcome.unexpected_ends.push_back("worker-1 ended with status 3");
  CHECK(failures_of(outcome) ==
        std::vector<std::string>{
            "server-0 was killed, and acknowledged no push after that",
            "a process ended that should not have: worker-1 ended with status 3"});
  const Screen screen({.file = -1, .terminal = false});
  const std::string report = report_of(outcome, screen);
  CHECK(report.find("PASSED") == std::string::npos);
  CHECK(report.find("worker-1 ended with status 3") != std::string::npos);
}

TEST_CASE("the report shows each seed, the mean, both baselines and the recovery") {
  const Screen screen({.file = -1, .terminal = false});
  const std::string report = report_of(good_outcome(), screen);
  for (const char* text : {"seed 2", "mean of 3", "0.7980", "0.7890", "+0.0090", "0.6776", "412 ms",
                           "1,000 pushes acknowledged", "2 in doubt", "firm 0.7900, loose 0.8000"})
    CHECK(report.find(text) != std::string::npos);
}

TEST_CASE("the report fits a terminal of 80 columns, and breaks only between words") {
  DemoOutcome outcome = good_outcome();
  outcome.audit = {.acknowledged = 1'061'440, .applied = 1'061'440, .in_doubt = 12};
  outcome.splits[0].runs[0].test.auc = .1;
  outcome.unexpected_ends.push_back("worker-1 ended with status 3");
  for (const std::size_t width : {80, 120}) {
    const Screen screen({.file = -1, .terminal = false, .colours = true, .width = width});
    const std::string report = report_of(outcome, screen);
    INFO(report);
    std::size_t at = 0;
    while (at < report.size()) {
      const std::size_t end = report.find('\n', at);
      CHECK(display_width(report.substr(at, end - at)) <= width);
      at = end + 1;
    }
    CHECK(report.find("is needed") != std::string::npos);
    CHECK(report.find("1,061,440 pushes acknowledged") != std::string::npos);
  }
}

TEST_CASE("the JSON has the promised keys, and no others") {
  const auto json = nlohmann::json::parse(json_of(good_outcome()));
  const auto keys = [](const nlohmann::json& object) {
    std::vector<std::string> names;
    for (const auto& [key, value] : object.items()) names.push_back(key);
    std::sort(names.begin(), names.end());
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(keys(json) == Names{"audit", "kills", "recovery_ms", "samples_per_s", "splits"});
  CHECK(keys(json["splits"]) == Names{"random", "time"});
  for (const char* split : {"random", "time"})
    CHECK(keys(json["splits"][split]) ==
          Names{"baseline_auc", "baseline_logloss", "model_auc", "model_logloss"});
  CHECK(keys(json["audit"]) == Names{"acknowledged", "applied", "duplicated", "in_doubt", "lost"});
  CHECK(json["splits"]["random"]["model_auc"].get<double>() == Catch::Approx(.798));
  CHECK(json["audit"]["in_doubt"] == 2);
  CHECK(json["kills"] == 1);
  CHECK(json["recovery_ms"] == 412);
  CHECK(json["samples_per_s"].get<double>() == Catch::Approx(3'200'000.0 / 50));
}

TEST_CASE("the recovery time of several kills is their median") {
  DemoOutcome outcome = good_outcome();
  outcome.kills = {{"a", 300}, {"b", 100}, {"c", 900}};
  CHECK(outcome.recovery_ms() == 300);
  outcome.kills.push_back({"d", 500});
  CHECK(outcome.recovery_ms() == 400);
  outcome.kills.push_back({"e", -1});
  CHECK(outcome.recovery_ms() < 0);
  CHECK(nlohmann::json::parse(json_of(outcome))["recovery_ms"].is_null());
}

TEST_CASE("results of other programs are read, and anything else is an error that shows it") {
  CHECK(parse_score("a log line\n{\"auc\": 0.5, \"logloss\": 0.7}", "x").auc == .5);
  CHECK(parse_audit(
            R"({"acknowledged": 9, "applied": 8, "lost": 1, "duplicated": 0, "in_doubt": 2})", "x")
            .in_doubt == 2);
  CHECK_THROWS_AS(parse_score("Segmentation fault", "evaluate-1"), Error);
  CHECK_THROWS_AS(parse_score("{\"auc\": \"high\", \"logloss\": 1}", "evaluate-1"), Error);
  CHECK_THROWS_AS(parse_audit(R"({"acknowledged": -9})", "audit"), Error);
  try {
    parse_score("Segmentation fault", "evaluate-1");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("evaluate-1") != std::string::npos);
    CHECK(std::string(error.what()).find("Segmentation fault") != std::string::npos);
  }
}

}  // namespace
}  // namespace hyperframes::tools
