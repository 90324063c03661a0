// Calls of actors, as awaitables.
//
//   demo::Value value = co_await counter.add({.delta = 2});     // an Ask: waits for the answer
//   co_await counter.tell_add({.delta = 2});                    // a Tell: waits for room only
//   std::vector<hf::Task<demo::Value>> all;
//   all.push_back(counter.add({.delta = 2}));                   // an Ask converts to a Task
//
// The request is built at once, from fields that need not outlive the call; nothing is sent before
// it is awaited, on a shard. An Ask throws what its handler threw, or deadline_exceeded,
// overloaded, actor_down, no_reply, peer_lost; after deadline_exceeded and peer_lost it is unknown
// whether the request took effect. A Tell throws only what keeps it from being taken; how it is
// handled nobody learns. Cancelled, both stop waiting, and a message that was taken may still be
// handled. A late answer reaches nobody. An actor of this shard that has nothing else to do may
// handle the message before the co_await returns.
#pragma once

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/letter_of.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <hyperframes/actors/within.hpp>
#include <hyperframes/runtime/task.hpp>
#include <optional>
#include <utility>

namespace hyperframes {
namespace detail {

/// The actor that `to` means, if `sender` may run its handler now, in place of a letter's way
/// through its mailbox: it is here and idle, and the sender's turn is not used up. Else null.
inline ActorCell* cell_to_run_now(const Destination& to, const PromiseBase& sender) noexcept {
  ActorCell* cell = to.cell;
  if (!cell || sender.core != cell->core || cell->id != to.id || !cell->is_idle()) return nullptr;
  if (sender.group != static_cast<std::uint8_t>(cell->group())) return nullptr;
  if (sender.core->transfer_budget <= ActorCell::run_now_cost) return nullptr;
  if (sender.cancel && sender.cancel->cancelled()) return nullptr;
  return cell;
}

/// What an Ask and a Tell hold. The request is made in place, of its fields or by one move.
template <class Method>
struct Call {
  template <class From>
  Call(const Destination& to, Within within, From&& from)
      : to(to), request{typename Method::Request(std::forward<From>(from))}, within(within) {}
  template <class From>
  Call(const Destination& to, Within within, From&& from, Segments segments)
      : to(to),
        request{typename Method::Request(std::forward<From>(from)), std::move(segments)},
        within(within) {}
  Destination to;
  RequestOf<Method> request;
  Within within;
};

/// A request on its way. It refers to its Ask or Tell, which lives in the awaiting frame as long as
/// this does: a copy would be loaded before the stores that made the original have left the core.
/// The handler that runs while this is being awaited may destroy the awaiting coroutine; `run` then
/// says so, and touches nothing any more.
template <class Method>
class CallAwaiter {
 public:
  explicit CallAwaiter(Call<Method>& call) noexcept : call_(call) {}
  CallAwaiter(const CallAwaiter&) = delete;
  ~CallAwaiter() {
    if (gone_) *gone_ = true;
  }
  bool await_ready() const noexcept { return false; }

 protected:
  /// Runs the handler. False if that destroyed this.
  bool run(ActorCell& cell, PromiseBase& sender, Letter* letter) noexcept {
    bool gone = false;
    gone_ = &gone;
    const Time deadline = letter ? letter->deadline : no_deadline;
    cell.run_now(Method::info, deadline, [&] {
      return Method::invoke(static_cast<typename Method::Service::Actor&>(*cell.object),
                            invocation_of<Method>(call_.request, letter));
    });
    if (gone) return false;
    gone_ = nullptr;
    sender.note_resumed();
    return true;
  }
  bool send(PromiseBase& sender, Letter::Kind kind) {
    Letter* letter = make_letter<Method>(std::move(call_.request), kind);
    return waiter_.emplace(call_.to, letter, resolve(call_.within, sender)).send(sender);
  }

  Call<Method>& call_;
  bool* gone_ = nullptr;
  std::optional<SendWaiter> waiter_;
};

template <class Method>
class AskAwaiter : public CallAwaiter<Method> {
  using Base = CallAwaiter<Method>;

 public:
  using Base::Base;
  ~AskAwaiter() {
    if (letter_) abandon_immediate(letter_);
  }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    PromiseBase& sender = handle.promise();
    ActorCell* cell = cell_to_run_now(this->call_.to, sender);
    const Time deadline = resolve(this->call_.within, sender);
    if (!cell || is_over(deadline, sender)) return this->send(sender, Letter::Kind::ask);

    letter_ = new (pool_allocate(letter_size<Method>)) Letter(Method::info);
    begin_immediate(*letter_, *cell, deadline, sender);
    if (!this->run(*cell, sender, letter_)) return true;
    if (letter_->content != Letter::Content::nothing) return false;
    return this->waiter_.emplace(this->call_.to, std::exchange(letter_, nullptr), deadline)
        .wait_for_answer(sender);
  }
  AnswerOf<Method> await_resume() {
    Letter* letter = letter_ ? checked_answer(letter_) : this->waiter_->take_answer();
    return std::move(letter->template content_as<AnswerOf<Method>>());  // freed with this
  }

 private:
  Letter* letter_ = nullptr;  ///< Of a handler that runs, or has run, while this is being awaited.
};

template <class Method>
class TellAwaiter : public CallAwaiter<Method> {
  using Base = CallAwaiter<Method>;

 public:
  using Base::Base;
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    PromiseBase& sender = handle.promise();
    ActorCell* cell = cell_to_run_now(this->call_.to, sender);
    if (!cell) return this->send(sender, Letter::Kind::tell);
    return !this->run(*cell, sender, nullptr);
  }
  void await_resume() {
    if (this->waiter_) this->waiter_->check_taken();
  }
};

/// Tells without suspending. Returns whether it was taken; the letter is consumed in any case.
bool tell_now(const Destination& to, Letter* letter) noexcept;

}  // namespace detail

/// Made by references. Awaited once.
template <class Method>
class [[nodiscard]] Ask {
 public:
  /// The answer; `WithSegments` of it for a method whose answers have segments.
  using value_type = detail::AnswerOf<Method>;
  /// For references. `what`: the request or its fields, and its segments if it has any.
  template <class... What>
  Ask(const detail::Destination& to, Within within, What&&... what)
      : call_(to, within, std::forward<What>(what)...) {}

  detail::AskAwaiter<Method> operator co_await() && noexcept {
    return detail::AskAwaiter<Method>(call_);
  }
  /// For Scope, and for lists of when_all; where a template has to find the type itself, write
  /// `hf::Task<demo::Value>(counter.add(...))`. Its default deadline runs from when the task
  /// starts.
  operator Task<value_type>() && { return run(std::move(*this)); }
  /// For the runtime: whom it asks.
  const detail::Destination& destination() const noexcept { return call_.to; }

 private:
  static Task<value_type> run(Ask ask) { co_return co_await std::move(ask); }
  detail::Call<Method> call_;
};

/// Made by references. Awaited once.
template <class Method>
class [[nodiscard]] Tell {
 public:
  using value_type = void;
  /// As Ask's.
  template <class... What>
  Tell(const detail::Destination& to, Within within, What&&... what)
      : call_(to, within, std::forward<What>(what)...) {}

  detail::TellAwaiter<Method> operator co_await() && noexcept {
    return detail::TellAwaiter<Method>(call_);
  }
  operator Task<void>() && { return run(std::move(*this)); }
  /// For the runtime: whom it tells.
  const detail::Destination& destination() const noexcept { return call_.to; }
  /// Without suspending: false if there is no room, or no such actor, or off the shards. What is on
  /// its way to another shard or process counts as taken. Its message is gone in any case.
  bool now() && {
    return detail::tell_now(call_.to, detail::make_letter<Method>(std::move(call_.request),
                                                                  detail::Letter::Kind::tell));
  }

 private:
  static Task<void> run(Tell tell) { co_await std::move(tell); }
  detail::Call<Method> call_;
};

}  // namespace hyperframes
