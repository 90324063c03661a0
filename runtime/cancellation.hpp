// Cancellation: a state that a chain of awaits inherits, and that ends what the chain waits for.
//
//   hf::CancelSource source;
//   scope.spawn(hf::with_cancellation(source, serve(std::move(socket))));
//   source.cancel();              // serve()'s current co_await throws Errc::cancelled
//
// Everything here belongs to one shard; to cancel from elsewhere, use call_on. Cancelling is a
// request: an operation that the kernel still works on ends when its completion arrives, and a
// result that wins the race is delivered. A co_await that need not wait does not look at it; one
// that would have to wait then throws at once. Cancelling twice, or after the end, does nothing.
#pragma once

#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes {
namespace detail {

/// Runs once when the state it is registered with is cancelled, unless unlinked before.
class CancelCallback : public ListNode {
 public:
  using Run = void (*)(CancelCallback&) noexcept;
  explicit CancelCallback(Run run) noexcept : run_(run) {}
  void operator()() noexcept { run_(*this); }

 private:
  Run run_;
};

}  // namespace detail

/// Must outlive the tasks that run under it. Never reset: make a new one for the next attempt.
class CancelSource {
 public:
  CancelSource() noexcept : from_parent_(*this) {}
  /// Cancelled too when `parent` (may be null) is, with its reason; at once if it is already. The
  /// parent outlives this.
  explicit CancelSource(CancelSource* parent) noexcept;
  CancelSource(const CancelSource&) = delete;
  CancelSource& operator=(const CancelSource&) = delete;

  bool cancelled() const noexcept { return cancelled_; }
  /// Of the first `cancel`.
  Errc reason() const noexcept { return reason_; }
  /// Wakes what waits under this source. `reason` is the code that it throws. No coroutine is
  /// resumed before this returns.
  void cancel(Errc reason = Errc::cancelled) noexcept;

  /// For awaiters: runs `callback` inside `cancel`. Not after that.
  void add(detail::CancelCallback& callback) noexcept { callbacks_.push_back(callback); }

 private:
  struct FromParent : detail::CancelCallback {
    explicit FromParent(CancelSource& self) noexcept
        : CancelCallback(&FromParent::run), self(self) {}
    static void run(CancelCallback& callback) noexcept;
    CancelSource& self;
    CancelSource* parent = nullptr;
  };

  bool cancelled_ = false;
  Errc reason_ = Errc::cancelled;
  detail::List<detail::CancelCallback> callbacks_;
  FromParent from_parent_;
};

}  // namespace hyperframes
