#include <hyperframes/apps/ps/slots.hpp>

#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/error.hpp>

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

namespace hyperframes::ps {
namespace {

constexpr std::uint64_t slots_to_shards = 1, shards_to_nodes = 2;  // salts
constexpr std::uint32_t map_magic = 0x50414d48;                    // "HMAP"
constexpr std::uint32_t map_format = 1;

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t affinity(std::uint64_t item, std::uint64_t bin, std::uint64_t salt) noexcept {
  return mix(mix(bin + 0x9e3779b97f4a7c15u * salt) ^ mix(item + 0x632be59bd9b4e019u));
}

/// (affinity, item): the order is total, so that the outcome is unique.
using Claim = std::pair<std::uint64_t, std::size_t>;

/// The bin with the highest (affinity, bin) below `limit`.
std::size_t next_choice(std::size_t item, std::span<const std::uint64_t> bins, std::uint64_t salt,
                        std::pair<std::uint64_t, std::uint64_t>& limit) {
  std::pair<std::uint64_t, std::uint64_t> best{0, 0};
  std::size_t choice = bins.size();
  for (std::size_t b = 0; b < bins.size(); ++b) {
    const std::pair score{affinity(item, bins[b], salt), bins[b]};
    if (score < limit && (choice == bins.size() || score > best)) best = score, choice = b;
  }
  limit = best;
  return choice;
}

void check_nodes(std::span<const NodeId> nodes) {
  std::vector<NodeId> sorted(nodes.begin(), nodes.end());
  std::ranges::sort(sorted);
  const bool repeated = std::ranges::adjacent_find(sorted) != sorted.end();
  if (sorted.empty() || sorted.front() == 0 || repeated)
    throw Error(Errc::invalid_argument, "place parameter shards on nodes",
                sorted.empty() ? "there is no node"
                : repeated     ? "a node is named twice"
                               : "a node has the number 0",
                "give distinct node numbers above 0");
}

}  // namespace

std::size_t load_limit(std::size_t item_count, std::size_t bin_count) {
  const std::size_t mean_up = (item_count + bin_count - 1) / bin_count;
  return std::max(mean_up, item_count * 5 / (bin_count * 4));
}

// Items propose to bins in order of affinity; a full bin keeps those with the most affinity. The
// stable outcome is unique, whatever the order of proposals, and a change of one bin unsettles
// only the items that it wins or loses and the few that those displace.
std::vector<std::uint32_t> deal(std::size_t item_count, std::span<const std::uint64_t> bins,
                                std::uint64_t salt) {
  if (bins.empty())
    throw Error(Errc::invalid_argument, "deal " + std::to_string(item_count) + " items",
                "there is nobody to deal them to");
  const std::size_t limit = load_limit(item_count, bins.size());
  using Heap = std::priority_queue<Claim, std::vector<Claim>, std::greater<>>;
  std::vector<Heap> held(bins.size());
  constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> asked(item_count, {unlimited, unlimited});
  std::vector<std::size_t> unplaced(item_count);
  std::iota(unplaced.rbegin(), unplaced.rend(), std::size_t{0});
  while (!unplaced.empty()) {
    const std::size_t item = unplaced.back();
    unplaced.pop_back();
    Heap& heap = held[next_choice(item, bins, salt, asked[item])];
    heap.emplace(asked[item].first, item);
    if (heap.size() > limit) {
      unplaced.push_back(heap.top().second);
      heap.pop();
    }
  }
  std::vector<std::uint32_t> owner(item_count);
  for (std::size_t b = 0; b < bins.size(); ++b)
    for (; !held[b].empty(); held[b].pop()) owner[held[b].top().second] = std::uint32_t(b);
  return owner;
}

PlacementMap PlacementMap::first(std::size_t shard_count, std::span<const NodeId> nodes) {
  if (shard_count < 1 || shard_count > max_shards)
    throw Error(Errc::invalid_argument,
                "place " + std::to_string(shard_count) + " parameter shards",
                "the number of shards must lie between 1 and " + std::to_string(max_shards),
                "change --num_shards");
  PlacementMap map;
  std::vector<std::uint64_t> shards(shard_count);
  std::iota(shards.begin(), shards.end(), std::uint64_t{0});
  for (const auto shard : deal(slot_count, shards, slots_to_shards))
    map.shards_.push_back(static_cast<std::uint16_t>(shard));
  map.nodes_.assign(shard_count, 0);
  map.tokens_.assign(shard_count, 0);
  return map.next(nodes);
}

PlacementMap PlacementMap::next(std::span<const NodeId> nodes) const {
  check_nodes(nodes);
  PlacementMap map = *this;
  ++map.version_;
  const auto owner = deal(nodes_.size(), nodes, shards_to_nodes);
  for (std::size_t shard = 0; shard < nodes_.size(); ++shard) {
    const NodeId node = nodes[owner[shard]];
    if (map.nodes_[shard] == node) continue;
    map.nodes_[shard] = node;
    map.tokens_[shard] = map.version_;
  }
  return map;
}

std::vector<Slot> PlacementMap::slots_of(ShardId shard) const {
  std::vector<Slot> slots;
  for (std::size_t slot = 0; slot < slot_count; ++slot)
    if (shards_[slot] == shard) slots.push_back(static_cast<Slot>(slot));
  return slots;
}

std::vector<ShardId> PlacementMap::shards_of(NodeId node) const {
  std::vector<ShardId> shards;
  for (std::size_t shard = 0; shard < nodes_.size(); ++shard)
    if (nodes_[shard] == node) shards.push_back(static_cast<ShardId>(shard));
  return shards;
}

std::vector<std::byte> PlacementMap::encode() const {
  Bytes out;
  detail::put<std::uint32_t>(out, map_magic);
  detail::put<std::uint32_t>(out, map_format);
  detail::put<std::uint64_t>(out, version_);
  detail::put<std::uint32_t>(out, static_cast<std::uint32_t>(nodes_.size()));
  detail::put_array<std::uint16_t>(out, shards_);
  detail::put_array<NodeId>(out, nodes_);
  detail::put_array<std::uint64_t>(out, tokens_);
  detail::put<std::uint32_t>(out, crc32c(out));
  return out;
}

PlacementMap PlacementMap::decode(std::span<const std::byte> bytes) {
  detail::ByteReader reader(bytes, "read a placement map");
  if (reader.get<std::uint32_t>() != map_magic) reader.fail("it does not begin like one");
  if (const auto format = reader.get<std::uint32_t>(); format != map_format)
    throw Error(Errc::version_mismatch, "read a placement map",
                "its format is " + std::to_string(format) + ", this program reads " +
                    std::to_string(map_format),
                "run the same release on every node");
  PlacementMap map;
  map.version_ = reader.get<std::uint64_t>();
  const auto shard_count = reader.get<std::uint32_t>();
  if (shard_count < 1 || shard_count > max_shards)
    reader.fail(std::to_string(shard_count) + " parameter shards");
  reader.get_array(slot_count, map.shards_);
  reader.get_array(shard_count, map.nodes_);
  reader.get_array(shard_count, map.tokens_);
  const auto sum = crc32c(bytes.first(bytes.size() - reader.left()));
  if (reader.get<std::uint32_t>() != sum) reader.fail("its checksum differs");
  reader.expect_end();
  for (const auto shard : map.shards_)
    if (shard >= shard_count) reader.fail("a slot of shard " + std::to_string(shard));
  for (std::size_t shard = 0; shard < shard_count; ++shard)
    if (map.nodes_[shard] == 0 || map.tokens_[shard] > map.version_)
      reader.fail("an impossible owner or token of shard " + std::to_string(shard));
  return map;
}

}  // namespace hyperframes::ps
