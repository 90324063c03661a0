// Letting time pass, or others run.
//
//   co_await hf::sleep_for(50ms);
//   co_await hf::sleep_until(limit);
//   co_await hf::yield();            // to the end of its group's ready queue on this shard
//
// Each throws Errc::cancelled, or what else its chain was cancelled with, if that is or gets
// cancelled; a yield goes through the queue first.
#pragma once

#include <hyperframes/runtime/detail/waiter.hpp>
#include <hyperframes/runtime/time.hpp>

namespace hyperframes {

/// Wakes at `deadline`, not before it. A past deadline does not suspend; `no_deadline` sleeps until
/// it is cancelled.
class [[nodiscard]] SleepAwaiter : public detail::Waiter {
 public:
  explicit SleepAwaiter(Time deadline) noexcept : Waiter(deadline) {}
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return begin(handle.promise());
  }
  void await_resume() const {
    if (outcome() == Outcome::cancelled) throw_unless_woken("sleep");
  }
};

[[nodiscard]] inline SleepAwaiter sleep_until(Time deadline) noexcept {
  return SleepAwaiter(deadline);
}
[[nodiscard]] inline SleepAwaiter sleep_for(Duration span) noexcept {
  return SleepAwaiter(after(span));
}

class [[nodiscard]] YieldAwaiter {
 public:
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    promise_ = &handle.promise();
    promise_->schedule();
  }
  /// Throws if the chain was cancelled, so that a loop that only yields can be stopped.
  void await_resume() const {
    if (promise_->cancel && promise_->cancel->cancelled())
      throw Error(promise_->cancel->reason(), "yield");
  }

 private:
  detail::PromiseBase* promise_ = nullptr;
};

[[nodiscard]] inline YieldAwaiter yield() noexcept { return {}; }

/// For combinators: the promise of the running coroutine, with its cancellation, group and shard.
/// Never suspends.
struct CurrentPromise {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    promise = &handle.promise();
    return false;
  }
  detail::PromiseBase& await_resume() const noexcept { return *promise; }
  detail::PromiseBase* promise = nullptr;
};

}  // namespace hyperframes
