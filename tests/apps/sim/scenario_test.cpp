#include <hyperframes/apps/sim/scenario.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/error.hpp>
#include <optional>

#include "virtual_time.hpp"

using namespace hyperframes;
using namespace hyperframes::sim;

namespace {

/// Runs seeds, which must be clean and worth it: long, with enough work and faults. Where the code
/// is not optimised, every so manieth of them.
void run_clean(const std::string& name, std::uint64_t first, std::uint64_t last) {
  const Scenario& scenario = find_scenario(name);
  for (std::uint64_t seed = first; seed <= last; seed += HYPERFRAMES_SIM_SEED_STEP) {
    const RunReport report = scenario.run({.seed = seed});
    INFO("hyperframes sim --scenario " << name << " --seed " << seed);
    INFO((report.violation ? report.violation->text : ""));
    REQUIRE_FALSE(report.violation);
    CHECK(shortfall(report) == "");
  }
}

/// A fault planted in the code is found, and what it takes is small.
void find_planted(const std::string& name, const std::string& planted, std::uint64_t first,
                  std::uint64_t last, const std::string& words) {
  const Scenario& scenario = find_scenario(name);
  RunOptions options{.planted = {planted + "=plant"}};
  std::optional<RunReport> failed;
  for (std::uint64_t seed = first; seed <= last && !failed; ++seed) {
    options.seed = seed;
    RunReport report = scenario.run(options);
    if (report.violation) failed = std::move(report);
  }
  INFO(planted << " in the seeds " << first << " to " << last);
  REQUIRE(failed);
  INFO("seed " << failed->seed << ": " << failed->violation->text);
  CHECK(failed->violation->text.find(words) != std::string::npos);
  const Shrunk shrunk = shrink_run(scenario, options, *failed, 24);
  CHECK(shrunk.places.size() < failed->plan.size() / 2);
  options.faults = shrunk.places;
  const RunReport again = scenario.run(options);
  REQUIRE(again.violation);
  CHECK(again.violation->text == shrunk.report.violation->text);
  CHECK(again.trace_hash == shrunk.report.trace_hash);
}

}  // namespace

TEST_CASE("the same seed gives the same trace in every scenario, and another seed another one",
          "[plain]") {
  for (const auto& scenario : scenarios()) {
    INFO(scenario->name());
    const RunReport one = scenario->run({.seed = 5}), again = scenario->run({.seed = 5});
    CHECK(one.trace_hash == again.trace_hash);
    CHECK(one.operations == again.operations);
    CHECK(one.span == again.span);
    CHECK(scenario->run({.seed = 6}).trace_hash != one.trace_hash);
  }
}

// 200 seeds of each scenario, in parts that run side by side.
TEST_CASE("a parameter server's cluster keeps its promises, seeds 1 to 50", "[plain]") {
  run_clean("parameter_server", 1, 50);
}

TEST_CASE("a parameter server's cluster keeps its promises, seeds 51 to 100", "[plain]") {
  run_clean("parameter_server", 51, 100);
}

TEST_CASE("a parameter server's cluster keeps its promises, seeds 101 to 150", "[plain]") {
  run_clean("parameter_server", 101, 150);
}

TEST_CASE("a parameter server's cluster keeps its promises, seeds 151 to 200", "[plain]") {
  run_clean("parameter_server", 151, 200);
}

TEST_CASE("a cluster keeps its promises while power and disks fail, seeds 1 to 50", "[plain]") {
  run_clean("power_loss", 1, 50);
}

TEST_CASE("a cluster keeps its promises while power and disks fail, seeds 51 to 100", "[plain]") {
  run_clean("power_loss", 51, 100);
}

TEST_CASE("a cluster keeps its promises while power and disks fail, seeds 101 to 150", "[plain]") {
  run_clean("power_loss", 101, 150);
}

TEST_CASE("a cluster keeps its promises while power and disks fail, seeds 151 to 200", "[plain]") {
  run_clean("power_loss", 151, 200);
}

TEST_CASE("sessions keep their order under storms, and notice who is gone, seeds 1 to 100",
          "[plain]") {
  run_clean("sessions", 1, 100);
}

TEST_CASE("sessions keep their order under storms, and notice who is gone, seeds 101 to 200",
          "[plain]") {
  run_clean("sessions", 101, 200);
}

TEST_CASE("supervisors keep to their rules while actors throw, seeds 1 to 200", "[plain]") {
  run_clean("supervision", 1, 200);
}

// For the sanitizers, which the others would keep for hours; a case each, so that they run side by
// side.
TEST_CASE("a seed of parameter_server is clean") { run_clean("parameter_server", 1, 1); }

TEST_CASE("a seed of power_loss is clean") { run_clean("power_loss", 1, 1); }

TEST_CASE("a seed of sessions is clean") { run_clean("sessions", 1, 1); }

TEST_CASE("a seed of supervision is clean") { run_clean("supervision", 1, 1); }

// 10,000 of each are on demand: hyperframes sim --scenario NAME --seeds 1..10000.
TEST_CASE("2,000 seeds of parameter_server are clean", "[long]") {
  run_clean("parameter_server", 1, 2000);
}

TEST_CASE("2,000 seeds of power_loss are clean", "[long]") { run_clean("power_loss", 1, 2000); }

TEST_CASE("2,000 seeds of sessions are clean", "[long]") { run_clean("sessions", 1, 2000); }

TEST_CASE("2,000 seeds of supervision are clean", "[long]") { run_clean("supervision", 1, 2000); }

TEST_CASE("a run that is worth too little says in what") {
  RunReport report;
  report.names = {"a", "b", "c", "d", "e"};
  report.span = 60s;
  report.operations = 1000;
  report.struck = 20;
  CHECK(shortfall(report) == "");
  report.names.pop_back();
  CHECK(shortfall(report) == "4 nodes of 5");
  report.span = 59'999ms;
  report.operations = 999;
  report.struck = 19;
  CHECK(shortfall(report) ==
        "4 nodes of 5, 59 virtual seconds of 60, 999 operations of 1000, 19 faults of 20");
}

TEST_CASE("an idle cluster passes a hundred seconds without a fault") {
  const RunReport report = find_scenario("idle").run({.seed = 1});
  CHECK_FALSE(report.violation);
  CHECK(report.span >= 100s);
}

// The seeds are the first ones: none of these faults needs luck to be met.
TEST_CASE("an acknowledgement before the log is written is found, and shrunk", "[plain]") {
  find_planted("power_loss", "acknowledge-early", 1, 20, "was acknowledged, and counts 0 times");
}

TEST_CASE("a log that is not synced is found, and shrunk", "[plain]") {
  find_planted("power_loss", "log-without-sync", 1, 20, "");
}

TEST_CASE("push keys that a recovery forgets are found, and shrunk", "[plain]") {
  find_planted("parameter_server", "keys-lost-on-recovery", 1, 20, "counts 2 times");
}

TEST_CASE("one step beyond the staleness bound is found, and shrunk", "[plain]") {
  find_planted("parameter_server", "staleness-over-bound", 1, 20, "the staleness bound is 2");
}

TEST_CASE("a heartbeat that hides a dead link is found, and shrunk", "[plain]") {
  find_planted("sessions", "heartbeat-hides-silence", 1, 20, "takes it for alive");
}

TEST_CASE("a scenario that does not exist is named, with those that do") {
  CHECK_THROWS_AS(find_scenario("nothing"), Error);
}
