// SQLite on a simulated disk, as the coordinator uses it.
#include <hyperframes/apps/sim/detail/machine.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <hyperframes/apps/ps/coordinator_store.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <memory>
#include <string>

using namespace hyperframes;
using namespace hyperframes::sim::detail;
using ps::CoordinatorStore;

namespace {

/// A coordinator's store in the process that runs on a node.
struct Opened {
  explicit Opened(SimNode& node)
      : machine(node, 1, Duration(0), {}), store(options(machine), Time(Duration(1000s))) {}
  static CoordinatorStore::Options options(SimMachine& machine) {
    machine.make_directories("/w");
    if (const auto root = machine.open("/", 0); root >= 0) {
      machine.sync(root);
      machine.close(root);
    }
    return {.path = "/w/coordinator.db", .num_servers = 100, .machine = &machine};
  }
  /// A server more, durable when it returns.
  void join(unsigned number) {
    store.join_server({.name = "ps-" + std::to_string(number),
                       .node_id = 100 + number,
                       .incarnation = 1,
                       .endpoint = "tcp://10.0.0.9:6000"},
                      Time(Duration(1000s)));
  }
  SimMachine machine;
  CoordinatorStore store;
};

/// The process's end without its destructors' effects on the disk.
void crash(SimNode& node, std::unique_ptr<Opened>& opened, SimCrash what) {
  node.crash(what);
  opened.reset();
  node.restart();
  opened = std::make_unique<Opened>(node);
}

struct Quiet {
  Quiet() {
    log::set_sink([](log::Level, std::string_view) {});
  }
  ~Quiet() { log::set_sink({}); }
};

}  // namespace

TEST_CASE("a coordinator's database on a simulated disk keeps each commit through power cuts") {
  const Quiet quiet;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    auto opened = std::make_unique<Opened>(node);
    for (unsigned round = 1; round <= 6; ++round) {
      opened->join(round);
      crash(node, opened, SimCrash::power_cut());
      REQUIRE(opened->store.view().servers.size() == round);
    }
  }
}

TEST_CASE(
    "a coordinator's database keeps what was committed, after a failed sync, a kill and a power "
    "cut") {
  const Quiet quiet;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    auto opened = std::make_unique<Opened>(node);
    opened->join(1);
    node.disk().fail_next(Operation::Kind::sync, EIO, "-wal");
    CHECK_THROWS_AS(opened->join(2), Error);
    crash(node, opened, SimCrash::kill());
    opened->join(3);
    const std::uint64_t version = opened->store.view_version();
    const std::size_t servers = opened->store.view().servers.size();
    crash(node, opened, SimCrash::power_cut());
    REQUIRE(opened->store.view_version() >= version);
    REQUIRE(opened->store.view().servers.size() == servers);
  }
}
