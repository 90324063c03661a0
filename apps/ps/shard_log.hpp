// The log of one parameter shard: what was applied, in order, and when it became durable.
//
//   auto log = co_await hf::ps::ShardLog::read(options, snapshot.lsn, replay);
//   co_await log->begin();                             // once it is known to belong to the rest
//   log->append(lsn, record);                          // queued; never suspends
//   log->when_durable(lsn, [reply](const hf::Error* failure) { ... });
//
// Records collect while the disk is busy and then go out together: one write and one sync for all
// of them (group commit). What "durable" means is the policy: `push` waits for the sync; `interval`
// syncs once in a while and answers at once; `none` leaves it to the kernel. Files lie under
// `folder/token-T/segment-L.log`, where T is the owner's fencing token and L the first record's
// number: a stale owner cannot touch a successor's files. A write or sync that fails ends the log:
// what the disk holds is then unknown, so the shard has to recover from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::ps {

enum class Durability : std::uint8_t { push, interval, none };
/// "push", "interval" or "none"; throws invalid_argument naming the three.
Durability parse_durability(const std::string& text);
const char* name(Durability durability) noexcept;

struct LogOptions {
  std::string folder;
  std::uint32_t shard = 0;
  std::uint64_t token = 1;
  Durability durability = Durability::push;
  Duration interval = std::chrono::seconds(1);
  std::uint64_t segment_bytes = 64u
                                << 20;     ///< A segment is closed after the record that passes it.
  std::size_t pending_bytes = 256u << 20;  ///< Appended and not yet written, at most.
  /// Where to note the last record that was synced, for other threads. Outlives the log.
  std::atomic<std::uint64_t>* synced = nullptr;
};

class ShardLog {
 public:
  /// Sees each record from `from_lsn` on, in order. Throwing ends the recovery with that error.
  using Replay = std::function<void(std::span<const std::byte> record, std::uint64_t lsn)>;
  using Durable = std::function<void(const Error* failure)>;

  /// Reads what earlier owners (tokens up to this one) left, and hands it to `replay`; changes
  /// nothing on the disk. Throws Errc::corrupt, with file and offset, if a record is damaged that
  /// others follow, or one is missing, or the log ends before `from_lsn`.
  static Task<std::unique_ptr<ShardLog>> read(LogOptions options, std::uint64_t from_lsn,
                                              Replay replay);
  ShardLog(const ShardLog&) = delete;
  ~ShardLog();

  /// Takes the log over, once and before the first `append`: cuts off a torn end, makes durable
  /// what was read, begins a segment, and then removes those that lie wholly below the number that
  /// it was read from. Cut short at any step, it leaves a log that reads alike.
  Task<void> begin();
  /// The number that the next record must have; they count up by one.
  std::uint64_t next_lsn() const noexcept { return next_lsn_; }
  /// Queues an encoded record, which carries `lsn`. Throws what ended the log.
  void append(std::uint64_t lsn, std::span<const std::byte> record);
  /// Runs `then` once every record up to `lsn` is durable under the policy, or the log has failed;
  /// at once if that is so. Not from inside another `then`'s destructor.
  void when_durable(std::uint64_t lsn, Durable then);
  /// False while too much is queued: take no more until `room` has come.
  bool has_room() const noexcept { return pending_.size() < options_.pending_bytes; }
  Task<void> room();

  /// Writes and syncs until cancelled; throws what ended the log. Whoever owns the log runs it.
  Task<void> run();
  /// After `run` was cancelled: writes, syncs and answers what is left.
  Task<void> finish();
  /// Everything appended so far is on disk, whatever the policy. Needs `run`.
  Task<void> flush();
  /// Hands out again what is on disk from `from_lsn` on: for one table's recovery beside the
  /// others. Nothing may be dropped meanwhile. Throws `corrupt` if a synced record is missing.
  Task<void> read_again(std::uint64_t from_lsn, Replay replay);
  /// Removes closed segments whose records all lie below `lsn`: a snapshot holds them.
  Task<void> drop_before(std::uint64_t lsn);

  struct Stats {
    std::uint64_t durable_lsn,  ///< Of the last record that was synced, whatever the policy.
        written_bytes, syncs, segments;
  };
  Stats stats() const noexcept;

 private:
  struct Segment {
    std::string path;
    std::uint64_t first_lsn = 0;
  };
  struct Waiting {
    std::uint64_t lsn;
    Durable then;
  };

  /// The end of the newest segment as it was read, if it is torn or may not be durable.
  struct OpenEnd {
    std::string path;
    Buffer contents;
    SegmentEnd end;
  };

  ShardLog(LogOptions options, std::uint64_t from_lsn)
      : options_(std::move(options)), from_lsn_(from_lsn) {}
  Task<std::vector<Segment>> find_segments();
  Task<void> read_segments(Replay replay);
  Task<void> read_segment(std::size_t index, Replay& replay);
  void require_next(const Segment& segment) const;
  Task<void> settle(OpenEnd found);
  Task<void> begin_segment();
  Task<void> write_pending();
  Task<void> sync_written();
  void answer(std::uint64_t durable) noexcept;
  void fail(Error error) noexcept;
  std::string token_folder() const;

  LogOptions options_;
  std::uint64_t from_lsn_;           // what lies below is in a snapshot
  std::optional<OpenEnd> open_end_;  // between `read` and `begin`
  std::vector<Segment> segments_;    // ascending; the last one is open for appending
  File file_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::byte> pending_;
  std::uint64_t next_lsn_ = 1;
  std::uint64_t written_lsn_ = 0;  // handed to the kernel
  std::uint64_t synced_lsn_ = 0;   // on disk
  std::uint64_t answered_lsn_ = 0;
  std::uint64_t written_bytes_ = 0, syncs_ = 0;
  std::deque<Waiting> waiting_;
  Event work_, room_, flushed_;
  std::uint64_t flush_wanted_ = 0;
  std::optional<Error> failure_;
};

}  // namespace hyperframes::ps
