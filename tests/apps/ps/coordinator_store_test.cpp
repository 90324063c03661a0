#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <hyperframes/apps/ps/coordinator_store.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "temporary_folder.hpp"

using namespace hyperframes;
using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

namespace {

constexpr auto granted = UnitGrant::State::granted;
constexpr auto wait = UnitGrant::State::wait;
constexpr auto done = UnitGrant::State::done;
constexpr auto evicted = UnitGrant::State::evicted;

const Time start = Time(1'000'000s);

JobDefinition small_job(std::uint32_t epochs = 1) {
  return {.name = "movies",
          .samples = 95,
          .dataset_hash = 0xfeedfacecafebeefu,
          .batch_size = 10,
          .unit_batches = 4,
          .epochs = epochs,
          .seed = 7};
}

/// A store in a folder of its own, which can be closed and opened again.
struct Fixture {
  explicit Fixture(CoordinatorStore::Options given = {}) : options(std::move(given)) {
    log::set_sink([](log::Level, std::string_view) {});
    options.path = folder.file("coordinator.db");
    options.num_shards = 4;
    options.heartbeat_timeout = 30s;
    options.server_lease = 10s;
    open();
  }
  ~Fixture() { log::set_sink({}); }
  void open() { store = std::make_unique<CoordinatorStore>(options, now); }
  void restart() {
    store.reset();
    open();
  }
  /// Lets time pass as it does for a coordinator that runs.
  void pass(Duration span) {
    for (; span > 0s; span -= std::min<Duration>(span, 1s)) {
      now += std::min<Duration>(span, 1s);
      store->expire(now);
    }
  }
  CoordinatorStore::Terms open_job(const std::string& worker, std::uint64_t incarnation = 1,
                                   bool restart = false, JobDefinition job = small_job()) {
    return store->open_job(
        {.definition = job, .worker_name = worker, .incarnation = incarnation, .restart = restart},
        now);
  }
  bool join(const std::string& name, NodeId node, std::uint64_t incarnation = 1,
            const std::string& endpoint = "tcp://127.0.0.1:7000") {
    return store->join_server(
        {.name = name, .node_id = node, .incarnation = incarnation, .endpoint = endpoint}, now);
  }
  bool live(std::uint32_t worker) {
    const auto view = store->view();
    return std::ranges::any_of(view.workers, [&](const auto& w) { return w.worker == worker; });
  }

  TemporaryFolder folder;
  CoordinatorStore::Options options;
  Time now = start;
  std::unique_ptr<CoordinatorStore> store;
};

template <class Function>
Error thrown_by(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(Errc::internal, "nothing was thrown");
}

}  // namespace

// ---- Servers ------------------------------------------------------------------------------------

TEST_CASE("shards are placed once enough servers have joined") {
  Fixture f({.num_servers = 2});
  REQUIRE(f.join("a", 11));
  CHECK(!f.store->view().placement);
  REQUIRE(f.join("a", 11, 2));  // the same server again
  CHECK(!f.store->view().placement);
  REQUIRE(f.join("b", 12));
  const auto view = f.store->view();
  REQUIRE(view.placement);
  const std::vector<NodeId> nodes{11, 12};
  CHECK(*view.placement == PlacementMap::first(4, nodes));

  // A later server is a member without shards.
  REQUIRE(f.join("c", 13));
  CHECK(*f.store->view().placement == *view.placement);
  CHECK(f.store->view().servers.size() == 3);
}

TEST_CASE("a newer incarnation of a server replaces the older at once, and the older is refused") {
  Fixture f;
  REQUIRE(f.join("a", 11, 5, "tcp://127.0.0.1:1"));
  const auto version = f.store->view_version();
  REQUIRE(f.join("a", 11, 6, "tcp://127.0.0.1:2"));
  CHECK(f.store->view_version() > version);
  CHECK(f.store->view().servers.at(0).endpoint == "tcp://127.0.0.1:2");
  CHECK(!f.join("a", 11, 5, "tcp://127.0.0.1:1"));
  CHECK(!f.store->renew_lease(11, 5, f.now));
  CHECK(f.store->renew_lease(11, 6, f.now));
  CHECK(f.store->view().servers.at(0).incarnation == 6);
}

TEST_CASE("a server whose folder is older than its last start that recovered is refused") {
  Fixture f;
  const auto join = [&](std::uint64_t incarnation, std::uint64_t previous, bool accept = false) {
    return f.store->join_server({.name = "a",
                                 .node_id = 11,
                                 .incarnation = incarnation,
                                 .endpoint = "tcp://127.0.0.1:7000",
                                 .previous = previous,
                                 .accept_loss = accept},
                                f.now);
  };
  REQUIRE(join(5, 0));
  f.store->note_disk(11, true, {});
  REQUIRE(join(6, 5));
  // It joined and did not recover: its folder may be the copy.
  REQUIRE(join(7, 5));
  f.store->note_disk(11, true, {});
  CHECK(join(7, 5));  // the same process again
  f.pass(1s);
  f.restart();
  const Error error = thrown_by([&] { join(8, 6); });
  INFO(error.what());
  CHECK(error.is(Errc::rejected));
  CHECK(error.found().find("older copy") != std::string::npos);
  CHECK(error.remedy().find("--accept_loss") != std::string::npos);
  CHECK(join(8, 7));
  CHECK(join(9, 3, true));
  CHECK(join(10, 9));
}

TEST_CASE("how far a server's logs were durable is known when it joins again") {
  Fixture f({.num_servers = 2});
  REQUIRE(f.join("a", 11));
  REQUIRE(f.join("b", 12));
  const auto map = f.store->view().placement.value();
  const ShardId own = map.shards_of(11).front(), other = map.shards_of(12).front();
  f.store->note_disk(11, false, {{own, 70}, {other, 9}});
  f.store->note_disk(11, false, {{own, 60}});
  f.pass(1s);
  f.restart();
  const auto marks = f.store->marks_of(11);
  REQUIRE(marks.size() == 1);
  CHECK(marks[0].shard == own);
  CHECK(marks[0].record == 70);
  CHECK(f.store->marks_of(12).empty());
  // Whoever accepts the loss is not held to them any more, nor is the next start.
  REQUIRE(f.store->join_server({.name = "a",
                                .node_id = 11,
                                .incarnation = 2,
                                .endpoint = "tcp://127.0.0.1:7000",
                                .accept_loss = true},
                               f.now));
  CHECK(f.store->marks_of(11).empty());
  f.restart();
  CHECK(f.store->marks_of(11).empty());
}

TEST_CASE("joining again with nothing new leaves the view's version") {
  Fixture f;
  REQUIRE(f.join("a", 11));
  const auto version = f.store->view_version();
  REQUIRE(f.join("a", 11));
  CHECK(f.store->view_version() == version);
}

TEST_CASE("a server can't take another one's name or node id") {
  Fixture f;
  REQUIRE(f.join("a", 11));
  CHECK(thrown_by([&] { f.join("a", 12); }).is(Errc::already_exists));
  CHECK(thrown_by([&] { f.join("b", 11); }).is(Errc::already_exists));
  CHECK(thrown_by([&] { f.join("", 13); }).is(Errc::invalid_argument));
  CHECK(thrown_by([&] { f.join("c", 0); }).is(Errc::invalid_argument));
  CHECK(f.store->view().servers.size() == 1);
}

TEST_CASE("a server that stops renewing is shown as silent, keeps its shards, and comes back") {
  Fixture f;
  REQUIRE(f.join("a", 11));
  const auto placed = f.store->view().placement;
  f.pass(9s);
  CHECK(!f.store->view().servers.at(0).silent);
  const auto version = f.store->view_version();
  f.pass(2s);
  CHECK(f.store->view().servers.at(0).silent);
  CHECK(f.store->view_version() > version);
  CHECK(f.store->view().placement == placed);
  CHECK(f.store->renew_lease(11, 1, f.now));
  CHECK(!f.store->view().servers.at(0).silent);
  CHECK(f.store->view_version() > version + 1);
}

TEST_CASE("a lease of a node that never joined is an error that says to join") {
  Fixture f;
  CHECK(thrown_by([&] { f.store->renew_lease(99, 1, f.now); }).is(Errc::not_found));
  REQUIRE(f.join("a", 11, 5));
  CHECK(thrown_by([&] { f.store->renew_lease(11, 6, f.now); }).is(Errc::not_found));
}

TEST_CASE("another number of shards than the cluster was made with is refused") {
  Fixture f;
  REQUIRE(f.join("a", 11));
  f.store.reset();
  f.options.num_shards = 8;
  const auto error = thrown_by([&] { f.open(); });
  CHECK(error.is(Errc::invalid_argument));
  CHECK(error.remedy().find("--num_shards 4") != std::string::npos);
}

TEST_CASE("without a number of shards the cluster's own counts, and 16 in a new one") {
  Fixture f;
  REQUIRE(f.join("a", 11));
  f.store.reset();
  f.options.num_shards = 0;
  f.open();
  CHECK(f.store->num_shards() == 4);
  CHECK(f.store->view().placement->shard_count() == 4);
  f.store.reset();
  f.options.path += ".new";
  f.open();
  CHECK(f.store->num_shards() == 16);
}

// ---- The file -----------------------------------------------------------------------------------

TEST_CASE("a database of another version names both versions") {
  Fixture f;
  f.store.reset();
  // SQLite keeps the user's version at byte 60 of the file, big-endian.
  {
    std::fstream file(f.options.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(63);
    file.put(9);
  }
  const auto error = thrown_by([&] { f.open(); });
  CHECK(error.is(Errc::version_mismatch));
  CHECK(error.found().find('9') != std::string::npos);
  CHECK(error.found().find('2') != std::string::npos);
}

TEST_CASE("a file that is no database is reported as corrupt") {
  Fixture f;
  f.store.reset();
  std::ofstream(f.options.path, std::ios::trunc) << std::string(5000, 'x');
  CHECK(thrown_by([&] { f.open(); }).is(Errc::corrupt));
}

TEST_CASE("a second coordinator on the same database is refused") {
  Fixture f;
  const auto error = thrown_by([&] { CoordinatorStore second(f.options, f.now); });
  CHECK(error.is(Errc::rejected));
  CHECK(!error.remedy().empty());
}

TEST_CASE("a view's version grows over a restart") {
  Fixture f;
  REQUIRE(f.join("a", 11));
  const auto version = f.store->view_version();
  f.restart();
  CHECK(f.store->view_version() > version);
}

// ---- Tables -------------------------------------------------------------------------------------

TEST_CASE("a table gets an id once, and creating it otherwise names the difference") {
  Fixture f;
  const TableSpec table{.name = "movies/rows",
                        .width = 17,
                        .optimizer = OptimizerKind::adagrad,
                        .learning_rate = 0.09f,
                        .initial_accumulator = 0.1f,
                        .initializer = InitializerKind::normal,
                        .initializer_scale = 0.025f,
                        .initializer_from = 1,
                        .seed = 0xffffffffffffffffu};
  f.store->create_tables({table});
  auto other = table;
  other.name = "movies/bias";
  f.store->create_tables({table, other, other});
  const auto version = f.store->view_version();
  f.store->create_tables({other, table});
  CHECK(f.store->view_version() == version);

  f.restart();
  const auto tables = f.store->view().tables;
  REQUIRE(tables.size() == 2);
  CHECK(tables[0].id == 1);
  CHECK(tables[1].id == 2);
  auto expected = table;
  expected.id = 1;
  CHECK(tables[0] == expected);

  auto wider = table;
  wider.width = 18;
  const auto error = thrown_by([&] { f.store->create_tables({wider}); });
  CHECK(error.is(Errc::already_exists));
  CHECK(error.found().find("17") != std::string::npos);
  CHECK(error.found().find("18") != std::string::npos);
  wider.width = 0;
  wider.name = "new";
  CHECK(thrown_by([&] { f.store->create_tables({wider}); }).is(Errc::invalid_argument));
  CHECK(f.store->view().tables.size() == 2);
}

// ---- Jobs and workers ---------------------------------------------------------------------------

TEST_CASE("later workers of a job must say what the first one said") {
  Fixture f;
  f.open_job("w0");
  auto other = small_job();
  other.batch_size = 20;
  const auto error = thrown_by([&] { f.open_job("w1", 1, false, other); });
  CHECK(error.is(Errc::invalid_argument));
  CHECK(error.found().find("batch size is 10, not 20") != std::string::npos);
  other.name = "another";
  CHECK(f.open_job("w1", 1, false, other).job == 2);
}

TEST_CASE("a worker that has another model can't join a job") {
  Fixture f;
  f.open_job("w0");
  auto other = small_job();
  other.model_hash = 12;
  const auto error = thrown_by([&] { f.open_job("w1", 1, false, other); });
  CHECK(error.is(Errc::invalid_argument));
  CHECK(error.found().find("model's hash is 0, not 12") != std::string::npos);
  f.restart();
  CHECK(thrown_by([&] { f.open_job("w1", 1, false, other); }).is(Errc::invalid_argument));
  other.name = "another";
  f.open_job("w1", 1, false, other);
  f.restart();
  CHECK(f.open_job("w2", 1, false, other).job == 2);
}

TEST_CASE("a worker enters as far as the slowest must be, however old the reports are") {
  Fixture f({.staleness_bound = 3});
  const auto first = f.open_job("w0");
  const auto second = f.open_job("w1");
  for (const auto& terms : {first, second}) f.store->lease_unit(terms.worker, f.now);
  f.store->report({.worker = first.worker, .clock = 100}, f.now);
  f.store->report({.worker = second.worker, .clock = 2}, f.now);
  // To have done step 100 the first one read rows for step 99: all had completed 96.
  CHECK(f.open_job("w2").first_clock == 96);
}

TEST_CASE("a worker that joins while all others wait for work enters where they are") {
  Fixture f;
  const auto first = f.open_job("w0");
  f.store->lease_unit(first.worker, f.now);
  for (const auto* name : {"w1", "w2", "w3"}) {
    const auto other = f.open_job(name);
    f.store->lease_unit(other.worker, f.now);
  }
  f.store->leave_job(first.worker);  // its unit is free
  f.store->note_clock(2, 40);
  CHECK(f.store->finish_unit(2, {0, 1}, f.now).state == granted);
  f.store->note_clock(2, 48);
  CHECK(f.store->finish_unit(2, {0, 0}, f.now).state == wait);
  f.store->leave_job(3);
  f.store->leave_job(4);
  CHECK(f.store->view().workers.empty());
  CHECK(f.open_job("w4").first_clock == 48);
}

TEST_CASE("what a worker says of its clock when it asks for a unit counts for those who join") {
  Fixture f;
  const auto first = f.open_job("w0");
  f.store->lease_unit(first.worker, f.now);
  f.store->note_clock(first.worker, 8);
  f.store->finish_unit(first.worker, {0, 0}, f.now);
  CHECK(f.open_job("w1").first_clock == 8);
  f.store->note_clock(first.worker, 5);  // late, and older
  CHECK(f.open_job("w2").first_clock == 8);
  f.store->note_clock(99, 5);  // nobody
  f.restart();
  f.store->report({.worker = 2, .clock = 9}, f.now);
  CHECK(f.open_job("w3").first_clock == 8);
}

TEST_CASE("a database is a cluster of its own, and takes in no server of another one") {
  Fixture f;
  const auto cluster = f.store->cluster();
  CHECK(cluster != 0);
  CHECK(f.store->view().cluster == cluster);
  f.restart();
  CHECK(f.store->cluster() == cluster);
  Fixture other;
  CHECK(other.store->cluster() != cluster);

  const auto join = [&](std::uint64_t of) {
    return f.store->join_server({.name = "a",
                                 .node_id = 11,
                                 .incarnation = 1,
                                 .endpoint = "tcp://127.0.0.1:7000",
                                 .cluster = of},
                                f.now);
  };
  const auto error = thrown_by([&] { join(other.store->cluster()); });
  CHECK(error.is(Errc::rejected));
  CHECK(error.found().find("holds data of cluster") != std::string::npos);
  CHECK(f.store->view().servers.empty());
  CHECK(join(0));
  CHECK(join(cluster));
}

TEST_CASE("a worker enters the clock table at the slowest live worker's clock") {
  Fixture f;
  const auto first = f.open_job("w0");
  CHECK(first.first_clock == 0);
  f.store->lease_unit(first.worker, f.now);
  f.store->report({.worker = first.worker, .clock = 9}, f.now);
  const auto second = f.open_job("w1");
  CHECK(second.first_clock == 9);
  f.store->report({.worker = first.worker, .clock = 12}, f.now);
  f.store->report({.worker = second.worker, .clock = 10}, f.now);
  const auto third = f.open_job("w2");
  CHECK(third.first_clock == 10);
  const auto view = f.store->view();
  REQUIRE(view.workers.size() == 3);
  CHECK(view.workers[2].joined_at_clock == 10);
}

TEST_CASE("opening a job again with the same incarnation gives the same worker") {
  Fixture f;
  const auto terms = f.open_job("w0", 4);
  const auto version = f.store->view_version();
  CHECK(f.open_job("w0", 4).worker == terms.worker);
  CHECK(f.open_job("w0", 4, true).worker == terms.worker);
  CHECK(f.store->view_version() == version);
}

TEST_CASE("a worker's newer process takes its place, and the older one is refused") {
  Fixture f;
  const auto old = f.open_job("w0", 4);
  REQUIRE(f.store->lease_unit(old.worker, f.now).state == granted);
  f.store->report({.worker = old.worker, .clock = 3, .batch = 3}, f.now);
  const auto fresh = f.open_job("w0", 5);
  CHECK(fresh.worker != old.worker);
  CHECK(!f.live(old.worker));
  CHECK(f.store->lease_unit(old.worker, f.now).state == evicted);
  CHECK(!f.store->report({.worker = old.worker}, f.now));
  CHECK(thrown_by([&] { f.open_job("w0", 4); }).is(Errc::fenced));
  const auto lease = f.store->lease_unit(fresh.worker, f.now);
  CHECK(lease.unit == UnitId{0, 0});
  CHECK(lease.first_batch == 3);
}

TEST_CASE("a silent worker is evicted, its unit goes on where it was, and it may join anew") {
  Fixture f;
  const auto silent = f.open_job("w0");
  const auto other = f.open_job("w1");
  REQUIRE(f.store->lease_unit(silent.worker, f.now).unit == UnitId{0, 0});
  REQUIRE(f.store->lease_unit(other.worker, f.now).unit == UnitId{0, 1});
  f.store->report({.worker = silent.worker, .clock = 2, .unit = {0, 0}, .batch = 2}, f.now);
  for (int i = 0; i < 31; ++i) {
    CHECK(f.live(silent.worker));
    f.pass(1s);
    f.store->report({.worker = other.worker}, f.now);
  }
  CHECK(!f.live(silent.worker));
  CHECK(f.live(other.worker));
  CHECK(f.store->finish_unit(silent.worker, {0, 0}, f.now).state == evicted);

  const auto next = f.store->finish_unit(other.worker, {0, 1}, f.now);
  CHECK(next.state == granted);
  CHECK(next.unit == UnitId{0, 0});
  CHECK(next.first_batch == 2);
  const auto again = f.open_job("w0");
  CHECK(again.worker != silent.worker);
  CHECK(f.store->lease_unit(again.worker, f.now).unit == UnitId{0, 2});
}

TEST_CASE("nobody is evicted because the coordinator itself was stopped") {
  Fixture f;
  const auto worker = f.open_job("w0");
  REQUIRE(f.join("a", 11));
  f.pass(5s);
  f.now += 1000s;
  f.store->expire(f.now);
  CHECK(f.live(worker.worker));
  CHECK(!f.store->view().servers.at(0).silent);
  f.pass(31s);
  CHECK(!f.live(worker.worker));
}

TEST_CASE("a restarted coordinator gives everybody a fresh time to speak") {
  Fixture f;
  const auto worker = f.open_job("w0");
  f.pass(29s);
  f.restart();
  f.pass(29s);
  CHECK(f.live(worker.worker));
  f.pass(2s);
  CHECK(!f.live(worker.worker));
}

TEST_CASE("a worker that leaves takes itself out of the clock table and frees its unit") {
  Fixture f;
  const auto worker = f.open_job("w0");
  const auto other = f.open_job("w1");
  f.store->lease_unit(worker.worker, f.now);
  f.store->report({.worker = worker.worker, .clock = 1, .batch = 1}, f.now);
  f.store->leave_job(worker.worker);
  f.store->leave_job(worker.worker);  // said twice
  CHECK(!f.live(worker.worker));
  const auto lease = f.store->lease_unit(other.worker, f.now);
  CHECK(lease.unit == UnitId{0, 0});
  CHECK(lease.first_batch == 1);
}

TEST_CASE("a worker without work leaves the clock table, and enters again at its minimum") {
  Fixture f;
  const auto busy = f.open_job("w0");
  const auto slow = f.open_job("w1");
  const auto idle = f.open_job("w2");
  for (const auto& terms : {busy, slow, idle})
    REQUIRE(f.store->lease_unit(terms.worker, f.now).state == granted);
  f.store->report({.worker = busy.worker, .clock = 50, .unit = {0, 0}, .batch = 2}, f.now);
  f.store->report({.worker = slow.worker, .clock = 48, .unit = {0, 1}}, f.now);
  f.store->report({.worker = idle.worker, .clock = 5}, f.now);

  CHECK(f.store->finish_unit(idle.worker, {0, 2}, f.now).state == wait);
  CHECK(!f.live(idle.worker));
  const auto version = f.store->view_version();
  CHECK(f.store->lease_unit(idle.worker, f.now).state == wait);
  CHECK(f.store->view_version() == version);

  f.store->leave_job(busy.worker);
  const auto lease = f.store->lease_unit(idle.worker, f.now);
  CHECK(lease.state == granted);
  CHECK(lease.unit == UnitId{0, 0});
  CHECK(lease.first_batch == 2);
  CHECK(lease.clock == 48);
  CHECK(f.live(idle.worker));
  CHECK(f.store->view().workers.at(1).joined_at_clock == 48);

  CHECK(f.store->finish_unit(slow.worker, {0, 1}, f.now).state == wait);
  CHECK(f.store->finish_unit(idle.worker, {0, 0}, f.now).state == done);
  CHECK(f.store->lease_unit(slow.worker, f.now).state == done);
  CHECK(f.store->view().workers.empty());
}

TEST_CASE("a repeated question about units gets the same answer") {
  Fixture f;
  const auto worker = f.open_job("w0");
  const auto first = f.store->lease_unit(worker.worker, f.now);
  CHECK(f.store->lease_unit(worker.worker, f.now).unit == first.unit);
  const auto second = f.store->finish_unit(worker.worker, first.unit, f.now);
  CHECK(second.unit == UnitId{0, 1});
  CHECK(f.store->finish_unit(worker.worker, first.unit, f.now).unit == second.unit);
  CHECK(f.store->jobs().at(0).units_done == 1);
  CHECK(thrown_by([&] {
          f.store->finish_unit(worker.worker, {0, 2}, f.now);
        }).is(Errc::invalid_argument));
  CHECK(thrown_by([&] {
          f.store->finish_unit(worker.worker, {0, 7}, f.now);
        }).is(Errc::invalid_argument));
}

TEST_CASE("a restarted job begins anew, unless others are at work on it") {
  Fixture f;
  const auto first = f.open_job("w0", 1);
  f.store->finish_unit(first.worker, f.store->lease_unit(first.worker, f.now).unit, f.now);
  // Both are started with --checkpoint_resume none: the second joins the first one's new run.
  const auto second = f.open_job("w1", 1, true);
  CHECK(second.job == first.job);
  CHECK(second.kept);
  CHECK(second.forgotten_samples == 0);
  f.store->leave_job(second.worker);
  const auto anew = f.open_job("w0", 2, true);
  CHECK(anew.job != first.job);
  CHECK_FALSE(anew.kept);
  CHECK(anew.forgotten_samples == small_job().samples_before(1));
  CHECK(!f.live(first.worker));
  CHECK(f.store->lease_unit(anew.worker, f.now).unit == UnitId{0, 0});
  CHECK(f.open_job("w1", 2, true).job == anew.job);
  CHECK(f.open_job("w2", 1).job == anew.job);
  REQUIRE(f.store->jobs().size() == 1);
  CHECK(f.store->jobs().at(0).units_done == 0);
}

TEST_CASE("samples are counted by finished units and reported batches") {
  Fixture f;  // 95 samples: units of 40, 40 and 15
  const auto worker = f.open_job("w0");
  const auto first = f.store->lease_unit(worker.worker, f.now);
  f.store->report({.worker = worker.worker, .clock = 3, .unit = first.unit, .batch = 3}, f.now);
  CHECK(f.store->jobs().at(0).samples_done == 30);
  f.store->report({.worker = worker.worker, .clock = 3, .unit = {5, 5}, .batch = 4}, f.now);
  CHECK(f.store->jobs().at(0).samples_done == 30);
  const auto second = f.store->finish_unit(worker.worker, first.unit, f.now);
  CHECK(f.store->jobs().at(0).samples_done == 40);
  f.store->finish_unit(worker.worker, second.unit, f.now);
  f.store->report({.worker = worker.worker, .clock = 9, .unit = {0, 2}, .batch = 1000}, f.now);
  CHECK(f.store->jobs().at(0).samples_done == 95);
  f.store->finish_unit(worker.worker, {0, 2}, f.now);
  const auto job = f.store->jobs().at(0);
  CHECK(job.samples_done == 95);
  CHECK(job.units_done == 3);
}

// ---- Randomised ---------------------------------------------------------------------------------

namespace {

struct Crash {};

/// Workers that come, work, go silent, die and go on after their eviction, against a store that is
/// stopped between and inside calls. What the workers saw is held against what the store says.
class Chaos {
 public:
  Chaos(std::uint32_t seed, bool crashes) : random_(seed) {
    if (crashes)
      fixture_.options.failpoint = [this](std::string_view) {
        if (armed_ && chance(3)) throw Crash();
      };
    fixture_.restart();
  }

  void run() {
    for (int step = 0; step < 40'000 && !finished_; ++step) {
      act();
      check_view();
    }
    REQUIRE(finished_);
    REQUIRE(acknowledged_.size() == job_.epochs * job_.batches_per_epoch());
    const auto state = fixture_.store->jobs().at(0);
    CHECK(state.units_done == job_.units());
    CHECK(state.samples_done == job_.epochs * job_.samples);
  }

 private:
  struct Worker {
    std::string name;
    std::uint64_t incarnation = 0;
    std::uint32_t id = 0;  // 0: has not joined
    bool silent = false;   // cut off: works on, and can't talk
    std::optional<UnitGrant> lease{};
    std::uint32_t batch = 0;
    std::uint64_t clock = 0;
  };

  bool chance(int percent) { return std::uniform_int_distribution<>(1, 100)(random_) <= percent; }

  /// Calls the store; a crash inside leaves the caller without an answer.
  template <class Function>
  bool call(Function function) {
    armed_ = true;
    try {
      function();
      armed_ = false;
      return true;
    } catch (const Crash&) {
      armed_ = false;
      fixture_.restart();
      return false;
    } catch (...) {
      armed_ = false;
      throw;
    }
  }

  void act() {
    if (chance(2)) call([&] { fixture_.pass(Duration(std::chrono::seconds(random_() % 12))); });
    if (chance(1)) fixture_.restart();
    if (workers_.size() < 4 && chance(10))
      workers_.push_back({.name = "w" + std::to_string(random_() % 6), .incarnation = ++starts_});
    if (workers_.empty()) return;
    const std::size_t index = random_() % workers_.size();
    Worker& worker = workers_[index];
    if (chance(1)) {  // killed
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(index));
      return;
    }
    if (chance(1)) worker.silent = !worker.silent;
    work(worker);
  }

  void work(Worker& worker) {
    if (worker.lease && worker.batch < job_.batches_of(number(worker))) {
      // The push is acknowledged by the servers, whatever the coordinator thinks of the worker.
      acknowledged_.insert({number(worker), worker.batch});
      ++worker.batch;
      ++worker.clock;
      return;
    }
    if (worker.silent) return;
    if (worker.id == 0) return join(worker);
    if (worker.lease && chance(40)) return report(worker);
    if (chance(2)) {
      call([&] { fixture_.store->leave_job(worker.id); });
      worker = {.name = worker.name, .incarnation = worker.incarnation};
      return;
    }
    next(worker);
  }

  std::uint64_t number(const Worker& worker) const { return job_.number_of(worker.lease->unit); }

  void join(Worker& worker) {
    try {
      call([&] {
        const auto terms = fixture_.open_job(worker.name, worker.incarnation, false, job_);
        worker.id = terms.worker;
        worker.clock = terms.first_clock;
      });
    } catch (const Error& error) {
      REQUIRE(error.is(Errc::fenced));
      worker = {.name = worker.name, .incarnation = ++starts_};
    }
  }

  void report(Worker& worker) {
    call([&] {
      if (!fixture_.store->report({.worker = worker.id,
                                   .clock = worker.clock,
                                   .unit = worker.lease->unit,
                                   .batch = worker.batch},
                                  fixture_.now))
        worker = {.name = worker.name, .incarnation = worker.incarnation};
    });
  }

  void next(Worker& worker) {
    UnitGrant grant;
    const auto ask = [&] {
      grant = worker.lease
                  ? fixture_.store->finish_unit(worker.id, worker.lease->unit, fixture_.now)
                  : fixture_.store->lease_unit(worker.id, fixture_.now);
    };
    if (!call(ask)) return;
    if (worker.lease && grant.state != evicted) finished_units_.insert(number(worker));
    switch (grant.state) {
      case evicted: worker = {.name = worker.name, .incarnation = worker.incarnation}; break;
      case wait: worker.lease.reset(); break;
      case done: finished_ = true; break;
      case granted: take(worker, grant); break;
    }
  }

  void take(Worker& worker, const UnitGrant& grant) {
    worker.lease = grant;
    worker.batch = grant.first_batch;
    worker.clock = std::max(worker.clock, grant.clock);
    REQUIRE(!finished_units_.contains(number(worker)));
    for (std::uint32_t batch = 0; batch < grant.first_batch; ++batch)
      REQUIRE(acknowledged_.contains({number(worker), batch}));
    REQUIRE(grant.forget_before >= forget_before_);
    forget_before_ = grant.forget_before;
    for (std::uint64_t unit = 0; unit < grant.forget_before; ++unit)
      for (std::uint32_t batch = 0; batch < job_.batches_of(unit); ++batch)
        REQUIRE(acknowledged_.contains({unit, batch}));
    // Whoever else holds this unit has been evicted, and hears so when it next speaks.
    for (auto& other : workers_)
      if (&other != &worker && other.lease && other.lease->unit == grant.unit)
        REQUIRE(!fixture_.store->report({.worker = other.id}, fixture_.now));
  }

  void check_view() {
    const auto version = fixture_.store->view_version();
    REQUIRE(version >= version_);
    std::vector<std::pair<std::uint32_t, std::uint64_t>> workers;
    for (const auto& worker : fixture_.store->view().workers)
      workers.emplace_back(worker.worker, worker.joined_at_clock);
    if (workers != seen_) REQUIRE(version > version_);
    version_ = version;
    seen_ = std::move(workers);
  }

  Fixture fixture_;
  JobDefinition job_ = small_job(3);
  std::mt19937 random_;
  bool armed_ = false;
  std::vector<Worker> workers_;
  std::uint64_t starts_ = 0;
  std::set<std::pair<std::uint64_t, std::uint32_t>> acknowledged_;  // unit, batch
  std::set<std::uint64_t> finished_units_;
  std::uint64_t forget_before_ = 0;
  std::uint64_t version_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> seen_;
  bool finished_ = false;
};

}  // namespace

TEST_CASE("every batch of every epoch is covered, whoever dies, leaves or joins") {
  for (int round = 0; round < 10; ++round) {
    const auto seed = std::random_device()();
    CAPTURE(seed);
    Chaos(seed, false).run();
  }
}

TEST_CASE("a coordinator that dies inside any call loses nothing that it answered") {
  for (int round = 0; round < 10; ++round) {
    const auto seed = std::random_device()();
    CAPTURE(seed);
    Chaos(seed, true).run();
  }
}
