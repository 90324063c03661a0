#include <hyperframes/runtime/call_on.hpp>

namespace hyperframes {
namespace detail {

CrossCall::CrossCall(Shard& target) noexcept
    : target_(target),
      home_(Shard::current()),
      call_trip_(&CrossCall::arrive_there, *this),
      cancel_trip_(&CrossCall::cancel_there, *this) {}

void CrossCall::send(Trip& trip) noexcept {
  ++trips_;
  target_.post(&trip, group_);
}

// The way home is taken whatever becomes of the task: also when its shard destroys it.
CrossCall::Return::~Return() {
  if (!call) return;
  call->call_trip_.run = &CrossCall::arrive_home;
  call->home_->post(&call->call_trip_, call->group_);
}

Task<void> CrossCall::run(Return way_back, Task<void> task) {
  CrossCall& call = *way_back.call;
  try {
    co_await UnderCancel<void>(std::move(task), &call.cancel_);
  } catch (...) {
    call.failure = std::current_exception();
  }
}

void CrossCall::arrive_there(Work* work) noexcept {
  CrossCall& call = static_cast<Trip*>(work)->call;
  Return way_back(call);
  try {
    Task<void> task = call.execute();
    if (task) Shard::current()->spawn(run(std::move(way_back), std::move(task)), call.group_);
  } catch (...) {
    call.failure = std::current_exception();
  }
}

void CrossCall::cancel_there(Work* work) noexcept {
  auto* trip = static_cast<Trip*>(work);
  trip->call.cancel_.cancel();
  trip->run = &CrossCall::arrive_home;
  trip->call.home_->post(trip, trip->call.group_);
}

void CrossCall::arrive_home(Work* work) noexcept {
  CrossCall& call = static_cast<Trip*>(work)->call;
  if (--call.trips_ > 0) return;
  if (call.waiting_) {
    std::exchange(call.waiting_, nullptr)->schedule();
  } else {
    delete &call;
  }
}

void CrossCallAwaiter::begin(PromiseBase& promise) noexcept {
  call_->waiting_ = &promise;
  call_->group_ = static_cast<Group>(promise.group);
  call_->send(call_->call_trip_);
  if (!promise.cancel) return;
  if (promise.cancel->cancelled()) {
    call_->send(call_->cancel_trip_);
  } else {
    promise.cancel->add(on_cancel_);
  }
}

void CrossCallAwaiter::OnCancel::run(CancelCallback& callback) noexcept {
  CrossCall& call = *static_cast<OnCancel&>(callback).self.call_;
  if (call.waiting_) call.send(call.cancel_trip_);
}

CrossCallAwaiter::~CrossCallAwaiter() {
  if (call_->trips_ == 0) {
    delete call_;
  } else {
    call_->waiting_ = nullptr;
  }
}

}  // namespace detail

Task<void> ring_room(Shard& target) {
  while (!target.has_ring_room()) co_await yield();
}

}  // namespace hyperframes
