#include <hyperframes/actors/detail/birth.hpp>

#include <hyperframes/actors/detail/children.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>

namespace hyperframes::detail {

// At its parent's shard it may be destroyed late, when the node is gone: but then so is the place.
// Elsewhere it is destroyed by the request that it came with, while its node works on that.
Birth::~Birth() {
  Shard* const here = Shard::current();
  if (!parent_.cell || !here) return;
  const bool at_home = here->index() == actor_id::shard_of(parent_.id);
  if (at_home && place_.expired()) return;
  tell(parent_.cell->home->core.at(here->index()), {});
}

void Birth::announce(Address child) noexcept {
  if (!parent_.cell) return;
  ActorCell& parent = *parent_.cell;
  if (parent.home != child.cell->home || !parent.accepts()) return tell(*child.cell->home, child);
  // The usual case: who spawns runs on behalf of the parent.
  const std::shared_ptr<Child> place = place_.lock();
  const bool lives = parent.id == std::exchange(parent_, {}).id && parent.has_children();
  if (place && lives) parent.more->children->born(place, child);
}

void Birth::tell(NodeShard& from, Address child) noexcept {
  ChildNews news{.what = ChildNews::What::born};
  news.place = std::move(place_);
  from.report_to_parent(std::exchange(parent_, {}), child, std::move(news));
}

}  // namespace hyperframes::detail
