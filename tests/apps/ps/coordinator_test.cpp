#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/coordinator.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>

#include "temporary_folder.hpp"

using namespace hyperframes;
using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

namespace {

struct Quiet {
  Quiet() {
    log::set_sink([](log::Level, std::string_view) {});
  }
  ~Quiet() { log::set_sink({}); }
};

/// Runs `function(node, options)` with a node in whose folder coordinators may be started.
template <class Function>
void with_node(Function function) {
  Quiet quiet;
  TemporaryFolder folder;
  Runtime runtime({.shards = 2});
  Node node(runtime, {.name = "test"});
  const CoordinatorOptions options{.path = folder.file("below/coordinator.db"), .num_shards = 4};
  runtime.run([&](Runtime&) { return function(node, options); });
  runtime.run([&](Runtime&) -> Task<void> { co_await node.close(5s); });
}

Task<protocol::CoordinatorRef> spawn(Node& node, CoordinatorOptions options) {
  co_return co_await node.spawn<Coordinator>({.name = coordinator_name, .shard = 1}, options);
}

protocol::JoinServer::Fields server(std::string name, std::uint64_t node,
                                    std::uint64_t incarnation = 1) {
  return {.name = std::move(name),
          .node_id = node,
          .incarnation = incarnation,
          .endpoint = "tcp://127.0.0.1:7000"};
}

protocol::OpenJob::Fields job(std::string worker, std::uint64_t incarnation = 1) {
  return {.name = "movies",
          .worker_name = std::move(worker),
          .samples = 95,
          .dataset_hash = 7,
          .batch_size = 10,
          .unit_batches = 4,
          .epochs = 1,
          .seed = 3,
          .incarnation = incarnation};
}

/// The view, once `wanted` holds for it.
template <class Wanted>
Task<ClusterView> view_when(protocol::CoordinatorRef coordinator, Wanted wanted) {
  std::uint64_t known = 0;
  while (true) {
    auto message = co_await coordinator.watch({.known_version = known});
    auto view = ClusterView::decode(message);
    if (wanted(view)) co_return view;
    known = view.version;
  }
}

}  // namespace

TEST_CASE(
    "whoever watches learns of the next view, and of the current one just before the deadline",
    "[threads]") {
  with_node([](Node& node, CoordinatorOptions options) -> Task<void> {
    auto coordinator = co_await spawn(node, options);
    auto first = co_await coordinator.watch({.known_version = 0});
    const auto known = first.version();
    CHECK(known > 0);

    // Nothing happens: answered in time all the same.
    auto same = co_await coordinator.watch({.known_version = known}, within(1500ms));
    CHECK(same.version() == known);

    Scope scope;
    bool seen = false;
    scope.spawn(co_invoke([coordinator, known, &seen]() -> Task<void> {
      auto next = co_await coordinator.watch({.known_version = known}, within(60s));
      auto view = ClusterView::decode(next);
      CHECK(view.version > known);
      CHECK(view.servers.size() == 1);
      seen = true;
    }));
    auto lease = co_await coordinator.join_server(server("a", 11));
    CHECK(lease.granted());
    CHECK(lease.num_shards() == 4);
    CHECK(std::chrono::milliseconds(lease.lease_ms()) == timing().lease());
    co_await scope.join();
    CHECK(seen);
  });
}

TEST_CASE("watchers that never come back keep nobody out", "[threads]") {
  with_node([](Node& node, CoordinatorOptions options) -> Task<void> {
    options.max_watchers = 3;
    auto coordinator = co_await spawn(node, options);
    auto first = co_await coordinator.watch({.known_version = 0});
    const auto known = first.version();
    Scope gone;
    std::vector<int> answered;
    for (int i = 0; i < 5; ++i)
      gone.spawn(co_invoke([coordinator, known, i, &answered]() -> Task<void> {
        auto view = co_await coordinator.watch({.known_version = known}, within(1h));
        if (view.version() == known) answered.push_back(i);
      }));
    // One more waits than may: so the oldest are answered, with what they know.
    while (answered.size() < 2) co_await sleep_for(1ms);
    CHECK(answered == std::vector<int>{0, 1});
    auto lease = co_await coordinator.join_server(server("a", 11));
    CHECK(lease.granted());
    co_await gone.join();
    CHECK(answered.size() == 2);
  });
}

TEST_CASE("a coordinator that is started again on its database goes on where it was", "[threads]") {
  with_node([](Node& node, CoordinatorOptions options) -> Task<void> {
    std::uint64_t version = 0;
    std::uint32_t worker = 0;
    {
      auto coordinator = co_await spawn(node, options);
      co_await coordinator.join_server(server("a", 11));
      protocol::CreateTables::Fields create;
      create.tables.push_back({.name = "movies/rows", .width = 17});
      auto view = co_await coordinator.create_tables(create);
      version = view.version();
      auto terms = co_await coordinator.open_job(job("w0"));
      worker = terms.worker();
      auto lease = co_await coordinator.lease_unit({.job = terms.job(), .worker = worker});
      CHECK(lease.unit() == 0);
      lease = co_await coordinator.finish_unit({.job = terms.job(), .worker = worker, .unit = 0});
      CHECK(lease.unit() == 1);
      node.stop(coordinator);
      co_await node.join(coordinator, after(5s));
    }
    auto coordinator = co_await spawn(node, options);
    auto message = co_await coordinator.watch({.known_version = version});
    auto view = ClusterView::decode(message);
    CHECK(view.version > version);
    CHECK(view.placement.has_value());
    CHECK(view.staleness_bound == 3);
    REQUIRE(view.table("movies/rows") != nullptr);
    CHECK(view.table("movies/rows")->width == 17);
    CHECK(view.table(view.table("movies/rows")->id)->name == "movies/rows");
    REQUIRE(view.server_of(3) != nullptr);
    CHECK(view.server_of(3)->name == "a");
    CHECK(view.server_of(4) == nullptr);
    auto lease = co_await coordinator.lease_unit({.job = 1, .worker = worker});
    CHECK(lease.state() == protocol::LeaseState::granted);
    CHECK(lease.unit() == 1);
    CHECK(lease.forget_before() == 1);
  });
}

TEST_CASE("a silent worker is evicted, and told so when it speaks again", "[threads]") {
  with_node([](Node& node, CoordinatorOptions options) -> Task<void> {
    options.heartbeat_timeout = 1500ms;
    auto coordinator = co_await spawn(node, options);
    auto terms = co_await coordinator.open_job(job("w0"));
    const auto worker = terms.worker();
    const auto there = [worker](const ClusterView& view) {
      return view.workers.size() == 1 && view.workers[0].worker == worker;
    };
    co_await view_when(coordinator, there);
    auto orders = co_await coordinator.progress({.worker = worker});
    CHECK(!orders.evicted());
    co_await view_when(coordinator, [](const ClusterView& view) { return view.workers.empty(); });
    orders = co_await coordinator.progress({.worker = worker});
    CHECK(orders.evicted());
    auto lease = co_await coordinator.lease_unit({.worker = worker});
    CHECK(lease.state() == protocol::LeaseState::evicted);
  });
}

TEST_CASE("the status says who does what", "[threads]") {
  with_node([](Node& node, CoordinatorOptions options) -> Task<void> {
    auto coordinator = co_await spawn(node, options);
    auto terms = co_await coordinator.open_job(job("w0"));
    const auto worker = terms.worker();
    co_await coordinator.lease_unit({.worker = worker});
    co_await coordinator.progress({.worker = worker,
                                   .clock = 2,
                                   .batch = 2,
                                   .samples = 20,
                                   .loss = 0.5,
                                   .waiting = "for nobody"});
    auto status = co_await coordinator.status({});
    REQUIRE(status.jobs() != nullptr);
    REQUIRE(status.jobs()->size() == 1);
    const auto* state = status.jobs()->Get(0);
    CHECK(state->units() == 3);
    CHECK(state->units_done() == 0);
    CHECK(state->samples() == 95);
    CHECK(state->samples_done() == 20);
    CHECK(!state->finished());
    REQUIRE(status.workers()->size() == 1);
    CHECK(status.workers()->Get(0)->name()->str() == "w0");
    CHECK(status.workers()->Get(0)->waiting()->str() == "for nobody");
    co_await coordinator.leave_job({.job = terms.job(), .worker = worker});
    status = co_await coordinator.status({});
    CHECK(status.workers()->Get(0)->state() == protocol::NodeState::silent);
  });
}

TEST_CASE("what the store refuses reaches the asker with its reason", "[threads]") {
  with_node([](Node& node, CoordinatorOptions options) -> Task<void> {
    auto coordinator = co_await spawn(node, options);
    co_await coordinator.open_job(job("w0"));
    auto other = job("w1");
    other.batch_size = 20;
    std::string found;
    try {
      co_await coordinator.open_job(other);
    } catch (const Error& error) {
      CHECK(error.is(Errc::invalid_argument));
      found = error.found();
    }
    CHECK(found.find("batch size is 10, not 20") != std::string::npos);
  });
}

TEST_CASE("a folder that can't be written fails the start with what to do", "[threads]") {
  with_node([](Node& node, CoordinatorOptions options) -> Task<void> {
    options.path = "/proc/nowhere/coordinator.db";
    bool failed = false;
    try {
      co_await spawn(node, options);
    } catch (const Error& error) {
      failed = true;
      CHECK(!error.remedy().empty());
    }
    CHECK(failed);
  });
}
