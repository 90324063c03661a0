#include <cassert>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::detail {

bool Waiter::begin(PromiseBase& promise) noexcept {
  promise_ = &promise;
  if (promise.cancel && promise.cancel->cancelled()) {
    outcome_ = Outcome::cancelled;
    cancel_reason_ = promise.cancel->reason();
    return false;
  }
  auto& shard = static_cast<Shard&>(*promise.core);
  if (deadline_ != no_deadline) {
    if (deadline_ <= shard.now()) {
      outcome_ = Outcome::timed_out;
      return false;
    }
    shard.start_timer(on_timeout_, deadline_);
  }
  if (promise.cancel) promise.cancel->add(on_cancel_);
  return true;
}

void Waiter::finish(Outcome outcome) noexcept {
  if (outcome_ != Outcome::waiting) return;
  outcome_ = outcome;
  if (outcome == Outcome::woken) {
    unlink();
  } else {
    leave();
  }
  on_cancel_.unlink();
  on_timeout_.stop();
  promise_->schedule();
}

void Waiter::OnCancel::run(CancelCallback& callback) noexcept {
  Waiter& self = static_cast<OnCancel&>(callback).self;
  assert(self.promise_->core == Shard::current() && "cancel on the shard that waits");
  self.cancel_reason_ = self.promise_->cancel->reason();
  self.finish(Outcome::cancelled);
}

void Waiter::OnTimeout::run(Timer& timer) noexcept {
  static_cast<OnTimeout&>(timer).self.finish(Outcome::timed_out);
}

void Waiter::throw_unless_woken(const char* tried) const {
  if (outcome_ == Outcome::cancelled)
    throw Error(cancel_reason_, tried,
                cancel_reason_ == Errc::deadline_exceeded ? "the deadline passed" : "cancelled");
  if (outcome_ == Outcome::timed_out) throw Error(timeout_code_, tried, "the deadline passed");
}

}  // namespace hyperframes::detail
