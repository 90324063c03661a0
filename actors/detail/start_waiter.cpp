#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/start_waiter.hpp>
#include <utility>

namespace hyperframes::detail {

StartWaiter::~StartWaiter() {
  if (gone_) *gone_ = true;
  if (done_ || cell_.id != id_) return;
  if (cell_.more) cell_.more->spawner = nullptr;
  cell_.stop();
}

bool StartWaiter::start(PromiseBase& promise) noexcept {
  NodeShard& home = *cell_.home;
  std::exception_ptr thrown;
  bool gone = false;
  gone_ = &gone;
  // What starts may spawn others meanwhile.
  std::exception_ptr* const outer = std::exchange(home.start_failure, &thrown);
  cell_.start(made_);
  home.start_failure = outer;
  if (gone) return true;
  gone_ = nullptr;
  promise.note_resumed();

  const bool exists = cell_.id == id_;
  failure = thrown;
  if (!exists || (!thrown && cell_.phase != ActorCell::Phase::starting)) {
    done_ = true;
    return false;
  }
  // A start that failed is reported when the actor has ended: then its name is free again.
  CellExtras& extras = cell_.extras();
  extras.start_failure = std::move(thrown);
  extras.spawner = this;
  return begin(promise);
}

}  // namespace hyperframes::detail
