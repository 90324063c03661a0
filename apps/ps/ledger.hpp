// A worker's ledger: which pushes it sent, and which of them were acknowledged. With it a separate
// process can prove that nothing acknowledged was lost and nothing was applied twice.
//
//   auto ledger = co_await ps::Ledger::open("worker-0.ledger");
//   co_await ledger->begin(cluster);                     // whose pushes it notes from here on
//   co_await ledger->add({entry});                       // in doubt, before the push is sent
//   co_await ledger->add({entry.acknowledged()});        // after its acknowledgement
//   co_await ledger->sync();                             // both survive power loss from here on
//
// A file of fixed, checksummed records that only grows, behind a header that says which cluster
// took the pushes: another one's servers can't hold them. What a crash left at its end of records
// that had not been synced is cut off when it is opened again; damage before that is reported as
// corrupt. Records of one push need not be in one ledger: whoever takes over a work unit sends, and
// notes, the same pushes.
#pragma once

#include <compare>
#include <cstdint>
#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/machine.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/mutex.hpp>
#include <hyperframes/runtime/task.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::ps {

/// One message of a push: the part of a batch that went to one parameter shard.
struct LedgerEntry {
  enum class State : std::uint32_t { in_doubt = 1, acknowledged = 2 };

  std::uint32_t job = 0;
  std::uint32_t epoch = 0;
  std::uint32_t unit = 0;
  std::uint32_t batch = 0;
  TableId table = 0;
  ShardId shard = 0;
  std::uint64_t counter = 0;  ///< The id of its counter row, in that table.
  State state = State::in_doubt;

  LedgerEntry acknowledged() const noexcept {
    LedgerEntry entry = *this;
    entry.state = State::acknowledged;
    return entry;
  }
  friend bool operator==(const LedgerEntry&, const LedgerEntry&) = default;
};

/// A ledger that is written. One core shard's.
class Ledger {
 public:
  static constexpr std::size_t header_bytes = 28;
  static constexpr std::size_t record_bytes = 40;

  /// Makes the file or reads it, and keeps others from writing it. Throws `corrupt`,
  /// `version_mismatch`, `rejected` while another process writes it, and what the file system says.
  /// `machine`, where it is, outlives it.
  static Task<std::unique_ptr<Ledger>> open(std::string path, Machine& machine = Machine::real());
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Goes on after its last whole record with the pushes to this cluster (ClusterView::cluster).
  /// Once, before the first `add`. Throws `rejected`, and changes nothing, if it notes those to
  /// another one.
  Task<void> begin(std::uint64_t cluster);
  /// Appends; written when it completes, so that it survives this process. In the order of the
  /// calls.
  Task<void> add(std::vector<LedgerEntry> entries);
  /// What was added before survives power loss. Calls that overlap share one flush. Once one has
  /// failed all do: only a new `open` and `begin` help.
  Task<void> sync();
  /// A file that was made for nothing, as `begin` was not called, goes.
  Task<void> close();
  std::uint64_t entries() const noexcept { return (end_ - header_bytes) / record_bytes; }

 private:
  class Lock;
  Ledger(std::string path, File file, std::unique_ptr<Lock> lock);
  Task<void> settle();

  std::string path_;
  std::unique_ptr<Lock> lock_;  // keeps other processes out
  File file_;
  std::uint64_t cluster_ = 0;  // 0: it has no header yet
  bool was_empty_ = false;
  Bytes found_;  // until it is begun, and thereby durable
  std::uint64_t end_ = header_bytes;
  std::uint64_t synced_end_ = 0;
  bool sync_failed_ = false;
  Mutex writing_, syncing_;
};

/// What stands in a ledger.
struct LedgerContents {
  std::uint64_t cluster = 0;  ///< Which took the pushes; 0: its worker had not begun it yet.
  std::vector<LedgerEntry> entries{};
};

/// Reads a ledger's whole records. Blocks. Throws as `open` does, and `invalid_argument` for one
/// that no worker has begun: it proves nothing.
LedgerContents read_ledger(const std::string& path);
/// The same of its bytes, where one that was not begun is fine; `path` is for the texts of errors.
LedgerContents parse_ledger(std::span<const std::byte> bytes, const std::string& path);

/// The pushes of several ledgers, each once: acknowledged if any of them says so.
class LedgerSummary {
 public:
  struct Key {
    TableId table = 0;
    std::uint64_t counter = 0;
    auto operator<=>(const Key&) const = default;
  };
  void add(std::span<const LedgerEntry> entries);
  /// Throws `invalid_argument` for ledgers of different clusters.
  void add(const LedgerContents& ledger, const std::string& path);
  void keep_only(TableId table);
  /// 0: not known.
  std::uint64_t cluster() const noexcept { return cluster_; }
  const std::map<Key, LedgerEntry>& pushes() const noexcept { return pushes_; }

 private:
  std::map<Key, LedgerEntry> pushes_;
  std::uint64_t cluster_ = 0;
  std::string cluster_of_;  // the path of the ledger that says so
};

}  // namespace hyperframes::ps
