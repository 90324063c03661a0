#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/coordinator.hpp>
#include <hyperframes/apps/ps/cores.hpp>
#include <hyperframes/apps/ps/detail/retry.hpp>
#include <hyperframes/apps/ps/observation_log.hpp>
#include <hyperframes/apps/ps/parameter_shard.hpp>
#include <hyperframes/apps/ps/server_process.hpp>
#include <hyperframes/apps/ps/signal_watch.hpp>
#include <hyperframes/apps/ps/work_folder.hpp>
#include <hyperframes/runtime/address.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <map>
#include <memory>
#include <new>
#include <ps.fbs.hpp>
#include <vector>

namespace hyperframes::ps {
namespace {

constexpr Duration watch_span = 20s;
constexpr Duration retry_pause = 200ms;
constexpr Duration port_patience = 3s;
constexpr Duration port_pause = 50ms;
constexpr std::size_t descriptors_per_shard = 2;  // its log, and a snapshot
constexpr std::size_t descriptors_besides = 64;

bool is_wildcard(const net::Endpoint& endpoint) {
  const auto address = Address::parse(endpoint.host, endpoint.port);
  return address && address->is_unspecified();
}

bool is_loopback(const net::Endpoint& endpoint) {
  const auto address = Address::parse(endpoint.host, endpoint.port);
  return address ? address->is_loopback() : endpoint.host == "localhost";
}

/// Many systems start programs with 1024 and allow more to who asks.
void raise_file_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void require_descriptors(std::size_t shards) {
  rlimit limit{};
  const std::size_t needed = shards * descriptors_per_shard + descriptors_besides;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  throw Error(Errc::exhausted, fmt::format("own {} parameter shards", shards),
              fmt::format("this process may have {} files open, and needs about {}", limit.rlim_cur,
                          needed),
              fmt::format("raise the limit (ulimit -n {}), or start a new cluster with fewer "
                          "--num_shards or more --num_servers",
                          needed));
}

class Server {
 public:
  Server(ServerOptions options, Runtime& runtime, WorkFolder& folder, ServerProcess::Hooks hooks)
      : options_(std::move(options)),
        hooks_(std::move(hooks)),
        runtime_(runtime),
        folder_(folder),
        node_(runtime, {.name = folder.identity().name,
                        .network = network_options(),
                        .http_address = options_.http_addr}) {
    if (const auto page = node_.http_address(); !page.empty())
      log::info("shows what it does at http://" + page);
    for (unsigned i = 0; i < runtime.shard_count(); ++i)
      feeds_.push_back(std::make_unique<ViewFeed>());
  }

  Task<void> run() {
    const auto bound = co_await listen();
    endpoint_ = advertised(bound);
    Scope scope;
    if (coordinates()) co_await start_coordinator(scope);
    log::info(fmt::format("{} '{}' listens on {}{}", role(), node_.name(), bound.to_string(),
                          endpoint_ == bound.to_string() ? "" : ", reached as " + endpoint_));
    warn_of_loopback();
    if (options_.role == ServerRole::parameters) scope.spawn(serve());
    scope.spawn(wait_for_stop(scope));
    std::exception_ptr failure;
    try {
      co_await scope.join();
    } catch (...) {
      failure = std::current_exception();
    }
    co_await shielded(close());
    if (failure && !stop_.is_set()) std::rethrow_exception(failure);
  }

  void request_stop() noexcept { stop_.set(); }
  /// From a thread that is no shard.
  void log_report() const { log::info(node_.inspect_from_outside().to_string()); }

 private:
  bool coordinates() const noexcept { return options_.coordinator_addr.empty(); }
  const char* role() const noexcept {
    if (options_.role == ServerRole::coordinator) return "coordinator";
    return coordinates() ? "parameter server and coordinator" : "parameter server";
  }

  /// The kernel frees the port of a killed process a little after that is gone; the lock of the
  /// work folder shows that it is.
  Task<net::Endpoint> listen() {
    const Time limit = after(timing().scaled(port_patience));
    while (true) {
      try {
        co_return co_await node_.listen(options_.transport.endpoint(options_.listen));
      } catch (const Error& error) {
        if (error.code() != std::errc::address_in_use || Clock::now() >= limit) throw;
      }
      co_await sleep_for(port_pause);
    }
  }

  std::string advertised(const net::Endpoint& bound) const {
    if (options_.advertise_addr.empty()) return bound.to_string();
    auto endpoint = options_.transport.endpoint(options_.advertise_addr);
    if (endpoint.port == 0) endpoint.port = bound.port;
    return endpoint.to_string();
  }

  void warn_of_loopback() const {
    if (coordinates()) return;
    const auto coordinator = net::Endpoint::parse("tcp://" + options_.coordinator_addr);
    if (is_loopback(net::Endpoint::parse(endpoint_)) && !is_loopback(coordinator))
      log::warning(
          fmt::format("workers are told to reach this server at {}, which only this "
                      "host's can; the coordinator is at {}: give --listen or "
                      "--advertise_addr an address of this host that all can reach",
                      endpoint_, coordinator.to_string()));
  }

  net::Network::Options network_options() const {
    net::Network::Options network = options_.security.network();
    options_.transport.apply(network);
    network.node_id = folder_.identity().node_id;
    network.incarnation = folder_.incarnation();
    network.take_loans = false;  // ids are checked, logged and used, and must stay the same
    if (hooks_.network) hooks_.network(network);
    return network;
  }

  Task<void> start_coordinator(Scope& scope) {
    CoordinatorOptions coordinator;
    coordinator.path = folder_.path() + "/coordinator.db";
    coordinator.machine = &folder_.machine();
    co_await offload([this, path = coordinator.path] { require_database(path); });
    coordinator.num_shards = options_.num_shards;
    coordinator.num_servers = options_.num_servers;
    coordinator.staleness_bound = options_.staleness_bound;
    coordinator.heartbeat_timeout = std::chrono::seconds(options_.heartbeat_timeout_s);
    SpawnOptions spawn;
    spawn.name = coordinator_name;
    spawn.mailbox.messages = 16'384;
    const auto actor = co_await node_.spawn<Coordinator>(std::move(spawn), std::move(coordinator));
    scope.spawn(watch_over(actor, "the coordinator"));
    folder_.machine().say(
        fmt::format("coordinator {}\n", endpoint_.substr(endpoint_.find("//") + 2)));
  }

  /// A new database is a new cluster, which could not take in the data of this folder.
  void require_database(const std::string& path) const {
    if (folder_.cluster() == 0 || folder_.machine().size_of(path) >= 0) return;
    throw Error(Errc::not_found, "coordinate with the work folder '" + folder_.path() + "'",
                fmt::format("it holds data of cluster {:016x}, and no coordinator's database",
                            folder_.cluster()),
                "give --coordinator_addr if that cluster's coordinator runs elsewhere; restore "
                "coordinator.db if it was here; or choose another --workdir");
  }

  /// A process without an actor that it is there for must not look alive, with its lease renewed:
  /// it ends, and whoever supervises processes starts it anew.
  Task<void> watch_over(ActorRef actor, std::string what) {
    const Down down = co_await node_.join(actor);
    throw Error(Errc::actor_down, "keep " + what + " at work",
                fmt::format("it is given up ({}): {}", name(down.reason), down.text),
                "mend the cause, and start this process again: what was acknowledged is recovered");
  }

  Task<void> wait_for_stop(Scope& scope) {
    co_await stop_.wait();
    log::info("stopping");
    scope.cancel(Errc::shutting_down);
  }

  /// The coordinator shall know of the last records, so that it knows an older copy of them.
  Task<void> say_last_marks() {
    if (!recovered_ || !coordinator_) co_return;
    try {
      co_await with_deadline(renew_once(*coordinator_), after(timing().scaled(1s)));
    } catch (const Error&) {
      // It knows what it was told some seconds ago.
    }
  }

  Task<void> close() {
    co_await say_last_marks();
    const auto left = co_await node_.close(timing().default_deadline());
    for (const auto& name : left) log::warning("'" + name + "' had not ended and was destroyed");
    if (const auto advice = pool_advice(options_.transport, largest_batch_); !advice.empty())
      log::info(advice);
  }

  /// Calls `attempt` with the coordinator until it succeeds; says so now and then while it does
  /// not. Throws what trying again can't mend.
  template <class Attempt>
  auto with_coordinator(const char* what, Attempt attempt)
      -> std::invoke_result_t<Attempt&, protocol::Coordinator::Ref> {
    detail::Every said(5s);
    while (true) {
      std::string cause;
      try {
        if (!coordinator_) coordinator_ = co_await find_coordinator();
        co_return co_await attempt(*coordinator_);
      } catch (const Error& error) {
        if (!detail::worth_retrying(error)) throw;
        cause = error.what();
      }
      co_await yield();  // throws if it is this chain that was cancelled
      coordinator_.reset();
      if (said.due()) log::warning(fmt::format("{}: {}; trying again", what, cause));
      co_await sleep_for(retry_pause);
    }
  }

  Task<protocol::Coordinator::Ref> find_coordinator() {
    if (coordinates()) co_return node_.find<protocol::Coordinator>(coordinator_name).value();
    const auto endpoint = options_.transport.endpoint(options_.coordinator_addr);
    RemoteNode remote = co_await node_.connect(endpoint, within(detail::connect_span()));
    co_return co_await remote.find<protocol::Coordinator>(coordinator_name,
                                                          within(detail::connect_span()));
  }

  Task<protocol::ServerLease> join_once(protocol::Coordinator::Ref coordinator) {
    const Time sent = Clock::now();
    protocol::JoinServer::Fields fields;
    fields.name = folder_.identity().name;
    fields.node_id = folder_.identity().node_id;
    fields.incarnation = node_.network().incarnation();
    fields.endpoint = endpoint_;
    fields.cluster = folder_.cluster();
    fields.previous = folder_.previous_incarnation();
    fields.accept_loss = options_.accept_loss;
    protocol::ServerLease lease = co_await coordinator.join_server(fields);
    note(lease, sent);
    if (const std::uint64_t cluster = lease.cluster(); cluster != folder_.cluster())
      co_await offload([this, cluster] { folder_.set_cluster(cluster); });
    for (const auto& mark : lease.marks()) least_records_[mark.shard()] = mark.record();
    co_return lease;
  }

  Task<protocol::ServerLease> renew_once(protocol::Coordinator::Ref coordinator) {
    const Time sent = Clock::now();
    protocol::RenewLease::Fields fields;
    fields.node_id = folder_.identity().node_id;
    fields.incarnation = node_.network().incarnation();
    fields.recovered = recovered_;
    for (const auto& [shard, synced] : synced_records_)
      if (const auto record = synced.load(std::memory_order_relaxed); record != 0)
        fields.marks.push_back(protocol::ShardMark::Fields{.shard = shard, .record = record});
    protocol::ServerLease lease =
        co_await coordinator.renew_lease(fields, within(timing().scaled(2s)));
    note(lease, sent);
    co_return lease;
  }

  // The lease counts from when it was asked for: the coordinator's clock started no earlier.
  void note(const protocol::ServerLease& lease, Time sent) {
    if (!lease.granted())
      throw Error(Errc::rejected, "keep the lease of '" + folder_.identity().name + "'",
                  "a newer process has this name", "stop this one");
    lease_.extend_to(sent + std::chrono::milliseconds(lease.lease_ms()));
  }

  Task<void> serve() {
    co_await with_coordinator("join the coordinator",
                              [this](protocol::Coordinator::Ref ref) { return join_once(ref); });
    Scope scope;
    scope.spawn(keep_lease());
    scope.spawn(follow_view());
    scope.spawn(own_shards(scope));
    co_await scope.join();
  }

  Task<void> keep_lease() {
    while (true) {
      co_await sleep_for(timing().lease() / 3);
      co_await renew();
    }
  }

  Task<void> renew() {
    co_await with_coordinator(
        "renew the lease", [this](protocol::Coordinator::Ref ref) { return renew_or_join(ref); });
  }

  // A coordinator that was restarted may have forgotten who is up: joining again tells it.
  Task<protocol::ServerLease> renew_or_join(protocol::Coordinator::Ref coordinator) {
    bool unknown = false;
    try {
      co_return co_await renew_once(coordinator);
    } catch (const Error& error) {
      if (!error.is(Errc::not_found)) throw;
      unknown = true;
    }
    if (unknown) co_return co_await join_once(coordinator);
    co_return protocol::ServerLease(protocol::ServerLease::Fields());
  }

  Task<protocol::ClusterView> watch_once(protocol::Coordinator::Ref coordinator,
                                         std::uint64_t version) {
    protocol::WatchRequest::Fields fields;
    fields.known_version = version;
    co_return co_await coordinator.watch(fields, within(watch_span));
  }

  Task<void> follow_view() {
    std::uint64_t version = 0;
    while (true) {
      const protocol::ClusterView wire = co_await with_coordinator(
          "follow the cluster's view",
          [this, version](protocol::Coordinator::Ref ref) { return watch_once(ref, version); });
      check_successor(wire, version);
      if (wire.version() == version) continue;
      version = wire.version();
      co_await publish(std::make_shared<const ClusterView>(ClusterView::decode(wire)));
    }
  }

  /// A view that is no successor of the last one is of another database, or of an older copy.
  void check_successor(const protocol::ClusterView& view, std::uint64_t known_version) const {
    const std::string tried = "follow the cluster's view";
    if (view.cluster() != folder_.cluster())
      throw Error(Errc::rejected, tried,
                  fmt::format("the coordinator's database is of cluster {:016x}, and the data here "
                              "is of cluster {:016x}",
                              view.cluster(), folder_.cluster()),
                  "restore the coordinator's work folder, or begin anew with empty work folders");
    if (view.version() < known_version)
      throw Error(
          Errc::rejected, tried,
          fmt::format("it is at version {}, and was at {}: the coordinator's database is an "
                      "older copy",
                      view.version(), known_version),
          "start this server again to go on with that copy");
  }

  Task<void> publish(std::shared_ptr<const ClusterView> view) {
    if (!view->placement) co_return;  // shards start with the first map
    for (unsigned i = 0; i < runtime_.shard_count(); ++i) {
      ViewFeed* feed = feeds_[i].get();
      co_await call_on(runtime_.shard(i), [feed, view] { feed->publish(view); });
    }
  }

  Task<void> own_shards(Scope& scope) {
    const auto view = co_await feeds_[0]->newer_than(0);
    const auto shards = view->placement->shards_of(folder_.identity().node_id);
    log::info(fmt::format("owns {} of {} parameter shards under map version {}", shards.size(),
                          view->placement->shard_count(), view->placement->version()));
    if (shards.empty()) {
      log::warning(
          "there is nothing to own: the parameter shards were placed before this server "
          "joined; it can be stopped");
      co_return;
    }
    require_descriptors(shards.size());
    if (!options_.accept_loss) co_await offload([this, shards] { folder_.require_files(shards); });
    if (options_.durability != Durability::push)
      log::warning(fmt::format(
          "pushes are acknowledged before they are on disk (--durability {}): if this host loses "
          "power, what it acknowledged {} may be lost; the end of this process loses nothing",
          name(options_.durability),
          options_.durability == Durability::interval ? "in the last second"
                                                      : "since the last snapshot"));
    std::vector<Task<void>> starting;
    for (const ShardId shard : shards)
      starting.push_back(own_shard(shard, view->placement->token_of(shard), scope));
    co_await when_all(std::move(starting));
    recovered_ = true;
    co_await renew();
    log::info("all shards have recovered");
  }

  Task<void> own_shard(ShardId shard, std::uint64_t token, Scope& scope) {
    ShardOptions shard_options;
    shard_options.shard = shard;
    shard_options.token = token;
    shard_options.log_folder = folder_.shard_folder(shard);
    if (const auto known = least_records_.find(shard); known != least_records_.end())
      shard_options.least_record = known->second;
    shard_options.synced = &synced_records_[shard];
    shard_options.largest_batch = &largest_batch_;
    shard_options.begun = [folder = &folder_, shard] { return folder->begin_shard(shard); };
    const std::string checkpoints =
        options_.checkpoint_dir.empty() ? folder_.path() + "/checkpoints" : options_.checkpoint_dir;
    shard_options.snapshot_folder = fmt::format("{}/shard-{:04}", checkpoints, shard);
    shard_options.durability = options_.durability;
    shard_options.observer = hooks_.observer;
    shard_options.snapshot_interval = std::chrono::seconds(options_.checkpoint_interval_s);
    SpawnOptions spawn;
    spawn.name = fmt::format("ps/shard/{}", shard);
    spawn.shard = shard % runtime_.shard_count();
    // Long enough in sum (11 s) for a disk that is full for a while.
    spawn.restart = {.kind = Restart::permanent,
                     .intensity = 8,
                     .period = 120s,
                     .backoff_min = 50ms,
                     .backoff_max = 5s};
    spawn.mailbox.messages = 65'536;
    ViewFeed* feed = feeds_[spawn.shard].get();
    const Lease* lease = &lease_;
    const auto actor = co_await node_.spawn<ParameterShard>(std::move(spawn),
                                                            std::move(shard_options), feed, lease);
    scope.spawn(watch_over(actor, fmt::format("parameter shard {}", shard)));
  }

  ServerOptions options_;
  ServerProcess::Hooks hooks_;
  Runtime& runtime_;
  WorkFolder& folder_;
  std::vector<std::unique_ptr<ViewFeed>> feeds_;  // by core shard
  Lease lease_;
  bool recovered_ = false;                          // all shards
  std::map<ShardId, std::uint64_t> least_records_;  // that the logs must hold
  std::atomic<std::uint64_t> largest_batch_{0};
  std::map<ShardId, std::atomic<std::uint64_t>> synced_records_;  // that they hold for certain
  Node node_;
  std::string endpoint_;
  std::optional<protocol::Coordinator::Ref> coordinator_;
  Event stop_;
};

}  // namespace

struct ServerProcess::State final : Server {
  using Server::Server;
};

ServerProcess::ServerProcess(ServerOptions options, Runtime& runtime, WorkFolder& folder,
                             Hooks hooks)
    : state_(std::make_unique<State>(std::move(options), runtime, folder, std::move(hooks))) {}
ServerProcess::~ServerProcess() = default;
Task<void> ServerProcess::run() { return state_->run(); }
void ServerProcess::request_stop() noexcept { state_->request_stop(); }
void ServerProcess::log_report() const { state_->log_report(); }

void ServerOptions::check() const {
  const auto refuse = [](const std::string& found, const std::string& remedy) {
    throw Error(Errc::invalid_argument, "start the server", found, remedy);
  };
  if (role == ServerRole::coordinator && !coordinator_addr.empty())
    refuse("a coordinator has no --coordinator_addr: it is one itself",
           "leave that out, or choose --role ps");
  if (!coordinator_addr.empty())
    static_cast<void>(net::Endpoint::parse("tcp://" + coordinator_addr));
  const auto bound = net::Endpoint::parse("tcp://" + listen);
  const auto is_listen = [&](const std::string& address) {
    return bound.port != 0 && net::Endpoint::parse("tcp://" + address) == bound;
  };
  if (!coordinator_addr.empty() && is_listen(coordinator_addr))
    refuse("--listen and --coordinator_addr are both " + listen,
           "leave --coordinator_addr out, and this process coordinates; or give the address of the "
           "coordinator");
  if (!http_addr.empty() && is_listen(http_addr))
    refuse("--listen and --http_addr are both " + listen, "give them different ports");
  if (const auto count = cores.empty() ? threads : parse_cores(cores).size(); count < threads)
    refuse(fmt::format("--threads {} needs a core for each, and --cores {} has {}", threads, cores,
                       count),
           "give more cores, or fewer --threads");
  if (!advertise_addr.empty()) {
    if (is_wildcard(net::Endpoint::parse("tcp://" + advertise_addr)))
      refuse("nobody can connect to --advertise_addr " + advertise_addr,
             "give the address by which other hosts reach this one");
  } else if (role == ServerRole::parameters && is_wildcard(bound)) {
    refuse("--listen " + listen + " is all addresses of this host, of which workers need one",
           "add --advertise_addr HOST:PORT, by which they reach it, or listen on that one alone");
  }
}

int run_server(ServerOptions options) try {
  options.check();
  Runtime::Options runtime_options;
  runtime_options.shards = options.threads;
  runtime_options.pin_threads = bind_to_cores(options.cores, options.threads);
  raise_file_limit();
  WorkFolder folder(options.workdir, options.name);
  const auto observations = ObservationLog::from_environment();
  SignalWatch signals;
  Runtime runtime(runtime_options);
  ServerProcess server(std::move(options), runtime, folder,
                       {.network = {}, .observer = observations.get()});
  ServerProcess* const target = &server;
  const SignalWatch::Ending ending(signals);
  signals.start(
      [&runtime, target] {
        runtime.run([target](Runtime&) -> Task<void> {
          target->request_stop();
          co_return;
        });
      },
      [target] { target->log_report(); });
  runtime.run([target](Runtime&) { return target->run(); });
  return 0;
} catch (const std::bad_alloc&) {
  log::error("run the server: memory is used up; give the process more, or own fewer shards in it");
  return 1;
} catch (const std::exception& error) {
  log::error(error.what());
  return 1;
}

}  // namespace hyperframes::ps
