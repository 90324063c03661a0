#include <hyperframes/runtime/call_on.hpp>

namespace hyperframes {
namespace detail {

CrossCall::CrossCall(Shard& target, Time deadline, std::source_location from) noexcept
    : target_(target),
      target_index_(target.index()),
      home_(Shard::current()),
      deadline_(deadline),
      from_(from),
      call_trip_(&CrossCall::arrive_there, *this),
      cancel_trip_(&CrossCall::cancel_there, *this) {}

std::string CrossCall::description() const { return "call shard " + std::to_string(target_index_); }

void CrossCall::throw_unfinished() const {
  throw Error(Errc::shutting_down, description(), "it stopped before the call had ended");
}

void CrossCall::send(Trip& trip) noexcept {
  ++trips_;
  target_.post(&trip, group_);
}

// ---- At home.

bool CrossCall::begin(PromiseBase& promise) noexcept {
  group_ = static_cast<Group>(promise.group);
  if (promise.cancel && promise.cancel->cancelled()) {
    failure = std::make_exception_ptr(Error(promise.cancel->reason(), description(), "cancelled"));
    return false;
  }
  waiting_ = &promise;
  send(call_trip_);
  return true;
}

void CrossCall::give_up(Errc reason) noexcept {
  if (trips_ == 0 || given_up_.load(std::memory_order_relaxed)) return;
  reason_ = reason;
  given_up_.store(true, std::memory_order_release);
  send(cancel_trip_);
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

bool CrossCallAwaiter::begin(PromiseBase& promise) noexcept {
  if (!call_->begin(promise)) return false;
  if (promise.cancel) promise.cancel->add(on_cancel_);
  return true;
}

void CrossCallAwaiter::OnCancel::run(CancelCallback& callback) noexcept {
  CrossCall& call = *static_cast<OnCancel&>(callback).self.call_;
  if (call.waiting_) call.give_up(call.waiting_->cancel->reason());
}

CrossCallAwaiter::~CrossCallAwaiter() {
  if (call_->trips_ == 0) {
    delete call_;
  } else {
    call_->waiting_ = nullptr;
    call_->give_up(Errc::cancelled);
  }
}

// ---- Over there.

// The way home is taken whatever becomes of the task: also when its shard destroys it.
CrossCall::Return::~Return() {
  if (!call) return;
  call->call_trip_.run = &CrossCall::arrive_home;
  call->home_->post(&call->call_trip_, call->group_);
}

bool CrossCall::dropped() noexcept {
  Shard& here = *Shard::current();
  if (given_up_.load(std::memory_order_acquire)) {
    failure =
        std::make_exception_ptr(Error(reason_, description(), "given up while it was queued"));
  } else if (deadline_ <= here.now()) {
    failure = std::make_exception_ptr(Error(Errc::deadline_exceeded, description(),
                                            "the deadline passed while it was queued",
                                            "give it more time, or that shard less to do"));
  } else {
    return false;
  }
  here.metrics()
      .counter("hyperframes_expired_calls_total",
               "Calls from other shards that were cancelled or late before they began")
      .add();
  return true;
}

Task<void> CrossCall::run(Return way_back, Task<void> task) {
  CrossCall& call = *way_back.call;
  PromiseBase& promise = co_await CurrentPromise{};
  CancelSource source(promise.cancel);
  DeadlineTimer timer(source);
  struct Registered {
    explicit Registered(CrossCall& call, CancelSource& source) : call(call) {
      call.source_ = &source;
      if (call.cancelled_there_) source.cancel(call.reason_);
    }
    ~Registered() { call.source_ = nullptr; }
    CrossCall& call;
  } registered(call, source);
  if (call.deadline_ != no_deadline)
    static_cast<Shard*>(promise.core)->start_timer(timer, call.deadline_);
  try {
    co_await UnderCancel<void>(std::move(task), &source);
  } catch (...) {
    call.failure = std::current_exception();
  }
}

void CrossCall::arrive_there(Work* work) noexcept {
  CrossCall& call = static_cast<Trip*>(work)->call;
  Return way_back(call);
  if (call.dropped()) return;
  call.target_.running_at.store(call.from_, std::memory_order_relaxed);
  try {
    Task<void> task = call.execute();
    if (task)
      Shard::current()->spawn(run(std::move(way_back), std::move(task)), call.group_, call.from_);
  } catch (...) {
    call.failure = std::current_exception();
  }
}

void CrossCall::cancel_there(Work* work) noexcept {
  auto* trip = static_cast<Trip*>(work);
  CrossCall& call = trip->call;
  call.cancelled_there_ = true;
  if (call.source_) call.source_->cancel(call.reason_);
  trip->run = &CrossCall::arrive_home;
  call.home_->post(trip, call.group_);
}

}  // namespace detail

// It looks again after a while instead of being told: a full ring means that the other shard is
// behind by a thousand items, so that microseconds do not matter.
Task<void> ring_room(Shard& target, Time deadline) {
  const auto group = static_cast<Group>((co_await CurrentPromise{}).group);
  for (int round = 0; !target.has_ring_room(group); ++round) {
    if (deadline <= Clock::now())
      throw Error(Errc::deadline_exceeded, "call shard " + std::to_string(target.index()),
                  "its ring stayed full until the deadline",
                  "give it more time, or that shard less to do");
    if (round < 16) {
      co_await yield();
    } else {
      co_await sleep_for(100us);
    }
  }
}

}  // namespace hyperframes
