// What all processes of a cluster must agree on, as the coordinator publishes it.
//
//   auto view = ps::ClusterView::decode(co_await coordinator.watch({.known_version = 7}));
//   const ps::ServerEntry* owner = view.server_of(shard);      // null while nobody owns it
//   const ps::TableSpec* table = view.table("movies/rows");
//
// A value. `version` grows with every change of it, also over restarts of the coordinator.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/apps/ps/table_spec.hpp>
#include <optional>
#include <ps.fbs.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::ps {

struct ServerEntry {
  NodeId node_id = 0;
  std::string name{};
  std::string endpoint{};
  std::uint64_t incarnation = 0;  ///< Grows with each start of the process.
  bool silent = false;  ///< Its lease ran out. Its shards stay its own: their data is on its disk.
};

/// A worker that counts for the staleness bound of its job.
struct WorkerEntry {
  std::uint32_t worker = 0;
  std::uint32_t job = 0;
  std::uint64_t joined_at_clock = 0;
};

struct ClusterView {
  std::uint64_t cluster = 0;  ///< Of the coordinator's database: another one is another cluster.
  std::uint64_t version = 0;
  std::optional<PlacementMap> placement{};  ///< None until enough servers have joined.
  std::vector<ServerEntry> servers{};
  std::vector<TableSpec> tables{};
  std::vector<WorkerEntry> workers{};
  std::uint32_t staleness_bound = 0;

  /// Null if there is none of that name or number.
  const TableSpec* table(std::string_view name) const noexcept;
  const TableSpec* table(TableId id) const noexcept;
  /// The owner of a parameter shard. Null while shards are not placed.
  const ServerEntry* server_of(ShardId shard) const noexcept;

  protocol::ClusterView::Fields encode() const;
  /// Throws `corrupt` for a placement, `invalid_argument` for a table that can't be.
  static ClusterView decode(const protocol::ClusterView& message);
};

/// A table as it travels, and back. Throws `invalid_argument` for one that can't be.
protocol::TableSpec::Fields encode_table_spec(const TableSpec& table);
TableSpec decode_table_spec(const protocol::fb::TableSpec& message);

}  // namespace hyperframes::ps
