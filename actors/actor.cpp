#include <hyperframes/actors/actor.hpp>

#include <cassert>
#include <hyperframes/actors/detail/children.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/watch.hpp>
#include <hyperframes/actors/node.hpp>
#include <memory>
#include <utility>

namespace hyperframes {

std::string_view name(ExitReason reason) noexcept {
  switch (reason) {
    case ExitReason::normal: return "normal";
    case ExitReason::stopped: return "stopped";
    case ExitReason::crashed: return "crashed";
    case ExitReason::exhausted: return "exhausted";
    case ExitReason::not_found: return "not_found";
    case ExitReason::lost: return "lost";
  }
  return "unknown";
}

Actor::Actor() noexcept : cell_(detail::cell_being_constructed()) {
  assert(cell_ && "actors are made by spawn only");
}
Actor::~Actor() = default;

void* Actor::operator new(std::size_t size) { return detail::pool_allocate(size); }
void Actor::operator delete(void* memory) noexcept { detail::pool_release(memory); }

Node& Actor::node() const noexcept { return cell_->home->core.node; }
Shard& Actor::shard() const noexcept { return cell_->home->shard; }
ActorRef Actor::reference() const noexcept {
  return ActorRef(detail::Destination{cell_, nullptr, cell_->id});
}

void Actor::stop() noexcept {
  cell_->stop_requested = true;
  cell_->schedule();
}

void Actor::stop(const ActorRef& other) { node().stop(other); }

void Actor::start(Task<void> task) noexcept {
  if (task) cell_->start_background(std::move(task));
}

namespace {
const detail::Destination& checked(const ActorRef& other, const char* tried) {
  if (other) return other.destination();
  throw Error(Errc::invalid_argument, tried, "the reference is empty",
              "find or spawn the actor first");
}
}  // namespace

void Actor::monitor(const ActorRef& other) {
  cell_->watch(checked(other, "monitor an actor"), false);
}

void Actor::link(const ActorRef& other) {
  const detail::Destination& to = checked(other, "link with an actor");
  if (to.cell == cell_ && to.id == cell_->id) return;
  cell_->link_with(to, false);
  cell_->home->tell_to_link(to, *cell_, true);
}

void Actor::unlink(const ActorRef& other) {
  const detail::Destination& to = checked(other, "unlink an actor");
  cell_->unlink_from(to);
  cell_->home->tell_to_link(to, *cell_, false);
}

void Actor::supervise(Strategy strategy) { cell_->children().set_strategy(strategy); }

void Actor::trap_exits(bool traps) { cell_->extras().traps_exits = traps; }

}  // namespace hyperframes
