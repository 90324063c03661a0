#include <cassert>
#include <hyperframes/apps/ps/counter_row.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/apps/ps/table_spec.hpp>
#include <hyperframes/runtime/error.hpp>
#include <string>

namespace hyperframes::ps {
namespace {

// counter bit | epoch: 14 | unit: 20 | batch: 10 | salt: 19
constexpr unsigned salt_bits = 19, batch_bits = 10, unit_bits = 20, epoch_bits = 14;
static_assert(salt_bits + batch_bits + unit_bits + epoch_bits == 63);
static_assert(JobDefinition::max_epochs == std::uint64_t{1} << epoch_bits);
static_assert(JobDefinition::max_units_per_epoch == std::uint64_t{1} << unit_bits);
static_assert(JobDefinition::max_unit_batches == std::uint64_t{1} << batch_bits);

}  // namespace

std::uint64_t counter_row(const PlacementMap& map, TableId table, ShardId shard,
                          const PushKey& key) {
  assert(key.is_leased() && key.epoch >> epoch_bits == 0 && key.unit >> unit_bits == 0 &&
         key.batch >> batch_bits == 0);
  std::uint64_t base = key.epoch;
  base = base << unit_bits | key.unit;
  base = base << batch_bits | key.batch;
  base = counter_bit | base << salt_bits;
  // A salt lies on a given shard with the shard's share of the slots: 1/4096 at the least, so all
  // of them miss it with a chance of e^-128.
  for (std::uint64_t salt = 0; salt < std::uint64_t{1} << salt_bits; ++salt)
    if (map.shard_of(slot_of(table, base | salt)) == shard) return base | salt;
  throw Error(Errc::internal, "find a counter row on parameter shard " + std::to_string(shard),
              "it has no slots");
}

}  // namespace hyperframes::ps
