// The processes of a demo or of a fault test: one coordinator, servers that are restarted when they
// die, workers of one training run at a time, and steps that run to their end.
//
//   tools::ClusterProcesses cluster({.folder = "run", .programs = tools::program_folder()},
//   keeper); cluster.start(); cluster.start_workers({.job = "j", .data = "data/random/training",
//   .model = "m.yaml"});
//
// It only starts and names processes: whoever owns the keeper steps it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <hyperframes/apps/tools/process.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools {

struct ClusterOptions {
  std::filesystem::path folder;    ///< For work folders, ledgers and logs; made if missing.
  std::filesystem::path programs;  ///< Where hyperframes, hyperframes_server and _worker lie.
  std::string durability = "push";
  unsigned servers = 2;
  unsigned workers = 2;
  unsigned shards = 16;
  unsigned staleness_bound = 3;
  unsigned heartbeat_timeout_s = 30;
  unsigned checkpoint_interval_s = 10;
  /// Of the servers. The delay is part of each recovery time.
  RestartPolicy restart = {
      .when = RestartPolicy::When::always, .delay = 100ms, .limit = 20, .period = 10s};
  RestartPolicy worker_restart = {};  ///< Never, unless given.
};

struct TrainingRun {
  std::string job;
  std::filesystem::path data;
  std::filesystem::path model;
  std::uint64_t seed = 1;
  unsigned batch_size = 2048;
  unsigned epochs = 0;  ///< 0: what the model says.
};

class ClusterProcesses {
 public:
  /// `keeper` outlives it.
  ClusterProcesses(ClusterOptions options, ProcessKeeper& keeper);

  /// Starts coordinator and servers, on ports of 127.0.0.1 that are free.
  void start();
  const std::string& coordinator_addr() const noexcept { return address_; }
  const std::vector<Process*>& servers() const noexcept { return servers_; }
  /// The server of that name; null if there is none.
  Process* server(const std::string& name) const noexcept;

  /// Starts the workers of a run, each with a ledger of its own.
  std::vector<Process*> start_workers(const TrainingRun& run);
  /// Scores a run's model on a data set; writes JSON to its output.
  Process& start_evaluation(const TrainingRun& run, const std::filesystem::path& data,
                            const std::string& name);
  /// Compares all ledgers so far with what the servers hold; writes JSON to its output.
  Process& start_audit(const std::string& name);
  /// Any other step of the tool `hyperframes`; its standard output goes to a file of its own.
  Process& start_tool(const std::string& name, std::vector<std::string> arguments);

  std::filesystem::path logs() const { return options_.folder / "logs"; }

 private:
  std::vector<std::string> worker_command(const TrainingRun& run,
                                          const std::filesystem::path& data) const;
  Process& start_step(const std::string& name, std::vector<std::string> command);
  std::string program(const char* name) const { return (options_.programs / name).string(); }

  ClusterOptions options_;
  ProcessKeeper& keeper_;
  std::string address_;
  std::vector<Process*> servers_;
  std::vector<std::string> ledgers_;
};

/// A TCP port of 127.0.0.1 that nobody uses now. It lies outside the kernel's ephemeral range where
/// it can, so that it stays free while its server is down: a socket that connects could be given an
/// ephemeral one, even the socket of a client that tries to reach that server again.
std::uint16_t free_port();

}  // namespace hyperframes::tools
