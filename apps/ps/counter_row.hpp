// The row by which a push proves that it was applied, and how often.
//
//   const std::uint64_t id = ps::counter_row(map, table, shard, key);   // 1 is added to its column
//   0
//   // after the run: reads 1 if the push took effect once, 0 if not at all
//
// Each message of a push (one a table, parameter shard and batch) adds 1 to a counter row of its
// own. The id is made of the push's key, so whoever sends that push counts in the same row.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/push_key.hpp>
#include <hyperframes/apps/ps/slots.hpp>

namespace hyperframes::ps {

/// An id with the counter bit, whose slot lies on `shard`. Different leased keys, and different
/// shards, have different ids. `key` is leased and within the limits of JobDefinition.
std::uint64_t counter_row(const PlacementMap& map, TableId table, ShardId shard,
                          const PushKey& key);

}  // namespace hyperframes::ps
