#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/audit.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/server_process.hpp>
#include <hyperframes/apps/ps/work_folder.hpp>
#include <hyperframes/apps/ps/worker_process.hpp>
#include <hyperframes/apps/sim/detail/machine.hpp>
#include <hyperframes/apps/sim/detail/ps_checker.hpp>
#include <hyperframes/apps/sim/detail/scenarios.hpp>
#include <hyperframes/apps/sim/detail/stage.hpp>
#include <hyperframes/apps/sim/detail/training_data.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/sleep.hpp>

namespace hyperframes::sim::detail {
namespace {

constexpr unsigned coordinator = 0, first_server = 1, servers = 3, first_worker = 4, workers = 2,
                   auditor = 6;
constexpr unsigned shards = 6;
constexpr unsigned staleness_bound = 2;
constexpr Duration think = 850ms;
constexpr Duration completion_limit = 180s;
constexpr Duration recovery_limit = 30s;
const std::string ledger_path = "/ps/ledger";

const std::vector<std::string> names = {"coordinator", "ps-0",     "ps-1",   "ps-2",
                                        "worker-0",    "worker-1", "auditor"};

/// All that the code throws at: places where an actor or a process must be able to end.
const std::vector<std::string> failpoints = {"table-push=throw",
                                             "table-push=error:3",
                                             "log-before-write=error:2",
                                             "log-after-write=error",
                                             "log-after-sync=throw:2",
                                             "snapshot-before-rename=error",
                                             "snapshot-after-rename=throw",
                                             "coordinator-heartbeat=throw",
                                             "worker-before-push=throw",
                                             "worker-after-push=error"};

FaultMenu any_faults() {
  using enum FaultKind;
  const std::vector<unsigned> ps = {1, 2, 3}, stores = {0, 1, 2, 3}, both_workers = {4, 5},
                              all = {0, 1, 2, 3, 4, 5};
  FaultMenu menu;
  menu.from = 3s;
  menu.until = 58s;
  menu.early = 3;
  menu.least = 30;
  menu.most = 42;
  menu.dishes = {
      {.kind = kill, .weight = 6, .nodes = all, .least = 100ms, .most = 12s},
      {.kind = power_cut, .weight = 8, .nodes = stores, .least = 100ms, .most = 12s},
      {.kind = power_cut, .weight = 2, .nodes = both_workers, .least = 100ms, .most = 20s},
      {.kind = power_cut_at, .weight = 6, .nodes = stores, .amount_most = 60},
      {.kind = kill_at, .weight = 3, .nodes = all, .amount_most = 60},
      {.kind = pause, .weight = 5, .nodes = all, .least = 50ms, .most = 25s},
      {.kind = partition, .weight = 4, .nodes = all, .least = 50ms, .most = 15s, .any_pair = true},
      {.kind = one_way, .weight = 4, .nodes = all, .least = 50ms, .most = 15s, .any_pair = true},
      {.kind = isolate, .weight = 3, .nodes = all, .least = 50ms, .most = 15s},
      {.kind = reset, .weight = 4, .nodes = all, .any_pair = true},
      {.kind = reset_burst, .weight = 2, .least = 100ms, .most = 4s},
      {.kind = loss, .weight = 2, .least = 100ms, .most = 8s, .amount_least = 1, .amount_most = 20},
      {.kind = delay,
       .weight = 2,
       .least = 100ms,
       .most = 8s,
       .amount_least = 1,
       .amount_most = 20},
      {.kind = refuse, .weight = 1, .least = 1s, .most = 8s, .amount_least = 10, .amount_most = 80},
      {.kind = reply_lost,
       .weight = 5,
       .nodes = {coordinator},
       .least = 20ms,
       .most = 3s,
       .others = {1, 2, 3, 4, 5}},
      {.kind = slow_disk, .weight = 3, .nodes = stores, .least = 500ms, .most = 12s},
      {.kind = full_disk,
       .weight = 2,
       .nodes = stores,
       .least = 500ms,
       .most = 6s,
       .amount_most = 5000},
      {.kind = sync_error, .weight = 3, .nodes = stores, .amount_least = 1, .amount_most = 3},
      {.kind = write_error, .weight = 3, .nodes = stores, .amount_least = 1, .amount_most = 3},
      {.kind = clock_jump, .weight = 2, .nodes = all, .least = 100ms, .most = 15s},
      {.kind = calendar_back, .weight = 1, .nodes = stores, .least = 1s, .most = 3600s},
      {.kind = code_throws, .weight = 5, .least = 1s, .most = 6s, .amount_most = 9},
      {.kind = no_memory, .weight = 2, .least = 50ms, .most = 3s},
  };
  return menu;
}

/// Power that fails in the middle of what is being written, and disks that fail.
FaultMenu disk_faults() {
  using enum FaultKind;
  const std::vector<unsigned> stores = {0, 1, 2, 3}, with_workers = {0, 1, 2, 3, 4, 5};
  FaultMenu menu;
  menu.from = 2s;
  menu.until = 58s;
  menu.early = 3;
  menu.least = 34;
  menu.most = 46;
  menu.dishes = {
      {.kind = power_cut, .weight = 8, .nodes = with_workers, .least = 50ms, .most = 3s},
      {.kind = power_cut_at, .weight = 20, .nodes = stores, .amount_most = 80},
      {.kind = kill_at, .weight = 5, .nodes = with_workers, .amount_most = 80},
      {.kind = slow_disk, .weight = 3, .nodes = stores, .least = 500ms, .most = 12s},
      {.kind = full_disk,
       .weight = 3,
       .nodes = stores,
       .least = 500ms,
       .most = 6s,
       .amount_most = 5000},
      {.kind = sync_error, .weight = 4, .nodes = with_workers, .amount_least = 1, .amount_most = 3},
      {.kind = write_error, .weight = 4, .nodes = stores, .amount_least = 1, .amount_most = 3},
      {.kind = calendar_back, .weight = 1, .nodes = stores, .least = 1s, .most = 3600s},
  };
  return menu;
}

std::function<void(net::Network::Options&)> network_of(SimNode& node, SimMachine& machine) {
  return [&node, &machine](net::Network::Options& network) {
    network.boot_id = node.name();
    network.insecure = true;
    network.random = [&machine](std::span<std::byte> into) {
      for (auto& byte : into) byte = static_cast<std::byte>(machine.random().next());
    };
  };
}

/// What a process stands on. It outlives that, as calls that were begun may end after it.
struct Ground {
  Ground(SimNode& node, std::uint64_t seed, Duration calendar, PsChecker& checker)
      : machine(node, seed, calendar, {}),
        observer(checker, {node.index(), node.incarnation(), node.name()}) {}
  SimMachine machine;
  CheckedProcess observer;
};

/// A process of the coordinator or of a parameter server.
struct ServerOn {
  ServerOn(SimNode& node, Ground& ground, ps::ServerOptions options)
      : folder(options.workdir, options.name, ground.machine),
        server(std::move(options), node.runtime(), folder,
               {network_of(node, ground.machine), &ground.observer}) {}
  ps::WorkFolder folder;
  ps::ServerProcess server;
};

/// A process of a worker or of the auditor.
struct ClientOn {
  ClientOn(SimNode& on, Ground& ground) : ground(ground), node(on.runtime(), options(on)) {}
  Node::Options options(SimNode& on) {
    net::Network::Options network;
    network.incarnation = ground.machine.calendar_ns();
    network_of(on, ground.machine)(network);
    return {.name = on.name(), .network = std::move(network)};
  }
  Ground& ground;
  Node node;
};

class Cluster final : public Stage {
 public:
  Cluster(const RunOptions& options, FaultMenu menu)
      : Stage(options, {.names = names, .menu = std::move(menu), .failpoints = failpoints}),
        checker_(staleness_bound, [this](std::string text) { violate(std::move(text)); }),
        calendars_(names.size(), Duration(0)),
        done_(names.size(), false) {
    world().network().default_link() = {200us, 400us, 125'000'000};
  }
  ~Cluster() override { close(); }

  void play() {
    start();
    run_for(storm_end());
    mend();
    if (!run_until([this] { return all_done(); }, completion_limit, "the job")) return;
    audit("when the job was done");
    lose_all_power();
    audit("when all servers had lost their power");
  }
  /// Without workers.
  void rest(Duration span) {
    idle_ = true;
    start();
    run_for(span);
    for (unsigned index = 0; index < names.size(); ++index)
      if (node(index).incarnation() != 1) violate(names[index] + " did not stay up");
    if (checker_.pulls() + checker_.pushes() != 0) violate("somebody works");
  }
  RunReport finish() {
    RunReport& out = report();
    out.operations = checker_.pulls() + checker_.acknowledgements();
    out.counts = {{"pulls answered", checker_.pulls()},
                  {"pushes applied", checker_.pushes()},
                  {"pushes sent again", checker_.duplicates()},
                  {"pushes acknowledged", checker_.acknowledgements()},
                  {"shards recovered", checker_.recoveries()}};
    return take_report();
  }

 private:
  bool all_done() const {
    return std::all_of(done_.begin() + first_worker, done_.begin() + first_worker + workers,
                       [](bool done) { return done; });
  }
  bool is_recovering(unsigned server) {
    return checker_.opened_by(server, node(server).incarnation()) < shards / servers;
  }
  std::string address_of_coordinator() {
    return fmt::format("{}:6000", node(coordinator).address().host());
  }

  // ---- Processes

  Ground& new_ground(unsigned index) {
    return grounds_.emplace_back(node(index), world().seed(), calendars_[index], checker_);
  }
  void boot(unsigned index) override {
    if (index < first_worker) return boot_server(index);
    auto& process = node(index).emplace<ClientOn>(node(index), new_ground(index));
    if (index == auditor) auditor_ = &process;
    if (index == auditor && idle_)
      world().start(node(index), 0, [this, &process](Runtime&) { return look_on(&process); });
    if (index == auditor || idle_) return;
    world().start(node(index), 0,
                  [this, &process, index](Runtime&) { return work(&process, index); });
  }

  void boot_server(unsigned index) {
    ps::ServerOptions options;
    options.role = index == coordinator ? ps::ServerRole::coordinator : ps::ServerRole::parameters;
    options.workdir = "/ps";
    options.name = names[index];
    options.listen = fmt::format("{}:6000", node(index).address().host());
    if (index != coordinator) options.coordinator_addr = address_of_coordinator();
    options.num_shards = index == coordinator ? shards : 0;
    options.num_servers = servers;
    options.staleness_bound = staleness_bound;
    options.heartbeat_timeout_s = 8;
    options.checkpoint_interval_s = 11;
    options.check();
    auto& process = make_server(index, std::move(options));
    world().start(node(index), 0,
                  [this, &process, index](Runtime&) { return serve(&process, index); });
  }

  ServerOn& make_server(unsigned index, ps::ServerOptions options) try {
    return node(index).emplace<ServerOn>(node(index), new_ground(index), std::move(options));
  } catch (const Error& error) {
    check_end(index, error);
    throw;
  }

  Task<void> serve(ServerOn* process, unsigned index) {
    std::string why;
    try {
      co_await process->server.run();
    } catch (const Error& error) {
      why = error.what();
      check_end(index, error);
    } catch (const std::exception& error) {
      why = error.what();
    }
    process_ended(index, why);
  }

  /// Whatever crashes leave, no process must need a human to start again.
  void check_end(unsigned index, const Error& error) {
    for (const Errc code : {Errc::corrupt, Errc::rejected, Errc::fenced, Errc::version_mismatch,
                            Errc::already_exists, Errc::not_found})
      if (error.is(code)) violate(fmt::format("{} can't go on: {}", names[index], error.what()));
  }

  Task<void> work(ClientOn* process, unsigned index) {
    ps::WorkerOptions options;
    options.coordinator_addr = address_of_coordinator();
    options.data_dir = "/data";
    options.name = names[index];
    options.job = "sim";
    options.ledger = ledger_path;
    options.batch_size = TrainingShape::batch_size;
    options.unit_batches = TrainingShape::unit_batches;
    options.epochs = TrainingShape::epochs;
    std::string why;
    bool done = false;
    try {
      process->ground.machine.make_directories("/ps");
      ps::WorkerProcess worker(std::move(options), training_model(), process->node,
                               {.source = training_data(),
                                .think = think,
                                .observer = &process->ground.observer,
                                .machine = &process->ground.machine});
      done = !co_await worker.run();
    } catch (const std::exception& error) {
      why = error.what();
    }
    done_[index] = done_[index] || done;
    process_ended(index, why, done);
  }

  Task<void> look_on(ClientOn* process) {
    ps::PsClient client(process->node,
                        {.coordinator = net::Endpoint::parse("tcp://" + address_of_coordinator())});
    co_await client.start();
    co_await sleep_for(3600s);
  }

  void calendar_set_back(unsigned index, Duration by) override { calendars_[index] -= by; }

  std::string state(const Fault&) override {
    if (checker_.pulls() == 0) return "starting";
    if (!node(coordinator).is_up()) return "coordinator down";
    for (unsigned i = first_server; i < first_worker; ++i)
      if (!node(i).is_up()) return "server down";
    for (unsigned i = first_server; i < first_worker; ++i)
      if (is_recovering(i)) return "recovering";
    for (unsigned i = first_worker; i < auditor; ++i)
      if (!node(i).is_up() && !done_[i]) return "worker down";
    return "training";
  }

  // ---- The end

  /// By what the shipped audit says of the workers' ledgers.
  void audit(const char* when) {
    if (violated()) return;
    ps::LedgerSummary ledgers;
    for (unsigned i = first_worker; i < auditor; ++i) {
      const std::string text = node(i).disk().contents(ledger_path).value_or("");
      const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
      const auto contents = ps::parse_ledger(bytes, ledger_path);
      if (contents.cluster != 0) ledgers.add(contents, names[i]);
    }
    auto pending = world().start(node(auditor), 0, [this, ledgers](Runtime&) {
      return audit_with(auditor_, address_of_coordinator(), ledgers);
    });
    if (!run_until([&] { return pending.done(); }, recovery_limit, "the audit")) return;
    const ps::AuditResult result = pending.take();
    report().counts["pushes audited"] = result.acknowledged + result.in_doubt;
    if (!result.clean())
      violate(fmt::format("the audit {}: {}", when, ps::describe(result.findings.front())));
  }
  static Task<ps::AuditResult> audit_with(ClientOn* process, std::string address,
                                          ps::LedgerSummary ledgers) {
    ps::PsClient client(process->node, {.coordinator = net::Endpoint::parse("tcp://" + address)});
    co_await client.start();
    auto result = co_await ps::audit(client, std::move(ledgers));
    co_await client.close();
    co_return result;
  }

  void lose_all_power() {
    if (violated()) return;
    note("all servers lose their power");
    for (unsigned i = coordinator; i < first_worker; ++i)
      if (node(i).is_up()) node(i).crash(SimCrash::power_cut());
    run_for(3s);
    const auto recovered = [this] {
      for (unsigned i = first_server; i < first_worker; ++i)
        if (!node(i).is_up() || is_recovering(i)) return false;
      return true;
    };
    run_until(recovered, recovery_limit, "the recovery of all servers");
  }

  PsChecker checker_;
  std::deque<Ground> grounds_;  // of all processes that were
  std::vector<Duration> calendars_;
  std::vector<bool> done_;
  ClientOn* auditor_ = nullptr;
  bool idle_ = false;
};

const std::vector<std::string> ps_invariants = {
    "each acknowledged push is there after every recovery",
    "each push is applied at most once",
    "no pull is answered beyond the staleness bound",
    "fencing tokens only grow, and one owner's pushes are taken under each",
    "no server or coordinator needs help to go on with what it has left",
    "the job ends within 180 s after the last fault",
    "the ledgers' audit is clean, also after all servers lost their power"};

class ParameterServer final : public Scenario {
 public:
  ParameterServer(std::string name, std::string summary, FaultMenu (*menu)())
      : name_(std::move(name)), summary_(std::move(summary)), menu_(menu) {}

 private:
  std::string name() const override { return name_; }
  std::string summary() const override { return summary_; }
  std::vector<std::string> invariants() const override { return ps_invariants; }
  std::vector<FaultKind> kinds() const override { return kinds_of(menu_()); }
  std::vector<std::string> states() const override {
    return {"starting", "training", "coordinator down", "server down", "recovering", "worker down"};
  }
  RunReport run(const RunOptions& options) const override {
    Cluster cluster(options, menu_());
    cluster.play();
    return cluster.finish();
  }

  std::string name_, summary_;
  FaultMenu (*menu_)();
};

/// Nothing to do and nothing that fails: what time costs.
class Idle final : public Scenario {
  std::string name() const override { return "idle"; }
  std::string summary() const override {
    return "a coordinator, 3 parameter servers and a client with nothing to do, for 100 s";
  }
  std::vector<std::string> invariants() const override {
    return {"everybody stays up, and nobody works"};
  }
  std::vector<FaultKind> kinds() const override { return {}; }
  std::vector<std::string> states() const override { return {}; }
  RunReport run(const RunOptions& options) const override {
    Cluster cluster(options, FaultMenu{.least = 0, .most = 0});
    cluster.rest(100s);
    return cluster.finish();
  }
};

}  // namespace

std::unique_ptr<const Scenario> make_parameter_server() {
  return std::make_unique<ParameterServer>(
      "parameter_server", "a job of 2 workers on 3 parameter servers and a coordinator",
      &any_faults);
}
std::unique_ptr<const Scenario> make_power_loss() {
  return std::make_unique<ParameterServer>(
      "power_loss", "the same job while power and disks fail, in the middle of writes",
      &disk_faults);
}
std::unique_ptr<const Scenario> make_idle() { return std::make_unique<Idle>(); }

}  // namespace hyperframes::sim::detail
