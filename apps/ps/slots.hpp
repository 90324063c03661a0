// Where a key lives: key -> hash slot -> parameter shard -> server node.
//
//   hf::ps::Slot slot = hf::ps::slot_of(table, id);           // pure, the same everywhere
//   auto map = hf::ps::PlacementMap::first(16, node_ids);     // 16 parameter shards over the nodes
//   hf::ps::NodeId node = map.node_of(map.shard_of(slot));    // two array reads
//
// Slots exist so that ownership is a small table whatever the number of keys. Slots are dealt to
// parameter shards, and shards to nodes, by consistent hashing with bounded load: a pure function
// of who takes part, so every process computes the same map, and few things move when somebody
// joins or leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hyperframes::ps {

using TableId = std::uint32_t;
using Slot = std::uint16_t;
using ShardId = std::uint32_t;
using NodeId = std::uint64_t;  ///< Never 0.

inline constexpr std::size_t slot_count = 4096;
inline constexpr std::size_t max_shards = slot_count;

/// The 64 bits that place a row: the slot is the top 12, a row table uses the rest. A bijection of
/// `id` for a given table. Part of the file formats and of the wire: never change it.
constexpr std::uint64_t hash_key(TableId table, std::uint64_t id) noexcept {
  std::uint64_t x = id + 0x9e3779b97f4a7c15u * (std::uint64_t{table} + 1);
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}
constexpr Slot slot_of_hash(std::uint64_t hash) noexcept { return static_cast<Slot>(hash >> 52); }
constexpr Slot slot_of(TableId table, std::uint64_t id) noexcept {
  return slot_of_hash(hash_key(table, id));
}

/// Deals items 0..item_count-1 to `bins` (distinct numbers, not empty). No bin gets more than
/// `load_limit(item_count, bins.size())`. Returns, for each item, an index into `bins`. Depends on
/// the set of bins alone, not on their order. `salt` separates unrelated deals.
std::vector<std::uint32_t> deal(std::size_t item_count, std::span<const std::uint64_t> bins,
                                std::uint64_t salt);
/// 1.25 x the mean, rounded down; the mean rounded up where that is more, because fewer places
/// than items can't work.
std::size_t load_limit(std::size_t item_count, std::size_t bin_count);

/// Who owns what, at one version. A value: change it by making the next one.
class PlacementMap {
 public:
  /// Version 1. Throws `invalid_argument` unless 1 <= shard_count <= max_shards and `nodes` is a
  /// non-empty set of non-zero numbers.
  static PlacementMap first(std::size_t shard_count, std::span<const NodeId> nodes);
  /// The map once exactly `nodes` are members. Shards whose owner stays keep their token.
  PlacementMap next(std::span<const NodeId> nodes) const;

  std::uint64_t version() const noexcept { return version_; }
  std::size_t shard_count() const noexcept { return nodes_.size(); }
  ShardId shard_of(Slot slot) const noexcept { return shards_[slot]; }
  NodeId node_of(ShardId shard) const noexcept { return nodes_[shard]; }
  /// The fencing token: the version at which the shard's owner last changed.
  std::uint64_t token_of(ShardId shard) const noexcept { return tokens_[shard]; }
  std::vector<Slot> slots_of(ShardId shard) const;  ///< Ascending.
  std::vector<ShardId> shards_of(NodeId node) const;

  /// Little-endian, versioned, checksummed.
  std::vector<std::byte> encode() const;
  /// Throws `corrupt` or `version_mismatch`.
  static PlacementMap decode(std::span<const std::byte> bytes);

  friend bool operator==(const PlacementMap&, const PlacementMap&) = default;

 private:
  std::uint64_t version_ = 0;
  std::vector<std::uint16_t> shards_;  // by slot
  std::vector<NodeId> nodes_;          // by shard
  std::vector<std::uint64_t> tokens_;  // by shard
};

}  // namespace hyperframes::ps
