// Servers of a training cluster are killed again and again, at random moments and at named points
// of their code, while workers train on it; nothing that was acknowledged may be lost or count
// twice. HYPERFRAMES_SEED repeats a run's choices.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/tools/demo_cluster.hpp>
#include <hyperframes/apps/tools/demo_monitor.hpp>
#include <hyperframes/apps/tools/demo_report.hpp>
#include <hyperframes/apps/tools/process.hpp>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "../apps/tools/synthetic_ratings.hpp"
#include "processes.hpp"

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

// For what must come, but has no promised time: only a broken server lets it pass.
Time patience() { return Clock::read_system() + timing().scaled(90s); }

// Before and after each step by which a push becomes durable, and a snapshot the current one.
constexpr std::array failpoints = {"log-before-write",       "log-after-write",
                                   "log-after-sync",         "push-before-answer",
                                   "snapshot-before-rename", "snapshot-after-rename"};

constexpr const char* model = R"(
model: factorization_machine
latent: 8
epochs: 10
fields:
  - {name: user, l2: 0.02, l2_latent: 0.01}
  - {name: movie, l2: 0.01, l2_latent: 0.1}
  - {name: genres, separator: "|", l2: 0.01, l2_latent: 0.02}
)";

/// A cluster under load, and what befalls it.
class Chaos {
 public:
  explicit Chaos(std::uint64_t seed) : random_(seed) {
    std::string name = (parent_folder() / "hyperframes-chaos-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    const RestartPolicy restart = {
        .when = RestartPolicy::When::always, .delay = 20ms, .limit = 1000, .period = 1s};
    cluster_ = std::make_unique<ClusterProcesses>(
        ClusterOptions{.folder = folder_,
                       .programs = HYPERFRAMES_PROGRAMS,
                       .shards = 8,
                       .checkpoint_interval_s = 1,
                       .restart = restart,
                       .worker_restart = {.when = RestartPolicy::When::on_failure,
                                          .delay = 20ms,
                                          .limit = 1000,
                                          .period = 1s}},
        keeper_);
    keeper_.on_end = [this](Process& process, const ProcessEnd& end) { note_end(process, end); };
  }
  ~Chaos() {
    monitor_.reset();
    keeper_.on_end = nullptr;
    keeper_.stop_all();
    if (passed_) fs::remove_all(folder_);
  }

  /// Data, coordinator, servers and workers; returns once they train.
  void start() {
    write_synthetic_ratings(folder_ / "ratings.csv", 4'000, 7);
    std::ofstream(folder_ / "model.yaml") << model;
    Process& data =
        cluster_->start_tool("movielens", {"movielens", "--out", (folder_ / "data").string(),
                                           "--csv", (folder_ / "ratings.csv").string()});
    wait_for("the data", [&] { return data.done(); });
    REQUIRE(data.ends().back().succeeded());
    cluster_->start();
    monitor_ = std::make_unique<ClusterMonitor>(cluster_->coordinator_addr());
    monitor_->watch_job("chaos");
    workers_ = cluster_->start_workers({.job = "chaos",
                                        .data = folder_ / "data/random/training",
                                        .model = folder_ / "model.yaml",
                                        .batch_size = 64,
                                        .epochs = 10'000});
    wait_for("the first samples", [&] { return samples_done() > 0; });
  }

  /// One kill or more of a server, each followed by its recovery under load.
  void run_round() {
    pass_time(below(400));
    switch (below(6)) {
      case 0: return kill_at_failpoint();
      case 1: return kill_twice();
      case 2: return kill_both();
      case 3: return kill_with_a_worker();
      case 4: return kill_with_the_coordinator();
      default: return kill({random_server()});
    }
  }

  AuditOutcome audit() {
    Process& process = cluster_->start_audit(fmt::format("audit-{}", ++audits_));
    wait_for("the audit", [&] { return process.done(); });
    INFO(process.log_tail());
    return parse_audit(process.output(), "the audit");
  }

  void stop_training() {
    for (Process* worker : workers_) keeper_.stop(*worker, timing().scaled(10s));
  }
  std::uint64_t samples_done() const {
    const ClusterReading reading = monitor_->reading();
    return reading.job ? reading.job->samples_done : 0;
  }
  std::size_t kills() const { return kills_; }
  const std::vector<std::string>& accidents() const { return accidents_; }
  std::string story() const { return fmt::format("work folder {}; {}", folder_.string(), story_); }
  void keep_nothing() { passed_ = true; }

 private:
  static fs::path parent_folder() {
    return fs::exists("/var/tmp") ? fs::path("/var/tmp") : fs::temp_directory_path();
  }

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  Process& random_server() { return *cluster_->servers()[below(cluster_->servers().size())]; }

  template <class Condition>
  void wait_for(const std::string& what, Condition condition) {
    const Time limit = patience();
    while (!condition()) {
      if (Clock::read_system() >= limit) FAIL("no sign of " << what << "; " << story());
      keeper_.step(5ms);
    }
  }
  void pass_time(std::uint64_t ms) {
    const Time end = Clock::read_system() + std::chrono::milliseconds(ms);
    while (Clock::read_system() < end) keeper_.step(5ms);
  }

  // Only SIGKILL is ours: whatever else ends a process is a fault of its own.
  void note_end(Process& process, const ProcessEnd& end) {
    if (end.signal != SIGKILL && !end.succeeded() && end.signal != SIGTERM)
      accidents_.push_back(process.name() + " " + end.text() + "\n" + process.log_tail());
  }

  void strike(Process& server) {
    wait_for(server.name() + " to run", [&] { return server.running(); });
    monitor_->expect_recovery(server.name());
    keeper_.kill(server, SIGKILL);
    ++kills_;
  }
  void await_recovery(Process& server) {
    wait_for(server.name() + " to acknowledge a push",
             [&] { return monitor_->recovery_time(server.name()).has_value(); });
  }

  void kill(std::vector<std::reference_wrapper<Process>> servers) {
    story_ += fmt::format("kill {}", servers.size());
    for (Process& server : servers) strike(server);
    for (Process& server : servers) await_recovery(server);
    story_ += ", ";
  }
  void kill_both() { kill({*cluster_->servers()[0], *cluster_->servers()[1]}); }
  void kill_twice() {
    story_ += "kill in recovery: ";
    Process& server = random_server();
    strike(server);
    pass_time(below(150));
    kill({server});
  }
  void kill_with_a_worker() {
    story_ += "worker and ";
    Process& worker = *workers_[below(workers_.size())];
    keeper_.kill(worker, SIGKILL);
    kill({random_server()});
  }
  void kill_with_the_coordinator() {
    story_ += "coordinator and ";
    for (const auto& process : keeper_.processes())
      if (process->name() == "coordinator") keeper_.kill(*process, SIGKILL);
    kill({random_server()});
  }
  void kill_at_failpoint() {
    const char* const point = failpoints[below(failpoints.size())];
    const bool snapshot = std::string_view(point).starts_with("snapshot");
    story_ += fmt::format("at {} ", point);
    Process& server = random_server();
    const unsigned starts = server.starts();
    keeper_.set_environment(server, "HYPERFRAMES_FAILPOINT",
                            fmt::format("{}=kill:{}", point, 1 + below(snapshot ? 4 : 40)));
    strike(server);
    wait_for(server.name() + " to start", [&] { return server.starts() == starts + 1; });
    keeper_.set_environment(server, "HYPERFRAMES_FAILPOINT", "");
    wait_for(fmt::format("{} to pass {}", server.name(), point),
             [&] { return server.starts() >= starts + 2; });
    ++kills_;
    monitor_->expect_recovery(server.name());
    await_recovery(server);
    story_ += ", ";
  }

  std::mt19937_64 random_;
  fs::path folder_;
  ProcessKeeper keeper_;
  std::unique_ptr<ClusterProcesses> cluster_;
  std::unique_ptr<ClusterMonitor> monitor_;
  std::vector<Process*> workers_;
  std::vector<std::string> accidents_;
  std::string story_;
  std::size_t kills_ = 0;
  unsigned audits_ = 0;
  bool passed_ = false;
};

void check_clean(const AuditOutcome& audit) {
  CHECK(audit.lost == 0);
  CHECK(audit.duplicated == 0);
  CHECK(audit.applied == audit.acknowledged);
}

void run_rounds(unsigned rounds, unsigned rounds_an_audit) {
  const std::uint64_t seed = chosen_seed();
  std::cout << "HYPERFRAMES_SEED=" << seed << std::endl;
  Chaos chaos(seed);
  chaos.start();
  AuditOutcome audit;
  for (unsigned round = 1; round <= rounds; ++round) {
    chaos.run_round();
    INFO("seed " << seed << ", round " << round << "; " << chaos.story());
    if (round % rounds_an_audit == 0) check_clean(chaos.audit());
    for (const std::string& accident : chaos.accidents()) FAIL_CHECK(accident);
    if (!chaos.accidents().empty()) FAIL("processes ended that nobody killed");
  }
  chaos.stop_training();
  audit = chaos.audit();
  INFO("seed " << seed << "; " << chaos.story());
  check_clean(audit);
  CHECK(audit.acknowledged > 0);
  std::cout
      << fmt::format(
             "{} rounds, {} kills of servers; {} pushes acknowledged, {} lost, {} duplicated, {} "
             "in doubt; {} samples",
             rounds, chaos.kills(), audit.acknowledged, audit.lost, audit.duplicated,
             audit.in_doubt, chaos.samples_done())
      << std::endl;
  if (audit.clean()) chaos.keep_nothing();
}

TEST_CASE("servers killed under load lose nothing and count nothing twice") { run_rounds(4, 1); }

TEST_CASE("200 rounds of killed servers end with a clean audit", "[long]") { run_rounds(200, 20); }

}  // namespace
}  // namespace hyperframes::tools
