// A flag that coroutines of one shard wait for.
//
//   hf::Event ready;
//   co_await ready.wait(hf::after(5s));    // at once if set; throws Errc::deadline_exceeded
//   ready.set();                           // wakes all, stays set until reset()
//
// Who waits when an Event is destroyed is not woken by it any more: its deadline or its
// cancellation ends the wait.
#pragma once

#include <hyperframes/runtime/detail/waiter.hpp>

namespace hyperframes {

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  class Awaiter : public detail::Waiter {
   public:
    Awaiter(Event& event, Time deadline) noexcept : Waiter(deadline), event_(event) {}
    bool await_ready() const noexcept { return event_.set_; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      if (!begin(handle.promise())) return false;
      event_.waiters_.push_back(*this);
      return true;
    }
    void await_resume() const {
      if (promise()) throw_unless_woken("wait for an event");
    }

   private:
    Event& event_;
  };

  bool is_set() const noexcept { return set_; }
  /// Resumes nobody before it returns: who waits is queued.
  void set() noexcept {
    set_ = true;
    while (detail::Waiter* waiter = waiters_.pop_front()) waiter->wake();
  }
  /// Those that `set` has woken go on all the same.
  void reset() noexcept { set_ = false; }
  /// Wakes who waits now, and stays unset.
  void pulse() noexcept {
    while (detail::Waiter* waiter = waiters_.pop_front()) waiter->wake();
  }
  /// Returns at once, whatever deadline and cancellation say, if it is set. Else throws
  /// Errc::deadline_exceeded, or Errc::cancelled.
  [[nodiscard]] Awaiter wait(Time deadline = no_deadline) noexcept {
    return Awaiter(*this, deadline);
  }

 private:
  bool set_ = false;
  detail::List<detail::Waiter> waiters_;
};

}  // namespace hyperframes
