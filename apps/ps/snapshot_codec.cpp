#include <hyperframes/apps/ps/snapshot_codec.hpp>

#include <hyperframes/runtime/crc32c.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hyperframes::ps {
namespace {

constexpr std::uint64_t magic = 0x01504e5353504648u;  // "HFPSSNP\1" as it lies in the file
constexpr std::uint32_t format_version = 1;
constexpr std::size_t header_bytes = 64;
constexpr std::size_t section_head_bytes = 16;
constexpr std::size_t bitmap_bytes = slot_count / 8;
constexpr std::uint64_t last_position = ~std::uint64_t{0};
enum Kind : std::uint32_t { kind_table = 1, kind_rows = 2, kind_end = 3 };

}  // namespace

void SnapshotEncoder::begin(const SnapshotHeader& header, Bytes& out) {
  const std::size_t at = out.size();
  detail::put<std::uint64_t>(out, magic);
  detail::put<std::uint32_t>(out, format_version);
  detail::put<std::uint32_t>(out, header.shard);
  detail::put<std::uint64_t>(out, header.token);
  detail::put<std::uint64_t>(out, header.start_lsn);
  out.resize(at + header_bytes - 4);
  crc_ = crc32c(std::span(out).subspan(at));
  detail::put<std::uint32_t>(out, crc_);
  // What the snapshot is begun at, it contains, though no part may say so.
  end_ = {.rows = 0, .end_lsn = header.start_lsn == 0 ? 0 : header.start_lsn - 1};
}

std::size_t SnapshotEncoder::begin_section(std::uint32_t kind, Bytes& out) const {
  const std::size_t at = out.size();
  detail::put<std::uint64_t>(out, 0);
  detail::put<std::uint32_t>(out, ordinal_);
  detail::put<std::uint32_t>(out, kind);
  return at;
}

void SnapshotEncoder::end_section(std::size_t at, Bytes& out) {
  const auto section = std::span(out).subspan(at);
  detail::store<std::uint32_t>(section.data(), static_cast<std::uint32_t>(section.size()));
  crc_ = crc32c(section.subspan(8), crc32c(section.first(4), crc_));
  detail::store<std::uint32_t>(section.data() + 4, crc_);
  ++ordinal_;
}

void SnapshotEncoder::table(const TableSpec& spec, std::span<const Slot> slots, Bytes& out) {
  const std::size_t at = begin_section(kind_table, out);
  spec.encode(out);
  std::array<std::uint8_t, bitmap_bytes> bitmap{};
  for (const Slot slot : slots) bitmap[slot / 8] |= static_cast<std::uint8_t>(1u << (slot % 8));
  detail::put_array<std::uint8_t>(out, bitmap);
  end_section(at, out);
}

void SnapshotEncoder::rows(const SnapshotRows& part, Bytes& out) {
  const std::size_t size = section_head_bytes + 40 + part.dedup.size() + part.rows.size();
  if (size > max_section_bytes)
    throw Error(Errc::too_large, fmt::format("write slot {} of table {}", part.slot, part.table),
                fmt::format("a part of {} bytes; at most {} fit", size, max_section_bytes),
                "use narrower rows");
  const std::size_t at = begin_section(kind_rows, out);
  detail::put<std::uint32_t>(out, part.table);
  detail::put<std::uint32_t>(out, part.slot);
  detail::put<std::uint64_t>(out, part.first);
  detail::put<std::uint64_t>(out, part.last);
  detail::put<std::uint64_t>(out, part.lsn);
  detail::put<std::uint32_t>(out, part.count);
  detail::put<std::uint32_t>(out, static_cast<std::uint32_t>(part.dedup.size()));
  out.insert(out.end(), part.dedup.begin(), part.dedup.end());
  out.insert(out.end(), part.rows.begin(), part.rows.end());
  end_section(at, out);
  end_.rows += part.count;
  end_.end_lsn = std::max(end_.end_lsn, part.lsn);
}

SnapshotEnd SnapshotEncoder::end(Bytes& out) {
  const std::size_t at = begin_section(kind_end, out);
  detail::put<std::uint64_t>(out, end_.rows);
  detail::put<std::uint32_t>(out, ordinal_);
  detail::put<std::uint32_t>(out, 0);
  detail::put<std::uint64_t>(out, end_.end_lsn);
  end_section(at, out);
  return end_;
}

SnapshotDecoder::SnapshotDecoder(SnapshotVisitor& visitor, std::string file)
    : visitor_(visitor), file_(std::move(file)) {}

void SnapshotDecoder::fail(const std::string& found) const {
  throw Error(Errc::corrupt, fmt::format("read the snapshot '{}' at byte {}", file_, offset_),
              found, "restore the file from a copy: the log before it is gone");
}

/// How many bytes the piece under way has, as far as one can tell yet.
std::size_t SnapshotDecoder::needed() const {
  if (!begun_) return header_bytes;
  if (pending_.size() < section_head_bytes) return section_head_bytes;
  const auto length = detail::load<std::uint32_t>(pending_.data());
  if (length < section_head_bytes || length > SnapshotEncoder::max_section_bytes)
    fail(fmt::format("a section of {} bytes", length));
  return length;
}

void SnapshotDecoder::feed(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (ended_) fail("bytes behind the end");
    const std::size_t part = std::min(needed() - pending_.size(), bytes.size());
    pending_.insert(pending_.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (pending_.size() < needed()) continue;
    take(pending_);
    offset_ += pending_.size();
    pending_.clear();
  }
}

void SnapshotDecoder::finish() const {
  if (!ended_) fail("it ends before its end section");
}

void SnapshotDecoder::take_header(std::span<const std::byte> piece) {
  detail::ByteReader reader(piece, "read a snapshot");
  if (reader.get<std::uint64_t>() != magic) fail("it does not begin like a snapshot");
  if (const auto version = reader.get<std::uint32_t>(); version != format_version)
    throw Error(
        Errc::version_mismatch, fmt::format("read the snapshot '{}'", file_),
        fmt::format("it has format version {}; this program reads {}", version, format_version),
        "use the program that wrote it");
  crc_ = crc32c(piece.first(header_bytes - 4));
  if (detail::load<std::uint32_t>(piece.data() + header_bytes - 4) != crc_)
    fail("the checksum of its header differs");
  SnapshotHeader header;
  header.shard = reader.get<std::uint32_t>();
  header.token = reader.get<std::uint64_t>();
  header.start_lsn = reader.get<std::uint64_t>();
  seen_.end_lsn = header.start_lsn == 0 ? 0 : header.start_lsn - 1;
  begun_ = true;
  visitor_.header(header);
}

void SnapshotDecoder::take(std::span<const std::byte> piece) {
  if (!begun_) return take_header(piece);
  detail::ByteReader reader(piece.subspan(8), "read a snapshot");
  const auto ordinal = reader.get<std::uint32_t>();
  if (ordinal != ordinal_)
    fail(fmt::format("section {} stands where {} belongs: one is missing, repeated or out of order",
                     ordinal, ordinal_));
  crc_ = crc32c(piece.subspan(8), crc32c(piece.first(4), crc_));
  if (detail::load<std::uint32_t>(piece.data() + 4) != crc_)
    fail(fmt::format("the checksum of section {} differs", ordinal));
  switch (const auto kind = reader.get<std::uint32_t>()) {
    case kind_table: take_table(reader); break;
    case kind_rows: take_rows(reader); break;
    case kind_end: take_end(reader); break;
    default: fail(fmt::format("a section of the unknown kind {}", kind));
  }
  ++ordinal_;
}

void SnapshotDecoder::take_table(detail::ByteReader& reader) {
  const TableSpec spec = TableSpec::decode(reader);
  std::vector<std::uint8_t> bitmap;
  reader.get_array(bitmap_bytes, bitmap);
  reader.expect_end();
  Table table{.record_bytes = spec.record_bytes(), .slots = {}};
  for (std::size_t slot = 0; slot < slot_count; ++slot)
    if ((bitmap[slot / 8] >> (slot % 8)) & 1) table.slots.push_back(static_cast<Slot>(slot));
  if (table.slots.empty()) fail(fmt::format("table {} has no slot", spec.id));
  if (current_ && tables_.at(*current_).next_slot != tables_.at(*current_).slots.size())
    fail(fmt::format("table {} begins before table {} is complete", spec.id, *current_));
  auto slots = table.slots;
  if (!tables_.emplace(spec.id, std::move(table)).second)
    fail(fmt::format("table {} twice", spec.id));
  current_ = spec.id;
  visitor_.table(spec, std::move(slots));
}

void SnapshotDecoder::take_rows(detail::ByteReader& reader) {
  SnapshotRows part;
  part.table = reader.get<std::uint32_t>();
  const auto slot = reader.get<std::uint32_t>();
  part.first = reader.get<std::uint64_t>();
  part.last = reader.get<std::uint64_t>();
  part.lsn = reader.get<std::uint64_t>();
  part.count = reader.get<std::uint32_t>();
  part.dedup = reader.take(reader.get<std::uint32_t>());
  if (current_ != part.table) fail(fmt::format("rows of table {} outside it", part.table));
  Table& table = tables_.at(part.table);
  if (table.next_slot == table.slots.size() || slot != table.slots[table.next_slot])
    fail(fmt::format("slot {} of table {} out of its order", slot, part.table));
  part.slot = static_cast<Slot>(slot);
  if (part.first != table.next_position || part.last < part.first)
    fail(fmt::format("a part of slot {} of table {} that does not follow the one before", slot,
                     part.table));
  if (part.first == 0 ? part.dedup.empty() : !part.dedup.empty())
    fail(fmt::format("slot {} of table {} has its applied pushes in the wrong part", slot,
                     part.table));
  if (reader.left() != part.count * std::uint64_t{sizeof(std::uint64_t) + table.record_bytes})
    fail(fmt::format("{} bytes for {} rows of {} bytes", reader.left(), part.count,
                     table.record_bytes));
  part.rows = reader.take(reader.left());
  table.next_position = part.last + 1;
  if (part.last == last_position) ++table.next_slot;
  seen_.rows += part.count;
  seen_.end_lsn = std::max(seen_.end_lsn, part.lsn);
  visitor_.rows(part);
}

void SnapshotDecoder::take_end(detail::ByteReader& reader) {
  SnapshotEnd end;
  end.rows = reader.get<std::uint64_t>();
  const auto sections = reader.get<std::uint32_t>();
  reader.get<std::uint32_t>();
  end.end_lsn = reader.get<std::uint64_t>();
  reader.expect_end();
  for (const auto& [id, table] : tables_)
    if (table.next_slot != table.slots.size())
      fail(fmt::format("table {} ends before its slot {}", id, table.slots[table.next_slot]));
  if (end.rows != seen_.rows || sections != ordinal_ || end.end_lsn != seen_.end_lsn)
    fail(
        fmt::format("it counts {} rows in {} sections up to record {}; {} in {} up to {} were read",
                    end.rows, sections, end.end_lsn, seen_.rows, ordinal_, seen_.end_lsn));
  ended_ = true;
  visitor_.end(end);
}

}  // namespace hyperframes::ps
