// The bytes of a parameter shard's log.
//
//   hf::ps::append_push(out, head, push);                          // encode
//   auto end = hf::ps::scan_segment(bytes, 0, visit, "segment-1"); // decode, up to a torn end
//
// The log is logical: a record holds what was pushed, not the rows that came out. Replaying it in
// order runs the same arithmetic on the same values, which gives the same bits; and a gradient is
// as large as the row it changes, without the optimizer's state beside it.
//
// A segment is a 64-byte header and then records, back to back. Little-endian throughout.
//   header: magic "HFPSLOG\1", u32 version, u32 shard, u64 token, u64 first lsn, zeros, u32 crc
//   record: u32 length, u32 crc of what follows, u64 lsn, u64 synced lsn, u32 table, u8 kind,
//           3 zeros, then by kind
//   push:   u32 epoch, u32 unit, u32 batch, u32 width, u64 client, u64 incarnation, u64 sequence,
//           u64 forget before, u32 count, u32 zero, count u64 ids, count * width f32 values
//   erase:  u32 count, u32 zero, count u64 ids
//
// "Synced lsn" is what was known to be durable when the record was made. After a power loss the end
// of the log may be torn, and even hold whole records behind a hole; all of that was never
// acknowledged, and is cut off. A damaged record that a later one calls synced is another matter:
// that is corruption, and is reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/push_key.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <span>
#include <string_view>

namespace hyperframes::ps {

inline constexpr std::size_t segment_header_bytes = 64;
inline constexpr std::size_t record_header_bytes = 32;
inline constexpr std::size_t max_record_bytes = std::size_t{1} << 30;
/// Of a push's record. Beyond max_record_bytes it can't be logged, so it must not take effect.
std::uint64_t push_record_bytes(std::uint64_t count, std::uint32_t width) noexcept;

struct SegmentHeader {
  std::uint32_t shard = 0;
  std::uint64_t token = 0;
  std::uint64_t first_lsn = 0;
};
Bytes encode_segment_header(const SegmentHeader& header);
/// Throws `corrupt` or `version_mismatch`, naming `file`.
SegmentHeader decode_segment_header(std::span<const std::byte> bytes, std::string_view file);

enum class RecordKind : std::uint8_t { push = 1, erase = 2 };

struct RecordHead {
  std::uint64_t lsn = 0;
  std::uint64_t synced_lsn = 0;
  TableId table = 0;
  RecordKind kind = RecordKind::push;
};
/// Views into the record's bytes, or the caller's arrays. Ids and values need no alignment.
struct PushBody {
  PushKey key;
  std::uint64_t forget_before = 0;
  std::uint32_t width = 0;
  std::uint32_t count = 0;
  const std::byte* ids = nullptr;     ///< count u64
  const std::byte* values = nullptr;  ///< count * width f32
};
struct EraseBody {
  std::uint32_t count = 0;
  const std::byte* ids = nullptr;
};

/// Both throw `too_large` for a record beyond max_record_bytes; `out` is then as it was.
void append_push(Bytes& out, const RecordHead& head, const PushBody& push);
void append_erase(Bytes& out, const RecordHead& head, const EraseBody& erase);

/// The parts of a whole record, such as `scan_segment` hands out. Throw `corrupt`.
RecordHead decode_head(std::span<const std::byte> record);
PushBody decode_push(std::span<const std::byte> record);
EraseBody decode_erase(std::span<const std::byte> record);

struct SegmentEnd {
  std::size_t valid_bytes = 0;   ///< Header and whole records; what follows is torn.
  std::size_t synced_bytes = 0;  ///< Header and the records that a record calls synced.
  std::uint64_t next_lsn = 0;    ///< After the last whole record.
  std::uint64_t synced_lsn = 0;  ///< The highest that any record calls synced.
};
/// Visits the records of a whole segment file in order. Throws `corrupt` with the offset if a
/// record is damaged that a later one calls synced, or if the numbers have a gap. `file` is for the
/// text.
SegmentEnd scan_segment(std::span<const std::byte> bytes,
                        const std::function<void(std::span<const std::byte> record)>& visit,
                        std::string_view file);

}  // namespace hyperframes::ps
