// SQLite on a simulated disk, as the coordinator uses it.
#include <hyperframes/apps/sim/detail/machine.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <hyperframes/apps/ps/coordinator_store.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
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

/// Notes pushes, in a new life of a worker; true: they are durable.
Task<bool> note_pushes(std::unique_ptr<ps::Ledger>* ledger, SimMachine* machine, SimNode* node,
                       unsigned count, bool sync_fails) {
  *ledger = co_await ps::Ledger::open("/ledger", *machine);
  co_await (*ledger)->begin(7);
  if (sync_fails) node->disk().fail_next(Operation::Kind::sync, EIO, "ledger");
  co_await (*ledger)->add(std::vector<ps::LedgerEntry>(count));
  try {
    co_await (*ledger)->sync();
  } catch (const Error&) {
    co_return false;
  }
  co_return true;
}

bool note_pushes(SimWorld& world, SimNode& node, unsigned count, bool sync_fails = false) {
  auto& machine = node.emplace<SimMachine>(node, 1, Duration(0), nullptr);
  auto& ledger = node.emplace<std::unique_ptr<ps::Ledger>>();
  return world.run(node, 0, [&, count, sync_fails](Runtime&) {
    return note_pushes(&ledger, &machine, &node, count, sync_fails);
  });
}

std::uint64_t noted_pushes(SimWorld& world, SimNode& node) {
  auto& machine = node.emplace<SimMachine>(node, 1, Duration(0), nullptr);
  auto& ledger = node.emplace<std::unique_ptr<ps::Ledger>>();
  return world.run(node, 0, [&](Runtime&) {
    return co_invoke(
        [](auto* ledger, auto* machine) -> Task<std::uint64_t> {
          *ledger = co_await ps::Ledger::open("/ledger", *machine);
          co_return (*ledger)->entries();
        },
        &ledger, &machine);
  });
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

TEST_CASE("a ledger keeps what it had noted, after a failed sync, a kill and a power cut") {
  const Quiet quiet;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    CHECK_FALSE(note_pushes(world, node, 300, true));  // several pages
    node.crash(SimCrash::kill());
    node.restart();
    CHECK(note_pushes(world, node, 1));
    node.crash(SimCrash::power_cut());
    node.restart();
    REQUIRE(noted_pushes(world, node) == 301);
  }
}
