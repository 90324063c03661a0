#include <algorithm>
#include <hyperframes/apps/ps/cluster_view.hpp>

namespace hyperframes::ps {
namespace {

std::string text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

template <class Range, class Predicate>
auto* find_or_null(const Range& range, Predicate predicate) noexcept {
  const auto found = std::ranges::find_if(range, predicate);
  return found == range.end() ? nullptr : &*found;
}

}  // namespace

const TableSpec* ClusterView::table(std::string_view name) const noexcept {
  return find_or_null(tables, [&](const TableSpec& table) { return table.name == name; });
}
const TableSpec* ClusterView::table(TableId id) const noexcept {
  return find_or_null(tables, [&](const TableSpec& table) { return table.id == id; });
}
const ServerEntry* ClusterView::server_of(ShardId shard) const noexcept {
  if (!placement || shard >= placement->shard_count()) return nullptr;
  const NodeId node = placement->node_of(shard);
  return find_or_null(servers, [&](const ServerEntry& server) { return server.node_id == node; });
}

protocol::TableSpec::Fields encode_table_spec(const TableSpec& table) {
  return {.id = table.id,
          .name = table.name,
          .width = table.width,
          .optimizer = static_cast<protocol::OptimizerKind>(table.optimizer),
          .learning_rate = table.learning_rate,
          .initial_accumulator = table.initial_accumulator,
          .initializer = static_cast<protocol::InitializerKind>(table.initializer),
          .initializer_scale = table.initializer_scale,
          .initializer_from = table.initializer_from,
          .seed = table.seed,
          .l2 = table.l2};
}

TableSpec decode_table_spec(const protocol::fb::TableSpec& message) {
  TableSpec table{.id = message.id(),
                  .name = text_of(message.name()),
                  .width = message.width(),
                  .optimizer = static_cast<OptimizerKind>(message.optimizer()),
                  .learning_rate = message.learning_rate(),
                  .initial_accumulator = message.initial_accumulator(),
                  .l2 = message.l2(),
                  .initializer = static_cast<InitializerKind>(message.initializer()),
                  .initializer_scale = message.initializer_scale(),
                  .initializer_from = message.initializer_from(),
                  .seed = message.seed()};
  table.check();
  return table;
}

protocol::ClusterView::Fields ClusterView::encode() const {
  protocol::ClusterView::Fields fields{
      .version = version, .staleness_bound = this->staleness_bound, .cluster = this->cluster};
  if (placement)
    for (const auto byte : placement->encode())
      fields.placement.push_back(static_cast<std::uint8_t>(byte));
  for (const auto& server : servers)
    fields.servers.push_back(
        {.node_id = server.node_id,
         .name = server.name,
         .endpoint = server.endpoint,
         .incarnation = server.incarnation,
         .state = server.silent ? protocol::NodeState::silent : protocol::NodeState::up});
  for (const auto& table : tables) fields.tables.push_back(encode_table_spec(table));
  for (const auto& worker : workers)
    fields.workers.push_back(protocol::WorkerInfo::Fields{
        .worker = worker.worker, .job = worker.job, .joined_at_clock = worker.joined_at_clock});
  return fields;
}

ClusterView ClusterView::decode(const protocol::ClusterView& message) {
  ClusterView view{.cluster = message.cluster(),
                   .version = message.version(),
                   .staleness_bound = message.staleness_bound()};
  if (const auto placement = message.placement(); !placement.empty())
    view.placement = PlacementMap::decode(std::as_bytes(placement));
  if (message.servers() != nullptr)
    for (const auto* server : *message.servers())
      view.servers.push_back({.node_id = server->node_id(),
                              .name = text_of(server->name()),
                              .endpoint = text_of(server->endpoint()),
                              .incarnation = server->incarnation(),
                              .silent = server->state() == protocol::NodeState::silent});
  if (message.tables() != nullptr)
    for (const auto* table : *message.tables()) view.tables.push_back(decode_table_spec(*table));
  for (const auto& worker : message.workers())
    view.workers.push_back({.worker = worker.worker(),
                            .job = worker.job(),
                            .joined_at_clock = worker.joined_at_clock()});
  return view;
}

}  // namespace hyperframes::ps
