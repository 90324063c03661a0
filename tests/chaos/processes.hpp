// Servers, workers and tools as their users start them, in a folder that goes away.
//
//   Processes scene;
//   Process& server = scene.start_server("server", {"--num_shards", "4"});
//   Process& worker = scene.start_worker("worker", scene.address(server), {"--epochs", "2"});
//   scene.wait_for("the worker's end", [&] { return worker.done(); });
//
// Nothing here depends on how quick a process is: waits end when what must come has come, and only
// a broken program lets their patience pass. HYPERFRAMES_PROGRAMS names other programs than the
// built ones.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/dataset/reader.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/apps/tools/demo_cluster.hpp>
#include <hyperframes/apps/tools/demo_report.hpp>
#include <hyperframes/apps/tools/process.hpp>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "../apps/tools/synthetic_ratings.hpp"

namespace hyperframes::tools {

using Arguments = std::vector<std::string>;

inline constexpr const char* small_model = R"(
model: factorization_machine
latent: 4
fields:
  - {name: user, l2: 0.02, l2_latent: 0.01}
  - {name: movie, l2: 0.01, l2_latent: 0.1}
  - {name: genres, separator: "|", l2: 0.01, l2_latent: 0.02}
)";

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

/// A run's choices, to be printed: HYPERFRAMES_SEED repeats them.
inline std::uint64_t chosen_seed() {
  if (const char* text = std::getenv("HYPERFRAMES_SEED")) return std::strtoull(text, nullptr, 10);
  return std::random_device()();
}

/// How a process is started, beside its command.
struct More {
  Arguments arguments = {};
  std::vector<std::pair<std::string, std::string>> environment = {};
  RestartPolicy restart = {};
  Arguments within = {};  ///< Before the command: what it is run in.
};

class Processes {
 public:
  static constexpr RestartPolicy always = {
      .when = RestartPolicy::When::always, .delay = 20ms, .limit = 1000, .period = 1s};

  Processes() {
    const std::filesystem::path parent = std::filesystem::exists("/var/tmp")
                                             ? std::filesystem::path("/var/tmp")
                                             : std::filesystem::temp_directory_path();
    std::string name = (parent / "hyperframes-processes-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    std::ofstream(path("model.yaml")) << small_model;
  }
  ~Processes() {
    keeper_.stop_all(timing().scaled(5s));
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  ProcessKeeper& keeper() { return keeper_; }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string program(const std::string& name) {
    const char* other = std::getenv("HYPERFRAMES_PROGRAMS");
    return std::string(other != nullptr ? other : HYPERFRAMES_PROGRAMS) + "/" + name;
  }

  Process& start(const std::string& name, Arguments command, const More& more = {}) {
    command.insert(command.begin(), more.within.begin(), more.within.end());
    command.insert(command.end(), more.arguments.begin(), more.arguments.end());
    return keeper_.start({.name = name,
                          .command = std::move(command),
                          .environment = more.environment,
                          .log = log_of(name),
                          .output = path(name + ".out"),
                          .restart = more.restart});
  }
  /// All that it wrote so far.
  std::string text(const Process& process) const {
    return text_of(log_of(process.name())) + process.output();
  }

  template <class Condition>
  void wait_for(const std::string& what, Condition condition) {
    const Time limit = Clock::read_system() + timing().scaled(90s);
    while (!condition()) {
      if (Clock::read_system() >= limit) FAIL("no sign of " << what << "\n" << all_texts());
      keeper_.step(5ms);
    }
  }
  /// Its last end, once it is over.
  ProcessEnd end_of(Process& process) {
    wait_for("the end of " + process.name(), [&] { return process.done(); });
    return process.ends().back();
  }
  void require_success(Process& process) {
    const ProcessEnd end = end_of(process);
    INFO(process.name() << " " << end.text() << "\n" << text(process));
    REQUIRE(end.succeeded());
  }
  /// It must end by itself with `status`, and say `part`.
  void require_failure(Process& process, const std::string& part, int status = 1) {
    const ProcessEnd end = end_of(process);
    INFO(process.name() << " " << end.text() << "\n" << text(process));
    CHECK(end.status == status);
    CHECK(end.signal == 0);
    CHECK(contains(text(process), part));
  }

  // ---- Programs --------------------------------------------------------------------------------

  /// In the work folder of its name, on a free port of 127.0.0.1 unless told otherwise.
  Process& start_server(const std::string& name, More more) {
    Arguments command = {program("hyperframes_server"), "--workdir", path(name)};
    const auto& given = more.arguments;
    if (std::ranges::find(given, "--listen") == given.end())
      command.insert(command.end(), {"--listen", "127.0.0.1:0"});
    return start(name, std::move(command), more);
  }
  /// What a server that coordinates says of itself.
  std::string address(const Process& server) {
    const auto said = [&] {
      const std::string output = server.output();
      const auto at = output.find("coordinator ");
      const auto end = output.find('\n', at == std::string::npos ? 0 : at);
      return at == std::string::npos || end == std::string::npos
                 ? std::string()
                 : output.substr(at + 12, end - at - 12);
    };
    wait_for("the address of " + server.name(), [&] { return !said().empty() || server.done(); });
    REQUIRE(!said().empty());
    return said();
  }
  Process& start_worker(const std::string& name, const std::string& address, More more) {
    ledgers_.insert(path(name + ".ledger"));
    Arguments command = {program("hyperframes_worker"),
                         "--coordinator_addr",
                         address,
                         "--data_dir",
                         training(),
                         "--model_config",
                         path("model.yaml"),
                         "--name",
                         name,
                         "--ledger",
                         path(name + ".ledger")};
    if (std::ranges::find(more.arguments, "--batch_size") == more.arguments.end())
      command.insert(command.end(), {"--batch_size", "64"});
    return start(name, std::move(command), more);
  }
  /// Records in a worker's ledger: two for each message of a push, before and after.
  std::size_t ledger_records(const std::string& worker) const {
    std::error_code none;
    const auto size = std::filesystem::file_size(path(worker + ".ledger"), none);
    return none ? 0 : static_cast<std::size_t>(size) / ps::Ledger::record_bytes;
  }
  void wait_for_pushes(const std::string& worker, std::size_t more) {
    const std::size_t wanted = ledger_records(worker) + more;
    wait_for("pushes of " + worker, [&] { return ledger_records(worker) >= wanted; });
  }
  Process& start_audit(const std::string& address, const Arguments& more = {},
                       const Arguments& within = {}) {
    Arguments command = {program("hyperframes"), "audit", "--json", "--coordinator_addr", address};
    for (const auto& ledger : ledgers_)  // of a worker that was not let in there is none
      if (std::filesystem::exists(ledger)) command.insert(command.end(), {"--ledger", ledger});
    return start(fmt::format("audit-{}", ++steps_), std::move(command),
                 {.arguments = more, .within = within});
  }
  /// It may have found something: the caller looks.
  AuditOutcome audit(const std::string& address, const Arguments& more = {},
                     const Arguments& within = {}) {
    Process& process = start_audit(address, more, within);
    const ProcessEnd end = end_of(process);
    INFO("the audit " << end.text() << "\n" << text(process));
    REQUIRE(contains(process.output(), "acknowledged"));
    return parse_audit(process.output(), "the audit");
  }

  // ---- Data ------------------------------------------------------------------------------------

  /// Made at the first call.
  std::string training() {
    if (!data_made_) {
      write_synthetic_ratings(folder_ / "ratings.csv", 4'000, 7);
      require_success(start("movielens", {program("hyperframes"), "movielens", "--out",
                                          path("movielens"), "--csv", path("ratings.csv")}));
      data_made_ = true;
    }
    return path("movielens/random/training");
  }
  ps::JobDefinition job(std::uint32_t epochs, std::uint32_t batch_size = 64) {
    return {.name = "default",
            .samples = dataset::Reader(training()).size(),
            .batch_size = batch_size,
            .epochs = epochs};
  }
  using Batch = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // epoch, unit, batch
  static std::set<Batch> batches_of(const ps::JobDefinition& job) {
    std::set<Batch> all;
    for (std::uint64_t number = 0; number < job.units(); ++number)
      for (std::uint32_t batch = 0; batch < job.batches_of(number); ++batch)
        all.emplace(job.unit_at(number).epoch, job.unit_at(number).unit, batch);
    return all;
  }
  /// By what the ledgers of these workers say; those of jobs are not told apart.
  template <class Ledgers>
  static std::set<Batch> acknowledged_in(const Ledgers& ledgers) {
    std::set<Batch> found;
    for (const auto& ledger : ledgers)
      if (std::filesystem::exists(ledger))
        for (const auto& entry : ps::read_ledger(ledger).entries)
          if (entry.state == ps::LedgerEntry::State::acknowledged)
            found.emplace(entry.epoch, entry.unit, entry.batch);
    return found;
  }
  /// Every batch of the job is acknowledged in some ledger, and the servers hold each push once.
  void check_exactly_once(const ps::JobDefinition& job, const std::string& address,
                          const Arguments& audit_arguments = {}) {
    const auto wanted = batches_of(job), found = acknowledged_in(ledgers_);
    CHECK(found.size() == wanted.size());
    CHECK(found == wanted);
    check_clean(audit(address, audit_arguments));
  }
  static void check_clean(const AuditOutcome& audit) {
    CHECK(audit.acknowledged > 0);
    CHECK(audit.lost == 0);
    CHECK(audit.duplicated == 0);
    CHECK(audit.applied == audit.acknowledged);
  }

 private:
  std::filesystem::path log_of(const std::string& name) const { return path(name + ".log"); }
  std::string all_texts() const {
    std::string all;
    for (const auto& process : keeper_.processes())
      all += "==== " + process->name() + "\n" + process->log_tail(30);
    return all;
  }

  std::filesystem::path folder_;
  ProcessKeeper keeper_;
  std::set<std::string> ledgers_;
  bool data_made_ = false;
  unsigned steps_ = 0;
};

}  // namespace hyperframes::tools
