// What the coordinator knows, kept on disk: who takes part, who owns which parameter shard, and
// which worker works on which unit of which job.
//
//   ps::CoordinatorStore store({.path = "coordinator.db", .num_shards = 16}, hf::Clock::now());
//   auto terms = store.open_job({.definition = job, .worker_name = "w0", .incarnation = 1}, now);
//   auto lease = store.lease_unit(terms.worker, now);       // durable before it returns
//
// Whatever a call answered survives the process: it is in SQLite, synced, before the call returns.
// Only who has spoken when is kept in memory, so after a restart everybody has a fresh time to
// speak; and of the workers' reports, which come each second, up to the last one may be lost, which
// costs work done twice and nothing else. Calls block: run them on an offload executor, one at a
// time. A call that throws changed nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <hyperframes/apps/ps/cluster_view.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/apps/ps/machine.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::ps {

/// A parameter shard's log is durable up to this record.
struct ShardMark {
  ShardId shard = 0;
  std::uint64_t record = 0;
};

struct UnitGrant {
  enum class State : std::uint8_t { granted, wait, done, evicted };
  State state = State::wait;
  UnitId unit{};
  std::uint32_t first_batch = 0;    ///< Batches before it are known to be acknowledged.
  std::uint64_t forget_before = 0;  ///< Units below this number are finished for good.
  std::uint64_t clock = 0;          ///< The worker's clock is at least this from now on.
};

/// What a worker reports of itself.
struct WorkerReport {
  std::uint32_t worker = 0;
  std::uint64_t clock = 0;  ///< Steps completed.
  UnitId unit{};
  std::uint32_t batch = 0;  ///< Batches of that unit acknowledged, without a gap.
  std::uint64_t samples = 0;
  double loss = 0;
  double auc = 0;
  std::string waiting{};
};

struct WorkerState {
  std::uint32_t job = 0;
  std::string name{};
  WorkerReport report{};
  bool live = false;
};

struct JobState {
  std::uint32_t job = 0;
  JobDefinition definition{};
  std::uint64_t units_done = 0;
  std::uint64_t samples_done = 0;  ///< Of finished units and reported batches.
};

class CoordinatorStore {
 public:
  struct Options {
    std::string path{};             ///< The database file; its folder exists.
    std::uint32_t num_servers = 1;  ///< The first placement waits for so many.
    /// Fixed once the first placement is made. 0: as it is fixed, 16 while it is not.
    std::uint32_t num_shards = 0;
    std::uint32_t staleness_bound = 3;
    Duration server_lease = timing().lease();
    Duration heartbeat_timeout = 30s;  ///< A worker that is silent for longer is evicted.
    /// For tests: called at "before commit" and "after commit"; what it throws ends the call there.
    std::function<void(std::string_view)> failpoint{};
    Machine* machine = &Machine::real();  ///< Where the database is; outlives the store.
  };
  struct JoinRequest {
    std::string name{};
    NodeId node_id = 0;
    std::uint64_t incarnation = 0;
    std::string endpoint{};
    std::uint64_t cluster = 0;   ///< Whose data its work folder holds; 0: nobody's yet.
    std::uint64_t previous = 0;  ///< Incarnation of the last start in its work folder; 0: none.
    bool accept_loss = false;    ///< Let an older copy of its folder in, and forget its marks.
  };
  struct OpenRequest {
    JobDefinition definition{};
    std::string worker_name{};
    std::uint64_t incarnation = 0;
    bool restart = false;
  };
  struct Terms {
    std::uint32_t job = 0;
    std::uint32_t worker = 0;
    std::uint64_t first_clock = 0;
    bool kept = false;                    ///< `restart` had no effect: others are at work.
    std::uint64_t forgotten_samples = 0;  ///< That were done before `restart` began it anew.
  };

  /// Opens or creates the database. Throws `invalid_argument` when `num_shards` differs from what
  /// the placement has, `version_mismatch` for a database of another version, and what SQLite says.
  CoordinatorStore(Options options, Time now);
  ~CoordinatorStore();
  /// What was given, or what stands in the database.
  std::uint32_t num_shards() const noexcept;
  CoordinatorStore(const CoordinatorStore&) = delete;
  CoordinatorStore& operator=(const CoordinatorStore&) = delete;

  /// Made at random with the database. Data of another cluster has no place here.
  std::uint64_t cluster() const noexcept;

  /// False: a newer incarnation of that name holds it. Throws `already_exists` when the name or the
  /// node id belongs to another server, and `rejected` for a server of another cluster, or whose
  /// work folder is an older copy: a later start of that server had recovered.
  bool join_server(const JoinRequest& request, Time now);
  /// False as above. Throws `not_found` for a node that has not joined.
  bool renew_lease(NodeId node_id, std::uint64_t incarnation, Time now);
  /// What the holder of a lease says of its disk: up to which records its shards' logs are durable,
  /// and whether all of them have recovered. Written down with the next reports: it only has to be
  /// known before an older copy of that disk comes back.
  void note_disk(NodeId node_id, bool recovered, const std::vector<ShardMark>& marks);
  /// The latest marks of its shards.
  std::vector<ShardMark> marks_of(NodeId node_id);

  /// Those that exist must be the same. Throws `already_exists` that names the difference, and
  /// `invalid_argument`.
  void create_tables(const std::vector<TableSpec>& tables);

  /// Defines the job or joins it. A live worker of the same name is replaced by a newer
  /// incarnation; an older one is refused (`fenced`). The same incarnation, still live, gets the
  /// same answer. With `restart` a job that others don't work on is begun anew. Throws
  /// `invalid_argument` where the definition differs from the one of the job.
  Terms open_job(const OpenRequest& request, Time now);

  /// The lowest free unit. A worker that holds one gets that again; one that must wait, or has
  /// nothing left to do, leaves the clock table until it is granted a unit.
  UnitGrant lease_unit(std::uint32_t worker, Time now);
  /// Records the unit as done and leases the next, in one step. Repeating it changes nothing.
  UnitGrant finish_unit(std::uint32_t worker, UnitId unit, Time now);
  /// The steps that it has completed, as it says when it asks for a unit: reports come too seldom
  /// for those who join to know where the others are.
  void note_clock(std::uint32_t worker, std::uint64_t clock) noexcept;
  /// False: the worker was evicted.
  bool report(const WorkerReport& report, Time now);
  /// Its unit becomes free. A worker that is gone already is fine.
  void leave_job(std::uint32_t worker);

  /// Evicts silent workers, marks silent servers, and writes down what was reported. To be called
  /// each second or so: a long gap counts as this process's own pause, for which nobody is evicted.
  void expire(Time now);

  std::uint64_t view_version() const noexcept;
  ClusterView view();
  std::vector<JobState> jobs();  ///< The latest of each name.
  std::vector<WorkerState> workers();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hyperframes::ps
