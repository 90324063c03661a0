// Running something on another shard, and waiting for it here.
//
//   std::size_t rows = co_await hf::call_on(shard, [table] { return table->size(); });
//   co_await hf::call_on(shard, [name]() -> hf::Task<void> { co_await warm_up(name); });
//
// The function travels by value; it is called, and its task runs, over there, and it is destroyed
// over here. Its result crosses back, so it must not refer to the other shard's memory. A cancelled
// caller cancels the task over there, and still waits for its end.
#pragma once

#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <memory>
#include <optional>

namespace hyperframes {
namespace detail {

template <class R>
struct TaskValue {
  using type = R;
  static constexpr bool is_task = false;
};
template <class T>
struct TaskValue<Task<T>> {
  using type = T;
  static constexpr bool is_task = true;
};

/// One call between two shards. On the heap, since the caller's frame may be destroyed while the
/// other shard works on it; freed on the caller's shard once everything sent for it has come back.
class CrossCall {
 public:
  explicit CrossCall(Shard& target) noexcept;
  CrossCall(const CrossCall&) = delete;
  virtual ~CrossCall() = default;
  /// On the target: calls the function. Returns its task, or an empty one if it is done.
  virtual Task<void> execute() = 0;
  std::exception_ptr failure;

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
  void send(Trip& trip) noexcept;

  Shard& target_;
  Shard* home_;
  Group group_ = Group::user;
  Trip call_trip_, cancel_trip_;
  CancelSource cancel_;             // the target's
  PromiseBase* waiting_ = nullptr;  // home's, like all below; null once the caller is gone
  int trips_ = 0;
};

class CrossCallAwaiter {
 public:
  explicit CrossCallAwaiter(CrossCall* call) noexcept : call_(call), on_cancel_(*this) {}
  CrossCallAwaiter(const CrossCallAwaiter&) = delete;
  ~CrossCallAwaiter();
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    begin(handle.promise());
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
  void begin(PromiseBase& promise) noexcept;
  CrossCall* call_;
  OnCancel on_cancel_;
};

template <class Function>
class CrossCallOf final : public CrossCall {
 public:
  using Returned = TaskValue<std::invoke_result_t<Function&>>;
  using Value = typename Returned::type;
  CrossCallOf(Shard& target, Function function)
      : CrossCall(target), function_(std::move(function)) {}

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
    if constexpr (!std::is_void_v<Value>) return std::move(*value_);
  }

 private:
  Function function_;
  std::optional<ValueOf<Value>> value_;
};

}  // namespace detail

/// Suspends while the ring from this shard to `target` is full.
Task<void> ring_room(Shard& target);

template <class Function>
auto call_on(Shard& target, Function function)
    -> Task<typename detail::TaskValue<std::invoke_result_t<Function&>>::type> {
  co_await ring_room(target);
  auto* call = new detail::CrossCallOf<Function>(target, std::move(function));
  detail::CrossCallAwaiter waiting(call);  // owns it
  co_await waiting;
  co_return call->take();
}

}  // namespace hyperframes
