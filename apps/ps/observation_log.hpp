// What a process's observer saw, in a file, for checks that see all processes of a cluster at once.
//
//   HYPERFRAMES_OBSERVATIONS=ps-0.seen hyperframes_server ...      // each start appends
//   for (const ps::Observation& each : ps::read_observations("ps-0.seen")) ...
//
// Written at the moment of each, so that a process that is killed has left all that it did before.
// The times are of one clock for the whole host: what is the cause of something stands before it.
// For tests only: a write for each message.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/observer.hpp>
#include <hyperframes/apps/ps/push_key.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::ps {

/// One of what Observer sees. What has several parts is several: the last one ends it.
struct Observation {
  enum class Kind : std::uint32_t {
    started = 1,    ///< A process: it stands before all that this one saw.
    opened,         ///< A parameter shard, under `token`.
    counted,        ///< Part of a recovery: what a counter row reads.
    recovered,      ///< A table's rows; its counters stand before it.
    pushed,         ///< Under `token`; its counter reads `count` now.
    pull_answered,  ///< For `step` of a job.
    live,           ///< Part of a view: a worker, which joined at `step`.
    view_adopted,   ///< Its workers stand before it.
    acknowledged,   ///< To a client.
    clock_set,      ///< Of a worker, to `step`.
  };
  Kind kind = Kind::started;
  std::uint32_t fresh = 0;  ///< Of a push: 1 if it had not been applied before.
  std::int64_t time_ns = 0;
  TableId table = 0;
  ShardId shard = 0;
  std::uint32_t job = 0, worker = 0;
  std::uint64_t token = 0, step = 0;
  std::uint64_t counter = 0;  ///< Id of the push's counter row; 0: it has none.
  float count = 0;
  std::uint32_t epoch = 0, unit = 0, batch = 0;  ///< Of its key.

  PushKey key() const noexcept { return PushKey::leased(epoch, unit, batch); }
};

class ObservationLog final : public Observer {
 public:
  /// Throws what the file system says.
  explicit ObservationLog(const std::string& path);
  /// The one that HYPERFRAMES_OBSERVATIONS names; null without it.
  static std::unique_ptr<ObservationLog> from_environment();
  ~ObservationLog() override;
  ObservationLog(const ObservationLog&) = delete;
  ObservationLog& operator=(const ObservationLog&) = delete;

  void opened(const ShardContext& context) override;
  void recovered(const ShardContext& context, const TableState& state) override;
  void pushed(const ShardContext& context, const TableState& state, const PushBody& push,
              bool fresh) override;
  void pull_answered(const ShardContext& context, std::uint32_t job, std::uint64_t step) override;
  void view_adopted(const ShardContext& context, const ClusterView& view) override;
  void acknowledged(TableId table, ShardId shard, const PushKey& key,
                    std::uint64_t counter) override;
  void clock_set(std::uint32_t job, std::uint32_t worker, std::uint64_t clock) override;

 private:
  void write(std::span<Observation> observations) noexcept;
  void write(Observation observation) noexcept { write(std::span(&observation, 1)); }

  int file_;
};

/// All that its processes saw, as it was written. Throws what the file system says.
std::vector<Observation> read_observations(const std::string& path);

/// The id of a push's counter row, or 0.
std::uint64_t counter_of(const PushBody& push);
/// What a counter row reads.
float read_counter(const TableState& state, std::uint64_t counter);

}  // namespace hyperframes::ps
