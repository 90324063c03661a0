// A coroutine's wait until the actor that it spawned has started.
#pragma once

#include <exception>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>

namespace hyperframes::detail {

/// Destroyed before the actor has started, it takes the actor with it.
class StartWaiter : public Waiter {
 public:
  explicit StartWaiter(ActorCell& cell) : cell_(cell) { cell.extras().spawner = this; }
  ~StartWaiter() {
    if (done_) return;
    cell_.extras().spawner = nullptr;
    cell_.stop();
  }
  bool await_ready() const noexcept { return done_; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return begin(handle.promise());
  }
  void await_resume() {
    if (promise() && !done_) throw_unless_woken("spawn an actor");
    if (failure) std::rethrow_exception(failure);
  }

  void notify() noexcept {
    done_ = true;
    if (promise()) wake();
  }
  std::exception_ptr failure;

 private:
  ActorCell& cell_;
  bool done_ = false;
};

}  // namespace hyperframes::detail
