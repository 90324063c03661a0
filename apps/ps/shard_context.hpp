// What the actors of one parameter shard share: they live on one core shard and call each other's
// data directly, without messages.
//
//   context->log->append(...);               // the shard's one log
//   context->clocks.wait(job, step, then);   // the staleness bound
//   if (!context->lease->valid()) ...        // before anything is acknowledged
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <hyperframes/apps/ps/clock_table.hpp>
#include <hyperframes/apps/ps/observer.hpp>
#include <hyperframes/apps/ps/shard_log.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/apps/ps/table_state.hpp>
#include <hyperframes/runtime/mutex.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::ps {

/// A node's right to its shards, renewed by one task and read by all core shards. An owner that
/// can't show it must not acknowledge: another may own the shard by now.
class Lease {
 public:
  /// By the time that it is, not by that of the turn: the process may have been stopped since the
  /// turn began.
  bool valid() const noexcept {
    const Shard* here = Shard::current();
    const Time now = here ? here->reactor().now() : Clock::read_system();
    return now.time_since_epoch().count() < until_.load(std::memory_order_relaxed);
  }
  void extend_to(Time until) noexcept {
    until_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> until_{0};
};

struct ShardOptions {
  ShardId shard = 0;
  std::uint64_t token = 1;
  std::string log_folder;  ///< This shard's, below the work folder.
  /// This shard's, below the checkpoint folder. It keeps the mark of the cluster that uses it.
  std::string snapshot_folder;
  Durability durability = Durability::push;
  Duration snapshot_interval = 60s;  ///< 0: only when asked.
  /// Completes once it is on disk that this shard has files: from then on they must be there.
  /// Called when they are, and before anything is acknowledged.
  std::function<Task<void>()> begun{};
  std::uint64_t least_record = 0;  ///< The log is refused if it ends before this one.
  /// The last record that was synced, for other threads; may be null. Outlives the shard.
  std::atomic<std::uint64_t>* synced = nullptr;
  Observer* observer = nullptr;  ///< Outlives the shard.
  /// The most bytes that a push brought or a pull took, likewise.
  std::atomic<std::uint64_t>* largest_batch = nullptr;
};

class TablePart;

struct ShardContext {
  explicit ShardContext(ShardOptions options, const PlacementMap& map)
      : options(std::move(options)), map(map), clocks(0) {}

  ShardOptions options;
  std::uint64_t cluster = 0;  ///< As the coordinator's view says: whose data this is.
  PlacementMap map;
  const Lease* lease = nullptr;
  ClockTable clocks;
  std::unique_ptr<ShardLog> log;
  /// Held by whoever writes a snapshot, and while a table is read back: a snapshot that is finished
  /// meanwhile would take away the log behind the one that is being read.
  Mutex snapshot_mutex;
  /// Recovered at the shard's start, until its table's actor takes it over.
  std::map<TableId, std::unique_ptr<TableState>> recovered;
  /// The actors that are up, by table; each takes itself in and out.
  std::map<TableId, TablePart*> parts;

  struct Counts {
    std::uint64_t pushes = 0, duplicates = 0, acknowledged = 0, pulls = 0, pulled_rows = 0,
                  pushed_rows = 0;
    std::uint64_t snapshots = 0, replayed_records = 0;
    double recovery_ms = 0;
  } counts;

  void note_batch(std::uint64_t bytes) const noexcept {
    std::atomic<std::uint64_t>* const largest = options.largest_batch;
    if (!largest) return;
    std::uint64_t known = largest->load(std::memory_order_relaxed);
    while (known < bytes &&
           !largest->compare_exchange_weak(known, bytes, std::memory_order_relaxed)) {
    }
  }
};

}  // namespace hyperframes::ps
