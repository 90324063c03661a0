// The plain form of an actor: a coroutine that receives.
//
//   hf::Task<void> counter(demo::Counter::Inbox self) {
//     for (std::int64_t total = 0; auto letter = co_await self.recv();)
//       if (auto call = letter.as<demo::Counter::AddMethod>())
//         call->reply.send({.total = total += call->request.delta()});
//   }                          // started by node.spawn<demo::Counter>("counter", &counter)
//
// It is an actor like any other: bounded mailbox, deadlines, monitors, restarts (which call the
// function again, with copies of its arguments). It handles one letter at a time simply because it
// receives one at a time. It ends when the function returns, after which a permanent one is called
// again; an exception crashes it, hf::Error too. It has no `stopping`, and no snapshot. `spawn`
// returns once it waits for the first time, or has ended; what it throws is never spawn's.
#pragma once

#include <cassert>
#include <hyperframes/actors/actor.hpp>
#include <hyperframes/actors/detail/method.hpp>
#include <optional>
#include <tuple>
#include <utility>

namespace hyperframes {

/// What `recv` gives: a request, or the end of a monitored actor (or of a linked one, if it traps
/// exits); false if the actor is to stop. On its shard.
class InboxLetter {
 public:
  InboxLetter() noexcept = default;
  explicit InboxLetter(detail::Letter* letter) noexcept : letter_(letter) {}
  explicit InboxLetter(Down down) : down_(std::move(down)) {}
  InboxLetter(InboxLetter&& other) noexcept
      : letter_(std::exchange(other.letter_, nullptr)), down_(std::move(other.down_)) {
    other.down_.reset();
  }
  InboxLetter& operator=(InboxLetter&& other) noexcept {
    std::swap(letter_, other.letter_);
    std::swap(down_, other.down_);
    return *this;
  }
  /// A request that was not looked at is answered with Errc::no_reply.
  ~InboxLetter() {
    if (letter_) detail::drop_unanswered(letter_);
  }

  explicit operator bool() const noexcept { return letter_ || down_; }

  /// The call, if it is one of that method: `request`, `segments` if the method has them, and
  /// `reply` unless it is oneway (`reader`, `writer`: actors/stream.hpp). Takes it out: ask once.
  template <class Method>
  std::optional<detail::Invocation<Method>> as() {
    if (!letter_ || letter_->method != &Method::info) return std::nullopt;
    return open_letter<Method>(std::exchange(letter_, nullptr));  // of streams too, by its argument
  }
  /// The end of a monitored actor, or null.
  const Down* down() const noexcept { return down_ ? &*down_ : nullptr; }

 private:
  detail::Letter* letter_ = nullptr;
  std::optional<Down> down_;
};

template <class Service>
class Inbox;

namespace detail {

class InboxActor;

class ReceiveAwaiter : public Waiter {
 public:
  explicit ReceiveAwaiter(InboxActor& inbox) noexcept : inbox_(inbox) {}
  ~ReceiveAwaiter();
  bool await_ready() noexcept;
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return wait(handle.promise());
  }
  InboxLetter await_resume();

 private:
  friend class InboxActor;
  bool wait(PromiseBase& promise) noexcept;
  InboxActor& inbox_;
  Letter* letter_ = nullptr;
  std::optional<Down> down_;
};

/// The object behind an inbox.
class InboxActor : public Actor {
 public:
  virtual Task<void> body() = 0;
  ReceiveAwaiter* receiver() const noexcept { return receiver_; }
  /// Hands over what the cell took for it.
  void hand_over(Letter* letter) noexcept;
  void hand_over(Down down) noexcept;
  ActorCell& cell() const noexcept { return *inbox_cell_; }

 protected:
  InboxActor() noexcept;

 private:
  friend class ReceiveAwaiter;
  template <class>
  friend class hyperframes::Inbox;
  ActorCell* inbox_cell_;
  ReceiveAwaiter* receiver_ = nullptr;
  unsigned in_a_row_ = 0;  ///< Letters received without suspending.
};

}  // namespace detail

/// The actor, for its coroutine and for the tasks that this starts; a plain value. Its functions
/// are Actor's.
template <class Service>
class Inbox {
 public:
  explicit Inbox(detail::InboxActor& actor) noexcept : actor_(&actor) {}

  /// The next letter. Suspends while there is none; false, and no exception, once the actor is to
  /// stop or the chain was cancelled. One coroutine at a time.
  [[nodiscard]] detail::ReceiveAwaiter recv() const noexcept {
    return detail::ReceiveAwaiter(*actor_);
  }

  typename Service::Ref self() const noexcept { return typename Service::Ref(actor_->reference()); }
  Node& node() const noexcept { return actor_->node(); }
  Shard& shard() const noexcept { return actor_->shard(); }
  void monitor(const ActorRef& other) const { actor_->monitor(other); }
  void link(const ActorRef& other) const { actor_->link(other); }
  void unlink(const ActorRef& other) const { actor_->unlink(other); }
  void trap_exits(bool traps = true) const { actor_->trap_exits(traps); }
  /// As Actor::start: a task beside the receiving coroutine.
  void start(Task<void> task) const noexcept { actor_->start(std::move(task)); }

 private:
  detail::InboxActor* actor_;
};

namespace detail {

template <class Service, class Function, class... Arguments>
class InboxOf final : public InboxActor {
 public:
  explicit InboxOf(Function function, Arguments... arguments)
      : function_(std::move(function)), arguments_(std::move(arguments)...) {}

 private:
  const ServiceInfo& service() const noexcept override { return Service::info; }
  Task<void> body() override {
    return std::apply(
        [this](auto&... arguments) {
          return function_(Inbox<Service>(*this), std::move(arguments)...);
        },
        arguments_);
  }

  Function function_;
  std::tuple<Arguments...> arguments_;
};

}  // namespace detail
}  // namespace hyperframes
