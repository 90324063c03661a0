// The base of every awaiter that waits in a list: woken once, by its event, its deadline or a
// cancellation, whichever comes first.
#pragma once

#include <coroutine>
#include <hyperframes/runtime/detail/promise.hpp>
#include <hyperframes/runtime/timer.hpp>

namespace hyperframes::detail {

/// Lives in the awaiting frame. Link it into a wait list (it is that list's node) after `begin`
/// returned true; call `wake` when the event has come. Destroying it at any time unlinks it
/// everywhere. `outcome()` says what ended the wait.
class Waiter : public ListNode {
 public:
  enum class Outcome : std::uint8_t { waiting, woken, timed_out, cancelled };

  using Left = void (*)(Waiter&) noexcept;

  /// `left`: called when it leaves its wait list unwoken.
  explicit Waiter(Time deadline = no_deadline, Errc timeout_code = Errc::deadline_exceeded,
                  Left left = nullptr) noexcept
      : on_cancel_(*this),
        on_timeout_(*this),
        left_(left),
        deadline_(deadline),
        timeout_code_(timeout_code) {}

  /// False if the wait must not begin, because the chain is already cancelled or the deadline has
  /// passed; the outcome says which.
  bool begin(PromiseBase& promise) noexcept;
  /// Ends the wait with `woken` and queues the coroutine. Does nothing if it has ended already.
  void wake() noexcept { finish(Outcome::woken); }
  Outcome outcome() const noexcept { return outcome_; }
  PromiseBase* promise() const noexcept { return promise_; }

  /// Throws if cancelled or timed out: the code, with `tried` as its text.
  void throw_unless_woken(const char* tried) const;

 protected:
  /// For those who learn it late; before `begin`.
  void set_deadline(Time deadline) noexcept { deadline_ = deadline; }
  /// Takes it out of its wait list, if it is in one. For destructors of classes that pass `left`.
  void leave() noexcept {
    if (!linked()) return;
    unlink();
    if (left_) left_(*this);
  }

 private:
  void finish(Outcome outcome) noexcept;
  struct OnCancel : CancelCallback {
    explicit OnCancel(Waiter& self) noexcept : CancelCallback(&OnCancel::run), self(self) {}
    static void run(CancelCallback& callback) noexcept;
    Waiter& self;
  };
  struct OnTimeout : Timer {
    explicit OnTimeout(Waiter& self) noexcept : Timer(&OnTimeout::run), self(self) {}
    static void run(Timer& timer) noexcept;
    Waiter& self;
  };

  PromiseBase* promise_ = nullptr;
  OnCancel on_cancel_;
  OnTimeout on_timeout_;
  Left left_;
  Time deadline_;
  Errc timeout_code_;
  Errc cancel_reason_ = Errc::cancelled;
  Outcome outcome_ = Outcome::waiting;
};

}  // namespace hyperframes::detail
