// A coroutine that is lazy, owned, and awaited once.
//
//   hf::Task<int> answer() { co_await hf::sleep_for(1ms); co_return 42; }
//   hf::Task<void> user() { int value = co_await answer(); }
//
// A Task starts when it is awaited (one that never is runs nothing), runs on the awaiting
// coroutine's shard, and inherits its cancellation, deadline and scheduling group. What it throws,
// co_await throws. Plain code starts one by Runtime::run, a coroutine one beside itself by a Scope.
// Destroying a Task that is suspended destroys its frame; the
// awaiter it is suspended in takes itself out of whatever it waits on. Parameters are taken by
// value: a reference parameter dangles as soon as the call expression ends. A lambda that captures
// must not be a coroutine (its captures die with it): use `co_invoke`, which keeps them.
//
// Awaiting, however deep or often, takes no stack. Destroying a chain of suspended Tasks does: a
// few hundred bytes for each link.
#pragma once

#include <cassert>
#include <exception>
#include <hyperframes/runtime/detail/promise.hpp>
#include <optional>
#include <type_traits>
#include <variant>

namespace hyperframes {

template <class T>
class Task;

namespace detail {

template <class T>
class TaskPromise;

template <class T>
class TaskPromiseCommon : public PromiseBase {
 public:
  std::suspend_always initial_suspend() noexcept { return {}; }

  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
      PromiseBase* const parent = self.promise().parent;
      if (!parent) return std::noop_coroutine();
      if (parent->core) parent->note_resumed();
      return transfer_to(parent->handle, *parent);
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }
};

template <class T>
class TaskPromise : public TaskPromiseCommon<T> {
 public:
  Task<T> get_return_object() noexcept;
  void unhandled_exception() noexcept { result_.template emplace<2>(std::current_exception()); }
  template <class U>
    requires std::is_constructible_v<T, U&&>
  void return_value(U&& value) {
    result_.template emplace<1>(std::forward<U>(value));
  }
  T take() {
    if (auto* failure = std::get_if<2>(&result_)) std::rethrow_exception(*failure);
    return std::move(std::get<1>(result_));
  }

 private:
  std::variant<std::monostate, T, std::exception_ptr> result_;
};

template <>
class TaskPromise<void> : public TaskPromiseCommon<void> {
 public:
  Task<void> get_return_object() noexcept;
  void unhandled_exception() noexcept { failure_ = std::current_exception(); }
  void return_void() noexcept {}
  void take() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace detail

/// `T`: void, or an object type that can be moved; no reference.
template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;
  using value_type = T;

  /// Holds nothing, as one that was moved from or awaited; it must not be awaited.
  Task() noexcept = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  /// For the runtime: whether the frame that it still owns has run to its end.
  bool done() const noexcept { return handle_ && handle_.done(); }

  /// Owns the awaited frame: when the awaiting coroutine is destroyed in mid-await, so is this.
  class Awaiter {
   public:
    explicit Awaiter(Task task) noexcept : task_(std::move(task)) {}
    bool await_ready() const noexcept {
      assert(task_ && "a Task is awaited once, and not after it was moved from");
      return false;
    }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> awaiting) noexcept {
      detail::PromiseBase& promise = task_.handle_.promise();
      promise.inherit(awaiting.promise());
      return detail::transfer_to(task_.handle_, promise);
    }
    T await_resume() {
      task_.handle_.promise().leave_parent();
      return task_.handle_.promise().take();
    }

   private:
    Task task_;
  };
  /// `co_await std::move(task)`, or `co_await f()`: it takes the frame out of the Task.
  Awaiter operator co_await() && noexcept { return Awaiter(std::move(*this)); }

  /// For the runtime: the frame, still owned by this Task.
  std::coroutine_handle<promise_type> handle() const noexcept { return handle_; }

 private:
  friend promise_type;
  explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

namespace detail {
template <class T>
Task<T> TaskPromise<T>::get_return_object() noexcept {
  auto handle = std::coroutine_handle<TaskPromise<T>>::from_promise(*this);
  this->handle = handle;
  return Task<T>(handle);
}
inline Task<void> TaskPromise<void>::get_return_object() noexcept {
  auto handle = std::coroutine_handle<TaskPromise<void>>::from_promise(*this);
  this->handle = handle;
  return Task<void>(handle);
}
}  // namespace detail

/// Calls `function(arguments...)`, which returns a Task, and keeps function and arguments alive in
/// its own frame until that Task has ended. This is how a capturing lambda becomes a coroutine:
/// `scope.spawn(hf::co_invoke([&]() -> hf::Task<void> { co_await refresh(cache); }));`
template <class Function, class... Arguments>
auto co_invoke(Function function, Arguments... arguments)
    -> std::invoke_result_t<Function&, Arguments&&...> {
  co_return co_await function(std::move(arguments)...);
}

}  // namespace hyperframes
