#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <hyperframes/apps/ps/log_record.hpp>
#include <random>

using namespace hyperframes;
using namespace hyperframes::ps;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Example {
  std::vector<std::uint64_t> ids;
  std::vector<float> values;
  PushBody push;
};

Example example(std::uint32_t count, std::uint32_t width, float first) {
  Example made;
  for (std::uint32_t i = 0; i < count; ++i) made.ids.push_back(i * 7919u);
  for (std::uint32_t i = 0; i < count * width; ++i)
    made.values.push_back(first + static_cast<float>(i));
  made.push = {.key = PushKey::leased(1, 2, 3),
               .forget_before = 4,
               .width = width,
               .count = count,
               .ids = reinterpret_cast<const std::byte*>(made.ids.data()),
               .values = reinterpret_cast<const std::byte*>(made.values.data())};
  return made;
}

/// A segment whose records call everything before the one before them synced.
Bytes segment_of(std::uint64_t first_lsn, int records, bool acknowledge = true) {
  Bytes out = encode_segment_header({.shard = 3, .token = 9, .first_lsn = first_lsn});
  for (int i = 0; i < records; ++i) {
    const auto lsn = first_lsn + static_cast<std::uint64_t>(i);
    const auto made = example(5, 4, static_cast<float>(i));
    append_push(out, {.lsn = lsn, .synced_lsn = acknowledge ? lsn - 1 : 0, .table = 1}, made.push);
  }
  return out;
}

std::vector<std::uint64_t> lsns_of(const Bytes& bytes, SegmentEnd* end = nullptr) {
  std::vector<std::uint64_t> seen;
  const auto found =
      scan_segment(bytes, [&](auto record) { seen.push_back(decode_head(record).lsn); }, "segment");
  if (end) *end = found;
  return seen;
}

}  // namespace

TEST_CASE("a push comes out of the log as it went in") {
  Bytes out;
  const auto made = example(3, 2, 0.5f);
  append_push(out, {.lsn = 17, .synced_lsn = 12, .table = 8}, made.push);
  const RecordHead head = decode_head(out);
  CHECK((head.lsn == 17 && head.synced_lsn == 12 && head.table == 8));
  const PushBody push = decode_push(out);
  CHECK(push.key == PushKey::leased(1, 2, 3));
  CHECK((push.forget_before == 4 && push.width == 2 && push.count == 3));
  CHECK(std::memcmp(push.ids, made.ids.data(), 24) == 0);
  CHECK(std::memcmp(push.values, made.values.data(), 24) == 0);
}

TEST_CASE("a segment's records are visited in order") {
  SegmentEnd end;
  const Bytes bytes = segment_of(40, 10);
  CHECK(lsns_of(bytes, &end).size() == 10);
  CHECK(end.next_lsn == 50);
  CHECK(end.valid_bytes == bytes.size());
  CHECK(end.synced_lsn == 48);
  CHECK(end.synced_bytes == segment_of(40, 9).size());
}

TEST_CASE("a torn end is cut off at the last whole record, wherever it was torn") {
  const Bytes whole = segment_of(1, 4);
  const Bytes three = segment_of(1, 3);
  for (std::size_t size = three.size(); size < whole.size(); ++size) {
    SegmentEnd end;
    CHECK(lsns_of(Bytes(whole.begin(), whole.begin() + static_cast<long>(size)), &end).size() == 3);
    CHECK(end.valid_bytes == three.size());
  }
}

TEST_CASE("records behind a hole that nobody was told to be durable are cut off") {
  Bytes bytes = segment_of(1, 6, false);
  const std::size_t second = segment_of(1, 1).size();
  bytes[second + 40] ^= std::byte{1};
  CHECK(lsns_of(bytes) == std::vector<std::uint64_t>{1});
}

TEST_CASE("damage to a record that a later one calls synced is reported with its place") {
  Bytes bytes = segment_of(1, 6);
  const std::size_t second = segment_of(1, 1).size();
  bytes[second + 40] ^= std::byte{1};
  try {
    lsns_of(bytes);
    FAIL("nothing was reported");
  } catch (const Error& error) {
    CHECK(error.is(Errc::corrupt));
    CHECK_THAT(error.what(),
               ContainsSubstring("record 2") && ContainsSubstring(std::to_string(second)));
  }
}

TEST_CASE("a record too long to be read back is not written") {
  Bytes out;
  auto made = example(3, 2, 0.5f);
  made.push.count = static_cast<std::uint32_t>(max_record_bytes / 16);  // of 16 bytes each
  CHECK(push_record_bytes(made.push.count, made.push.width) > max_record_bytes);
  CHECK_THROWS_WITH(append_push(out, {.lsn = 1, .synced_lsn = 0, .table = 8}, made.push),
                    ContainsSubstring("too_large"));
  CHECK_THROWS_AS(append_erase(out, {.lsn = 1, .kind = RecordKind::erase},
                               {.count = std::uint32_t{1} << 27, .ids = made.push.ids}),
                  Error);
  CHECK(out.empty());
  Bytes whole;
  const auto small = example(3, 2, 0.5f);
  append_push(whole, {.lsn = 1, .synced_lsn = 0, .table = 8}, small.push);
  CHECK(whole.size() == push_record_bytes(3, 2));
}

TEST_CASE("a file of another version names both versions") {
  Bytes bytes = segment_of(1, 1);
  bytes[8] = std::byte{7};
  CHECK_THROWS_WITH(lsns_of(bytes), ContainsSubstring("version 7") && ContainsSubstring("reads 1"));
}

TEST_CASE("random damage ends in a shorter log or a corrupt error, never elsewhere") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const Bytes whole = segment_of(1, 8);
  for (int round = 0; round < 2000; ++round) {
    Bytes bytes = whole;
    for (unsigned flips = 1 + random() % 4; flips; --flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
    if (random() % 3 == 0) bytes.resize(random() % bytes.size());
    try {
      std::uint64_t next = 1;
      scan_segment(
          bytes,
          [&](auto record) {
            CHECK(decode_head(record).lsn == next++);
            if (decode_head(record).kind == RecordKind::push) decode_push(record);
          },
          "segment");
    } catch (const Error& error) {
      CHECK((error.is(Errc::corrupt) || error.is(Errc::version_mismatch)));
    }
  }
}
