#include <hyperframes/actors/actor.hpp>

#include <cassert>
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

void Actor::monitor(const ActorRef& other) {
  const auto& to = other.destination();
  if (!to.cell)
    throw Error(Errc::invalid_argument, "monitor an actor",
                to.id ? "it runs in another process" : "the reference is empty",
                "monitor actors of this process");
  auto watch = std::make_unique<detail::Watch>(*cell_->home);
  watch->watcher = cell_->address();
  cell_->extras().watching.push_back(watch->by_watcher);
  watch.release()->begin({to.cell, to.id});
}

}  // namespace hyperframes
