#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/ps/counter_row.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/apps/ps/table_spec.hpp>
#include <set>
#include <vector>

using namespace hyperframes::ps;

TEST_CASE("a push has a counter row of its own on each parameter shard") {
  const std::vector<NodeId> nodes{1, 2};
  const auto map = PlacementMap::first(16, nodes);
  std::set<std::uint64_t> seen;
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch)
    for (std::uint32_t unit = 0; unit < 5; ++unit)
      for (std::uint32_t batch = 0; batch < 8; ++batch)
        for (ShardId shard = 0; shard < 16; ++shard) {
          const auto id = counter_row(map, 9, shard, PushKey::leased(epoch, unit, batch));
          CHECK(is_counter(id));
          CHECK(map.shard_of(slot_of(9, id)) == shard);
          CHECK(id == counter_row(map, 9, shard, PushKey::leased(epoch, unit, batch)));
          CHECK(seen.insert(id).second);
        }
}

TEST_CASE("counter rows exist for the largest job and many parameter shards") {
  const std::vector<NodeId> nodes{1};
  const auto map = PlacementMap::first(256, nodes);
  const auto key =
      PushKey::leased(JobDefinition::max_epochs - 1, JobDefinition::max_units_per_epoch - 1,
                      JobDefinition::max_unit_batches - 1);
  for (ShardId shard = 0; shard < 256; ++shard) {
    const auto id = counter_row(map, 1, shard, key);
    CHECK(is_counter(id));
    CHECK(map.shard_of(slot_of(1, id)) == shard);
  }
}
