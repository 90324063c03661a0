#include <hyperframes/apps/ps/observation_log.hpp>
//
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/shard_context.hpp>
#include <hyperframes/runtime/error.hpp>

#include "temporary_folder.hpp"

using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

namespace {

using Kind = Observation::Kind;

/// A table with a row that counts a push, as a parameter shard has it.
struct Scene {
  static constexpr std::uint64_t counter = 7 | counter_bit;
  TableState state;
  ShardContext context;
  std::vector<std::uint64_t> ids = {1, counter};
  std::vector<float> values = {.5f, 1};

  Scene() : state(spec(), {all_slots().begin(), all_slots().end()}), context(options(), map()) {}
  static PlacementMap map() {
    const NodeId node = 1;
    return PlacementMap::first(4, std::span(&node, 1));
  }
  static TableSpec spec() {
    TableSpec spec;
    spec.id = 5;
    spec.name = "t";
    spec.width = 1;
    return spec;
  }
  static ShardOptions options() {
    ShardOptions options;
    options.shard = 3;
    options.token = 9;
    return options;
  }
  PushBody push() const {
    return {.key = PushKey::leased(1, 2, 4),
            .forget_before = 0,
            .width = 1,
            .count = 2,
            .ids = reinterpret_cast<const std::byte*>(ids.data()),
            .values = reinterpret_cast<const std::byte*>(values.data())};
  }
};

}  // namespace

TEST_CASE("a log of observations says what was seen, in its order, and goes on in the next life") {
  TemporaryFolder folder;
  const std::string path = folder.file("seen");
  Scene scene;
  {
    ObservationLog log(path);
    log.opened(scene.context);
    const bool fresh = scene.state.apply(scene.push());
    log.pushed(scene.context, scene.state, scene.push(), fresh);
  }
  {
    ObservationLog log(path);
    log.recovered(scene.context, scene.state);
    log.acknowledged(5, 3, scene.push().key, Scene::counter);
  }
  const auto seen = read_observations(path);
  REQUIRE(seen.size() == 7);
  CHECK(seen[0].kind == Kind::started);
  CHECK(seen[1].kind == Kind::opened);
  CHECK(seen[1].shard == 3);
  CHECK(seen[1].token == 9);
  CHECK(seen[2].kind == Kind::pushed);
  CHECK(seen[2].fresh == 1);
  CHECK(seen[2].counter == Scene::counter);
  CHECK(seen[2].count == 1);
  CHECK(seen[2].key() == scene.push().key);
  CHECK(seen[3].kind == Kind::started);
  CHECK(seen[4].kind == Kind::counted);  // the counter row, and no other one
  CHECK(seen[4].counter == Scene::counter);
  CHECK(seen[4].count == 1);
  CHECK(seen[5].kind == Kind::recovered);
  CHECK(seen[6].kind == Kind::acknowledged);
  CHECK(seen[6].key() == scene.push().key);
  for (std::size_t i = 1; i < seen.size(); ++i) CHECK(seen[i - 1].time_ns <= seen[i].time_ns);
}

TEST_CASE("what a kill left of an observation is cut off by the next life") {
  TemporaryFolder folder;
  const std::string path = folder.file("seen");
  {
    ObservationLog log(path);
  }
  std::ofstream(path, std::ios::app) << "half";
  {
    ObservationLog log(path);
    log.clock_set(1, 2, 3);
  }
  const auto seen = read_observations(path);
  REQUIRE(seen.size() == 3);
  CHECK(seen[1].kind == Kind::started);
  CHECK(seen[2].kind == Kind::clock_set);
  CHECK(seen[2].step == 3);
}

TEST_CASE("a log of observations that can't be opened says which") {
  TemporaryFolder folder;
  try {
    ObservationLog log(folder.file("nowhere/seen"));
    FAIL("it was opened");
  } catch (const hyperframes::Error& error) {
    CHECK(std::string(error.what()).find("nowhere/seen") != std::string::npos);
  }
}
