#include <hyperframes/actors/detail/home_shard.hpp>

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/remote.hpp>

namespace hyperframes::detail {

NodeShard* home_part(const Destination& to) noexcept {
  if (to.cell) return to.cell->home;
  if (!to.peer) return nullptr;
  NodeCore& core = to.peer->core;
  return &core.at(actor_id::shard_of(to.id) % core.shard_count());
}

Shard* home_shard(const Destination& to) noexcept {
  NodeShard* const part = home_part(to);
  return part ? &part->shard : nullptr;
}

}  // namespace hyperframes::detail
