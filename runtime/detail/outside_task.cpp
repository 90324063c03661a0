#include <hyperframes/runtime/detail/outside_task.hpp>

#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <utility>

namespace hyperframes::detail {

/// Goes with the task, whatever becomes of that.
struct OutsideTask::Ending {
  explicit Ending(std::shared_ptr<OutsideTask> call) noexcept : call(std::move(call)) {}
  Ending(Ending&&) noexcept = default;
  ~Ending() {
    if (!call) return;
    if (!call->done_ && !call->failure_)
      call->failure_ = std::make_exception_ptr(Error(
          Errc::shutting_down, "run a task", "the runtime stopped before the task had ended"));
    call->ended_.store(true, std::memory_order_release);
    call->complete();
  }
  std::shared_ptr<OutsideTask> call;
};

/// While the task runs, a cancellation finds its source.
struct OutsideTask::Link {
  Link(OutsideTask& call, CancelSource& source) noexcept : call(call) {
    call.source_ = &source;
    if (call.given_up_) source.cancel();
  }
  Link(const Link&) = delete;
  ~Link() { call.source_ = nullptr; }
  OutsideTask& call;
};

struct OutsideTask::Cancellation : Work {
  explicit Cancellation(std::shared_ptr<OutsideTask> call) noexcept
      : Work(&Cancellation::arrive), call(std::move(call)) {}
  static void arrive(Work* work) noexcept {
    const std::unique_ptr<Cancellation> self(static_cast<Cancellation*>(work));
    self->call->given_up_ = true;
    if (self->call->source_) self->call->source_->cancel();
  }
  std::shared_ptr<OutsideTask> call;
};

void OutsideTask::start(Shard& shard, std::source_location from) {
  shard_ = &shard;
  start_on(shard, [self = shared_from_this()] { return run(Ending(self)); }, from);
}

void OutsideTask::fail(std::exception_ptr failure) noexcept {
  failure_ = std::move(failure);
  ended_.store(true, std::memory_order_release);
  complete();
}

void OutsideTask::cancel() {
  if (!shard_ || ended_.load(std::memory_order_acquire)) return;
  shard_->post(new Cancellation(shared_from_this()), Group::user);
}

Task<void> OutsideTask::run(Ending ending) {
  OutsideTask& call = *ending.call;
  PromiseBase& promise = co_await CurrentPromise{};
  CancelSource source(promise.cancel);
  const Link link(call, source);
  try {
    UnderCancel<void> work(call.execute(), &source);
    co_await work;
    call.done_ = true;
  } catch (...) {
    call.failure_ = std::current_exception();
  }
}

}  // namespace hyperframes::detail
