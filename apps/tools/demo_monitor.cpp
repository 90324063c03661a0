#include <hyperframes/apps/tools/demo_monitor.hpp>
//
#include <algorithm>
#include <atomic>
#include <cmath>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <map>
#include <mutex>
#include <ps.fbs.hpp>
#include <span>
#include <thread>

namespace hyperframes::tools {
namespace {

namespace protocol = ps::protocol;

constexpr Duration usual_pause = 200ms;
constexpr Duration recovery_pause = 4ms;
constexpr Duration patience = 2s;  // for one answer
constexpr double rate_span_s = .4;

void throw_if_cancelled(const Error& error) {
  if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) throw error;
}

/// A server's shards, as far as they are found.
struct Connection {
  std::uint64_t incarnation = 0;
  std::vector<protocol::ParameterShard::Ref> shards;
};

struct WatchedServer {
  std::uint64_t node_id = 0;
  std::string endpoint;
  std::uint64_t coordinator_incarnation = 0;
  ServerReading reading;
  std::uint64_t seen_incarnation = 0;  // of the process that `reading` is of
  std::uint64_t rate_pushes = 0;       // what the rate is counted from
  Time rate_time = {};
  std::optional<Time> killed;  // awaiting its recovery
  std::uint64_t killed_incarnation = 0;
  std::optional<Duration> recovery;
};

}  // namespace

class ClusterMonitor::Core {
 public:
  explicit Core(std::string coordinator_addr)
      : coordinator_(net::Endpoint::parse(coordinator_addr)),
        runtime_({.shards = 1}),
        node_(runtime_, {.name = "monitor", .network = net::Network::Options{}}),
        thread_([this] { watch(); }) {}

  ~Core() {
    stopping_ = true;
    thread_.join();
    try {
      runtime_.run([this](Runtime&) -> Task<void> { co_await node_.close(200ms); });
    } catch (const std::exception&) {
      // A peer that does not answer any more can't be taken leave of.
    }
  }

  ClusterReading reading() const {
    const std::lock_guard lock(mutex_);
    ClusterReading copy = reading_;
    for (const auto& [name, server] : servers_) copy.servers.push_back(server.reading);
    return copy;
  }

  void watch_job(std::string name) {
    const std::lock_guard lock(mutex_);
    job_ = std::move(name);
    reading_.job.reset();
  }

  void expect_recovery(const std::string& name) {
    const std::lock_guard lock(mutex_);
    WatchedServer& server = servers_[name];
    server.killed = Clock::read_system();
    server.killed_incarnation = server.seen_incarnation;
    server.recovery.reset();
  }

  std::optional<Duration> recovery_time(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = servers_.find(name);
    return found == servers_.end() ? std::nullopt : found->second.recovery;
  }

 private:
  void watch() {
    try {
      runtime_.run([this](Runtime&) -> Task<void> { return watch_cluster(); });
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      reading_.coordinator_reachable = false;
      reading_.coordinator_error = error.what();
    }
  }

  Task<void> watch_cluster() {
    Scope scope;
    std::vector<std::string> watched;
    while (!stopping_) {
      try {
        co_await ask_coordinator();
      } catch (const Error& error) {
        throw_if_cancelled(error);
        const std::lock_guard lock(mutex_);
        reading_.coordinator_reachable = false;
        reading_.coordinator_error = error.what();
      }
      for (const std::string& name : names()) {
        if (std::find(watched.begin(), watched.end(), name) != watched.end()) continue;
        watched.push_back(name);
        scope.spawn(watch_server(name));
      }
      co_await sleep_for(awaits_recovery() ? 2 * recovery_pause : usual_pause / 2);
    }
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const Error&) {
      // It was told to end.
    }
  }

  // ---- The coordinator
  // ---------------------------------------------------------------------------

  Task<void> ask_coordinator() {
    RemoteNode remote = co_await node_.connect(coordinator_, within(patience));
    auto coordinator =
        co_await remote.find<protocol::Coordinator>("ps/coordinator", within(patience));
    const protocol::ClusterStatus status = co_await coordinator.status({}, within(patience));
    const std::lock_guard lock(mutex_);
    reading_.coordinator_reachable = true;
    reading_.coordinator_error.clear();
    if (status.view() != nullptr) adopt_view(*status.view());
    adopt_job(status);
  }

  void adopt_view(const protocol::fb::ClusterView& view) {
    reading_.placed = false;
    if (view.placement() != nullptr && view.placement()->size() != 0) {
      placement_ = ps::PlacementMap::decode(
          std::as_bytes(std::span(view.placement()->data(), view.placement()->size())));
      reading_.placed = true;
    }
    if (view.servers() == nullptr) return;
    for (const auto* info : *view.servers()) {
      WatchedServer& server = servers_[info->name()->str()];
      server.reading.name = info->name()->str();
      server.node_id = info->node_id();
      server.endpoint = info->endpoint()->str();
      server.coordinator_incarnation = info->incarnation();
    }
  }

  void adopt_job(const protocol::ClusterStatus& status) {
    if (status.jobs() == nullptr) return;
    for (const auto* job : *status.jobs()) {
      if (job->name() == nullptr || job->name()->str() != job_) continue;
      JobReading reading = {.samples = job->samples(),
                            .samples_done = job->samples_done(),
                            .finished = job->finished(),
                            .workers = {}};
      adopt_workers(status, job->job(), reading);
      reading_.job = std::move(reading);
    }
  }

  void adopt_workers(const protocol::ClusterStatus& status, std::uint32_t job,
                     JobReading& reading) {
    double loss = 0;
    double auc = 0;
    double losses = 0;
    double aucs = 0;
    if (status.workers() != nullptr) {
      for (const auto* worker : *status.workers()) {
        if (worker->job() != job) continue;
        reading.workers.push_back({worker->name() != nullptr ? worker->name()->str() : "",
                                   worker->clock(),
                                   worker->waiting() != nullptr ? worker->waiting()->str() : ""});
        const auto weight = static_cast<double>(worker->samples());
        if (weight == 0) continue;
        loss += weight * worker->loss();
        losses += weight;
        if (std::isnan(worker->auc())) continue;
        auc += weight * worker->auc();
        aucs += weight;
      }
    }
    reading.loss = losses > 0 ? loss / losses : std::nan("");
    reading.auc = aucs > 0 ? auc / aucs : std::nan("");
  }

  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [name, server] : servers_) all.push_back(name);
    return all;
  }

  bool awaits_recovery() const {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, server] : servers_)
      if (server.killed) return true;
    return false;
  }

  // ---- Servers
  // -----------------------------------------------------------------------------------

  Task<void> watch_server(std::string name) {
    Connection connection;
    while (true) {
      try {
        co_await ask_server(name, connection);
      } catch (const Error& error) {
        throw_if_cancelled(error);
        connection = {};
        const std::lock_guard lock(mutex_);
        servers_[name].reading.reachable = false;
      }
      bool hurry = false;
      {
        const std::lock_guard lock(mutex_);
        hurry = servers_[name].killed.has_value();
      }
      co_await sleep_for(hurry ? recovery_pause : usual_pause);
    }
  }

  // Where it is now; the coordinator knows after each restart.
  struct Place {
    std::string endpoint;
    std::vector<ps::ShardId> shards;
  };
  Place place_of(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const WatchedServer& server = servers_.at(name);
    Place place{server.endpoint, {}};
    if (placement_) place.shards = placement_->shards_of(server.node_id);
    return place;
  }

  Task<void> ask_server(std::string name, Connection& connection) {
    const Place place = place_of(name);
    RemoteNode remote =
        co_await node_.connect(net::Endpoint::parse(place.endpoint), within(patience));
    if (connection.incarnation != remote.incarnation() ||
        connection.shards.size() != place.shards.size()) {
      connection = {.incarnation = remote.incarnation(), .shards = {}};
      for (const ps::ShardId shard : place.shards) {
        auto found = co_await remote.find<protocol::ParameterShard>(
            "ps/shard/" + std::to_string(shard), within(patience));
        connection.shards.push_back(found);
      }
    }
    ServerReading sum{.name = name, .reachable = true, .shards = connection.shards.size()};
    for (const auto& shard : connection.shards) {
      const protocol::ShardStatus status = co_await shard.status({}, within(patience));
      sum.rows += status.rows();
      sum.pushes += status.acknowledged();
      sum.log_bytes += status.log_bytes();
      sum.replay_ms = std::max(sum.replay_ms, status.recovery_ms());
    }
    adopt_server(name, connection.incarnation, std::move(sum));
  }

  void adopt_server(const std::string& name, std::uint64_t incarnation, ServerReading sum) {
    const Time now = Clock::read_system();
    const std::lock_guard lock(mutex_);
    WatchedServer& server = servers_[name];
    const double seconds = std::chrono::duration<double>(now - server.rate_time).count();
    const bool same = server.seen_incarnation == incarnation && sum.pushes >= server.rate_pushes;
    sum.pushes_per_s = same ? server.reading.pushes_per_s : 0;
    if (same && seconds >= rate_span_s)
      sum.pushes_per_s = static_cast<double>(sum.pushes - server.rate_pushes) / seconds;
    if (!same || seconds >= rate_span_s) {
      server.rate_pushes = sum.pushes;
      server.rate_time = now;
    }
    server.seen_incarnation = incarnation;
    if (server.killed && incarnation != server.killed_incarnation && sum.pushes > 0) {
      server.recovery = now - *server.killed;
      server.killed.reset();
    }
    server.reading = std::move(sum);
  }

  const net::Endpoint coordinator_;
  mutable std::mutex mutex_;
  ClusterReading reading_;  // without its servers
  std::map<std::string, WatchedServer> servers_;
  std::optional<ps::PlacementMap> placement_;
  std::string job_;
  std::atomic<bool> stopping_{false};
  Runtime runtime_;
  Node node_;
  std::thread thread_;
};

ClusterMonitor::ClusterMonitor(std::string coordinator_addr)
    : core_(std::make_unique<Core>(std::move(coordinator_addr))) {}
ClusterMonitor::~ClusterMonitor() = default;
ClusterReading ClusterMonitor::reading() const { return core_->reading(); }
void ClusterMonitor::watch_job(std::string name) { core_->watch_job(std::move(name)); }
void ClusterMonitor::expect_recovery(const std::string& server) { core_->expect_recovery(server); }
std::optional<Duration> ClusterMonitor::recovery_time(const std::string& server) const {
  return core_->recovery_time(server);
}

}  // namespace hyperframes::tools
