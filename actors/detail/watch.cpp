#include <hyperframes/actors/detail/watch.hpp>

#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/remote.hpp>
#include <memory>

namespace hyperframes::detail {

void Watch::begin(const Destination& of) noexcept {
  ++under_way;
  peer = of.peer;
  target_id = of.id;
  if (peer) return begin_at_peer();
  target = {of.cell, of.id};
  run = [](Work* work) noexcept {
    auto* self = static_cast<Watch*>(work);
    NodeShard& there = *self->target.cell->home;
    there.arrived();
    ActorCell& cell = *self->target.cell;
    if (cell.id == self->target.id) {
      cell.extras().watches.push_back(*self);
    } else {
      self->down = {self->target.id, {}, ExitReason::not_found, {}, self->link};
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

void Watch::begin_at_peer() noexcept {
  number = home->add_watch(*this);
  net::Message message;
  message.envelope = {
      .target = target_id, .correlation = number, .kind = net::MessageKind::monitor};
  const auto sent = peer->on(home->shard.index()).post(std::move(message), net::Lane::control);
  if (sent) return;
  home->forget_watch(number);
  lost(sent.error());
}

void Watch::ended(Down of) noexcept {
  down = std::move(of);
  came_home();
}

void Watch::lost(const Error& reason) noexcept {
  ended({target_id, {}, ExitReason::lost, reason.what(), link});
}

void Watch::came_home() noexcept {
  --under_way;
  by_watcher.unlink();
  if (on_behalf) {
    std::exchange(on_behalf, nullptr)->report_end(number, down);
    if (under_way == 0) delete this;
    return;
  }
  if (JoinWaiter* joining = std::exchange(waiter, nullptr)) joining->came(std::move(down));
  ActorCell* cell = std::exchange(watcher.cell, nullptr);
  if (cell && cell->id == watcher.id) {
    if (requested && down.reason == ExitReason::not_found) {
      if (under_way == 0) delete this;  // it ended before this half was there
      return;
    }
    if (!link || cell->extras().traps_exits) return cell->deliver_down(this);
    home->report_broken_link(cell->address(), std::move(down));
  }
  if (under_way == 0) delete this;
}

void Watch::abandon() noexcept {
  by_watcher.unlink();
  waiter = nullptr;
  watcher = {};
  if (peer) {
    home->forget_watch(number);
    net::Message message;
    message.envelope = {
        .target = target_id, .correlation = number, .kind = net::MessageKind::demonitor};
    static_cast<void>(peer->on(home->shard.index()).post(std::move(message), net::Lane::control));
    delete this;
    return;
  }
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
