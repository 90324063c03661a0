#include <hyperframes/apps/sim/detail/ps_checker.hpp>
//
#include <catch2/catch_test_macros.hpp>

namespace hyperframes::sim::detail {
namespace {

using ps::Observation;
using Kind = Observation::Kind;

/// What three processes write down, a moment after each other.
class Story {
 public:
  Story() {
    for (const char* name : {"ps-0", "ps-1", "worker-0"}) nodes_.push_back({name, {}});
    for (unsigned node = 0; node < nodes_.size(); ++node) see(node, {.kind = Kind::started});
    see(0, {.kind = Kind::opened, .token = 4});
  }
  void see(unsigned node, Observation observation) {
    observation.time_ns = ++now_;
    nodes_[node].observations.push_back(observation);
  }
  void push(float count, unsigned node = 0, std::uint64_t token = 4) {
    see(node, {.kind = Kind::pushed, .fresh = 1, .token = token, .counter = 77, .count = count});
  }
  void acknowledge() { see(2, {.kind = Kind::acknowledged, .counter = 77}); }
  void restart() {
    see(0, {.kind = Kind::started});
    see(0, {.kind = Kind::opened, .token = 4});
  }
  std::vector<std::string> violations() const {
    std::vector<std::string> all;
    PsChecker checker(2, [&](std::string text) { all.push_back(std::move(text)); });
    check_observations(nodes_, checker);
    return all;
  }

 private:
  std::vector<ObservedNode> nodes_;
  std::int64_t now_ = 0;
};

TEST_CASE("a cluster that keeps its promises is found to") {
  Story story;
  story.push(1);
  story.acknowledge();
  story.restart();
  story.see(0, {.kind = Kind::counted, .counter = 77, .count = 1});
  story.see(0, {.kind = Kind::recovered});
  CHECK(story.violations().empty());
}

TEST_CASE("a push that was acknowledged and is missing after a recovery is found") {
  Story story;
  story.push(1);
  story.acknowledge();
  story.restart();
  story.see(0, {.kind = Kind::recovered});
  REQUIRE(story.violations().size() == 1);
  CHECK(story.violations()[0].find("counts 0 times") != std::string::npos);
}

TEST_CASE("what a kill cut short of a recovery counts for nothing") {
  Story story;
  story.push(1);
  story.acknowledge();
  story.restart();
  story.see(0, {.kind = Kind::counted, .counter = 77, .count = 1});
  story.restart();
  story.see(0, {.kind = Kind::recovered});
  CHECK(story.violations().size() == 1);
}

TEST_CASE("a push that counts twice is found") {
  Story story;
  story.push(1);
  story.push(2);
  REQUIRE(story.violations().size() == 1);
  CHECK(story.violations()[0].find("counts 2 times") != std::string::npos);
}

TEST_CASE("a push to an owner that has a successor is found") {
  Story story;
  story.see(1, {.kind = Kind::opened, .token = 5});
  story.push(1);
  CHECK(story.violations().size() == 1);
  story.push(1, 1, 5);
  CHECK(story.violations().size() == 1);
}

TEST_CASE("a token that goes back is found") {
  Story story;
  story.see(1, {.kind = Kind::opened, .token = 3});
  CHECK(story.violations().size() == 1);
}

TEST_CASE("a pull beyond the staleness bound is found, of live workers alone") {
  Story story;
  story.see(0, {.kind = Kind::live, .job = 1, .worker = 8});
  story.see(0, {.kind = Kind::view_adopted});
  story.see(2, {.kind = Kind::clock_set, .job = 1, .worker = 8, .step = 3});
  story.see(0, {.kind = Kind::pull_answered, .job = 1, .step = 5});
  CHECK(story.violations().empty());
  story.see(0, {.kind = Kind::pull_answered, .job = 1, .step = 6});
  CHECK(story.violations().size() == 1);
  story.see(0, {.kind = Kind::view_adopted});
  story.see(0, {.kind = Kind::pull_answered, .job = 1, .step = 60});
  CHECK(story.violations().size() == 1);
}

}  // namespace
}  // namespace hyperframes::sim::detail
