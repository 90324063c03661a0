// Asking and telling actors from threads that are no shard: an embedder's, a GUI's, a test's.
//
//   hf::Pending<demo::Total> pending = hf::submit(counter.add({.delta = 2}, hf::within(1s)));
//   demo::Total total = pending.get();           // blocks this thread, never a shard
//   hf::submit(counter.note({.delta = 1}), [](hf::Result<void> taken) { ... });
//
// The call is sent from the actor's own shard (for an actor of another process: from that whose
// connection leads to its shard), and what comes back is copied out of that shard's memory, so it
// may be kept, shared and destroyed on any thread, and may outlive the runtime. A call without a
// deadline has the default one, from when that shard takes it up. A shard takes up to 65,536 calls
// of foreign threads at a time; what is over that fails with Errc::overloaded at once. When the
// runtime stops, what is pending fails with shutting_down. The node must outlive `submit` itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <hyperframes/actors/ask.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

namespace hyperframes {
namespace detail {

/// Where a call from a foreign thread begins.
struct ForeignStart {
  Shard& shard;
  /// The calls of foreign threads that run or wait there; outlives the node.
  std::shared_ptr<std::atomic<std::uint32_t>> calls;
};
/// Throws for an empty reference.
ForeignStart foreign_start(const Destination& to);
inline constexpr std::uint32_t most_foreign_calls = 65'536;
Error too_many_foreign_calls();
Error runtime_stopped();
Error no_foreign_call();

Segments copy_out(const Segments& segments);
/// The same message in memory that belongs to no shard.
template <class Message>
Message copy_out(Message message) {
  if constexpr (!Message::is_struct) {
    return message ? Message::unverified(Buffer::copy_of(message.buffer().bytes())) : Message();
  } else {
    return message;
  }
}
template <class Message>
WithSegments<Message> copy_out(WithSegments<Message> answer) {
  return {copy_out(std::move(answer.value)), copy_out(answer.segments)};
}

/// Holds the callback, calls it once, and counts the call while it lasts.
template <class T, class Done>
class ForeignCall {
 public:
  explicit ForeignCall(Done done) : done_(std::move(done)) {}
  ForeignCall(const ForeignCall&) = delete;
  /// Also when the shard destroys the task that was to make the call.
  ~ForeignCall() {
    finish(runtime_stopped());
    if (count_) count_->fetch_sub(1, std::memory_order_relaxed);
  }

  /// False if there are too many already; it has finished then.
  bool begin(std::shared_ptr<std::atomic<std::uint32_t>> count) {
    count_ = std::move(count);
    if (count_->fetch_add(1, std::memory_order_relaxed) < most_foreign_calls) return true;
    finish(too_many_foreign_calls());
    return false;
  }
  void finish(Result<T> result) {
    if (!done_) return;
    Done done = std::move(*done_);
    done_.reset();
    done(std::move(result));
  }

 private:
  std::optional<Done> done_;
  std::shared_ptr<std::atomic<std::uint32_t>> count_;
};

template <class Call, class State>
Task<void> run_foreign(Call call, std::shared_ptr<State> state) {
  using Value = typename Call::value_type;
  std::optional<Error> failure;
  try {
    if constexpr (std::is_void_v<Value>) {
      co_await std::move(call);
      state->finish({});
    } else {
      Value value = co_await std::move(call);
      state->finish(copy_out(std::move(value)));
    }
  } catch (const Error& error) {
    failure = error;
  }
  if (failure) state->finish(std::move(*failure));
}

}  // namespace detail

/// Makes a call, an Ask or a Tell, from any thread. `done(Result)` is called once: on the shard
/// that made the call, which it must not block, or on this thread if the call can't begin. It must
/// not throw. `from` is what a dump shows of it.
template <class Call, class Done>
  requires std::is_invocable_v<Done&, Result<typename Call::value_type>>
void submit(Call call, Done done, std::source_location from = std::source_location::current()) {
  using State = detail::ForeignCall<typename Call::value_type, Done>;
  detail::ForeignStart start = detail::foreign_start(call.destination());
  auto state = std::make_shared<State>(std::move(done));
  if (!state->begin(std::move(start.calls))) return;
  auto shared = std::make_shared<Call>(std::move(call));
  detail::start_on(
      start.shard,
      [shared = std::move(shared), state = std::move(state)] {
        return detail::run_foreign<Call, State>(std::move(*shared), state);
      },
      from);
}

template <class T>
class Pending;
/// The same, with the outcome to be waited for.
template <class Call>
Pending<typename Call::value_type> submit(
    Call call, std::source_location from = std::source_location::current());

/// The outcome of a call from a foreign thread, once it is there. May be dropped; the call goes on.
/// Its members throw Errc::invalid_argument if there is nothing to wait for: once the outcome was
/// taken, and for a Pending that was made or left empty.
template <class T>
class [[nodiscard]] Pending {
 public:
  Pending() noexcept = default;

  /// Whether there is an outcome to wait for, or to take.
  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Waits for the outcome, and takes it out: the answer, or what the call threw. Not on a shard,
  /// which must never be blocked: there it throws Errc::invalid_argument at once.
  T get() {
    refuse_on_shard();
    state();
    const std::shared_ptr<State> state = std::exchange(state_, nullptr);
    std::unique_lock lock(state->mutex);
    state->arrived.wait(lock, [&] { return state->result.has_value(); });
    Result<T> result = std::move(*state->result);
    lock.unlock();
    return std::move(result).value();
  }
  /// Waits for that long at most. Returns whether the outcome is there.
  bool wait_for(Duration span) const {
    refuse_on_shard();
    std::unique_lock lock(state().mutex);
    return state().arrived.wait_for(lock, span, [this] { return state_->result.has_value(); });
  }
  bool ready() const {
    std::scoped_lock lock(state().mutex);
    return state_->result.has_value();
  }

 private:
  template <class Call>
  friend Pending<typename Call::value_type> submit(Call call, std::source_location from);
  struct State {
    std::mutex mutex;
    std::condition_variable arrived;
    std::optional<Result<T>> result;
  };
  static void refuse_on_shard() {
    if (!Shard::current()) return;
    throw Error(Errc::invalid_argument, "wait for a call to an actor", "this thread runs a shard",
                "co_await the call instead");
  }
  State& state() const {
    if (!state_) throw detail::no_foreign_call();
    return *state_;
  }
  std::shared_ptr<State> state_;
};

template <class Call>
Pending<typename Call::value_type> submit(Call call, std::source_location from) {
  using Value = typename Call::value_type;
  Pending<Value> pending;
  pending.state_ = std::make_shared<typename Pending<Value>::State>();
  auto done = [state = pending.state_](Result<Value> result) {
    std::scoped_lock lock(state->mutex);
    state->result.emplace(std::move(result));
    state->arrived.notify_all();
  };
  submit(std::move(call), std::move(done), from);
  return pending;
}

}  // namespace hyperframes
