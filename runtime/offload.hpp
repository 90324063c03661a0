// Where blocking calls go, so that no shard ever blocks.
//
//   auto rows = co_await hf::offload([path] { return read_whole_database(path); });
//
// The function runs on another thread and must not touch the shard; its result, or its exception,
// is brought back to the awaiting coroutine. A cancelled await still waits for the function, as
// there is no way to stop it, and then returns what it returned; so does a with_deadline around it.
// A chain that is cancelled already calls nothing and throws. Function and result live on the heap:
// if the awaiting coroutine is destroyed meanwhile, the function goes on, so it must own what it
// uses. Calls run as threads are free (Runtime::Options::offload_threads), in order of arrival.
#pragma once

#include <exception>
#include <hyperframes/runtime/detail/promise.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes {

class Shard;

namespace detail {
class OffloadGate;

/// What an executor runs, once. It frees itself by running, or by being abandoned.
struct OffloadJob : Work {
  explicit OffloadJob(Run run) noexcept : Work(run) {}
  virtual ~OffloadJob() = default;
  /// What it does, for logs. Before it runs.
  virtual std::string description() const = 0;
  /// In place of its run, for an executor whose process is gone: nobody waits for it any more, and
  /// what it holds may be destroyed here.
  virtual void abandon() noexcept {}
};

}  // namespace detail

/// Runs jobs off the shards. An embedder may supply its own; the simulator does.
class Offload {
 public:
  virtual ~Offload() = default;
  /// Calls `job->run(job)` once, on a thread that may block, and touches the job no more after
  /// that. Called from any thread; does not wait for it.
  virtual void execute(detail::OffloadJob* job) noexcept = 0;
  /// Called before the destructor, off the shards: finishes what was queued. What runs past
  /// `until` is left behind, and its description returned; its result then reaches nobody.
  virtual std::vector<std::string> end(Time until) {
    static_cast<void>(until);
    return {};
  }
};

/// The default: a few threads (at least one) and one queue, without bound. The destructor finishes
/// what was queued. Throws the system's error if a thread can't be started.
std::unique_ptr<Offload> make_thread_offload(unsigned threads);

namespace detail {

/// Where what an executor's thread has done goes back to a shard. Closed before the shards end:
/// a call that returns later is kept as it is, since nobody can say what its memory belongs to.
class OffloadGate {
 public:
  /// Posts `job` to `home`, or keeps it.
  void bring_back(OffloadJob* job, Shard& home) noexcept;
  void close() noexcept;

 private:
  std::shared_mutex mutex_;
  bool closed_ = false;
};

/// One call in flight. Lives in the awaiting frame of `offload`, which can't be destroyed before
/// the call has returned: so the state is on the heap and shared by both sides.
class OffloadCall : public OffloadJob {
 public:
  explicit OffloadCall(std::source_location from) noexcept
      : OffloadJob(&OffloadCall::execute), from_(from) {}
  virtual void call() = 0;
  std::string description() const override;
  void abandon() noexcept override { std::exchange(self_, nullptr).reset(); }

  std::exception_ptr failure;

 private:
  friend class OffloadAwaiter;
  static void execute(Work* self) noexcept;
  static void arrive(Work* self) noexcept;
  PromiseBase* waiting_ = nullptr;  ///< Null once the awaiting frame is gone. Home shard only.
  ShardCore* home_ = nullptr;
  std::source_location from_;
  std::shared_ptr<OffloadGate> gate_;
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
  OffloadFunction(Function function, std::source_location from)
      : OffloadCall(from), function_(std::move(function)) {}
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

/// Runs `function()` on the shard's offload executor, and returns what it returns (no reference).
/// Throws what it throws. One that never returns holds up the runtime's end until its deadline
/// only; then it is named in the log and left behind.
template <class Function>
Task<std::invoke_result_t<Function&>> offload(
    Function function, std::source_location from = std::source_location::current()) {
  auto call = std::make_shared<detail::OffloadFunction<Function>>(std::move(function), from);
  detail::OffloadAwaiter waiting(call);
  co_await waiting;
  co_return call->take();
}

}  // namespace hyperframes
