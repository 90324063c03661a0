#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/runtime/error.hpp>
#include <map>
#include <random>
#include <vector>

using namespace hyperframes::ps;

namespace {

std::vector<std::uint64_t> numbers(std::size_t count, std::uint64_t from = 1) {
  std::vector<std::uint64_t> nodes(count);
  for (std::size_t i = 0; i < count; ++i) nodes[i] = from + 37 * i;
  return nodes;
}

std::size_t largest(const std::vector<std::uint32_t>& owner, std::size_t bins) {
  std::vector<std::size_t> load(bins);
  for (const auto bin : owner) ++load[bin];
  return *std::ranges::max_element(load);
}

/// How many items belong to another bin than before.
std::size_t moved(const std::vector<std::uint32_t>& before, std::span<const std::uint64_t> old_bins,
                  const std::vector<std::uint32_t>& after, std::span<const std::uint64_t> bins) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < before.size(); ++i) count += old_bins[before[i]] != bins[after[i]];
  return count;
}

}  // namespace

TEST_CASE("a key's slot never changes from release to release") {
  // Pinned: files on disk depend on them.
  CHECK(hash_key(0, 1) == 0x68cb58c58e88561bu);
  CHECK(hash_key(3, 123456789) == 0xceef7179e2e30467u);
  CHECK(slot_of(3, 123456789) == 0xcee);
}

TEST_CASE("sequential and strided keys fill slots evenly") {
  for (const std::uint64_t stride :
       {std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{1} << 32, std::uint64_t{1} << 44}) {
    std::vector<int> load(slot_count);
    for (std::uint64_t i = 0; i < 200 * slot_count; ++i) ++load[slot_of(7, i * stride)];
    // 200 a slot on average: six standard deviations are 85.
    CHECK(*std::ranges::max_element(load) < 200 + 85);
    CHECK(*std::ranges::min_element(load) > 200 - 85);
  }
}

TEST_CASE("the largest shard holds at most 1.25 times the mean number of slots") {
  for (const std::size_t shards : {1, 2, 3, 5, 16, 64, 100, 256, 1000}) {
    const auto bins = numbers(shards, 0);
    const std::size_t most = largest(deal(slot_count, bins, 1), shards);
    CAPTURE(shards, most);
    CHECK(most * shards <= slot_count * 5 / 4 + shards - 1);
    CHECK(most <= load_limit(slot_count, shards));
  }
  CHECK(load_limit(slot_count, 16) == 320);
  CHECK(load_limit(16, 7) == 3);  // 2.29 each on average: nobody can hold 2.86 shards
}

TEST_CASE("a deal depends on the set of members alone") {
  auto bins = numbers(9);
  const auto first = deal(500, bins, 3);
  std::vector<std::uint64_t> by_item;
  for (const auto b : first) by_item.push_back(bins[b]);
  std::mt19937 random(5);
  for (int round = 0; round < 5; ++round) {
    std::ranges::shuffle(bins, random);
    const auto again = deal(500, bins, 3);
    for (std::size_t i = 0; i < again.size(); ++i) REQUIRE(bins[again[i]] == by_item[i]);
  }
}

TEST_CASE("few items move when a member joins or leaves") {
  for (const std::size_t count : {2, 3, 8, 20}) {
    const auto before = numbers(count), after = numbers(count + 1);
    const auto small = deal(slot_count, before, 2), large = deal(slot_count, after, 2);
    const std::size_t change = moved(small, before, large, after);
    CAPTURE(count, change);
    // The joiner's own share must move; displaced items may at most double it.
    const std::size_t share = slot_count / (count + 1);
    CHECK(change >= share / 2);
    CHECK(change <= 2 * share);
  }
}

TEST_CASE("a map's versions rise and tokens change with the owner only") {
  const auto two = numbers(2), three = numbers(3);
  const auto first = PlacementMap::first(16, two);
  CHECK(first.version() == 1);
  const auto second = first.next(three);
  CHECK(second.version() == 2);
  std::size_t changed = 0;
  for (ShardId shard = 0; shard < 16; ++shard) {
    CHECK(first.token_of(shard) == 1);
    const bool stays = first.node_of(shard) == second.node_of(shard);
    changed += !stays;
    CHECK(second.token_of(shard) == (stays ? 1 : 2));
  }
  CHECK(changed > 0);
  CHECK(changed < 16);
  const auto third = second.next(three);
  CHECK(third.version() == 3);
  for (ShardId shard = 0; shard < 16; ++shard)
    CHECK(third.token_of(shard) == second.token_of(shard));
}

TEST_CASE("every slot has one shard and every shard one node") {
  const auto nodes = numbers(3);
  const auto map = PlacementMap::first(16, nodes);
  std::size_t slots = 0, shards = 0;
  for (ShardId shard = 0; shard < 16; ++shard) {
    for (const Slot slot : map.slots_of(shard)) CHECK(map.shard_of(slot) == shard);
    slots += map.slots_of(shard).size();
  }
  for (const NodeId node : nodes) {
    for (const ShardId shard : map.shards_of(node)) CHECK(map.node_of(shard) == node);
    CHECK(map.shards_of(node).size() <= load_limit(16, 3));
    shards += map.shards_of(node).size();
  }
  CHECK(slots == slot_count);
  CHECK(shards == 16);
}

TEST_CASE("an impossible placement is refused with the reason") {
  const std::vector<NodeId> none, zero{0}, twice{4, 4}, one{4};
  CHECK_THROWS_AS(PlacementMap::first(0, one), hf::Error);
  CHECK_THROWS_AS(PlacementMap::first(slot_count + 1, one), hf::Error);
  CHECK_THROWS_AS(PlacementMap::first(16, none), hf::Error);
  CHECK_THROWS_AS(PlacementMap::first(16, zero), hf::Error);
  CHECK_THROWS_AS(PlacementMap::first(16, twice), hf::Error);
}

TEST_CASE("a placement map survives encoding, and no damaged one is taken") {
  const auto map = PlacementMap::first(16, numbers(3)).next(numbers(4));
  const auto bytes = map.encode();
  CHECK(PlacementMap::decode(bytes) == map);
  for (std::size_t length = 0; length < bytes.size(); length += 61)
    CHECK_THROWS_AS(PlacementMap::decode(std::span(bytes).first(length)), hf::Error);
  for (std::size_t at = 0; at < bytes.size(); at += 97) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{0x10};
    CHECK_THROWS_AS(PlacementMap::decode(damaged), hf::Error);
  }
}
