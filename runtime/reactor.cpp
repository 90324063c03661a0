#include <cerrno>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>

namespace hyperframes {

Operation* Operation::create(Kind kind, int descriptor) {
  void* memory = detail::pool_allocate(sizeof(Operation));
  return new (memory) Operation(kind, descriptor);
}

void Operation::destroy(Operation* operation) noexcept {
  operation->~Operation();
  detail::pool_release(operation);
}

namespace detail {

const char* name_of(Operation::Kind kind) noexcept {
  static constexpr const char* names[] = {
      "accept a connection", "connect",       "receive",         "receive",        "send",
      "shut down a socket",  "close",         "open a file",     "read a file",    "write a file",
      "sync a file",         "sync a folder", "truncate a file", "size of a file", "rename a file",
      "remove a file",       "make a folder", "list a folder",   "resolve a name"};
  return names[static_cast<std::size_t>(kind)];
}

OperationAwaiter::OperationAwaiter(Operation* operation, Time deadline) noexcept
    : operation_(operation),
      on_cancel_(*this),
      on_timeout_(*this),
      deadline_(deadline),
      kind_(operation->kind) {}

OperationAwaiter::~OperationAwaiter() {
  if (!operation_) {
    // It had ended, and its coroutine was destroyed before it learned of it.
    if (!claimed_ && brings_descriptor(kind_) && result_ >= 0)
      static_cast<Shard&>(*promise_->core).reactor().close_now(static_cast<int>(result_));
    return;
  }
  if (!promise_) {  // never awaited
    Operation::destroy(operation_);
    return;
  }
  operation_->owner = nullptr;
  if (kind_ != Operation::Kind::close)
    static_cast<Shard&>(*promise_->core).reactor().cancel(operation_);
}

bool OperationAwaiter::begin(PromiseBase& promise) noexcept {
  promise_ = &promise;
  auto& shard = static_cast<Shard&>(*promise.core);
  // A close takes place whatever became of its chain: nobody else knows the descriptor any more.
  CancelSource* const cancel = kind_ == Operation::Kind::close ? nullptr : promise.cancel;
  const bool cancelled = cancel && cancel->cancelled();
  if (cancelled || deadline_ <= shard.now()) {
    stopped_ = true;
    stop_reason_ = cancelled ? cancel->reason() : Errc::deadline_exceeded;
    result_ = -ECANCELED;
    memory = std::move(operation_->memory);
    Operation::destroy(std::exchange(operation_, nullptr));
    return false;
  }
  if (cancel) cancel->add(on_cancel_);
  if (deadline_ != no_deadline) shard.start_timer(on_timeout_, deadline_);
  operation_->owner = this;
  shard.reactor().start(operation_);
  return true;
}

void OperationAwaiter::stop(Errc reason) noexcept {
  if (stopped_ || !operation_) return;
  stopped_ = true;
  stop_reason_ = reason;
  static_cast<Shard&>(*promise_->core).reactor().cancel(operation_);
}

void OperationAwaiter::on_complete(Operation& operation, std::int64_t result, bool) noexcept {
  result_ = result;
  memory = std::move(operation.memory);
  address = operation.address;
  names = std::move(operation.names);
  addresses = std::move(operation.addresses);
  operation_ = nullptr;
  on_cancel_.unlink();
  on_timeout_.stop();
  promise_->schedule();
}

std::int64_t OperationAwaiter::await_resume() {
  claimed_ = true;
  if (stopped_ && (result_ == -ECANCELED || result_ == -EINTR)) {
    throw Error(stop_reason_, name_of(kind_),
                stop_reason_ == Errc::deadline_exceeded ? "the deadline passed" : "cancelled");
  }
  return result_;
}

void OperationAwaiter::OnCancel::run(CancelCallback& callback) noexcept {
  auto& self = static_cast<OnCancel&>(callback).self;
  self.stop(self.promise_->cancel->reason());
}

void OperationAwaiter::OnTimeout::run(Timer& timer) noexcept {
  static_cast<OnTimeout&>(timer).self.stop(Errc::deadline_exceeded);
}

}  // namespace detail
}  // namespace hyperframes
