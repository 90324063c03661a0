// What a running cluster says of itself, read again and again while something else goes on.
//
//   tools::ClusterMonitor monitor("127.0.0.1:6000");
//   monitor.watch_job("random-1");
//   tools::ClusterReading now = monitor.reading();       // a copy of the latest; never waits
//
// It asks from a thread of its own, the coordinator and each server apart, so that one that is dead
// or slow delays nothing else. Functions may be called from any thread.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools {

struct ServerReading {
  std::string name;
  bool reachable = false;    ///< Its last answer is not followed by a failed question.
  std::uint64_t shards = 0;  ///< Parameter shards that it owns.
  std::uint64_t rows = 0;
  std::uint64_t pushes = 0;  ///< Acknowledged since its process started.
  double pushes_per_s = 0;
  std::uint64_t log_bytes = 0;  ///< Written since its process started.
  double replay_ms = 0;         ///< Reading snapshots and logs at its start: the slowest shard.
};

struct WorkerReading {
  std::string name;
  std::uint64_t steps = 0;
  std::string waiting;  ///< What it waits for; empty when it does not.
};

struct JobReading {
  std::uint64_t samples = 0;  ///< Over all epochs.
  std::uint64_t samples_done = 0;
  bool finished = false;
  double loss = 0;  ///< Mean over its workers, each batch predicted before it was learnt.
  double auc = 0;   ///< Likewise; not a number until there is enough.
  std::vector<WorkerReading> workers;
};

struct ClusterReading {
  bool coordinator_reachable = false;
  std::string coordinator_error;  ///< Why not, when it is not.
  bool placed = false;            ///< Every parameter shard has an owner.
  std::vector<ServerReading> servers;
  std::optional<JobReading> job;  ///< The watched one, once it exists.
};

class ClusterMonitor {
 public:
  explicit ClusterMonitor(std::string coordinator_addr);
  ~ClusterMonitor();
  ClusterMonitor(const ClusterMonitor&) = delete;
  ClusterMonitor& operator=(const ClusterMonitor&) = delete;

  ClusterReading reading() const;
  void watch_job(std::string name);

  /// To be called just before a server is killed: from then on it is asked every few milliseconds.
  void expect_recovery(const std::string& server);
  /// From that call to when the restarted server had acknowledged a push; late by at most the few
  /// milliseconds between two questions. Empty until then.
  std::optional<Duration> recovery_time(const std::string& server) const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace hyperframes::tools
