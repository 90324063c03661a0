// One table's rows on one parameter shard, and which pushes they contain. No I/O: whoever owns it
// appends each push that took effect to the log, in the order of the calls.
//
//   hf::ps::TableState state(spec, map.slots_of(shard));
//   if (state.apply(push)) log(push);        // false: every row of it was applied before
//   state.pull(ids, values);                 // rows that don't exist: their first values
//
// Recovery is the same arithmetic again: restore() what a snapshot holds, replay() the log's
// records from the snapshot's start on, finish_recovery(). The state is then the one that was, bit
// by bit. Belongs to one core shard.
#pragma once

#include <hyperframes/apps/ps/dedup.hpp>
#include <hyperframes/apps/ps/initializer.hpp>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/apps/ps/optimizer.hpp>
#include <hyperframes/apps/ps/row_table.hpp>
#include <hyperframes/apps/ps/snapshot_codec.hpp>
#include <hyperframes/apps/ps/table_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace hyperframes::ps {

/// Where writing a table into a snapshot stands.
struct TableScan {
  std::size_t slot = 0;  ///< Index into the table's slots.
  ScanPosition position;
};

class TableState {
 public:
  /// `slots`: those of the parameter shard, ascending. Throws `invalid_argument`.
  TableState(TableSpec spec, std::vector<Slot> slots);
  TableState(const TableState&) = delete;
  TableState& operator=(const TableState&) = delete;

  /// Applies the rows whose slot has not seen the push's key; false if there was none, a push
  /// without rows included. Missing rows are created. Throws `moved` (a row of another shard),
  /// `invalid_argument` (a width, a value that is no finite number, a watermark beyond the push's
  /// own unit), `fenced` (a client's older incarnation) or `exhausted`; nothing has changed then.
  bool apply(const PushBody& push);
  /// Erases rows; those that don't exist are skipped. Throws `moved` as apply() does.
  void erase(const EraseBody& erase);
  /// `ids`: u64 each; `values`: width floats for each, weights only. Neither needs alignment.
  /// Throws `moved`, or `invalid_argument` when the sizes differ.
  void pull(std::span<const std::byte> ids, std::span<std::byte> values) const;

  /// Appends the next part to `out`: at least `budget_bytes` of rows unless the slot ends before,
  /// and never more than one group of rows beyond it. `lsn`: the last record applied so far. Pushes
  /// may go on between calls. False once the last slot is written.
  bool encode_next(TableScan& scan, std::uint64_t lsn, std::size_t budget_bytes,
                   SnapshotEncoder& encoder, Bytes& out) const;

  /// Takes in a part of a snapshot. Throws `corrupt` if a row does not belong there.
  void restore(const SnapshotRows& part);
  /// Does again what a log record did, unless a restored part contains it. Throws `corrupt`.
  void replay(std::span<const std::byte> record);
  /// From here on nothing is skipped any more.
  void finish_recovery() noexcept;

  const TableSpec& spec() const noexcept { return spec_; }
  std::span<const Slot> slots() const noexcept { return slots_; }
  std::size_t rows() const noexcept { return rows_.size(); }
  std::size_t memory_bytes() const noexcept;
  /// A hash of every row's bits and of the applied pushes: equal states, whatever their history,
  /// have equal digests. Reads everything.
  std::uint64_t digest() const;
  /// Each counter row's id, and what it reads. Reads everything.
  std::vector<std::pair<std::uint64_t, float>> counters() const;

 private:
  /// Up to which position a restored part of a slot goes, and up to which record.
  struct Contained {
    std::uint64_t last, lsn;
  };

  std::uint16_t place_of(std::uint64_t id) const;
  void check_watermark(const PushBody& push) const;
  void read_push(const PushBody& push);
  void read_ids(const std::byte* ids, std::size_t count);
  bool keep_fresh(const PushKey& key);
  void apply_rows();
  void mark(const PushKey& key);
  void keep_rows(const std::vector<char>& keep);
  bool contains(std::uint64_t id, std::uint64_t lsn) const noexcept;
  bool slot_contains(std::size_t place, std::uint64_t lsn) const noexcept;
  void replay_push(const PushBody& push, std::uint64_t lsn);
  void replay_erase(const EraseBody& erase, std::uint64_t lsn);

  TableSpec spec_;
  std::vector<Slot> slots_;
  RowTable rows_;
  DedupWindow dedup_;
  Optimizer optimizer_;
  Initializer initializer_;
  std::vector<std::vector<Contained>> contained_;  // by place; empty outside recovery
  // Of the push at hand; kept for their memory.
  std::vector<std::uint64_t> ids_;
  std::vector<std::uint16_t> places_;
  const float* values_ = nullptr;  // of ids_; the caller's, or copied_
  std::vector<float> copied_;
};

}  // namespace hyperframes::ps
