// Running something on another shard, and waiting for it here.
//
//   std::size_t rows = co_await hf::call_on(shard, [table] { return table->size(); });
//   co_await hf::call_on(shard, [name]() -> hf::Task<void> { co_await warm_up(name); });
//
// The function travels by value, and is kept until its task has ended: a coroutine lambda that
// captures is fine here. It is called, and its task runs, over there, in the caller's scheduling
// group; it is destroyed over here. Arguments and result cross, so they must not refer to memory of
// a shard: send buffers as sole references or proxies (runtime/buffer.hpp). A cancelled caller
// cancels the task over there, and still waits for its end. A call that is still queued over there
// when it is cancelled, or when its deadline passes, is dropped and counted
// (hyperframes_expired_calls_total). Awaited on a shard of the same runtime; other threads have
// Runtime::run.
#pragma once

#include <atomic>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/detail/task_value.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <optional>
#include <source_location>

namespace hyperframes {
namespace detail {

/// One call between two shards. On the heap, since the caller's frame may be destroyed while the
/// other shard works on it; freed on the caller's shard once everything sent for it has come back.
class CrossCall {
 public:
  CrossCall(Shard& target, Time deadline, std::source_location from) noexcept;
  CrossCall(const CrossCall&) = delete;
  virtual ~CrossCall() = default;
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  /// On the target: calls the function. Returns its task, or an empty one if it is done.
  virtual Task<void> execute() = 0;
  std::exception_ptr failure;

 protected:
  /// Neither value nor failure came back: the target destroyed the task.
  [[noreturn]] void throw_unfinished() const;

 private:
  friend class CrossCallAwaiter;
  struct Trip : Work {
    Trip(Run run, CrossCall& call) noexcept : Work(run), call(call) {}
    CrossCall& call;
  };
  struct Return {
    explicit Return(CrossCall& call) noexcept : call(&call) {}
    Return(Return&& other) noexcept : call(std::exchange(other.call, nullptr)) {}
    ~Return();
    CrossCall* call;
  };
  static void arrive_there(Work* work) noexcept;
  static void cancel_there(Work* work) noexcept;
  static void arrive_home(Work* work) noexcept;
  static Task<void> run(Return way_back, Task<void> task);
  std::string description() const;
  bool begin(PromiseBase& promise) noexcept;
  bool dropped() noexcept;
  void give_up(Errc reason) noexcept;
  void send(Trip& trip) noexcept;

  Shard& target_;  // gone, perhaps, once the call has come back
  const unsigned target_index_;
  Shard* const home_;
  const Time deadline_;
  const std::source_location from_;
  Group group_ = Group::user;
  Trip call_trip_, cancel_trip_;
  // The target's: the source of the task that runs there, and whether to cancel one that starts.
  CancelSource* source_ = nullptr;
  bool cancelled_there_ = false;
  // Home's, read over there once `given_up_` says so.
  std::atomic<bool> given_up_{false};
  Errc reason_ = Errc::cancelled;
  // Home's.
  PromiseBase* waiting_ = nullptr;  ///< Null once the caller is gone.
  int trips_ = 0;
};

class CrossCallAwaiter {
 public:
  explicit CrossCallAwaiter(CrossCall* call) noexcept : call_(call), on_cancel_(*this) {}
  CrossCallAwaiter(const CrossCallAwaiter&) = delete;
  ~CrossCallAwaiter();
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return begin(handle.promise());
  }
  void await_resume() {
    if (call_->failure) std::rethrow_exception(call_->failure);
  }

 private:
  struct OnCancel : CancelCallback {
    explicit OnCancel(CrossCallAwaiter& self) noexcept
        : CancelCallback(&OnCancel::run), self(self) {}
    static void run(CancelCallback& callback) noexcept;
    CrossCallAwaiter& self;
  };
  bool begin(PromiseBase& promise) noexcept;
  CrossCall* call_;
  OnCancel on_cancel_;
};

template <class Function>
class CrossCallOf final : public CrossCall {
 public:
  using Returned = TaskValue<std::invoke_result_t<Function&>>;
  using Value = typename Returned::type;
  CrossCallOf(Shard& target, Function function, Time deadline, std::source_location from)
      : CrossCall(target, deadline, from), function_(std::move(function)) {}

  Task<void> execute() override {
    if constexpr (Returned::is_task) {
      return store(function_(), value_);
    } else if constexpr (std::is_void_v<Value>) {
      function_();
      value_.emplace();
    } else {
      value_.emplace(function_());
    }
    return {};
  }
  Value take() {
    if (!value_) throw_unfinished();
    if constexpr (!std::is_void_v<Value>) return std::move(*value_);
  }

 private:
  Function function_;
  std::optional<ValueOf<Value>> value_;
};

}  // namespace detail

/// Suspends while the ring from this shard to `target` is full: for code that uses Shard::post
/// much. `call_on` does it by itself. Throws Errc::deadline_exceeded.
Task<void> ring_room(Shard& target, Time deadline = no_deadline);

/// Calls `function` on `target` (which may be the current shard), and awaits it there if it returns
/// a Task. What it throws is thrown here; Errc::shutting_down if the target stopped before. At
/// `deadline` the task over there is cancelled and its wait throws Errc::deadline_exceeded; a
/// function that has begun to run by then is waited for, and so is a target that is stuck in a
/// turn.
template <class Function>
auto call_on(Shard& target, Function function, Time deadline = no_deadline,
             std::source_location from = std::source_location::current())
    -> Task<typename detail::TaskValue<std::invoke_result_t<Function&>>::type> {
  co_await ring_room(target, deadline);
  auto* call = new detail::CrossCallOf<Function>(target, std::move(function), deadline, from);
  detail::CrossCallAwaiter waiting(call);  // owns it
  co_await waiting;
  co_return call->take();
}

}  // namespace hyperframes
