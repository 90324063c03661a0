#include <hyperframes/actors/detail/watch.hpp>

#include <hyperframes/actors/detail/node_shard.hpp>
#include <memory>

namespace hyperframes::detail {

void Watch::begin(Address of) noexcept {
  target = of;
  ++under_way;
  run = [](Work* work) noexcept {
    auto* self = static_cast<Watch*>(work);
    NodeShard& there = *self->target.cell->home;
    there.arrived();
    ActorCell& cell = *self->target.cell;
    if (cell.id == self->target.id) {
      cell.extras().watches.push_back(*self);
    } else {
      self->down = {self->target.id, {}, ExitReason::not_found, {}};
      self->send_home();
    }
  };
  NodeShard& there = *of.cell->home;
  if (&there != home) return home->post(there, this, Group::system);
  ++home->posted;
  run(this);
}

void Watch::send_home() noexcept {
  run = [](Work* work) noexcept {
    auto* self = static_cast<Watch*>(work);
    self->home->arrived();
    self->came_home();
  };
  NodeShard& there = *target.cell->home;
  if (&there != home) return there.post(*home, this, Group::system);
  ++home->posted;
  run(this);
}

void Watch::came_home() noexcept {
  --under_way;
  by_watcher.unlink();
  if (JoinWaiter* joining = std::exchange(waiter, nullptr)) joining->came(std::move(down));
  ActorCell* cell = std::exchange(watcher.cell, nullptr);
  if (cell && cell->id == watcher.id) return cell->deliver_down(this);
  if (under_way == 0) delete this;
}

void Watch::abandon() noexcept {
  by_watcher.unlink();
  waiter = nullptr;
  watcher = {};
  NodeShard& there = *target.cell->home;
  if (&there == home) {
    // Linked at the target, since otherwise it would have come home at once.
    unlink();
    delete this;
    return;
  }
  ++under_way;
  cancellation.run = [](Work* work) noexcept {
    Watch& self = static_cast<Cancellation*>(work)->watch;
    NodeShard& there = *self.target.cell->home;
    there.arrived();
    if (self.linked()) {
      self.unlink();
      self.send_home();
    }
    self.cancellation.run = [](Work* work) noexcept {
      Watch& self = static_cast<Cancellation*>(work)->watch;
      self.home->arrived();
      if (--self.under_way == 0) delete &self;
    };
    there.post(*self.home, &self.cancellation, Group::system);
  };
  home->post(there, &cancellation, Group::system);
}

bool JoinWaiter::start(PromiseBase& promise) noexcept {
  if (!begin(promise)) return false;
  auto watch = std::make_unique<Watch>(*home_);
  watch_ = watch.get();
  watch_->waiter = this;
  watch.release()->begin(target_);
  return true;
}

Down JoinWaiter::await_resume() {
  throw_unless_woken("join an actor");
  return std::move(down_);
}

}  // namespace hyperframes::detail
