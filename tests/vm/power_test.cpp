// The machine of a parameter server loses its power under load, again and again: what the server
// acknowledged must be on the disk. The server runs in an emulated machine, whose disk forgets what
// was not flushed (tests/vm/disk); the worker and its ledger are out here. HYPERFRAMES_SEED repeats
// a run's choices.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "../chaos/processes.hpp"

namespace hyperframes::tools {
namespace {

/// A server in a machine of its own, and what befalls that.
class PoweredServer {
 public:
  PoweredServer(Processes& scene, std::uint64_t seed, Arguments options, std::string failpoint)
      : scene_(scene),
        random_(seed),
        options_(std::move(options)),
        failpoint_(std::move(failpoint)),
        port_(free_port()) {
    std::filesystem::create_directory(scene_.path("tmp"));
  }

  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  /// Returns while the machine still boots.
  void start(const Arguments& more = {}) {
    ++starts_;
    const std::string socket = scene_.path(fmt::format("disk-{}.socket", starts_));
    disk_ = &scene_.start(fmt::format("disk-{}", starts_),
                          {tool("disk"), scene_.path("image"), socket, std::to_string(random_())});
    scene_.wait_for("the disk",
                    [&] { return contains(disk_->output(), "ready") || disk_->done(); });
    skip_without_tools(*disk_);
    machine_ = &scene_.start(
        fmt::format("machine-{}", starts_),
        {tool("run"), "-m", "512", "-t", "900", "-d", socket, "-p", std::to_string(port_),
         command(more), Processes::program("hyperframes_server")},
        {.environment = {{"TMPDIR", scene_.path("tmp")}}});
  }

  /// Under load: at any time, or in the midst of what the disk is doing.
  void lose_power(const std::string& worker) {
    wait_for_pushes(worker, 20 + random_() % 60);
    random_() % 3 == 0 ? cut("at work") : cut_in_a_write("at work");
  }
  /// While it boots and recovers.
  void lose_power_in_recovery() { cut_in_a_write("in recovery"); }

  AuditOutcome audit() {
    const std::optional<AuditOutcome> outcome = audit_or_end();
    if (!outcome) fail_with_machine();
    return *outcome;
  }
  /// Nothing where the machine ended first, as its server did.
  std::optional<AuditOutcome> audit_or_end() {
    Process& audit = scene_.start_audit(address(), {"--timeout", "600"});
    scene_.wait_for("the audit", [&] { return machine_->done() || audit.done(); });
    skip_without_tools(*machine_);
    if (!audit.done()) return std::nullopt;
    INFO(scene_.text(audit));
    return parse_audit(audit.output(), "the audit");
  }
  std::string machine_text() const { return scene_.text(*machine_); }
  const std::string& story() const { return story_; }

 private:
  static std::string tool(const std::string& name) {
    return std::string(HYPERFRAMES_VM_TOOLS) + "/" + name;
  }
  std::string command(const Arguments& more) const {
    std::string text;
    if (!failpoint_.empty()) text += fmt::format("HYPERFRAMES_FAILPOINT={} ", failpoint_);
    text += fmt::format(
        "HYPERFRAMES_TIME_SCALE={} ./hyperframes_server --role ps --workdir "
        "/disk/ps --listen 0.0.0.0:{} --advertise_addr {} --insecure",
        timing().scale, port_, address());
    for (const auto& list : {options_, more})
      for (const auto& argument : list) text += " " + argument;
    return text + " 2>&1";
  }
  void skip_without_tools(const Process& process) {
    if (process.done() && process.ends().back().status == 77) SKIP(scene_.text(process));
  }
  template <class Condition>
  void wait_for(const std::string& what, Condition condition) {
    scene_.wait_for(what, [&] { return machine_->done() || condition(); });
    skip_without_tools(*machine_);
    if (machine_->done()) fail_with_machine();
  }
  [[noreturn]] void fail_with_machine() const {
    FAIL("the machine ended by itself\n" << story_ << machine_text());
    std::abort();  // FAIL has thrown
  }
  void wait_for_pushes(const std::string& worker, std::size_t more) {
    const std::size_t wanted = scene_.ledger_records(worker) + more;
    wait_for("pushes of " + worker, [&] { return scene_.ledger_records(worker) >= wanted; });
  }

  void cut_in_a_write(const std::string& when) {
    scene_.keeper().kill(*disk_, SIGUSR1);
    wait_for("the disk to fail", [&] { return contains(disk_->output(), "the power fails"); });
    cut(when + ", in a write");
  }
  void cut(const std::string& when) {
    scene_.keeper().kill(*machine_, SIGKILL);
    scene_.require_success(*disk_);
    const auto lines = disk_->output();
    story_ += fmt::format("power cut {} {}: {}", starts_, when, lines.substr(lines.find("of ")));
  }

  Processes& scene_;
  std::mt19937_64 random_;
  Arguments options_;
  std::string failpoint_, story_;
  std::uint16_t port_;
  Process* disk_ = nullptr;
  Process* machine_ = nullptr;
  unsigned starts_ = 0;
};

void run_rounds(unsigned rounds) {
  const std::uint64_t seed = chosen_seed();
  std::cout << "HYPERFRAMES_SEED=" << seed << std::endl;
  Processes scene;
  PoweredServer server(scene, seed, {"--num_shards", "2", "--checkpoint_interval", "1"}, "");
  server.start();
  scene.start_worker("worker", server.address(), {{"--epochs", "10000"}});
  AuditOutcome audit;
  for (unsigned round = 1; round <= rounds; ++round) {
    server.lose_power("worker");
    server.start();
    if (round % 2 == 1) {
      server.lose_power_in_recovery();
      server.start();
    }
    audit = server.audit();
    INFO("seed " << seed << "\n" << server.story());
    scene.check_clean(audit);
  }
  std::cout << server.story()
            << fmt::format("{} pushes acknowledged, {} lost, {} duplicated, {} in doubt\n",
                           audit.acknowledged, audit.lost, audit.duplicated, audit.in_doubt);
}

TEST_CASE("a server whose machine loses power keeps each push that it acknowledged") {
  run_rounds(1);
}
TEST_CASE("60 power cuts of a server's machine end with a clean audit", "[long]") {
  run_rounds(40);
}

TEST_CASE("a server that leaves out its log's sync loses pushes with its machine's power") {
  const std::uint64_t seed = chosen_seed();
  std::cout << "HYPERFRAMES_SEED=" << seed << std::endl;
  Processes scene;
  // Without snapshots: one that the log does not reach would keep the server from starting.
  PoweredServer server(scene, seed, {"--num_shards", "2", "--checkpoint_interval", "0"},
                       "log-without-sync=plant");
  server.start();
  scene.start_worker("worker", server.address(), {{"--epochs", "10000"}});
  server.lose_power("worker");
  server.start({"--accept_loss"});
  const std::optional<AuditOutcome> audit = server.audit_or_end();
  INFO("seed " << seed << "\n" << server.story());
  std::cout << server.story();
  if (audit) {
    CHECK(audit->lost > 0);
    std::cout << fmt::format("{} pushes acknowledged, {} lost\n", audit->acknowledged, audit->lost);
    return;
  }
  // Of what was not synced, the disk may have stored records behind a hole.
  INFO(server.machine_text());
  CHECK(contains(server.machine_text(), "is damaged, although it was synced"));
  std::cout << "the server does not start: its log has a hole\n";
}

}  // namespace
}  // namespace hyperframes::tools
