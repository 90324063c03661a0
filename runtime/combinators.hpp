// Putting tasks together: all of them, the first of them, within a time, or untouched by
// cancellation.
//
//   auto both = co_await hf::when_all(load(a), load(b));           // std::tuple<A, B>
//   auto first = co_await hf::when_any(primary(), backup());       // std::variant, by position
//   auto page = co_await hf::with_deadline(fetch(url), hf::after(2s));
//
// Every task that was started has ended when the await ends: losers are cancelled, then joined. So
// a task that is slow to end (an offloaded call, something `shielded`) is waited for, deadline or
// not. Tasks run on the awaiting shard, in its scheduling group, begin in the order in which they
// were given, and are cancelled when the awaiting chain is. A Task<void> has std::monostate for its
// value.
#pragma once

#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <optional>
#include <tuple>
#include <variant>

namespace hyperframes {
namespace detail {

/// void has no values: std::monostate stands for it in tuples and variants.
template <class T>
using ValueOf = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <class T>
Task<void> store(Task<T> task, std::optional<ValueOf<T>>& into) {
  if constexpr (std::is_void_v<T>) {
    co_await std::move(task);
    into.emplace();
  } else {
    into.emplace(co_await std::move(task));
  }
}

/// Like `store`; the first to finish, by value or by failure, wins and cancels the scope.
template <std::size_t Index, class T, class Variant>
Task<void> race(Task<T> task, std::optional<Variant>& winner, std::exception_ptr& failure,
                Scope& scope) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(task);
      if (!winner && !failure) winner.emplace(std::in_place_index<Index>);
    } else {
      T value = co_await std::move(task);
      if (!winner && !failure) winner.emplace(std::in_place_index<Index>, std::move(value));
    }
  } catch (...) {
    if (!winner && !failure) failure = std::current_exception();
  }
  scope.cancel();
}

/// Cancels a source when a time has come.
struct DeadlineTimer : Timer {
  explicit DeadlineTimer(CancelSource& source) noexcept
      : Timer(&DeadlineTimer::run), source(source) {}
  static void run(Timer& timer) noexcept {
    static_cast<DeadlineTimer&>(timer).source.cancel(Errc::deadline_exceeded);
  }
  CancelSource& source;
};

/// Awaits `task` with another cancellation than its parent's.
template <class T>
class UnderCancel {
 public:
  UnderCancel(Task<T> task, CancelSource* cancel) noexcept
      : awaiter_(std::move(task).operator co_await()), cancel_(cancel) {}
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    CancelSource* const inherited = std::exchange(handle.promise().cancel, cancel_);
    const auto next = awaiter_.await_suspend(handle);
    handle.promise().cancel = inherited;
    return next;
  }
  T await_resume() { return awaiter_.await_resume(); }

 private:
  typename Task<T>::Awaiter awaiter_;
  CancelSource* cancel_;
};

}  // namespace detail

/// Runs all side by side, and returns their values. The first failure cancels the others, and is
/// thrown once all have ended; what the others threw is lost.
template <class... T>
Task<std::tuple<detail::ValueOf<T>...>> when_all(Task<T>... tasks) {
  detail::PromiseBase& promise = co_await CurrentPromise{};
  std::tuple<std::optional<detail::ValueOf<T>>...> results;
  Scope scope(promise);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (scope.spawn(detail::store<T>(std::move(tasks), std::get<I>(results)), promise.group), ...);
  }(std::index_sequence_for<T...>{});
  co_await scope.join();
  co_return std::apply(
      [](auto&... result) { return std::tuple<detail::ValueOf<T>...>(std::move(*result)...); },
      results);
}

/// Of a list: values in the order of the tasks, none for an empty list.
template <class T>
Task<std::vector<detail::ValueOf<T>>> when_all(std::vector<Task<T>> tasks) {
  detail::PromiseBase& promise = co_await CurrentPromise{};
  std::vector<std::optional<detail::ValueOf<T>>> results(tasks.size());
  Scope scope(promise);
  for (std::size_t i = 0; i < tasks.size(); ++i)
    scope.spawn(detail::store<T>(std::move(tasks[i]), results[i]), promise.group);
  co_await scope.join();
  std::vector<detail::ValueOf<T>> values;
  values.reserve(results.size());
  for (auto& result : results) values.push_back(std::move(*result));
  co_return values;
}

/// The outcome of the first to end, at its index: ask `index()`, since types may repeat. A failure
/// counts as an outcome and is thrown. Cancelled losers may have had effects.
template <class... T>
Task<std::variant<detail::ValueOf<T>...>> when_any(Task<T>... tasks) {
  using Variant = std::variant<detail::ValueOf<T>...>;
  detail::PromiseBase& promise = co_await CurrentPromise{};
  std::optional<Variant> winner;
  std::exception_ptr failure;
  Scope scope(promise);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (scope.spawn(detail::race<I, T, Variant>(std::move(tasks), winner, failure, scope),
                 promise.group),
     ...);
  }(std::index_sequence_for<T...>{});
  co_await scope.join();
  if (failure) std::rethrow_exception(failure);
  co_return std::move(*winner);
}

/// Cancelled when `source` is, instead of with the caller. Make `source` a child of the caller's
/// source where both should count. `source` must exist until this has ended.
template <class T>
Task<T> with_cancellation(CancelSource& source, Task<T> task) {
  co_return co_await detail::UnderCancel<T>(std::move(task), &source);
}

/// Cancels `task` at `deadline`; what it waits for then throws Errc::deadline_exceeded in it, which
/// it may handle as any error. With a deadline that has passed it begins all the same, and its
/// first wait throws.
template <class T>
Task<T> with_deadline(Task<T> task, Time deadline) {
  detail::PromiseBase& promise = co_await CurrentPromise{};
  CancelSource source(promise.cancel);
  detail::DeadlineTimer timer(source);
  if (deadline <= Clock::now()) {
    source.cancel(Errc::deadline_exceeded);
  } else {
    static_cast<Shard*>(promise.core)->start_timer(timer, deadline);
  }
  co_return co_await detail::UnderCancel<T>(std::move(task), &source);
}

/// Runs `task` to its end although the caller is cancelled, or a `with_deadline` around this runs
/// out: for clean-up. Deadlines that the task gives its own operations hold. At the runtime's end
/// it has the stop's deadline, and is destroyed then.
template <class T>
Task<T> shielded(Task<T> task) {
  co_return co_await detail::UnderCancel<T>(std::move(task), nullptr);
}

}  // namespace hyperframes
