// `hyperframes sim`, as it is typed.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tool.hpp"

using namespace tools_test;
using nlohmann::json;

TEST_CASE("hyperframes sim lists its scenarios, with what they check") {
  const WorkFolder folder;
  const std::string text = succeed(folder, "hyperframes sim --list").text;
  for (const char* name : {"parameter_server: ", "power_loss: ", "sessions: ", "supervision: "})
    CHECK(contains(text, name));
  const json all = json::parse(succeed(folder, "hyperframes sim --list --json").text);
  CHECK(all.size() == 5);
  CHECK_FALSE(all[0].at("invariants").empty());
}

TEST_CASE("hyperframes sim runs a range of seeds, and replays one to the same trace hash",
          "[plain]") {
  const WorkFolder folder;
  const std::string text =
      succeed(folder, "hyperframes sim --scenario supervision --seeds 3..4").text;
  CHECK(contains(text, "supervision: 2 seeds: "));
  CHECK(contains(text, " pairs of a fault and a state were met"));
  const std::string one = "hyperframes sim --scenario supervision --seed 3";
  const json first = json::parse(succeed(folder, one + " --json").text);
  CHECK(first.at("trace_hash") == json::parse(succeed(folder, one + " --json").text)["trace_hash"]);
  CHECK(first.at("failed") == false);
  CHECK(succeed(folder, "hyperframes sim --scenario supervision --seeds 3..3 --hashes").text ==
        "supervision 3 " + first.at("trace_hash").get<std::string>() + "\n");
  const std::string trace = succeed(folder, one).text;
  CHECK(contains(trace, "throw in actor "));
  CHECK(contains(trace, "trace hash " + first.at("trace_hash").get<std::string>()));
}

TEST_CASE("hyperframes sim shrinks a failing seed, and prints the line that replays it",
          "[plain]") {
  const WorkFolder folder;
  const std::string plant = " --plant heartbeat-hides-silence=plant";
  const Outcome failed = run(folder, "hyperframes sim --scenario sessions --seeds 1..20" + plant);
  INFO(failed.text);
  CHECK(failed.status == 1);
  CHECK(contains(failed.text, " faults are enough"));
  const auto at = failed.text.find("  hyperframes sim --scenario sessions --seed ");
  REQUIRE(at != std::string::npos);
  const std::string line = failed.text.substr(at, failed.text.find('\n', at) - at);
  CHECK(contains(line, " --faults "));
  const Outcome again = run(folder, line);
  CHECK(again.status == 1);
  CHECK(contains(again.text, "VIOLATION: "));
}

TEST_CASE("hyperframes sim that is told to end prints what it has found, and leaves nothing behind",
          "[plain]") {
  const WorkFolder folder;
  const Outcome ended = run(folder,
                            "mkdir tmp && export TMPDIR=$PWD/tmp\n"
                            "hyperframes sim --seeds 1..1000000 >out.txt 2>&1 & sim=$!\n"
                            "until grep -q 'seed 1' out.txt; do sleep 0.05; done\n"
                            "kill -TERM $sim; wait $sim; status=$?; cat out.txt; ls tmp\n"
                            "exit $status");
  INFO(ended.text);
  CHECK(ended.status == 128 + 15);
  CHECK(contains(ended.text, " pairs of a fault and a state were met\n"));
  CHECK_FALSE(contains(ended.text, "hyperframes-sim-"));
}

TEST_CASE("hyperframes sim says what is wrong with its options") {
  const WorkFolder folder;
  CHECK(contains(run(folder, "hyperframes sim --scenario none").text, "choose one of: "));
  CHECK(contains(run(folder, "hyperframes sim --seeds 5..2").text, "the first is above the last"));
  CHECK(contains(run(folder, "hyperframes sim --seeds five").text, "--seeds 1..200"));
  CHECK(run(folder, "hyperframes sim --seed 1 --seeds 1..2").status == 2);
  CHECK(run(folder, "hyperframes sim --seed 1 --faults x").status == 1);
}
