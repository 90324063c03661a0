#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/audit.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/coordinator.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "temporary_folder.hpp"

using namespace hyperframes;
using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

namespace {

constexpr std::uint32_t width = 3;
constexpr std::uint32_t num_shards = 4;

/// What one table's part on one shard keeps: it outlives its actor, as a disk would. Rows are sums.
struct Disk {
  std::map<std::uint64_t, std::vector<float>> rows;
  std::set<PushKey> applied;
};

/// What the servers of a test do wrong, and what they have seen. On core shard 0 only.
struct Faults {
  std::mt19937 random{1};
  int percent = 0;
  int moved = 0;  // so many requests are refused as moved
  std::vector<std::uint64_t> clocks;
  std::vector<std::optional<protocol::WorkerClock>> pulls;
  bool hold = false;  // pulls are kept, as behind a slow worker
  std::vector<Reply<WithSegments<protocol::PullReply>>> held;
  std::string broken;  // what a client must never do

  bool strike() {
    return percent != 0 && std::uniform_int_distribution<>(1, 100)(random) <= percent;
  }
};

class FakePart final : public protocol::TablePart::Actor {
 public:
  FakePart(TableId table, ShardId shard, PlacementMap map, Disk* disk, Faults* faults)
      : table_(table), shard_(shard), map_(std::move(map)), disk_(disk), faults_(faults) {}

 private:
  std::vector<std::uint64_t> check_ids(const Buffer& buffer) {
    std::vector<std::uint64_t> ids(buffer.size() / 8);
    if (!ids.empty()) std::memcpy(ids.data(), buffer.data(), buffer.size());
    Slot last = 0;
    for (const auto id : ids) {
      const Slot slot = slot_of(table_, id);
      if (map_.shard_of(slot) != shard_) faults_->broken = "a row on the wrong shard";
      if (slot < last) faults_->broken = "slots out of order";
      last = slot;
    }
    if (faults_->moved > 0) {
      --faults_->moved;
      throw Error(Errc::moved, "find rows", "they moved");
    }
    return ids;
  }

  Task<void> pull(protocol::PullRequest request, Segments segments,
                  Reply<WithSegments<protocol::PullReply>> reply) override {
    const auto ids = check_ids(segments[0]);
    faults_->pulls.push_back(request.worker());
    if (faults_->hold) {
      faults_->held.push_back(std::move(reply));
      co_return;
    }
    if (faults_->strike()) throw Error(Errc::no_reply, "pull", "not now");
    if (faults_->strike()) co_return;  // drops the reply
    Buffer rows = Buffer::heap(ids.size() * width * sizeof(float));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto found = disk_->rows.find(ids[i]);
      const auto row = found == disk_->rows.end() ? std::vector<float>(width) : found->second;
      std::memcpy(rows.data() + i * width * sizeof(float), row.data(), width * sizeof(float));
    }
    reply.send({.width = width}, Segments(std::move(rows)));
  }

  Task<void> push(protocol::PushRequest request, Segments segments,
                  Reply<protocol::PushReply> reply) override {
    const auto ids = check_ids(segments[0]);
    std::vector<float> values(segments[1].size() / sizeof(float));
    std::memcpy(values.data(), segments[1].data(), segments[1].size());
    if (values.size() != ids.size() * width) faults_->broken = "values that don't fit the ids";
    if (faults_->strike()) throw Error(Errc::no_reply, "push", "not now");
    const auto key =
        request.client() != 0
            ? PushKey::of_client(request.client(), request.incarnation(), request.sequence())
            : PushKey::leased(request.epoch(), request.unit(), request.batch());
    const bool fresh = disk_->applied.insert(key).second;
    for (std::size_t i = 0; fresh && i < ids.size(); ++i) {
      auto& row = disk_->rows.try_emplace(ids[i], width).first->second;
      for (std::uint32_t c = 0; c < width; ++c) row[c] += values[i * width + c];
    }
    if (faults_->strike()) co_return;  // applied, and nobody hears of it
    if (faults_->strike()) throw Error(Errc::peer_lost, "push", "after it was applied");
    reply.send({.duplicate = !fresh});
  }

  TableId table_;
  ShardId shard_;
  PlacementMap map_;
  Disk* disk_;
  Faults* faults_;
};

class FakeShard final : public protocol::ParameterShard::Actor {
 public:
  explicit FakeShard(Faults* faults) : faults_(faults) {}
  Task<void> tick(protocol::WorkerClock clock) override {
    faults_->clocks.push_back(clock.clock());
    co_return;
  }
  Task<void> checkpoint(protocol::Nothing, Reply<protocol::ShardStatus> reply) override {
    reply.send({});
    co_return;
  }
  Task<void> status(protocol::Nothing, Reply<protocol::ShardStatus> reply) override {
    reply.send({.shard = 7, .pulls_waiting = faults_->held.size()});
    co_return;
  }

 private:
  Faults* faults_;
};

/// A coordinator, servers and a client in one process, each a node of its own over TCP.
class Cluster {
 public:
  Cluster() {
    log::set_sink([](log::Level, std::string_view) {});
    coordinator_ = make_node(1);
    runtime_.run([this](Runtime&) { return start_coordinator(); });
    client_node_ = make_node(2);
  }
  ~Cluster() {
    for (auto& [id, server] : servers_) close(*server);
    if (client_) {
      runtime_.run([this](Runtime&) -> Task<void> {
        co_await client_->close();
        client_.reset();
      });
    }
    close(*client_node_);
    close(*coordinator_);
    servers_.clear();
    client_node_.reset();
    coordinator_.reset();
    log::set_sink({});
  }

  template <class Function>
  auto run(Function function) {
    return runtime_.run([&](Runtime&) { return function(); });
  }

  /// Starts it, or starts it again after kill_server.
  void start_server(NodeId id) {
    servers_[id] = make_node(id);
    runtime_.run([&](Runtime&) { return run_server(id); });
  }
  /// Without a word to anybody.
  void kill_server(NodeId id) { servers_.erase(id); }

  PsClient& make_client() {
    client_ = std::make_unique<PsClient>(
        *client_node_, PsClient::Options{.coordinator = coordinator_endpoint_, .attempt = 2s});
    return *client_;
  }
  /// The coordinator goes, and one with an empty database comes in its place.
  void replace_database() {
    runtime_.run([this](Runtime&) -> Task<void> {
      auto old = coordinator_->find<protocol::Coordinator>(coordinator_name).value();
      coordinator_->stop(old);
      co_await coordinator_->join(old, after(5s));
      std::filesystem::remove_all(folder_.path());
      CoordinatorOptions options{
          .path = folder_.file("coordinator.db"), .num_shards = num_shards, .num_servers = 2};
      co_await coordinator_->spawn<Coordinator>(coordinator_name, options);
    });
  }

  void start_client() {
    runtime_.run([this](Runtime&) -> Task<void> {
      make_client();
      co_await client_->start();
      TableSpec spec{.name = "rows", .width = width};
      co_await client_->create_tables({spec});
      table_ = co_await client_->table("rows");
    });
  }
  PsClient& client() { return *client_; }
  const TableSpec& table() const { return table_; }
  Faults& faults() { return faults_; }
  Disk& disk(ShardId shard) { return disks_[shard]; }

 private:
  std::unique_ptr<Node> make_node(NodeId id) {
    net::Network::Options network;
    network.node_id = id;
    return std::make_unique<Node>(
        runtime_, Node::Options{.name = "node " + std::to_string(id), .network = network});
  }
  void close(Node& node) {
    runtime_.run([&](Runtime&) -> Task<void> { co_await node.close(2s); });
  }
  Task<void> start_coordinator() {
    coordinator_endpoint_ = co_await coordinator_->listen(net::Endpoint::parse("127.0.0.1:0"));
    CoordinatorOptions options{
        .path = folder_.file("coordinator.db"), .num_shards = num_shards, .num_servers = 2};
    co_await coordinator_->spawn<Coordinator>(coordinator_name, options);
  }
  Task<void> run_server(NodeId id) {
    Node& node = *servers_[id];
    const auto endpoint = co_await node.listen(net::Endpoint::parse("127.0.0.1:0"));
    auto coordinator = coordinator_->find<protocol::Coordinator>(coordinator_name).value();
    co_await coordinator.join_server({.name = "server " + std::to_string(id),
                                      .node_id = id,
                                      .incarnation = ++incarnation_,
                                      .endpoint = endpoint.to_string()});
    // The placement is a pure function of who takes part.
    const std::vector<NodeId> ids{21, 22};
    const auto map = PlacementMap::first(num_shards, ids);
    for (const ShardId shard : map.shards_of(id)) {
      const auto name = "ps/shard/" + std::to_string(shard);
      co_await node.spawn<FakeShard>(SpawnOptions{.name = name}, &faults_);
      co_await node.spawn<FakePart>(SpawnOptions{.name = name + "/rows"}, TableId{1}, shard, map,
                                    &disks_[shard], &faults_);
    }
  }

  TemporaryFolder folder_;
  Runtime runtime_{{.shards = 1}};
  std::unique_ptr<Node> coordinator_, client_node_;
  net::Endpoint coordinator_endpoint_;
  std::map<NodeId, std::unique_ptr<Node>> servers_;
  std::uint64_t incarnation_ = 0;
  Faults faults_;
  std::map<ShardId, Disk> disks_;
  std::unique_ptr<PsClient> client_;
  TableSpec table_;
};

std::vector<std::uint64_t> some_ids(std::size_t count) {
  std::vector<std::uint64_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = 1000 + 37 * i;
  return ids;
}

/// Row i is (i, 2 i, 3 i) times `factor`.
std::vector<float> some_rows(std::size_t count, float factor = 1) {
  std::vector<float> rows;
  for (std::size_t i = 0; i < count; ++i)
    for (std::uint32_t c = 1; c <= width; ++c) rows.push_back(factor * static_cast<float>(c * i));
  return rows;
}

Task<PreparedPush> push_leased(PsClient& client, TableSpec table, PushKey key, std::size_t count) {
  auto ids = some_ids(count);
  auto rows = some_rows(count);
  PreparedPush prepared = co_await client.prepare_push(table, key, std::move(ids), std::move(rows));
  PreparedPush sent = prepared;
  co_await client.push(std::move(sent), 0, 0);
  co_return prepared;
}

}  // namespace

TEST_CASE(
    "a push without counter rows fills its memory to the last byte and writes nothing past it",
    "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  const std::vector<NodeId> servers{21, 22};
  const auto map = PlacementMap::first(num_shards, servers);
  // 32 ids take one block of the pool exactly: one id more would lie behind it.
  std::vector<std::uint64_t> ids;
  for (std::uint64_t id = 1; ids.size() < 32; ++id)
    if (map.shard_of(slot_of(cluster.table().id, id)) == 2) ids.push_back(id);
  cluster.run([&]() -> Task<void> {
    auto prepared = co_await cluster.client().prepare_push(
        cluster.table(), PushKey::of_client(7, 1, 1), ids, some_rows(ids.size()));
    REQUIRE(prepared.messages().size() == 1);
    CHECK(prepared.messages()[0].ids.size() == 256);
    co_await cluster.client().push(std::move(prepared));
  });
  CHECK(cluster.disk(2).rows.size() == ids.size());
  CHECK(cluster.disk(2).rows.at(ids[31])[2] == 93);
}

TEST_CASE("what was pushed is pulled in the order of the ids", "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.run([&]() -> Task<void> {
    const std::size_t count = 500;
    co_await push_leased(cluster.client(), cluster.table(), PushKey::leased(0, 0, 0), count);
    auto ids = some_ids(count);
    auto rows = co_await cluster.client().pull(cluster.table(), std::move(ids));
    CHECK(rows == some_rows(count));
    std::vector<std::uint64_t> none;
    rows = co_await cluster.client().pull(cluster.table(), std::move(none));
    CHECK(rows.empty());
    // As many gradients as there are rows, and no other number.
    std::vector<float> few = some_rows(2);
    few.pop_back();
    std::string refused;
    try {
      co_await cluster.client().prepare_push(cluster.table(), PushKey::of_client(5, 1, 1),
                                             {1000, 1037}, std::move(few));
    } catch (const Error& error) {
      if (error.is(Errc::invalid_argument)) refused = error.found();
    }
    CHECK(refused == "5 floats were given for 2 rows of 3");
    // Not of a leased unit: no counter rows.
    auto more = some_rows(2);
    auto prepared = co_await cluster.client().prepare_push(
        cluster.table(), PushKey::of_client(5, 1, 1), {1000, 1037}, std::move(more));
    for (const auto& message : prepared.messages()) CHECK(message.counter == 0);
    CHECK(prepared.ledger_entries(1).empty());
    co_await cluster.client().push(std::move(prepared));
    rows = co_await cluster.client().pull(cluster.table(), {1037});
    CHECK(rows == std::vector<float>{2, 4, 6});
  });
  CHECK(cluster.faults().broken.empty());
}

TEST_CASE("a client that has not started says so", "[threads]") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto& client = cluster.make_client();
    TableSpec table{.id = 1, .name = "rows", .width = width};
    std::vector<std::string> refused;
    const auto note = [&](const Error& error) {
      if (error.is(Errc::invalid_argument)) refused.push_back(error.tried());
    };
    try {
      co_await client.pull(table, {1});
    } catch (const Error& error) {
      note(error);
    }
    try {
      auto rows = some_rows(1);
      co_await client.prepare_push(table, PushKey::leased(0, 0, 0), {1}, std::move(rows));
    } catch (const Error& error) {
      note(error);
    }
    try {
      co_await client.push(PreparedPush());
    } catch (const Error& error) {
      note(error);
    }
    try {
      co_await client.table("rows");
    } catch (const Error& error) {
      note(error);
    }
    try {
      co_await client.shard_status(0);
    } catch (const Error& error) {
      note(error);
    }
    CHECK(refused.size() == 5);
  });
}

TEST_CASE("a client does not follow a coordinator into another cluster", "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.replace_database();
  cluster.run([&]() -> Task<void> {
    std::string found;
    try {
      while (true) {
        co_await cluster.client().pull(cluster.table(), {1});
        co_await sleep_for(5ms);
      }
    } catch (const Error& error) {
      CHECK(error.is(Errc::rejected));
      found = error.found();
    }
    CHECK(found.find("its database is another one") != std::string::npos);
  });
}

TEST_CASE("each message of a push counts itself, and a push that is repeated counts once",
          "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.run([&]() -> Task<void> {
    for (int round = 0; round < 2; ++round) {
      auto prepared =
          co_await push_leased(cluster.client(), cluster.table(), PushKey::leased(3, 2, 1), 100);
      CHECK(prepared.messages().size() == num_shards);
      const auto entries = prepared.ledger_entries(6);
      REQUIRE(entries.size() == num_shards);
      for (const auto& entry : entries) {
        CHECK(entry.job == 6);
        CHECK(entry.epoch == 3);
        CHECK(entry.unit == 2);
        CHECK(entry.batch == 1);
        auto counted = co_await cluster.client().pull(cluster.table(), {entry.counter});
        CHECK(counted == std::vector<float>{1, 0, 0});
      }
    }
  });
  CHECK(cluster.faults().broken.empty());
}

TEST_CASE("a push that no ledger notes leaves no counter rows behind", "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.run([&]() -> Task<void> {
    auto prepared = co_await cluster.client().prepare_push(
        cluster.table(), PushKey::leased(0, 1, 2), some_ids(40), some_rows(40), /*counted=*/false);
    CHECK(prepared.messages().size() == num_shards);
    CHECK(prepared.ledger_entries(1).empty());
    co_await cluster.client().push(std::move(prepared));
  });
  std::size_t rows = 0;
  for (ShardId shard = 0; shard < num_shards; ++shard)
    for (const auto& [id, row] : cluster.disk(shard).rows) {
      CHECK_FALSE(is_counter(id));
      ++rows;
    }
  CHECK(rows == 40);
}

TEST_CASE("pushes through servers that fail, stay silent and forget to answer count exactly once",
          "[threads]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  Cluster cluster;
  cluster.faults().random.seed(seed);
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.faults().percent = 20;
  constexpr std::uint32_t batches = 40;
  cluster.run([&]() -> Task<void> {
    std::vector<Task<PreparedPush>> pushes;
    for (std::uint32_t batch = 0; batch < batches; ++batch)
      pushes.push_back(
          push_leased(cluster.client(), cluster.table(), PushKey::leased(0, 0, batch), 50));
    auto done = co_await when_all(std::move(pushes));
    auto ids = some_ids(50);
    auto rows = co_await cluster.client().pull(cluster.table(), std::move(ids));
    CHECK(rows == some_rows(50, batches));
    cluster.faults().percent = 0;
    for (const auto& prepared : done)
      for (const auto& entry : prepared.ledger_entries(1)) {
        auto counted = co_await cluster.client().pull(cluster.table(), {entry.counter});
        CHECK(counted[0] == 1);
      }
  });
  CHECK(cluster.faults().broken.empty());
}

TEST_CASE("rows that moved are grouped anew and sent under the same key", "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.faults().moved = 3;
  cluster.run([&]() -> Task<void> {
    auto prepared =
        co_await push_leased(cluster.client(), cluster.table(), PushKey::leased(0, 0, 0), 60);
    cluster.faults().moved = 3;
    auto ids = some_ids(60);
    auto rows = co_await cluster.client().pull(cluster.table(), std::move(ids));
    CHECK(rows == some_rows(60));
    for (const auto& entry : prepared.ledger_entries(1)) {
      auto counted = co_await cluster.client().pull(cluster.table(), {entry.counter});
      CHECK(counted[0] == 1);
    }
  });
  CHECK(cluster.faults().moved == 0);
  CHECK(cluster.faults().broken.empty());
}

TEST_CASE("calls outlive a server's death and find it again at another address", "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  for (std::uint32_t round = 0; round < 3; ++round) {
    cluster.kill_server(21);
    std::jthread later([&] {
      std::this_thread::sleep_for(300ms);
      cluster.start_server(21);
    });
    cluster.run([&]() -> Task<void> {
      co_await push_leased(cluster.client(), cluster.table(), PushKey::leased(0, 0, round), 80);
      auto ids = some_ids(80);
      auto rows = co_await cluster.client().pull(cluster.table(), std::move(ids));
      CHECK(rows == some_rows(80, static_cast<float>(round + 1)));
    });
    later.join();
  }
  CHECK(cluster.faults().broken.empty());
}

TEST_CASE("a call that waits can be cancelled, and says meanwhile what it waits for", "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.kill_server(22);
  cluster.run([&]() -> Task<void> {
    CHECK(cluster.client().waiting().empty());
    Scope scope;
    bool ended = false;
    scope.spawn(co_invoke([&cluster, &ended]() -> Task<void> {
      auto ids = some_ids(50);
      try {
        co_await cluster.client().pull(cluster.table(), std::move(ids));
      } catch (const Error& error) {
        ended = error.is(Errc::cancelled);
      }
    }));
    while (cluster.client().waiting().empty()) co_await sleep_for(50ms);
    CHECK(cluster.client().waiting().find("server 'server 22'") != std::string::npos);
    scope.cancel();
    co_await scope.join();
    CHECK(ended);
    CHECK(cluster.client().waiting().empty());

    bool late = false;
    try {
      co_await with_deadline(cluster.client().pull(cluster.table(), some_ids(50)), after(300ms));
    } catch (const Error& error) {
      late = error.is(Errc::deadline_exceeded);
    }
    CHECK(late);
  });
}

TEST_CASE("a pull that a slow worker holds back says so, and one that nobody holds does not",
          "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.faults().hold = true;
  cluster.run([&]() -> Task<void> {
    PsClient& client = cluster.client();
    client.set_clock(PsClient::WorkerClock{.job = 1, .worker = 1, .clock = 9});
    Scope scope;
    scope.spawn(co_invoke([&cluster]() -> Task<void> {
      co_await cluster.client().pull(cluster.table(), some_ids(1), 9);
    }));
    // Until the first attempt has failed, only what it is for can be said.
    while (client.waiting().find(": ") == std::string::npos) co_await sleep_for(20ms);
    CHECK(client.waiting().find("waits for a slower worker (staleness bound 3)") !=
          std::string::npos);
    cluster.faults().hold = false;
    cluster.faults().held.clear();
    co_await scope.join();
    CHECK(client.waiting().empty());
  });
}

TEST_CASE("the clock goes along with calls and is repeated to every shard, also to a restarted one",
          "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  const auto all_heard = [&](std::uint64_t clock) -> Task<void> {
    while (std::ranges::count(cluster.faults().clocks, clock) < num_shards)
      co_await sleep_for(10ms);
  };
  cluster.run([&]() -> Task<void> {
    CHECK(cluster.faults().clocks.empty());
    cluster.client().set_clock(PsClient::WorkerClock{.job = 1, .worker = 5, .clock = 7});
    co_await all_heard(7);
    co_await cluster.client().pull(cluster.table(), {1});
    REQUIRE(!cluster.faults().pulls.empty());
    REQUIRE(cluster.faults().pulls.back().has_value());
    CHECK(cluster.faults().pulls.back()->worker() == 5);
    CHECK(cluster.faults().pulls.back()->clock() == 7);
    cluster.client().set_clock(PsClient::WorkerClock{.job = 1, .worker = 5, .clock = 8});
    co_await all_heard(8);
  });
  cluster.kill_server(21);
  cluster.run([&]() -> Task<void> {
    cluster.faults().clocks.clear();
    co_return;
  });
  cluster.start_server(21);
  cluster.run([&]() -> Task<void> {
    co_await all_heard(8);
    auto status = co_await cluster.client().shard_status(2);
    CHECK(status.shard() == 7);
    cluster.client().set_clock(std::nullopt);
    co_await cluster.client().pull(cluster.table(), {1});
    CHECK(!cluster.faults().pulls.back().has_value());
  });
}

TEST_CASE("an audit over the servers finds what was lost and what was applied twice", "[threads]") {
  Cluster cluster;
  cluster.start_server(21);
  cluster.start_server(22);
  cluster.start_client();
  cluster.run([&]() -> Task<void> {
    LedgerSummary ledgers;
    std::vector<LedgerEntry> entries;
    for (std::uint32_t batch = 0; batch < 10; ++batch) {
      auto prepared = co_await push_leased(cluster.client(), cluster.table(),
                                           PushKey::leased(0, 0, batch), 100);
      for (const auto& entry : prepared.ledger_entries(1)) entries.push_back(entry.acknowledged());
    }
    ledgers.add(entries);
    AuditResult result = co_await audit(cluster.client(), ledgers);
    CHECK(result.clean());
    CHECK(result.acknowledged == 10 * num_shards);
    CHECK(result.applied == 10 * num_shards);

    cluster.disk(entries[0].shard).rows.erase(entries[0].counter);
    cluster.disk(entries[1].shard).rows[entries[1].counter][0] += 1;
    result = co_await audit(cluster.client(), ledgers);
    CHECK(result.lost == 1);
    CHECK(result.duplicated == 1);
    CHECK(result.applied == 10 * num_shards - 1);

    LedgerSummary foreign;
    foreign.add({.cluster = cluster.client().view()->cluster + 1, .entries = entries}, "ledger");
    bool refused = false;
    try {
      co_await audit(cluster.client(), foreign);
    } catch (const Error& error) {
      refused = error.is(Errc::rejected);
    }
    CHECK(refused);

    ledgers.add(std::vector{LedgerEntry{.table = 99, .counter = 1}});
    bool missing = false;
    try {
      co_await audit(cluster.client(), ledgers);
    } catch (const Error& error) {
      missing = error.is(Errc::not_found);
    }
    CHECK(missing);
  });
}
