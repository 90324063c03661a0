// A coroutine's wait while its message is being taken, and answered.
#pragma once

#include <hyperframes/actors/detail/letter.hpp>
#include <hyperframes/actors/within.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::detail {

struct Outgoing;

/// What `Within` stands for when nothing was given.
extern const Duration default_ask_span;
/// A deadline as given, or the default one from now; not after that of the ask being handled.
inline Time resolve(Within within, const PromiseBase& sender) noexcept {
  const auto* shard = static_cast<const Shard*>(sender.core);
  Time deadline = within.deadline;
  if (deadline == Time{}) deadline = shard ? shard->now() + default_ask_span : no_deadline;
  return within.outlasts || deadline < sender.deadline ? deadline : sender.deadline;
}
Time resolve(Within within) noexcept;
inline bool is_over(Time deadline, const PromiseBase& sender) noexcept {
  return deadline <= static_cast<const Shard*>(sender.core)->now();
}

/// For an ask whose handler runs while it is being awaited: its letter comes back by staying where
/// it is, with an answer or a failure in it.
void begin_immediate(Letter& letter, ActorCell& cell, Time deadline,
                     const PromiseBase& sender) noexcept;
/// Its asker is gone.
void abandon_immediate(Letter* letter) noexcept;
/// The letter, if it holds an answer; throws the failure that it holds instead.
Letter* checked_answer(Letter* letter);

/// Where a message goes.
struct Destination {
  ActorCell* cell = nullptr;   ///< In this process; or
  RemotePeer* peer = nullptr;  ///< in that one.
  std::uint64_t id = 0;
};

/// Lives in the sending frame, and owns the letter until it has been taken. While the mailbox is
/// full, it is a node of the mailbox's list of senders (or of the peer's).
class SendWaiter : public Waiter {
 public:
  SendWaiter(const Destination& to, Letter* letter, Time deadline) noexcept
      : Waiter(deadline),
        to_(to),
        method_(letter->method),
        letter_(letter),
        asks_(letter->kind == Letter::Kind::ask),
        deadline_(deadline) {}
  SendWaiter(const SendWaiter&) = delete;
  ~SendWaiter();

  /// Sends. Returns whether the coroutine suspends.
  bool send(PromiseBase& promise) noexcept;
  /// Goes on waiting for a letter whose handler has begun, and kept its Reply.
  bool wait_for_answer(PromiseBase& promise) noexcept;
  /// The answered letter; throws what went wrong instead.
  Letter* take_answer();
  /// Throws if the letter was not taken.
  void check_taken();
  /// The letter, if it has come back with an answer.
  Letter* answered() const noexcept {
    return state_ == State::back && letter_->content == Letter::Content::answer ? letter_ : nullptr;
  }

  // For mailboxes and peers.
  Letter* letter() const noexcept { return letter_; }
  bool asks() const noexcept { return asks_; }
  /// The letter was taken: an asker goes on waiting for the answer, a teller is done.
  void taken() noexcept {
    if (asks()) {
      state_ = State::waiting;
    } else {
      letter_ = nullptr;
      wake();
    }
  }
  /// The letter came back, with an answer or a failure; it is ours again.
  void came_back(Letter* letter) noexcept {
    letter_ = letter;
    state_ = State::back;
    wake();
  }
  /// The peer's queue no longer has it.
  void outgoing_ended() noexcept { outgoing_ = nullptr; }
  void receipt_came(Receipt& receipt) noexcept;
  /// The letter was ended by someone else, or never taken.
  void refused(Error error) noexcept;

 private:
  enum class State : std::uint8_t {
    ours,         ///< Not sent yet, or not taken yet; or ended by `failure_`.
    waiting,      ///< Out; it will come back.
    receipt_out,  ///< Told to another shard's full mailbox; a receipt will come.
    back,         ///< Ours again, with its end.
  };
  friend class PeerShard;
  bool ask_here(PromiseBase& promise) noexcept;
  bool tell_here(PromiseBase& promise) noexcept;
  bool send_elsewhere(PromiseBase& promise, Shard& shard) noexcept;
  bool send_to_peer(PromiseBase& promise, Shard& shard) noexcept;
  [[noreturn]] void throw_failure(const char* verb);
  const char* method_name() const noexcept { return method_->name; }

  Destination to_;
  const MethodInfo* method_;
  Letter* letter_;
  bool asks_;
  Receipt* receipt_ = nullptr;
  Outgoing* outgoing_ = nullptr;  ///< While a peer's queue holds the message.
  std::unique_ptr<Error> failure_;
  Time deadline_;
  State state_ = State::ours;
};

}  // namespace hyperframes::detail
