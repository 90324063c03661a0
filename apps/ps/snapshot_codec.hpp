// The bytes of a parameter shard's snapshot: its tables' rows and which pushes they contain.
//
//   hf::ps::SnapshotEncoder encoder;
//   encoder.begin({.shard = 3, .token = 7, .start_lsn = 100}, out);   // then table(), rows(),
//   end() hf::ps::SnapshotDecoder decoder(visitor, "snapshot-100"); decoder.feed(bytes); // in
//   pieces of any size, then decoder.finish()
//
// A snapshot is fuzzy: slots are taken one after the other while pushes go on. Each part says up to
// which log record it contains everything; replaying the log from `start_lsn` on, past what a part
// contains already, gives the state bit by bit. It may be published only once the log is durable up
// to `end_lsn`: it holds effects of records up to there.
//
// Format, little-endian: a 64-byte header (magic "HFPSSNP\1", u32 version, u32 shard, u64 token,
// u64 start lsn, zeros, u32 crc), then sections back to back:
//   u32 length of all, u32 crc, u32 ordinal, u32 kind, then by kind
//   table: a TableSpec, 512 bytes with a bit for each slot that the shard holds
//   rows:  u32 table, u32 slot, u64 first position, u64 last position, u64 lsn, u32 rows,
//          u32 dedup bytes, the dedup part (with a slot's first part only), rows of u64 id + record
//   end:   u64 rows, u32 sections before it, u32 zero, u64 end lsn
// A section's checksum goes on from the one before it, and ordinals count up, so that a section
// that is missing, repeated or out of its order is found. A table's slots ascend, a slot's parts
// cover its positions without a gap, and no slot is left out.
#pragma once

#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/apps/ps/table_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::ps {

struct SnapshotHeader {
  std::uint32_t shard = 0;
  std::uint64_t token = 0;
  std::uint64_t start_lsn = 0;  ///< The first record that must be replayed.
};
struct SnapshotEnd {
  std::uint64_t rows = 0;
  std::uint64_t end_lsn = 0;  ///< The highest record that any part contains.
};

/// Rows of one slot whose positions (ScanPosition::of_hash) lie in [first, last].
struct SnapshotRows {
  TableId table = 0;
  Slot slot = 0;
  std::uint64_t first = 0, last = 0;
  std::uint64_t lsn = 0;  ///< Everything up to this record is contained.
  std::uint32_t count = 0;
  std::span<const std::byte> dedup{};  ///< DedupWindow::encode; with first == 0 only.
  std::span<const std::byte> rows{};   ///< count times u64 id and record.
};

class SnapshotEncoder {
 public:
  static constexpr std::size_t max_section_bytes = std::size_t{256} << 20;

  /// Each call appends to `out`, which the caller may write away and clear between calls.
  void begin(const SnapshotHeader& header, Bytes& out);
  void table(const TableSpec& spec, std::span<const Slot> slots, Bytes& out);
  /// Throws `too_large` beyond max_section_bytes.
  void rows(const SnapshotRows& part, Bytes& out);
  SnapshotEnd end(Bytes& out);

  std::uint64_t end_lsn() const noexcept { return end_.end_lsn; }

 private:
  std::size_t begin_section(std::uint32_t kind, Bytes& out) const;
  void end_section(std::size_t at, Bytes& out);
  SnapshotEnd end_;
  std::uint32_t crc_ = 0, ordinal_ = 0;
};

/// Sees what a snapshot holds, in its order. A call that throws ends the decoding.
class SnapshotVisitor {
 public:
  virtual ~SnapshotVisitor() = default;
  virtual void header(const SnapshotHeader& header) = 0;
  virtual void table(const TableSpec& spec, std::vector<Slot> slots) = 0;
  /// The spans last for the call.
  virtual void rows(const SnapshotRows& part) = 0;
  virtual void end(const SnapshotEnd& end) = 0;
};

/// Holds at most one section in memory, and no more of it than has arrived.
class SnapshotDecoder {
 public:
  /// `visitor` outlives the decoder; `file` is for the texts.
  SnapshotDecoder(SnapshotVisitor& visitor, std::string file);
  /// Throws `corrupt` or `version_mismatch`; after that the decoder is of no use.
  void feed(std::span<const std::byte> bytes);
  /// Throws `corrupt` unless the whole snapshot was seen.
  void finish() const;

 private:
  struct Table {
    std::size_t record_bytes;
    std::vector<Slot> slots;
    std::size_t next_slot = 0;        // index of the slot under way
    std::uint64_t next_position = 0;  // where its next part begins
  };
  std::size_t needed() const;
  void take(std::span<const std::byte> piece);
  void take_header(std::span<const std::byte> piece);
  void take_table(detail::ByteReader& reader);
  void take_rows(detail::ByteReader& reader);
  void take_end(detail::ByteReader& reader);
  [[noreturn]] void fail(const std::string& found) const;

  SnapshotVisitor& visitor_;
  std::string file_;
  Bytes pending_;
  std::uint64_t offset_ = 0;  // of pending_ in the file
  bool begun_ = false, ended_ = false;
  std::uint32_t crc_ = 0, ordinal_ = 0;
  std::map<TableId, Table> tables_;
  std::optional<TableId> current_;  // tables are written one after the other
  SnapshotEnd seen_;
};

}  // namespace hyperframes::ps
