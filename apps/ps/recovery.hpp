// Reading a parameter shard's tables back from its snapshot and its log.
//
//   co_await hf::ps::recover_shard(context, specs);            // all tables, at the shard's start
//   auto state = co_await hf::ps::recover_table(context, spec); // one table, beside the others
//   co_await hf::ps::write_snapshot(context, tables);  // fuzzy: slot by slot, between pushes
#pragma once

#include <hyperframes/apps/ps/shard_context.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <span>

namespace hyperframes::ps {

/// Opens the context's log and fills `recovered`. Tables in the files that no view lists are an
/// error (`not_found`): their rows would be lost silently. Throws `corrupt` for a table that the
/// view describes otherwise, and for a log that ends before what the snapshot holds; `rejected` for
/// another cluster's snapshots; `fenced` if a newer owner has written. Everything is read and
/// checked first: what is refused stays as it was, whatever else was given by mistake.
Task<void> recover_shard(ShardContext& context, std::span<const TableSpec> specs);

/// The state of a table that no file of the shard holds anything of.
std::unique_ptr<TableState> empty_state(const ShardContext& context, const TableSpec& spec);

/// One table's state, while the shard goes on for the others. A table that was never pushed to is
/// empty. Waits for a snapshot under way.
Task<std::unique_ptr<TableState>> recover_table(ShardContext& context, TableSpec spec);

/// Writes a snapshot of the given tables, in O(buffer) memory: a slot at a time, with pushes in
/// between; then drops the log segments that it covers, and older snapshots. Each slot carries the
/// number of the last record that it contains. Returns when it is durable. The caller holds the
/// context's snapshot mutex. `tables` must be all that the log may hold records of; throws
/// actor_down while one of them is being restarted.
Task<void> write_snapshot(ShardContext& context, std::vector<TableId> tables);

}  // namespace hyperframes::ps
