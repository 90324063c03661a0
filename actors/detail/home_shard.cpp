#include <hyperframes/actors/detail/home_shard.hpp>

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/remote.hpp>
#include <hyperframes/runtime/runtime.hpp>

namespace hyperframes::detail {

Shard* home_shard(const Destination& to) noexcept {
  if (to.cell) return static_cast<Shard*>(to.cell->core);
  if (!to.peer) return nullptr;
  Runtime& runtime = to.peer->core.runtime;
  return &runtime.shard(actor_id::shard_of(to.id) % runtime.shard_count());
}

}  // namespace hyperframes::detail
