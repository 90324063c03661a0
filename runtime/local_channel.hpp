// A bounded queue between coroutines of one shard.
//
//   hf::LocalChannel<Job> jobs(64);
//   co_await jobs.send(std::move(job));               // suspends while full
//   while (auto job = co_await jobs.receive()) run(std::move(*job));    // empty once closed
//
// First in, first out, also among those who wait on either side. What need not wait ends at once,
// whatever deadline and cancellation say; else both throw Errc::deadline_exceeded or
// Errc::cancelled, and what was to be sent is destroyed. T must be movable, and must not throw when
// it is moved. Between shards: call_on, or actors.
#pragma once

#include <deque>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <optional>
#include <utility>

namespace hyperframes {

template <class T>
class LocalChannel {
 public:
  /// `capacity` values may wait; at least 1.
  explicit LocalChannel(std::size_t capacity) noexcept : capacity_(capacity ? capacity : 1) {}
  LocalChannel(const LocalChannel&) = delete;
  LocalChannel& operator=(const LocalChannel&) = delete;

  class SendAwaiter : public detail::Waiter {
   public:
    SendAwaiter(LocalChannel& channel, T value, Time deadline)
        : Waiter(deadline), channel_(channel), value_(std::move(value)) {}
    bool await_ready() {
      return channel_.closed_ || (sent_ = channel_.senders_.empty() && channel_.try_push(value_));
    }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      if (!begin(handle.promise())) return false;
      channel_.senders_.push_back(*this);
      return true;
    }
    /// Throws Errc::closed if the channel was closed before there was room.
    void await_resume() const {
      if (sent_) return;
      throw_unless_woken("send to a local channel");
      throw Error(Errc::closed, "send to a local channel");
    }

   private:
    friend class LocalChannel;
    LocalChannel& channel_;
    T value_;
    bool sent_ = false;
  };

  class ReceiveAwaiter : public detail::Waiter {
   public:
    ReceiveAwaiter(LocalChannel& channel, Time deadline) noexcept
        : Waiter(deadline), channel_(channel) {}
    /// A value that was handed over and never taken, because the frame was destroyed, goes back.
    ~ReceiveAwaiter() {
      if (value_ && linked()) {
        unlink();
        channel_.take_back(*value_);
      }
    }
    bool await_ready() {
      value_ = channel_.try_receive();
      return value_ || channel_.closed_;
    }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      if (!begin(handle.promise())) return false;
      channel_.receivers_.push_back(*this);
      return true;
    }
    std::optional<T> await_resume() {
      unlink();
      if (!value_ && promise()) throw_unless_woken("receive from a local channel");
      return std::move(value_);
    }

   private:
    friend class LocalChannel;
    LocalChannel& channel_;
    std::optional<T> value_;
  };

  /// Suspends while it is full. Throws Errc::closed if it is closed, or gets closed meanwhile.
  [[nodiscard]] SendAwaiter send(T value, Time deadline = no_deadline) {
    return SendAwaiter(*this, std::move(value), deadline);
  }
  /// The next value; empty once the channel is closed and drained.
  [[nodiscard]] ReceiveAwaiter receive(Time deadline = no_deadline) noexcept {
    return ReceiveAwaiter(*this, deadline);
  }
  /// False, with `value` untouched, if it is full or closed.
  [[nodiscard]] bool try_send(T& value) { return !closed_ && senders_.empty() && try_push(value); }
  /// Empty if nothing is queued, whether it is closed or not.
  [[nodiscard]] std::optional<T> try_receive() {
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    admit_senders();
    return value;
  }
  /// What is queued can still be received; senders that wait get Errc::closed.
  void close() noexcept {
    closed_ = true;
    while (auto* sender = senders_.pop_front()) sender->wake();
    while (auto* receiver = receivers_.pop_front()) receiver->wake();
  }
  bool closed() const noexcept { return closed_; }
  /// Values that are queued, without those of senders that wait.
  std::size_t size() const noexcept { return values_.size(); }

 private:
  bool try_push(T& value) {
    if (auto* receiver = receivers_.pop_front()) {
      hand_over(*receiver, value);
      return true;
    }
    if (values_.size() >= capacity_) return false;
    values_.push_back(std::move(value));
    return true;
  }
  void hand_over(ReceiveAwaiter& receiver, T& value) {
    receiver.value_.emplace(std::move(value));
    receiver.wake();
    handed_over_.push_back(receiver);
  }
  // It is older than all that is queued.
  void take_back(T& value) noexcept {
    if (auto* receiver = receivers_.pop_front()) {
      hand_over(*receiver, value);
    } else {
      values_.push_front(std::move(value));
    }
  }
  void admit_senders() {
    while (!senders_.empty() && values_.size() < capacity_) {
      SendAwaiter* sender = senders_.pop_front();
      values_.push_back(std::move(sender->value_));
      sender->sent_ = true;
      sender->wake();
    }
  }

  std::size_t capacity_;
  bool closed_ = false;
  std::deque<T> values_;
  detail::List<SendAwaiter> senders_;
  detail::List<ReceiveAwaiter> receivers_;
  detail::List<ReceiveAwaiter> handed_over_;  ///< Have a value, and have not gone on yet.
};

}  // namespace hyperframes
