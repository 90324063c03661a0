// Calls of actors, as awaitables.
//
//   demo::Value value = co_await counter.add({.delta = 2});     // an Ask: waits for the answer
//   co_await counter.tell_add({.delta = 2});                    // a Tell: waits for room only
//   std::vector<hf::Task<demo::Value>> all;                     // an Ask converts to a Task
//
// Nothing is sent before it is awaited. An Ask throws what its handler threw, or deadline_exceeded,
// overloaded, actor_down, no_reply, peer_lost; after deadline_exceeded and peer_lost it is unknown
// whether the request took effect. A late answer reaches nobody.
#pragma once

#include <hyperframes/actors/detail/letter_of.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <hyperframes/actors/within.hpp>
#include <hyperframes/runtime/task.hpp>
#include <utility>

namespace hyperframes {
namespace detail {

/// A letter that is not sent yet.
class PreparedCall {
 public:
  PreparedCall(const Destination& to, Letter* letter, Within within) noexcept
      : to_(to), letter_(letter), within_(within) {}
  PreparedCall(PreparedCall&& other) noexcept
      : to_(other.to_), letter_(std::exchange(other.letter_, nullptr)), within_(other.within_) {}
  PreparedCall& operator=(PreparedCall&&) = delete;
  ~PreparedCall() {
    if (letter_) destroy(letter_);
  }

 protected:
  Letter* release() noexcept { return std::exchange(letter_, nullptr); }
  Destination to_;
  Letter* letter_;
  Within within_;
};

template <class Method>
class AskAwaiter : public SendWaiter {
 public:
  using SendWaiter::SendWaiter;
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return send(handle.promise());
  }
  AnswerOf<Method> await_resume() {
    // Destroyed with this awaiter, which owns it again.
    return std::move(take_answer()->template content_as<AnswerOf<Method>>());
  }
};

class TellAwaiter : public SendWaiter {
 public:
  using SendWaiter::SendWaiter;
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return send(handle.promise());
  }
  void await_resume() { check_taken(); }
};

/// Tells without suspending. Returns whether it was taken; the letter is consumed in any case.
bool tell_now(const Destination& to, Letter* letter) noexcept;

}  // namespace detail

template <class Method>
class [[nodiscard]] Ask : public detail::PreparedCall {
 public:
  using value_type = detail::AnswerOf<Method>;
  using PreparedCall::PreparedCall;

  detail::AskAwaiter<Method> operator co_await() && noexcept {
    letter_->kind = detail::Letter::Kind::ask;
    return {to_, release(), detail::resolve(within_)};
  }
  /// For Scope and when_all. Its default deadline runs from when the task starts.
  operator Task<value_type>() && { return run(std::move(*this)); }

 private:
  static Task<value_type> run(Ask ask) { co_return co_await std::move(ask); }
};

class [[nodiscard]] Tell : public detail::PreparedCall {
 public:
  using value_type = void;
  using PreparedCall::PreparedCall;

  detail::TellAwaiter operator co_await() && noexcept {
    return {to_, release(), detail::resolve(within_)};
  }
  operator Task<void>() && { return run(std::move(*this)); }
  /// Without suspending: false if there is no room, or no such actor.
  bool now() && noexcept { return detail::tell_now(to_, release()); }

 private:
  static Task<void> run(Tell tell) { co_await std::move(tell); }
};

}  // namespace hyperframes
