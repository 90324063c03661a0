// Where blocking calls go, so that no shard ever blocks.
//
//   auto rows = co_await hf::offload([path] { return read_whole_database(path); });
//
// The function runs on another thread and must not touch the shard; its result, or its exception,
// is brought back to the awaiting coroutine. A cancelled await still waits for the function: there
// is no way to stop it, and its captures must outlive it. One that is cancelled already calls
// nothing.
#pragma once

#include <exception>
#include <hyperframes/runtime/detail/promise.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <optional>

namespace hyperframes {

/// Runs jobs off the shards. An embedder may supply its own; the simulator does.
class Offload {
 public:
  virtual ~Offload() = default;
  /// Calls `job->run(job)` once, on a thread that may block. From any thread.
  virtual void execute(detail::Work* job) noexcept = 0;
};

/// The default: a few threads and one queue. The destructor finishes what was queued.
std::unique_ptr<Offload> make_thread_offload(unsigned threads);

namespace detail {

/// One call in flight. Lives in the awaiting frame of `offload`, which can't be destroyed before
/// the call has returned: so the state is on the heap and shared by both sides.
class OffloadCall : public Work {
 public:
  OffloadCall() noexcept : Work(&OffloadCall::execute) {}
  virtual ~OffloadCall() = default;
  virtual void call() = 0;

  std::exception_ptr failure;

 private:
  friend class OffloadAwaiter;
  static void execute(Work* self) noexcept;
  static void arrive(Work* self) noexcept;
  PromiseBase* waiting_ = nullptr;  ///< Null once the awaiting frame is gone. Home shard only.
  ShardCore* home_ = nullptr;
  std::shared_ptr<OffloadCall> self_;  ///< While in flight.
};

class OffloadAwaiter {
 public:
  explicit OffloadAwaiter(std::shared_ptr<OffloadCall> call) noexcept : call_(std::move(call)) {}
  OffloadAwaiter(const OffloadAwaiter&) = delete;
  ~OffloadAwaiter() { call_->waiting_ = nullptr; }
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return begin(handle.promise());
  }
  void await_resume() {
    if (call_->failure) std::rethrow_exception(call_->failure);
  }

 private:
  bool begin(PromiseBase& promise) noexcept;
  std::shared_ptr<OffloadCall> call_;
};

template <class Function>
class OffloadFunction final : public OffloadCall {
 public:
  using Value = std::invoke_result_t<Function&>;
  explicit OffloadFunction(Function function) : function_(std::move(function)) {}
  void call() override {
    if constexpr (std::is_void_v<Value>) {
      function_();
    } else {
      value_.emplace(function_());
    }
  }
  Value take() {
    if constexpr (!std::is_void_v<Value>) return std::move(*value_);
  }

 private:
  Function function_;
  std::optional<std::conditional_t<std::is_void_v<Value>, bool, Value>> value_;
};

}  // namespace detail

/// Runs `function()` on the shard's offload executor. Throws what it throws.
template <class Function>
Task<std::invoke_result_t<Function&>> offload(Function function) {
  auto call = std::make_shared<detail::OffloadFunction<Function>>(std::move(function));
  detail::OffloadAwaiter waiting(call);
  co_await waiting;
  co_return call->take();
}

}  // namespace hyperframes
