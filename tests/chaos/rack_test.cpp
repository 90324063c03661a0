// A cluster on a rack of hosts (rack.hpp), struck with what its seed has planned: cut links, lost
// packets, frozen and killed processes, full disks. Each round is a job, which must end soon after
// the last fault has; an episode is some rounds of one cluster. What all processes saw is checked
// by the simulator's checker, what the ledgers say by the audit.
//
// HYPERFRAMES_SEED repeats the choices of a run, HYPERFRAMES_ROUNDS has the long one do so many.
#include "rack.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <hyperframes/apps/ps/observation_log.hpp>
#include <hyperframes/apps/sim/detail/ps_checker.hpp>
#include <hyperframes/apps/sim/fault.hpp>
#include <iostream>
#include <random>

#include "processes.hpp"

namespace hyperframes::tools {
namespace {

using sim::Fault;
using sim::FaultKind;

constexpr unsigned coordinator = 0, first_server = 1, first_worker = 3, hosts = 5;
constexpr unsigned staleness_bound = 2;
constexpr std::uint32_t epochs = 2;
constexpr unsigned rounds_an_episode = 12;
constexpr unsigned disk_mib = 32;
constexpr Duration full_progress = 1s;  // what stands for the whole job in the times of a plan
const std::vector<std::string> names = {"coordinator", "ps-0", "ps-1", "worker-0", "worker-1"};

// The named places where a process may be killed, and how often they are passed before that.
struct Place {
  const char* name;
  unsigned most;
};
constexpr std::array<Place, 6> places_of_servers = {{{"log-before-write", 60},
                                                     {"log-after-write", 60},
                                                     {"log-after-sync", 60},
                                                     {"push-before-answer", 60},
                                                     {"snapshot-before-rename", 4},
                                                     {"snapshot-after-rename", 4}}};
constexpr std::array<Place, 2> places_of_workers = {
    {{"worker-before-push", 30}, {"worker-after-push", 30}}};
constexpr std::array<Place, 1> places_of_coordinators = {{{"coordinator-heartbeat", 3}}};

std::span<const Place> places_of(unsigned node) {
  if (node == coordinator) return places_of_coordinators;
  if (node < first_worker) return places_of_servers;
  return places_of_workers;
}

/// What may strike a job. The longer pauses outlast every time-out, a server's lease too.
sim::FaultMenu menu() {
  using enum FaultKind;
  const std::vector<unsigned> all = {0, 1, 2, 3, 4}, stores = {0, 1, 2};
  const Duration lease = timing().lease();
  sim::FaultMenu menu;
  menu.from = 0s;
  menu.until = full_progress * 3 / 4;
  menu.least = 1;
  menu.most = 3;
  menu.nodes = hosts;
  menu.dishes = {
      {.kind = kill, .weight = 5, .nodes = all, .least = 20ms, .most = 20ms},
      {.kind = kill_at, .weight = 6, .nodes = all, .amount_most = 1'000'000},
      {.kind = pause, .weight = 4, .nodes = all, .least = 100ms, .most = 5s},
      {.kind = pause, .weight = 1, .nodes = all, .least = lease + 1s, .most = lease + 3s},
      {.kind = partition, .weight = 4, .nodes = all, .least = 100ms, .most = 6s, .any_pair = true},
      {.kind = one_way,
       .weight = 5,
       .nodes = all,
       .least = 100ms,
       .most = 6s,
       .amount_most = 1,
       .any_pair = true},
      {.kind = isolate, .weight = 4, .nodes = all, .least = 100ms, .most = 6s},
      {.kind = loss, .weight = 3, .least = 500ms, .most = 4s, .amount_least = 1, .amount_most = 30},
      {.kind = full_disk,
       .weight = 3,
       .nodes = stores,
       .least = 500ms,
       .most = 5s,
       .amount_most = 4'000},
  };
  return menu;
}

/// Where, and at which passage, by its amount.
std::pair<const char*, std::uint64_t> place_of(const Fault& fault) {
  const auto places = places_of(fault.node);
  const Place& place = places[fault.amount % places.size()];
  return {place.name, 1 + fault.amount / places.size() % place.most};
}

std::string text_of(const Fault& fault) {
  if (fault.kind != FaultKind::kill_at) return sim::effect_of(fault, names);
  const auto [place, passage] = place_of(fault);
  return fmt::format("kill {}, and again at {}, passage {}", names[fault.node], place, passage);
}

/// What many rounds came to.
struct Verdict {
  unsigned rounds = 0;
  std::map<std::string, unsigned> faults{};
  std::uint64_t acknowledged = 0, lost = 0, duplicated = 0, in_doubt = 0;
  std::uint64_t pulls = 0, pushes = 0, sent_again = 0, recoveries = 0;  // that the checker saw
  Duration longest_wait{}, longest_end{};
  std::vector<std::string> violations{};

  std::string text() const {
    const auto seconds = [](Duration span) {
      return fmt::format("{:.2f} s", std::chrono::duration<double>(span).count());
    };
    unsigned struck = 0;
    std::string kinds;
    for (const auto& [kind, count] : faults) {
      struck += count;
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, kind);
    }
    std::string table;
    const auto line = [&](std::string_view what, const std::string& value) {
      table += fmt::format("{:<47} {}\n", what, value);
    };
    line("rounds", std::to_string(rounds));
    line("faults", fmt::format("{}: {}", struck, kinds));
    line("pushes acknowledged", std::to_string(acknowledged));
    line("of those lost, counted twice, in doubt",
         fmt::format("{}, {}, {}", lost, duplicated, in_doubt));
    line("checked: pulls, pushes, sent again",
         fmt::format("{}, {}, {}", pulls, pushes, sent_again));
    line("checked: shards recovered", std::to_string(recoveries));
    line("longest from a fault's end to a push", seconds(longest_wait));
    line("longest from the last fault's end to the job's", seconds(longest_end));
    line("broken promises", std::to_string(violations.size()));
    return table;
  }
};

/// A cluster of which each process has a host, and each store a disk, of its own.
class RackCluster {
 public:
  /// `planted`: a fault in the code of all processes, "NAME=plant".
  explicit RackCluster(Verdict& verdict, bool encrypted = false, std::string planted = {})
      : verdict_(verdict), planted_(std::move(planted)) {
    for (const std::string& name : names) hosts_.push_back(&rack_.add_host(name));
    for (unsigned node = coordinator; node < first_worker; ++node)
      disks_.emplace_back(scene_.path(names[node]), disk_mib);
    std::ofstream(scene_.path("key")) << "a secret of more than sixteen bytes\n";
    security_ = encrypted ? Arguments{"--key_file", scene_.path("key")} : Arguments{"--insecure"};
    keeper().on_start = [this](Process& process) { note_start(process); };
    keeper().on_end = [this](Process& process, const ProcessEnd& end) { note_end(process, end); };
    scene_.training();
    address_ = address_of(coordinator);
    processes_.resize(hosts);
    for (unsigned node = coordinator; node < first_worker; ++node) start_server(node);
  }
  ~RackCluster() {
    keeper().on_start = nullptr;
    keeper().on_end = nullptr;
    keeper().stop_all(timing().scaled(5s));  // before its disks go
  }

  /// Trains a job through the faults, and has it audited.
  void run_round(const std::vector<Fault>& plan) {
    ++round_;
    ++verdict_.rounds;
    start_workers();
    wait_for("the first push", [&] { return progress() > 0; });
    Time last_strike = {};
    auto next = plan.begin();
    while (next != plan.end() || !standing_.empty()) {
      keeper().step(10ms);
      mend(Clock::read_system());
      if (next == plan.end()) continue;
      const bool overdue = next != plan.begin() && Clock::read_system() > last_strike + 1s;
      if (!overdue && progress() < share_of(*next)) continue;
      strike(*next++);
      last_strike = Clock::read_system();
    }
    const Time mended = Clock::read_system();
    wait_for("the job's end", [&] { return workers_done(); });
    const Time end = Clock::read_system();
    verdict_.longest_end = std::max(verdict_.longest_end, end - mended);
    for (Mended& each : mended_)
      if (each.job_end == Time()) each.job_end = end;
    check_round();
  }

  /// Ends it, and checks what its processes saw.
  void finish() {
    for (unsigned node = hosts; node-- > 0;) {
      keeper().stop(*processes_[node], timing().scaled(60s));
      if (!processes_[node]->ends().back().succeeded())
        violate(names[node] + " did not end in order: " + processes_[node]->ends().back().text());
    }
    std::vector<sim::detail::ObservedNode> nodes;
    for (unsigned node = first_server; node < hosts; ++node)
      nodes.push_back({names[node], ps::read_observations(seen_by(node))});
    sim::detail::PsChecker checker(staleness_bound,
                                   [this](const std::string& text) { violate(text); });
    sim::detail::check_observations(nodes, checker);
    verdict_.pulls += checker.pulls();
    verdict_.pushes += checker.pushes();
    verdict_.sent_again += checker.duplicates();
    verdict_.recoveries += checker.recoveries();
    note_waits(nodes);
  }

 private:
  struct Standing {
    Fault fault;
    Time until;
    std::string cut;
  };
  struct Mended {
    Time at{}, job_end{};
  };
  ProcessKeeper& keeper() { return scene_.keeper(); }
  std::string address_of(unsigned node) const { return hosts_[node]->address + ":6000"; }
  std::string seen_by(unsigned node) const { return scene_.path(names[node] + ".seen"); }
  void violate(std::string text) {
    if (verdict_.violations.size() < 100)
      verdict_.violations.push_back(fmt::format("by round {}: {}", verdict_.rounds, text));
  }

  // ---- Processes

  More more_for(unsigned node, Arguments arguments) {
    arguments.insert(arguments.end(), security_.begin(), security_.end());
    std::vector<std::pair<std::string, std::string>> environment = {
        {"HYPERFRAMES_OBSERVATIONS", seen_by(node)}};
    if (!planted_.empty()) environment.emplace_back("HYPERFRAMES_FAILPOINT", planted_);
    return {.arguments = std::move(arguments),
            .environment = std::move(environment),
            .restart = Processes::always,
            .within = rack_.within(*hosts_[node])};
  }

  void start_server(unsigned node) {
    Arguments arguments = {"--listen", address_of(node), "--checkpoint_interval", "1"};
    const Arguments more = node == coordinator
                               ? Arguments{"--role",
                                           "coordinator",
                                           "--num_servers",
                                           "2",
                                           "--num_shards",
                                           "4",
                                           "--staleness_bound",
                                           std::to_string(staleness_bound),
                                           "--heartbeat_timeout",
                                           "2"}
                               : Arguments{"--name", names[node], "--coordinator_addr", address_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    processes_[node] = &scene_.start_server(names[node], more_for(node, std::move(arguments)));
  }

  void start_workers() {
    ledgers_.clear();
    for (unsigned node = first_worker; node < hosts; ++node) {
      const std::string name = fmt::format("{}-round-{}", names[node], round_);
      More more = more_for(
          node, {"--job", fmt::format("round-{}", round_), "--epochs", std::to_string(epochs)});
      more.restart.when = RestartPolicy::When::on_failure;
      processes_[node] = &scene_.start_worker(name, address_, std::move(more));
      ledgers_.push_back(scene_.path(name + ".ledger"));
    }
  }
  bool workers_done() const {
    return std::all_of(processes_.begin() + first_worker, processes_.end(),
                       [](const Process* worker) { return worker->done(); });
  }

  unsigned node_of(const Process& process) const {
    for (unsigned node = 0; node < hosts; ++node)
      if (process.name().starts_with(names[node])) return node;
    return hosts;
  }
  // A failpoint is armed for one start.
  void note_start(Process& process) {
    if (node_of(process) < hosts)
      keeper().set_environment(process, "HYPERFRAMES_FAILPOINT", planted_);
  }
  // Only SIGKILL is ours, and a full disk may end what writes there: whatever else ends a process
  // is a fault of its own.
  void note_end(Process& process, const ProcessEnd& end) {
    const unsigned node = node_of(process);
    if (node == hosts || end.succeeded() || end.signal == SIGKILL) return;
    if (end.signal == 0 && disks_filled_.contains(node)) return;
    violate(process.name() + " " + end.text() + "\n" + process.log_tail(8));
  }

  /// As long as the job goes on, however slow this machine is, there is hope.
  template <class Condition>
  void wait_for(const std::string& what, Condition condition) {
    std::uint64_t reached = 0;
    Time limit{};
    while (!condition()) {
      const Time now = Clock::read_system();
      if (const auto here = progress(); here > reached || limit == Time()) {
        reached = here;
        limit = now + timing().scaled(60s);
      }
      if (now >= limit) FAIL("nothing moves, and no sign of " << what << "; " << all_tails());
      keeper().step(20ms);
    }
  }
  std::string all_tails() const {
    std::string tails = story_ + "\n";
    for (const Process* process : processes_)
      if (process) tails += "==== " + process->name() + "\n" + process->log_tail(12);
    return tails;
  }

  // ---- The job

  /// In per mille of the round's job.
  std::uint64_t progress() {
    if (workers_done()) return 1000;
    std::set<Processes::Batch> found;
    for (const auto& ledger : ledgers_) {
      std::error_code none;
      if (std::filesystem::file_size(ledger, none) <= ps::Ledger::header_bytes || none) continue;
      found.merge(Processes::acknowledged_in(std::array{ledger}));
    }
    return found.size() * 1000 / Processes::batches_of(scene_.job(epochs)).size();
  }
  static std::uint64_t share_of(const Fault& fault) {
    return static_cast<std::uint64_t>(fault.at * 1000 / full_progress);
  }

  void check_round() {
    const auto wanted = Processes::batches_of(scene_.job(epochs));
    const auto found = Processes::acknowledged_in(ledgers_);
    if (found != wanted)
      violate(fmt::format("{} of {} batches were acknowledged, and the job ended", found.size(),
                          wanted.size()));
    Arguments more = security_;
    if (security_.front() == "--insecure") more.clear();
    const AuditOutcome audit = scene_.audit(address_, more, rack_.beside());
    verdict_.lost += audit.lost - lost_;
    verdict_.duplicated += audit.duplicated - duplicated_;
    verdict_.acknowledged += audit.acknowledged - acknowledged_;
    verdict_.in_doubt += audit.in_doubt - in_doubt_;
    if (audit.lost > lost_ || audit.duplicated > duplicated_)
      violate(fmt::format("the audit: {} lost, {} counted twice", audit.lost - lost_,
                          audit.duplicated - duplicated_));
    lost_ = audit.lost;
    duplicated_ = audit.duplicated;
    acknowledged_ = audit.acknowledged;
    in_doubt_ = audit.in_doubt;
    disks_filled_.clear();
    story_.clear();
  }

  // ---- Faults

  void strike(const Fault& fault) {
    ++verdict_.faults[std::string(sim::name(fault.kind))];
    story_ +=
        fmt::format("{}at {} %: {}", story_.empty() ? "" : "; ", progress() / 10, text_of(fault));
    Standing standing = {fault, Clock::read_system() + fault.span, fmt::format("cut{}", ++cuts_)};
    const Rack::Host& host = *hosts_[fault.node];
    const Rack::Host& other = *hosts_[fault.other];
    Process& process = *processes_[fault.node];
    switch (fault.kind) {
      using enum FaultKind;
      case kill: keeper().kill(process, SIGKILL); break;
      case kill_at: kill_at_place(fault); break;
      case pause: keeper().kill(process, SIGSTOP); break;
      case partition:
        rack_.cut(standing.cut, host, {Rack::drop_from(other), Rack::drop_to(other)});
        break;
      case one_way:
        if (fault.amount == 0)
          rack_.cut(standing.cut, host, {Rack::drop_to(other)});
        else
          rack_.cut(standing.cut, other, {Rack::drop_from(host)});
        break;
      case isolate:
        rack_.cut(standing.cut, host, {Rack::drop_all_in(), Rack::drop_all_out()});
        break;
      case loss:
        for (const Rack::Host* each : hosts_)
          rack_.cut(standing.cut, *each, {Rack::lose_in(static_cast<unsigned>(fault.amount))});
        break;
      case full_disk:
        disks_filled_.insert(fault.node);
        disks_[fault.node].fill(fault.amount);
        break;
      default: FAIL("no fault of the rack: " << text_of(fault));
    }
    standing_.push_back(std::move(standing));
  }

  void kill_at_place(const Fault& fault) {
    const auto [place, passage] = place_of(fault);
    Process& process = *processes_[fault.node];
    keeper().set_environment(
        process, "HYPERFRAMES_FAILPOINT",
        fmt::format("{}=kill:{}", place, passage) + (planted_.empty() ? "" : "," + planted_));
    keeper().kill(process, SIGKILL);
  }

  void mend(Time now) {
    std::erase_if(standing_, [&](const Standing& standing) {
      if (standing.until > now) return false;
      mend(standing);
      mended_.push_back({.at = Clock::read_system()});
      return true;
    });
  }
  void mend(const Standing& standing) {
    const Fault& fault = standing.fault;
    switch (fault.kind) {
      using enum FaultKind;
      case pause: keeper().kill(*processes_[fault.node], SIGCONT); break;
      case full_disk: disks_[fault.node].free(); break;
      default: rack_.mend(standing.cut);
    }
  }

  /// How long after each fault's end the job's next push was acknowledged.
  void note_waits(std::span<const sim::detail::ObservedNode> nodes) {
    for (const Mended& mended : mended_) {
      Time first = mended.job_end;
      for (const auto& node : nodes)
        for (const auto& each : node.observations)
          if (const Time time{Duration(each.time_ns)};
              each.kind == ps::Observation::Kind::acknowledged && time >= mended.at)
            first = std::min(first, time);
      if (first != mended.job_end)
        verdict_.longest_wait = std::max(verdict_.longest_wait, first - mended.at);
    }
  }

  Verdict& verdict_;
  std::string planted_;
  Processes scene_;
  Rack rack_;
  std::vector<LoopDisk> disks_;
  std::vector<const Rack::Host*> hosts_;
  Arguments security_;
  std::string address_;
  std::vector<Process*> processes_;   // by node
  std::vector<std::string> ledgers_;  // of the round
  std::vector<Standing> standing_;
  std::vector<Mended> mended_;
  std::set<unsigned> disks_filled_;  // in this round
  std::string story_;                // of the round
  unsigned round_ = 0, cuts_ = 0;
  std::uint64_t acknowledged_ = 0, lost_ = 0, duplicated_ = 0, in_doubt_ = 0;
};

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void say(const std::string& line) { std::cout << line << std::endl; }

std::string text_of(const std::vector<Fault>& plan) {
  std::string text;
  for (const Fault& fault : plan) text += (text.empty() ? "" : "; ") + text_of(fault);
  return text;
}

/// `first`: the first round's plan, in place of its seed's.
void run_rounds(unsigned rounds, std::vector<Fault> first = {}) {
  if (const std::string why = Rack::why_not(); !why.empty()) SKIP(why);
  const std::uint64_t seed = number_from("HYPERFRAMES_SEED", std::random_device()());
  const std::string repeat = fmt::format("HYPERFRAMES_SEED={} HYPERFRAMES_ROUNDS={}", seed, rounds);
  say(repeat);
  Verdict verdict;
  const Time begin = Clock::read_system();
  while (verdict.rounds < rounds && verdict.violations.empty()) {
    const bool encrypted = verdict.rounds / rounds_an_episode % 2 == 1;
    RackCluster cluster(verdict, encrypted);
    for (unsigned round = 0; round < rounds_an_episode && verdict.rounds < rounds; ++round) {
      auto plan = std::exchange(first, {});
      if (plan.empty()) plan = sim::make_plan(seed + verdict.rounds, menu());
      const double passed = std::chrono::duration<double>(Clock::read_system() - begin).count();
      const std::string progress =
          fmt::format("round {} of {}: {}", verdict.rounds + 1, rounds, text_of(plan));
      say(fmt::format("{:5.0f} s, {:6} pushes; {}", passed, verdict.acknowledged, progress));
      INFO(repeat << ", " << progress);
      cluster.run_round(plan);
    }
    cluster.finish();
  }
  std::cout << verdict.text() << std::flush;
  INFO(repeat);
  for (const std::string& violation : verdict.violations) FAIL_CHECK(violation);
  CHECK(verdict.acknowledged > 0);
  CHECK(verdict.lost == 0);
  CHECK(verdict.duplicated == 0);
  CHECK(verdict.pushes > 0);
}

/// What one round finds with a fault in the code.
Verdict find_planted(const std::string& planted, const std::vector<Fault>& plan) {
  if (const std::string why = Rack::why_not(); !why.empty()) SKIP(why);
  Verdict verdict;
  RackCluster cluster(verdict, false, planted);
  cluster.run_round(plan);
  cluster.finish();
  for (const std::string& violation : verdict.violations) UNSCOPED_INFO(violation);
  return verdict;
}

TEST_CASE("a cluster on a rack of hosts outlives cut links, frozen and killed processes",
          "[plain]") {
  run_rounds(4, {{.kind = FaultKind::pause,
                  .at = full_progress / 5,
                  .span = timing().lease() + 2s,
                  .node = first_server}});
}

TEST_CASE("240 rounds on a rack of hosts break no promise", "[long]") {
  run_rounds(static_cast<unsigned>(number_from("HYPERFRAMES_ROUNDS", 240)));
}

// The fifth push of its next life is durable and not answered when the server is killed: it is sent
// again.
TEST_CASE("a recovery that forgets what it had applied is found on the rack", "[plain]") {
  const auto place = std::ranges::find(places_of_servers, std::string("push-before-answer"),
                                       [](const Place& each) { return std::string(each.name); });
  const auto index = static_cast<std::uint64_t>(place - places_of_servers.begin());
  const Verdict verdict = find_planted("keys-lost-on-recovery=plant",
                                       {{.kind = FaultKind::kill_at,
                                         .at = full_progress / 5,
                                         .node = first_server,
                                         .amount = index + 4 * places_of_servers.size()}});
  CHECK(verdict.duplicated > 0);
  CHECK(std::ranges::any_of(verdict.violations, [](const std::string& violation) {
    return contains(violation, "counts 2 times");
  }));
}

// While one worker stands still, shorter than until it is given up, the other goes as far as it
// may: if this machine is not too busy just then.
TEST_CASE("a staleness bound that is one too high is found on the rack", "[plain]") {
  const std::vector<Fault> plan = {
      {.kind = FaultKind::pause, .at = full_progress / 5, .span = 1s, .node = first_worker}};
  bool found = false;
  for (int round = 0; round < 5 && !found; ++round) {
    const Verdict verdict = find_planted("staleness-over-bound=plant", plan);
    found = std::ranges::any_of(verdict.violations, [](const std::string& violation) {
      return contains(violation, "and the staleness bound is");
    });
    CHECK(verdict.lost + verdict.duplicated == 0);
  }
  CHECK(found);
}

/// With a disk, and a process on a host of it, whose id goes to `said`. Until it is killed, by the
/// end of the test too.
[[noreturn]] void own_a_rack(Processes& scene, int said) try {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Rack rack;
  const Rack::Host& host = rack.add_host("host");
  const LoopDisk disk(scene.path("disk"), 16);
  ProcessKeeper keeper;
  Arguments command = rack.within(host);
  command.insert(command.end(), {"sh", "-c", "echo up; exec sleep 600"});
  const Process& process =
      keeper.start({.name = "sleep", .command = command, .output = scene.path("said")});
  while (process.output().empty()) keeper.step(10ms);
  const pid_t sleeper = process.pid();
  static_cast<void>(::write(said, &sleeper, sizeof sleeper));
  while (true) ::pause();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  ::_exit(1);
}

TEST_CASE("a rack whose process is killed leaves no process, namespace or mount", "[plain]") {
  if (const std::string why = Rack::why_not(); !why.empty()) SKIP(why);
  Processes scene;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t owner = ::fork();
  if (owner == 0) own_a_rack(scene, ends[1]);
  ::close(ends[1]);
  pid_t sleeper = 0;
  REQUIRE(::read(ends[0], &sleeper, sizeof sleeper) == sizeof sleeper);
  const auto network_of = [](const std::string& process) {
    std::error_code gone;
    return std::filesystem::read_symlink("/proc/" + process + "/ns/net", gone).string();
  };
  const std::string network = network_of(std::to_string(sleeper));
  const std::string loop = "losetup --associated " + scene.path("disk.disk");
  CHECK(network != network_of("self"));
  CHECK_FALSE(run_shell(loop).text.empty());
  CHECK(run_shell("findmnt " + scene.path("disk")).status != 0);  // it is not seen from here
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  scene.wait_for("the end of all processes there", [&] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc"))
      if (network_of(entry.path().filename().string()) == network) return false;
    return true;
  });
  scene.wait_for("the end of its disk", [&] { return run_shell(loop).text.empty(); });
}

}  // namespace
}  // namespace hyperframes::tools
