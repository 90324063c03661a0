#include <hyperframes/apps/ps/row_table.hpp>

#include <hyperframes/runtime/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

using namespace hyperframes::ps;

namespace {

std::uint32_t read(const std::byte* payload) {
  std::uint32_t value;
  std::memcpy(&value, payload, sizeof value);
  return value;
}
void write(std::byte* payload, std::uint32_t value) { std::memcpy(payload, &value, sizeof value); }

std::vector<std::uint64_t> keys_of(const RowTable& table, Slot slot) {
  std::vector<std::uint64_t> keys;
  ScanPosition position;
  while (!position.done)
    table.scan(slot, position, 7,
               [&](std::uint64_t key, const std::byte*) { keys.push_back(key); });
  return keys;
}

/// Some slots only: the first of every `stride`.
std::vector<Slot> some_slots(std::size_t stride) {
  std::vector<Slot> slots;
  for (std::size_t slot = 0; slot < slot_count; slot += stride)
    slots.push_back(static_cast<Slot>(slot));
  return slots;
}

}  // namespace

TEST_CASE("a row table holds what was put in and nothing else") {
  RowTable table(0, 12, all_slots());
  CHECK(table.find(1) == nullptr);
  auto [payload, inserted] = table.find_or_insert(1);
  CHECK(inserted);
  write(payload, 77);
  CHECK_FALSE(table.find_or_insert(1).inserted);
  CHECK(read(table.find(1)) == 77);
  CHECK(table.find(2) == nullptr);
  CHECK(table.size() == 1);
  CHECK(table.erase(1));
  CHECK_FALSE(table.erase(1));
  CHECK(table.size() == 0);
}

TEST_CASE("a row table agrees with a map over random inserts, updates, erases and batches") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const std::size_t payload_bytes : {4, 20, 96}) {
    const auto slots = some_slots(64);
    RowTable table(3, payload_bytes, slots);
    std::unordered_map<std::uint64_t, std::uint32_t> model;
    std::vector<std::uint64_t> universe;  // keys of held slots
    for (std::uint64_t key = random() % 1000; universe.size() < 6000; ++key)
      if (table.owns(slot_of(3, key))) universe.push_back(key);
    const auto any = [&] { return universe[random() % universe.size()]; };
    for (int step = 0; step < 60'000; ++step) {
      const auto key = any();
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const auto value = static_cast<std::uint32_t>(random());
          write(table.find_or_insert(key).payload, value);
          model[key] = value;
          break;
        }
        case 4:
        case 5: REQUIRE(table.erase(key) == (model.erase(key) == 1)); break;
        case 6: {
          const auto* payload = table.find(key);
          REQUIRE((payload != nullptr) == model.contains(key));
          if (payload != nullptr) REQUIRE(read(payload) == model[key]);
          break;
        }
        case 7: {
          if (step % 16 != 0) break;
          std::vector<std::uint64_t> keys(random() % 700);
          for (auto& k : keys) k = any();
          std::vector<std::byte*> rows(keys.size());
          table.find_batch(keys, rows);
          for (std::size_t i = 0; i < keys.size(); ++i) REQUIRE(rows[i] == table.find(keys[i]));
          table.visit_or_insert(keys, [&](std::size_t i, std::byte* payload, bool inserted) {
            REQUIRE(inserted == !model.contains(keys[i]));
            if (inserted) REQUIRE(read(payload) == 0);
            write(payload, ++model[keys[i]]);
          });
          break;
        }
      }
      REQUIRE(table.size() == model.size());
    }
    std::size_t seen = 0;
    for (const Slot slot : slots)
      for (const auto key : keys_of(table, slot)) {
        ++seen;
        CHECK(model.contains(key));
        CHECK(slot_of(3, key) == slot);
      }
    CHECK(seen == model.size());
  }
}

TEST_CASE("a reused row inherits nothing") {
  RowTable table(0, 64, all_slots());
  std::set<const std::byte*> places;
  for (std::uint64_t key = 0; key < 500; ++key) {
    auto* payload = table.find_or_insert(key).payload;
    std::memset(payload, 0xff, 64);
    places.insert(payload);
  }
  for (std::uint64_t key = 0; key < 500; ++key) table.erase(key);
  for (std::uint64_t key = 1000; key < 1500; ++key) {
    auto* payload = table.find_or_insert(key).payload;
    CHECK(places.contains(payload));  // the memory is used again
    CHECK(std::all_of(payload, payload + 64, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("rows never move while a table grows") {
  RowTable table(0, 8, all_slots());
  std::vector<std::byte*> places;
  for (std::uint64_t key = 0; key < 100'000; ++key)
    places.push_back(table.find_or_insert(key).payload);
  for (std::uint64_t key = 0; key < 100'000; ++key) REQUIRE(table.find(key) == places[key]);
}

TEST_CASE("bytes a row are at most 1.2 times payload, key and index entry") {
  constexpr double metadata = 8 + 64.0 / 12;  // the key, and one of the twelve entries of a group
  const auto slots = some_slots(16);          // one parameter shard of 16
  for (const std::size_t payload_bytes : {4, 8, 16, 72, 512}) {
    RowTable table(0, payload_bytes, slots);
    std::uint64_t key = 0;
    // Over two doublings, whatever the phase of growth.
    for (std::size_t rows = 40'000; rows <= 160'000; rows += 8'000) {
      while (table.size() < rows) {
        if (table.owns(slot_of(0, key))) table.find_or_insert(key);
        ++key;
      }
      const double each = double(table.memory().total()) / double(table.size());
      CAPTURE(payload_bytes, rows, each);
      CHECK(each <= 1.2 * (double(payload_bytes) + metadata));
    }
  }
}

TEST_CASE("the index grows by one group at a time") {
  RowTable table(0, 4, some_slots(256));
  std::size_t before = table.memory().index, rows = 0;
  for (std::uint64_t key = 0; rows < 20'000; ++key) {
    if (!table.owns(slot_of(0, key))) continue;
    table.find_or_insert(key), ++rows;
    const std::size_t after = table.memory().index;
    REQUIRE(after - before <= 4 * sizeof(detail::Group));
    before = after;
  }
}

TEST_CASE("a scan sees each lasting row exactly once while the table grows and shrinks") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::vector<Slot> slots{5, 9};
  for (int round = 0; round < 20; ++round) {
    RowTable table(1, 4, slots);
    std::vector<std::uint64_t> keys;
    for (std::uint64_t key = random(); keys.size() < 1500; ++key)
      if (slot_of(1, key) == 9) keys.push_back(key);
    std::set<std::uint64_t> lasting(keys.begin(), keys.begin() + 500);
    for (const auto key : lasting) table.find_or_insert(key);
    std::size_t next_new = 500, next_erased = 500;
    std::map<std::uint64_t, int> seen;
    std::uint64_t last_position = 0;
    ScanPosition position;
    while (!position.done) {
      table.scan(9, position, 1 + random() % 20, [&](std::uint64_t key, const std::byte*) {
        ++seen[key];
        const auto at = ScanPosition::of_hash(hash_key(1, key));
        CHECK(at >= last_position);
      });
      last_position = position.next;
      for (auto n = random() % 40; n > 0 && next_new < keys.size(); --n)
        table.find_or_insert(keys[next_new++]);
      for (auto n = random() % 10; n > 0 && next_erased < next_new; --n)
        table.erase(keys[next_erased++]);
    }
    for (const auto key : lasting) REQUIRE(seen[key] == 1);
    for (const auto& [key, count] : seen) REQUIRE(count == 1);
  }
}

TEST_CASE("dropping a slot leaves the others alone and its rows are used again") {
  RowTable table(0, 16, all_slots());
  for (std::uint64_t key = 0; key < 200'000; ++key)
    write(table.find_or_insert(key).payload, std::uint32_t(key));
  const auto before = table.memory();
  std::size_t dropped = 0;
  for (Slot slot = 0; slot < 1000; ++slot) {
    dropped += keys_of(table, slot).size();
    table.drop_slot(slot);
    CHECK(keys_of(table, slot).empty());
  }
  CHECK(table.size() == 200'000 - dropped);
  for (std::uint64_t key = 0; key < 200'000; ++key) {
    const auto* payload = table.find(key);
    REQUIRE((payload != nullptr) == (slot_of(0, key) >= 1000));
    if (payload != nullptr) REQUIRE(read(payload) == key);
  }
  for (std::uint64_t key = 0; key < 200'000; ++key)
    if (slot_of(0, key) < 1000) table.find_or_insert(key);
  CHECK(table.size() == 200'000);
  CHECK(table.memory().rows == before.rows);
}

TEST_CASE("keys of slots that are held elsewhere are refused") {
  const std::vector<Slot> one{slot_of(0, 1)};
  RowTable table(0, 4, one);
  table.find_or_insert(1);
  std::uint64_t foreign = 2;
  while (slot_of(0, foreign) == one[0]) ++foreign;
  CHECK(table.find(foreign) == nullptr);
  CHECK_FALSE(table.erase(foreign));
  try {
    table.find_or_insert(foreign);
    FAIL("a foreign key was taken");
  } catch (const hf::Error& error) {
    CHECK(error.is(hf::Errc::moved));
  }
  const std::vector<std::uint64_t> keys{foreign, 1};
  std::vector<std::byte*> rows(2);
  table.find_batch(keys, rows);
  CHECK(rows[0] == nullptr);
  CHECK(rows[1] == table.find(1));
}

TEST_CASE("an impossible table is refused") {
  CHECK_THROWS_AS(RowTable(0, 0, all_slots()), hf::Error);
  CHECK_THROWS_AS(RowTable(0, 6, all_slots()), hf::Error);
  CHECK_THROWS_AS(RowTable(0, RowTable::max_payload_bytes + 4, all_slots()), hf::Error);
  CHECK_THROWS_AS(RowTable(0, 4, {}), hf::Error);
  const std::vector<Slot> twice{4, 4}, beyond{4096};
  CHECK_THROWS_AS(RowTable(0, 4, twice), hf::Error);
  CHECK_THROWS_AS(RowTable(0, 4, beyond), hf::Error);
}

TEST_CASE("rows of a megabyte work") {
  RowTable table(0, RowTable::max_payload_bytes, all_slots());
  for (std::uint64_t key = 0; key < 70; ++key)
    write(table.find_or_insert(key).payload + RowTable::max_payload_bytes - 4, std::uint32_t(key));
  for (std::uint64_t key = 0; key < 70; ++key)
    CHECK(read(table.find(key) + RowTable::max_payload_bytes - 4) == key);
}

TEST_CASE("the tag probe by instruction equals the portable one") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 1000; ++round) {
    detail::Group group{};
    for (auto& tag : group.tags) tag = static_cast<std::uint8_t>(random() % 3);
    group.next = 0x01010101u * static_cast<std::uint32_t>(random() % 3);
    for (unsigned tag = 0; tag < 3; ++tag)
      REQUIRE(detail::match(group, std::uint8_t(tag)) ==
              detail::match_portable(group, std::uint8_t(tag)));
  }
}
