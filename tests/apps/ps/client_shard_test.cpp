// Clients and parameter shards, both as they are shipped, on simulated machines whose network,
// disks and processes fail: to a client it must look as if nothing had.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/coordinator.hpp>
#include <hyperframes/apps/ps/parameter_shard.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <numeric>
#include <random>
#include <vector>

using namespace hyperframes;
using namespace hyperframes::ps;

namespace {

constexpr std::uint32_t job = 1;
constexpr std::uint64_t steps = 40;

/// Shows the view, and does nothing else: nobody joins or leaves here.
class ShowsView final : public protocol::Coordinator::Actor {
 public:
  explicit ShowsView(const ClusterView* view) : view_(view) {}

 private:
  template <class Answer>
  static Task<void> refuse(Reply<Answer> reply) {
    reply.fail(Error(Errc::unsupported, "ask the coordinator", "it only shows the view"));
    co_return;
  }
  Task<void> started() override {
    start(answer_now_and_then());
    co_return;
  }
  Task<void> answer_now_and_then() {
    while (true) {
      co_await sleep_for(2s);
      for (auto& reply : std::exchange(waiting_, {})) reply.send(view_->encode());
    }
  }
  Task<void> watch(protocol::WatchRequest request, Reply<protocol::ClusterView> reply) override {
    if (request.known_version() == view_->version) {
      waiting_.push_back(std::move(reply));
    } else {
      reply.send(view_->encode());
    }
    co_return;
  }
  Task<void> join_server(protocol::JoinServer, Reply<protocol::ServerLease> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> renew_lease(protocol::RenewLease, Reply<protocol::ServerLease> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> create_tables(protocol::CreateTables, Reply<protocol::ClusterView> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> open_job(protocol::OpenJob, Reply<protocol::JobTerms> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> lease_unit(protocol::LeaseUnit, Reply<protocol::UnitLease> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> finish_unit(protocol::FinishUnit, Reply<protocol::UnitLease> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> progress(protocol::WorkerProgress, Reply<protocol::WorkerOrders> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> leave_job(protocol::LeaveJob, Reply<protocol::Nothing> reply) override {
    return refuse(std::move(reply));
  }
  Task<void> status(protocol::Nothing, Reply<protocol::ClusterStatus> reply) override {
    return refuse(std::move(reply));
  }

  const ClusterView* view_;
  std::vector<Reply<protocol::ClusterView>> waiting_;
};

struct Process {
  Process(SimNode& machine, SimWorld& world) : node(machine.runtime(), options(machine, world)) {
    lease.extend_to(Time::max());
  }
  static Node::Options options(SimNode& machine, SimWorld& world) {
    net::Network::Options network;
    network.node_id = 20 + machine.index();
    network.incarnation = machine.incarnation();
    network.boot_id = machine.name();
    network.insecure = true;
    auto* random = &world.random();
    network.random = [random](std::span<std::byte> bytes) {
      for (auto& byte : bytes) byte = static_cast<std::byte>(random->next());
    };
    return {.name = machine.name(), .network = std::move(network)};
  }
  ViewFeed feed;
  Lease lease;
  Node node;  // last: its actors use what stands above
};

/// A coordinator that never fails, two servers that do, and the machine of two workers.
class Cluster {
 public:
  explicit Cluster(std::uint64_t seed) : world({.seed = seed}) {
    log::set_sink([](log::Level, std::string_view) {});
    for (const char* name : {"coordinator", "left", "right", "workers"})
      world.add_node({.name = name});
    const NodeId owners[] = {21, 22};
    view.version = 1;
    view.placement = PlacementMap::first(4, owners);
    view.staleness_bound = 1;
    view.workers = {{.worker = 1, .job = job}, {.worker = 2, .job = job}};
    TableSpec spec;
    spec.id = 1;
    spec.name = "t";
    spec.width = 3;
    spec.initializer = InitializerKind::normal;
    spec.initializer_scale = 0.5f;
    view.tables = {spec};
    for (const unsigned server : {1u, 2u})
      view.servers.push_back({.node_id = 20 + server,
                              .name = world.node(server).name(),
                              .endpoint = endpoint(server).to_string(),
                              .incarnation = 1});
    auto& coordinator = world.node(0).emplace<Process>(world.node(0), world);
    world.run(world.node(0), 0, [&](Runtime&) { return coordinate(&coordinator); });
    for (const unsigned server : {1u, 2u}) start_server(server);
    workers = &world.node(3).emplace<Process>(world.node(3), world).node;
  }
  ~Cluster() { log::set_sink({}); }

  net::Endpoint endpoint(unsigned machine) {
    return net::Endpoint::parse("tcp://" + world.node(machine).address().host() + ":6000");
  }

  /// Something fails every now and then, until `over` is set.
  void fail_from_now_on() {
    SimRandom& random = world.random();
    world.after(random.between(Duration(50ms), Duration(1s)), [this] {
      if (over) return;
      strike();
      fail_from_now_on();
    });
  }

  SimWorld world;
  ClusterView view;
  Node* workers = nullptr;
  bool over = false;
  unsigned strikes = 0;

 private:
  Task<void> coordinate(Process* process) {
    co_await process->node.spawn<ShowsView>(coordinator_name, &view);
    co_await process->node.listen(endpoint(0));
  }
  void start_server(unsigned server) {
    auto& process = world.node(server).emplace<Process>(world.node(server), world);
    world.start(world.node(server), 0,
                [this, &process, server](Runtime&) { return serve(&process, server); });
  }
  Task<void> serve(Process* process, unsigned server) {
    process->feed.publish(std::make_shared<const ClusterView>(view));
    for (const ShardId shard : view.placement->shards_of(20 + server)) {
      ShardOptions options;
      options.shard = shard;
      options.log_folder = "/w/shard-" + std::to_string(shard);
      options.snapshot_folder = "/w/checkpoints/shard-" + std::to_string(shard);
      options.snapshot_interval = 1s;
      SpawnOptions spawn{.name = "ps/shard/" + std::to_string(shard)};
      spawn.restart = {.kind = Restart::permanent, .intensity = 100, .period = 60s};
      co_await process->node.spawn<ParameterShard>(std::move(spawn), std::move(options),
                                                   &process->feed, &process->lease);
    }
    co_await process->node.listen(endpoint(server));
  }

  void strike() {
    SimRandom& random = world.random();
    const unsigned server = 1 + static_cast<unsigned>(random.below(2));
    SimNode& machine = world.node(server);
    if (!machine.is_up()) return bring_back(server);  // it went down at a disk operation
    ++strikes;
    switch (random.below(6)) {
      case 0: machine.crash(SimCrash::kill()); break;
      case 1: machine.crash(SimCrash::power_cut()); break;
      case 2: machine.crash_at_disk_operation(1 + random.below(20)); break;
      case 3: world.network().reset_any(); break;
      case 4: machine.disk().fail_next(Operation::Kind::sync, EIO, "segment"); break;
      default: {
        world.network().partition(machine, world.node(3));
        world.after(random.between(Duration(100ms), Duration(6s)),
                    [this] { world.network().heal(); });
      }
    }
    world.after(400ms, [this, server] { bring_back(server); });
  }
  void bring_back(unsigned server) {
    if (world.node(server).is_up()) return;
    world.node(server).restart();
    start_server(server);
  }
};

/// One worker's pushes, and what its rows must be after each of them: nobody else touches them.
class Worker {
 public:
  Worker(Cluster& cluster, std::uint32_t number)
      : cluster_(cluster),
        number_(number),
        spec_(cluster.view.tables[0]),
        expected_(spec_, all_slots()),
        random_(number) {}

  Task<void> run() {
    client_ = std::make_unique<PsClient>(*cluster_.workers,
                                         PsClient::Options{.coordinator = cluster_.endpoint(0)});
    co_await client_->start();
    for (std::uint64_t step = 0; step < steps; ++step) {
      client_->set_clock(PsClient::WorkerClock{job, number_, step});
      co_await train(step);
    }
    client_->set_clock(PsClient::WorkerClock{job, number_, steps});
  }
  /// Every push counted once, and the rows are what they would be without failures.
  Task<void> check() {
    auto ones = co_await client_->pull(spec_, counters_);
    for (std::size_t i = 0; i < ones.size(); i += spec_.width) wrong_ += ones[i] != 1;
    std::vector<std::uint64_t> ids(100);
    std::iota(ids.begin(), ids.end(), std::uint64_t{number_} * 1000);
    auto rows = co_await client_->pull(spec_, ids);
    wrong_ += rows != expected(ids);
    co_await client_->close();
    client_.reset();
  }
  std::size_t wrong() const noexcept { return wrong_; }
  std::size_t messages() const noexcept { return counters_.size(); }

 private:
  static std::vector<Slot> all_slots() {
    std::vector<Slot> slots(slot_count);
    std::iota(slots.begin(), slots.end(), Slot{0});
    return slots;
  }
  std::vector<float> expected(const std::vector<std::uint64_t>& ids) const {
    std::vector<float> rows(ids.size() * spec_.width);
    expected_.pull(std::as_bytes(std::span(ids)), std::as_writable_bytes(std::span(rows)));
    return rows;
  }

  Task<void> train(std::uint64_t step) {
    std::vector<std::uint64_t> all(100), ids;
    std::iota(all.begin(), all.end(), std::uint64_t{number_} * 1000);
    std::ranges::sample(all, std::back_inserter(ids), 20, random_);
    auto rows = co_await client_->pull(spec_, ids, step);
    wrong_ += rows != expected(ids);
    co_await sleep_for(100ms);  // as if there were much to compute
    std::normal_distribution<float> normal;
    std::vector<float> gradients(rows.size());
    for (auto& gradient : gradients) gradient = normal(random_);
    const auto key = PushKey::leased(0, number_, static_cast<std::uint32_t>(step));
    expected_.apply({.key = key,
                     .width = spec_.width,
                     .count = static_cast<std::uint32_t>(ids.size()),
                     .ids = reinterpret_cast<const std::byte*>(ids.data()),
                     .values = reinterpret_cast<const std::byte*>(gradients.data())});
    auto push = co_await client_->prepare_push(spec_, key, ids, gradients);
    for (const auto& message : push.messages()) counters_.push_back(message.counter);
    co_await client_->push(std::move(push), step);
  }

  Cluster& cluster_;
  std::uint32_t number_;
  TableSpec spec_;
  TableState expected_;
  std::mt19937_64 random_;
  std::unique_ptr<PsClient> client_;
  std::vector<std::uint64_t> counters_;
  std::size_t wrong_ = 0;
};

Task<void> run_both(Worker* left, Worker* right) {
  std::vector<Task<void>> tasks;
  tasks.push_back(left->run());
  tasks.push_back(right->run());
  co_await when_all(std::move(tasks));
  co_await left->check();
  co_await right->check();
}

void survive(std::uint64_t seed) {
  INFO("seed " << seed);
  Cluster cluster(seed);
  Worker left(cluster, 1), right(cluster, 2);
  cluster.fail_from_now_on();
  auto running = cluster.world.start(cluster.world.node(3), 0,
                                     [&](Runtime&) { return run_both(&left, &right); });
  const bool ended = cluster.world.run_until([&] { return running.done(); }, 3600s);
  cluster.over = true;
  INFO(cluster.strikes << " strikes");
  REQUIRE(ended);
  running.take();
  CHECK(cluster.strikes > 0);
  CHECK(left.messages() >= 4 * steps / 2);
  CHECK(left.wrong() + right.wrong() == 0);
}

}  // namespace

TEST_CASE("whatever fails on the way, each push counts once and each pull sees those before it") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) survive(seed);
}

TEST_CASE("whatever fails in a hundred worlds, each push counts once", "[long]") {
  const auto seed = std::random_device{}();
  for (std::uint64_t world = 0; world < 100; ++world) survive(seed + world);
}
