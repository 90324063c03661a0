#include <hyperframes/apps/ps/snapshot_codec.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

using namespace hyperframes::ps;

namespace {

constexpr std::uint64_t top = ~std::uint64_t{0};

struct Seen final : SnapshotVisitor {
  SnapshotHeader head;
  std::vector<TableSpec> tables;
  std::vector<std::vector<Slot>> slots;
  std::vector<std::pair<Slot, Bytes>> parts;
  SnapshotEnd last;
  void header(const SnapshotHeader& header) override { head = header; }
  void table(const TableSpec& spec, std::vector<Slot> held) override {
    tables.push_back(spec), slots.push_back(std::move(held));
  }
  void rows(const SnapshotRows& part) override {
    parts.emplace_back(part.slot, Bytes(part.rows.begin(), part.rows.end()));
  }
  void end(const SnapshotEnd& end) override { last = end; }
};

TableSpec spec_of(TableId id) {
  TableSpec spec;
  spec.id = id;
  spec.name = "table";
  spec.width = 2;
  spec.optimizer = OptimizerKind::sgd;
  return spec;
}

Bytes some_rows(std::uint32_t count) { return Bytes(count * 16, std::byte{7}); }

/// The sections of a good snapshot, apart: header, two tables with their rows, end.
std::vector<Bytes> good_sections() {
  std::vector<Bytes> sections;
  SnapshotEncoder encoder;
  const std::vector<Slot> slots{3, 70, 4095};
  const Bytes dedup(5, std::byte{1});
  encoder.begin({.shard = 2, .token = 9, .start_lsn = 50}, sections.emplace_back());
  for (const TableId table : {4u, 1u}) {
    encoder.table(spec_of(table), slots, sections.emplace_back());
    for (const Slot slot : slots) {
      const auto first = some_rows(3), second = some_rows(1);
      encoder.rows({.table = table,
                    .slot = slot,
                    .first = 0,
                    .last = 999,
                    .lsn = 60,
                    .count = 3,
                    .dedup = dedup,
                    .rows = first},
                   sections.emplace_back());
      encoder.rows({.table = table,
                    .slot = slot,
                    .first = 1000,
                    .last = top,
                    .lsn = 61,
                    .count = 1,
                    .dedup = {},
                    .rows = second},
                   sections.emplace_back());
    }
  }
  encoder.end(sections.emplace_back());
  return sections;
}

Bytes joined(const std::vector<Bytes>& sections) {
  Bytes all;
  for (const auto& section : sections) all.insert(all.end(), section.begin(), section.end());
  return all;
}

void decode(std::span<const std::byte> bytes, Seen& seen, std::size_t piece = 1 << 20) {
  SnapshotDecoder decoder(seen, "test");
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(piece, bytes.size())))
    decoder.feed(bytes.first(std::min(piece, bytes.size())));
  decoder.finish();
}

void check_refused(std::span<const std::byte> bytes) {
  Seen seen;
  try {
    decode(bytes, seen);
    FAIL_CHECK("a damaged snapshot was taken");
  } catch (const hf::Error& error) {
    CHECK((error.is(hf::Errc::corrupt) || error.is(hf::Errc::version_mismatch)));
  }
}

/// Encodes by `write` where good parts would stand; the checksums are right, the contents not.
void check_contents_refused(const std::function<void(SnapshotEncoder&, Bytes&)>& write) {
  Bytes bytes;
  SnapshotEncoder encoder;
  encoder.begin({.shard = 0, .token = 1, .start_lsn = 1}, bytes);
  write(encoder, bytes);
  encoder.end(bytes);
  check_refused(bytes);
}

}  // namespace

TEST_CASE("a snapshot comes out as it went in, in pieces of any size") {
  const auto bytes = joined(good_sections());
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{100}, bytes.size()}) {
    Seen seen;
    decode(bytes, seen, piece);
    CHECK(seen.head.shard == 2);
    CHECK(seen.head.token == 9);
    CHECK(seen.head.start_lsn == 50);
    REQUIRE(seen.tables.size() == 2);
    CHECK(seen.tables[0] == spec_of(4));
    CHECK(seen.slots[1] == std::vector<Slot>{3, 70, 4095});
    REQUIRE(seen.parts.size() == 12);
    CHECK(seen.parts[2].first == 70);
    CHECK(seen.parts[2].second == some_rows(3));
    CHECK(seen.last.rows == 24);
    CHECK(seen.last.end_lsn == 61);
  }
}

TEST_CASE("a section that is missing, repeated or out of order is found") {
  const auto good = good_sections();
  for (std::size_t i = 1; i + 1 < good.size(); ++i) {
    auto sections = good;
    sections.erase(sections.begin() + static_cast<std::ptrdiff_t>(i));
    check_refused(joined(sections));
    sections = good;
    sections.insert(sections.begin() + static_cast<std::ptrdiff_t>(i), good[i]);
    check_refused(joined(sections));
    sections = good;
    std::swap(sections[i], sections[i + 1]);
    check_refused(joined(sections));
  }
}

TEST_CASE("sections of another snapshot don't fit in") {
  auto sections = good_sections();
  Bytes other;
  SnapshotEncoder encoder;
  encoder.begin({.shard = 2, .token = 10, .start_lsn = 50}, other);
  Bytes table;
  encoder.table(spec_of(4), std::vector<Slot>{3, 70, 4095}, table);
  sections[1] = table;
  check_refused(joined(sections));
}

TEST_CASE("a snapshot cut short anywhere is refused, and so are bytes behind it") {
  auto bytes = joined(good_sections());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    check_refused(std::span(bytes).first(length));
  bytes.push_back(std::byte{0});
  check_refused(bytes);
}

TEST_CASE("every damaged byte of a snapshot is noticed") {
  auto bytes = joined(good_sections());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{0x20};
    check_refused(bytes);
    bytes[at] ^= std::byte{0x20};
  }
}

TEST_CASE("a well-formed snapshot that leaves something out is refused") {
  const std::vector<Slot> slots{1, 2};
  const Bytes dedup(1), one = some_rows(1);
  const auto part = [&](Slot slot, std::uint64_t first, std::uint64_t last) {
    return SnapshotRows{
        .table = 1,
        .slot = slot,
        .first = first,
        .last = last,
        .lsn = 1,
        .count = 1,
        .dedup = first == 0 ? std::span<const std::byte>(dedup) : std::span<const std::byte>{},
        .rows = one};
  };
  check_contents_refused([&](auto& e, auto& out) { e.table(spec_of(1), slots, out); });
  check_contents_refused([&](auto& e, auto& out) {  // slot 2 is missing
    e.table(spec_of(1), slots, out);
    e.rows(part(1, 0, top), out);
  });
  check_contents_refused([&](auto& e, auto& out) {  // slot 1 is missing
    e.table(spec_of(1), slots, out);
    e.rows(part(2, 0, top), out);
  });
  check_contents_refused([&](auto& e, auto& out) {  // a gap of positions
    e.table(spec_of(1), slots, out);
    e.rows(part(1, 0, 9), out);
    e.rows(part(1, 11, top), out);
    e.rows(part(2, 0, top), out);
  });
  check_contents_refused([&](auto& e, auto& out) {  // an unfinished slot
    e.table(spec_of(1), slots, out);
    e.rows(part(1, 0, 9), out);
    e.rows(part(2, 0, top), out);
  });
  check_contents_refused([&](auto& e, auto& out) {  // rows of no table
    e.rows(part(1, 0, top), out);
  });
  check_contents_refused([&](auto& e, auto& out) {  // the applied pushes are missing
    e.table(spec_of(1), std::vector<Slot>{1}, out);
    auto bare = part(1, 0, top);
    bare.dedup = {};
    e.rows(bare, out);
  });
  check_contents_refused([&](auto& e, auto& out) {  // rows of another size
    e.table(spec_of(1), std::vector<Slot>{1}, out);
    auto wrong = part(1, 0, top);
    wrong.count = 2;
    e.rows(wrong, out);
  });
  check_contents_refused([&](auto& e, auto& out) {  // the same table twice
    e.table(spec_of(1), std::vector<Slot>{1}, out);
    e.rows(part(1, 0, top), out);
    e.table(spec_of(1), std::vector<Slot>{1}, out);
    e.rows(part(1, 0, top), out);
  });
}

TEST_CASE("a section that claims to be huge is refused before memory is taken") {
  auto bytes = joined(good_sections());
  detail::store<std::uint32_t>(bytes.data() + 64, 0xfffffff0u);
  check_refused(std::span(bytes).first(100));
}

TEST_CASE("a snapshot of another version names both versions") {
  auto bytes = joined(good_sections());
  detail::store<std::uint32_t>(bytes.data() + 8, 77);
  Seen seen;
  try {
    decode(bytes, seen);
    FAIL("it was taken");
  } catch (const hf::Error& error) {
    CHECK(error.is(hf::Errc::version_mismatch));
    CHECK(error.found().find("77") != std::string::npos);
    CHECK(error.found().find("reads 1") != std::string::npos);
  }
}
