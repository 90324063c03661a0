#include <algorithm>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <optional>
#include <string>

namespace hyperframes::ps {
namespace {

constexpr const char* restore_log =
    "restore the newest copy of the work folder, and start the server once with --accept_loss: "
    "what "
    "was acknowledged since that copy is lost";

using detail::load;
using detail::put;
using detail::store;

constexpr std::uint64_t magic = 0x01474f4c53504648u;  // "HFPSLOG\1" as it lies in the file
constexpr std::uint32_t format_version = 1;
constexpr std::size_t push_fixed_bytes = 56;
constexpr std::size_t erase_fixed_bytes = 8;

void put_bytes(Bytes& out, const std::byte* from, std::size_t count) {
  if (count) out.insert(out.end(), from, from + count);
}

/// Writes the head and leaves room for length and checksum; returns where the record began.
std::size_t begin_record(Bytes& out, const RecordHead& head) {
  const std::size_t at = out.size();
  put<std::uint64_t>(out, 0);
  put<std::uint64_t>(out, head.lsn);
  put<std::uint64_t>(out, head.synced_lsn);
  put<std::uint32_t>(out, head.table);
  put<std::uint32_t>(out, static_cast<std::uint32_t>(head.kind));
  return at;
}

void end_record(Bytes& out, std::size_t at) {
  const std::size_t length = out.size() - at;
  store<std::uint32_t>(out.data() + at, static_cast<std::uint32_t>(length));
  const auto covered = std::span<const std::byte>(out).subspan(at + 8, length - 8);
  store<std::uint32_t>(out.data() + at + 4, crc32c(covered));
}

/// What is longer would be cut off as torn by the next reader.
void check_length(std::uint64_t bytes) {
  if (bytes > max_record_bytes)
    throw Error(Errc::too_large, "write a log record",
                "it would have " + std::to_string(bytes) + " bytes; at most " +
                    std::to_string(max_record_bytes) + " are read back",
                "send fewer rows at once");
}

/// The record at the front of `bytes` if it is whole and undamaged.
std::optional<std::span<const std::byte>> whole_record(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < record_header_bytes) return std::nullopt;
  const auto length = load<std::uint32_t>(bytes.data());
  if (length < record_header_bytes || length > bytes.size() || length > max_record_bytes)
    return std::nullopt;
  const auto record = bytes.first(length);
  if (crc32c(record.subspan(8)) != load<std::uint32_t>(bytes.data() + 4)) return std::nullopt;
  return record;
}

/// Looks behind a damaged record for a whole one that proves that `lsn` had been synced.
bool was_synced(std::span<const std::byte> rest, std::uint64_t lsn) noexcept {
  for (std::size_t at = 1; at + record_header_bytes <= rest.size(); ++at) {
    // Cheap tests first: the checksum of every offset would take quadratic time.
    const std::byte* head = rest.data() + at;
    const auto length = load<std::uint32_t>(head);
    if (length < record_header_bytes || length > rest.size() - at) continue;
    const auto other = load<std::uint64_t>(head + 8);
    if (other <= lsn || other - lsn > rest.size() / record_header_bytes + 1) continue;
    if (load<std::uint64_t>(head + 16) < lsn || load<std::uint64_t>(head + 16) >= other) continue;
    if (whole_record(rest.subspan(at))) return true;
  }
  return false;
}

std::span<const std::byte> body_of(std::span<const std::byte> record, std::size_t fixed) {
  if (record.size() < record_header_bytes + fixed)
    throw Error(Errc::corrupt, "read a log record",
                "it has " + std::to_string(record.size()) + " bytes");
  return record.subspan(record_header_bytes);
}

}  // namespace

Bytes encode_segment_header(const SegmentHeader& header) {
  Bytes out;
  put<std::uint64_t>(out, magic);
  put<std::uint32_t>(out, format_version);
  put<std::uint32_t>(out, header.shard);
  put<std::uint64_t>(out, header.token);
  put<std::uint64_t>(out, header.first_lsn);
  out.resize(segment_header_bytes - 4);
  put<std::uint32_t>(out, crc32c(out));
  return out;
}

SegmentHeader decode_segment_header(std::span<const std::byte> bytes, std::string_view file) {
  const std::string tried = "read the log segment '" + std::string(file) + "'";
  if (bytes.size() < segment_header_bytes)
    throw Error(Errc::corrupt, tried, "it has only " + std::to_string(bytes.size()) + " bytes",
                restore_log);
  if (load<std::uint64_t>(bytes.data()) != magic)
    throw Error(Errc::corrupt, tried, "it does not begin like one", restore_log);
  const auto version = load<std::uint32_t>(bytes.data() + 8);
  if (version != format_version)
    throw Error(Errc::version_mismatch, tried,
                "it has format version " + std::to_string(version) + "; this program reads " +
                    std::to_string(format_version),
                "use the program that wrote it");
  const auto header = bytes.first(segment_header_bytes);
  if (crc32c(header.first(segment_header_bytes - 4)) !=
      load<std::uint32_t>(header.data() + segment_header_bytes - 4))
    throw Error(Errc::corrupt, tried, "the checksum of its header differs", restore_log);
  return {load<std::uint32_t>(bytes.data() + 12), load<std::uint64_t>(bytes.data() + 16),
          load<std::uint64_t>(bytes.data() + 24)};
}

std::uint64_t push_record_bytes(std::uint64_t count, std::uint32_t width) noexcept {
  return record_header_bytes + push_fixed_bytes +
         count * (sizeof(std::uint64_t) + std::uint64_t{width} * sizeof(float));
}

void append_push(Bytes& out, const RecordHead& head, const PushBody& push) {
  check_length(push_record_bytes(push.count, push.width));
  const std::size_t at = begin_record(out, head);
  put<std::uint32_t>(out, push.key.epoch);
  put<std::uint32_t>(out, push.key.unit);
  put<std::uint32_t>(out, push.key.batch);
  put<std::uint32_t>(out, push.width);
  put<std::uint64_t>(out, push.key.client);
  put<std::uint64_t>(out, push.key.incarnation);
  put<std::uint64_t>(out, push.key.sequence);
  put<std::uint64_t>(out, push.forget_before);
  put<std::uint32_t>(out, push.count);
  put<std::uint32_t>(out, 0);
  put_bytes(out, push.ids, std::size_t{push.count} * sizeof(std::uint64_t));
  put_bytes(out, push.values, std::size_t{push.count} * push.width * sizeof(float));
  end_record(out, at);
}

void append_erase(Bytes& out, const RecordHead& head, const EraseBody& erase) {
  check_length(record_header_bytes + erase_fixed_bytes +
               std::uint64_t{erase.count} * sizeof(std::uint64_t));
  const std::size_t at = begin_record(out, head);
  put<std::uint32_t>(out, erase.count);
  put<std::uint32_t>(out, 0);
  put_bytes(out, erase.ids, std::size_t{erase.count} * sizeof(std::uint64_t));
  end_record(out, at);
}

RecordHead decode_head(std::span<const std::byte> record) {
  body_of(record, 0);
  const auto kind = load<std::uint32_t>(record.data() + 28);
  if (kind != static_cast<std::uint32_t>(RecordKind::push) &&
      kind != static_cast<std::uint32_t>(RecordKind::erase))
    throw Error(Errc::corrupt, "read a log record", "it has the kind " + std::to_string(kind));
  return {load<std::uint64_t>(record.data() + 8), load<std::uint64_t>(record.data() + 16),
          load<std::uint32_t>(record.data() + 24), static_cast<RecordKind>(kind)};
}

PushBody decode_push(std::span<const std::byte> record) {
  const auto body = body_of(record, push_fixed_bytes);
  const std::byte* at = body.data();
  PushBody push;
  push.key.epoch = load<std::uint32_t>(at);
  push.key.unit = load<std::uint32_t>(at + 4);
  push.key.batch = load<std::uint32_t>(at + 8);
  push.width = load<std::uint32_t>(at + 12);
  push.key.client = load<std::uint64_t>(at + 16);
  push.key.incarnation = load<std::uint64_t>(at + 24);
  push.key.sequence = load<std::uint64_t>(at + 32);
  push.forget_before = load<std::uint64_t>(at + 40);
  push.count = load<std::uint32_t>(at + 48);
  const std::uint64_t row = sizeof(std::uint64_t) + std::uint64_t{push.width} * sizeof(float);
  if (push.width > max_record_bytes || body.size() - push_fixed_bytes != push.count * row)
    throw Error(Errc::corrupt, "read a push from the log",
                "its size does not fit " + std::to_string(push.count) + " rows of " +
                    std::to_string(push.width) + " values");
  push.ids = at + push_fixed_bytes;
  push.values = push.ids + std::size_t{push.count} * sizeof(std::uint64_t);
  return push;
}

EraseBody decode_erase(std::span<const std::byte> record) {
  const auto body = body_of(record, erase_fixed_bytes);
  const auto count = load<std::uint32_t>(body.data());
  if (body.size() - erase_fixed_bytes != std::uint64_t{count} * sizeof(std::uint64_t))
    throw Error(Errc::corrupt, "read an erasure from the log",
                "its size does not fit " + std::to_string(count) + " ids");
  return {count, body.data() + erase_fixed_bytes};
}

namespace {
/// Where the records end that `end.synced_lsn` vouches for.
std::size_t synced_end(std::span<const std::byte> bytes, const SegmentEnd& end) noexcept {
  std::size_t at = segment_header_bytes;
  while (at < end.valid_bytes && load<std::uint64_t>(bytes.data() + at + 8) <= end.synced_lsn)
    at += load<std::uint32_t>(bytes.data() + at);
  return at;
}
}  // namespace

SegmentEnd scan_segment(std::span<const std::byte> bytes,
                        const std::function<void(std::span<const std::byte>)>& visit,
                        std::string_view file) {
  const SegmentHeader header = decode_segment_header(bytes, file);
  SegmentEnd end{
      .valid_bytes = segment_header_bytes, .synced_bytes = 0, .next_lsn = header.first_lsn};
  while (end.valid_bytes < bytes.size()) {
    const auto rest = bytes.subspan(end.valid_bytes);
    const auto record = whole_record(rest);
    const std::string tried =
        "read the log segment '" + std::string(file) + "' at " + std::to_string(end.valid_bytes);
    if (!record) {
      if (was_synced(rest, end.next_lsn))
        throw Error(Errc::corrupt, tried,
                    "record " + std::to_string(end.next_lsn) +
                        " is damaged, although it was synced: later records say so",
                    restore_log);
      break;
    }
    const RecordHead head = decode_head(*record);
    if (head.lsn != end.next_lsn)
      throw Error(Errc::corrupt, tried,
                  "record " + std::to_string(head.lsn) + " stands where " +
                      std::to_string(end.next_lsn) + " belongs",
                  restore_log);
    if (visit) visit(*record);
    end.valid_bytes += record->size();
    end.next_lsn = head.lsn + 1;
    end.synced_lsn = std::max(end.synced_lsn, head.synced_lsn);
  }
  end.synced_bytes = synced_end(bytes, end);
  return end;
}

}  // namespace hyperframes::ps
