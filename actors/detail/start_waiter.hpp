// A coroutine that starts an actor, and waits until it has started.
#pragma once

#include <exception>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>

namespace hyperframes::detail {

/// Destroyed before the actor has started, it takes the actor with it: also when what starts does
/// that.
class StartWaiter : public Waiter {
 public:
  StartWaiter(ActorCell& cell, Actor* made) noexcept : cell_(cell), made_(made), id_(cell.id) {}
  ~StartWaiter();
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return start(handle.promise());
  }
  void await_resume() {
    if (!done_) throw_unless_woken("spawn an actor");
    if (failure) std::rethrow_exception(failure);
  }

  /// The actor has started, or has ended before, with `failure`.
  void notify() noexcept {
    done_ = true;
    wake();
  }
  std::exception_ptr failure;

 private:
  bool start(PromiseBase& promise) noexcept;
  ActorCell& cell_;
  Actor* made_;
  std::uint64_t id_;
  bool* gone_ = nullptr;  ///< While the actor's code runs, which may destroy this.
  bool done_ = false;
};

}  // namespace hyperframes::detail
