// One end of a channel: what it has received and nobody has taken, and what it may send. Channel is
// what programs use; this is what it stands on.
//
//   ChannelRef state = peer.begin_open(window);
//   co_await ChannelState::send(state, std::move(message), deadline);
//   std::optional<TypedMessage> next = state->take(filter);
//
// Messages are numbered. Large ones travel in the bulk lane and small ones overtake them on the
// way; they are put in order again here. What arrives is charged to the channel's window until the
// last buffer of it is destroyed; then the peer gets the credit back. All on one shard.
#pragma once

#include <cstdint>
#include <hyperframes/net/channel/channel_stats.hpp>
#include <hyperframes/net/channel/typed_message.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/semaphore.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::net::detail {

class ChannelPeer;
class ChannelState;
struct ChannelOptions;

/// What a message on a channel is about; in the envelope's flags. Part of the wire protocol.
enum class ChannelOp : std::uint8_t {
  open = 1,      ///< `context` is the sender's window in bytes, the body says its keys.
  accepted = 2,  ///< The same.
  refused = 3,   ///< `context` is an Errc, the body a text.
  data = 4,      ///< `correlation` numbers it, from 1.
  credit = 5,    ///< `context` more bytes may be sent.
  close = 6,     ///< `correlation` messages were sent, and no more will be; the body may say why.
};

/// Shared ownership, counted without atomics: on its shard only.
class ChannelRef {
 public:
  ChannelRef() noexcept = default;
  explicit ChannelRef(ChannelState* state) noexcept;
  ChannelRef(const ChannelRef& other) noexcept : ChannelRef(other.state_) {}
  ChannelRef(ChannelRef&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  ChannelRef& operator=(ChannelRef other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~ChannelRef();
  explicit operator bool() const noexcept { return state_ != nullptr; }
  ChannelState* operator->() const noexcept { return state_; }
  ChannelState& operator*() const noexcept { return *state_; }
  ChannelState* get() const noexcept { return state_; }

 private:
  ChannelState* state_ = nullptr;
};

/// Sets an event when a message that it wants has come on a channel, or the channel has ended.
class ChannelWatch : public hyperframes::detail::ListNode {
 public:
  ChannelWatch(ChannelState& channel, const TypeFilter& filter, Event& event) noexcept;

 private:
  friend class ChannelState;
  const TypeFilter& filter_;
  Event& event_;
};

/// A message that was received and not taken.
struct Arrived : hyperframes::detail::ListNode {
  static void* operator new(std::size_t size);
  static void operator delete(void* memory) noexcept;
  TypedMessage message;
  std::uint64_t number = 0;
  std::uint64_t cost = 0;
};

class ChannelState {
 public:
  enum class Stage : std::uint8_t { opening, open, refused };

  ChannelState(ChannelPeer& peer, SessionRef session, std::uint32_t link, std::uint32_t number,
               Stage stage);
  ChannelState(const ChannelState&) = delete;

  // ---- For Channel.
  /// Throws what the peer refused it with, or deadline_exceeded.
  Task<void> until_open(Time deadline);
  static Task<void> send(ChannelRef self, TypedMessage message, Time deadline);
  /// An error, and `message` untouched, if it would have to wait or can't be sent at all.
  Result<void> try_send(TypedMessage& message);
  static Task<TypedMessage> receive(ChannelRef self, TypeFilter filter, Time deadline);
  /// The first that waits and matches.
  std::optional<TypedMessage> take(const TypeFilter& filter);
  bool has(const TypeFilter& filter) const noexcept;
  /// Nothing more can come.
  bool is_finished() const noexcept;
  /// Throws why, if that is so.
  void throw_if_over(const TypeFilter& filter) const;
  /// Of a wait for a message that took too long: what came instead.
  Error unmatched(const TypeFilter& filter) const;
  bool holds_unmatched() const noexcept { return !queue_.empty(); }
  void close(std::string why) noexcept;
  bool sends() const noexcept;
  void throw_unless_sends(const char* tried) const;
  /// Throws why the message can't be sent at all. While it sends.
  void check(const TypedMessage& message) const;
  const SessionRef& session() const noexcept { return session_; }
  ChannelPeer* peer() const noexcept { return peer_; }
  std::uint32_t number() const noexcept { return number_; }
  ChannelStats stats() const;
  std::string name() const;

  // ---- For ChannelPeer.
  /// Where a channel stands that owes its peer a word.
  struct Owing : hyperframes::detail::ListNode {
    explicit Owing(ChannelState& state) noexcept : state(state) {}
    ChannelState& state;
  };
  std::uint64_t key() const noexcept { return key_of(link_, number_); }
  static std::uint64_t key_of(std::uint32_t link, std::uint32_t number) noexcept {
    return std::uint64_t{link} << 32 | number;
  }
  Stage stage() const noexcept { return stage_; }
  bool owes() const noexcept;
  /// The next thing it has to say; it counts as said.
  Message next_word();
  /// Nobody wants it, and the peer has not heard of it.
  bool is_forgotten() const noexcept { return closed_ && stage_ == Stage::opening && owes_open_; }
  void begin(std::uint64_t credit) noexcept;
  void refuse(Error why) noexcept;
  /// What is wrong with what the peer sent; empty: nothing.
  std::string take_credit(std::uint64_t bytes) noexcept;
  std::string take_close(std::uint64_t sent, std::string why) noexcept;
  /// Checks a message's number and credit, before it is looked into.
  std::string admit(std::uint64_t number, Lane lane);
  void arrive(TypedMessage message, std::uint64_t number, Lane lane, std::uint64_t cost);
  /// Both ends have said that they close, and all has come that was sent before.
  bool is_over() const noexcept;
  void detach(const Error* reason) noexcept;

 private:
  friend class ChannelRef;
  friend class ChannelWatch;
  struct Charged;
  class HandOver;
  struct Arrival {
    MessageType type;
    std::uint64_t count = 0;
  };
  static constexpr std::size_t most_arrivals = 16;
  /// What came by one lane: in the order of the numbers, some of which went by the other.
  struct FromLane {
    std::uint64_t highest = 0;
    hyperframes::detail::List<Arrived> early;  ///< These overtook others.
  };

  const ChannelOptions& options() const noexcept { return *options_; }
  Error ended(const char* tried, const std::string& found) const;
  bool has_room() const noexcept { return stage_ == Stage::open && credit_ > 0; }
  Message compose(TypedMessage message, Lane lane) const;
  static Lane lane_for(const TypedMessage& message) noexcept;
  void sent(std::uint64_t cost, const MessageType& type, Lane lane) noexcept;
  Error no_room(Errc code = Errc::deadline_exceeded) const;
  void charge(TypedMessage& message, std::uint64_t cost);
  void freed(std::uint64_t cost) noexcept;
  void listen() noexcept;
  void count(const MessageType& type);
  void deliver(Arrived& arrived) noexcept;
  void deliver_early() noexcept;
  FromLane& from(Lane lane) noexcept { return lane == Lane::bulk ? large_ : small_; }
  std::string arrivals_text() const;
  void wake_all() noexcept;
  void wake_matching(const MessageType& type) noexcept;
  static void clear(hyperframes::detail::List<Arrived>& list) noexcept;
  void drop_received() noexcept;

  ~ChannelState();

  ChannelPeer* peer_;  ///< Null once the session is down, or the channel is over.
  std::shared_ptr<const ChannelOptions> options_;
  SessionRef session_;
  const std::uint32_t link_, number_;
  std::uint32_t references_ = 0;
  Stage stage_;

  // Sending.
  bool closed_ = false;  ///< By this end.
  bool handing_over_ = false;
  std::int64_t credit_ = 0;  ///< What the peer's window has left; below 0 after a large message.
  std::uint64_t peer_window_ = 0;
  std::uint64_t sent_ = 0;
  Semaphore turn_{1};  ///< Who numbers the next message.
  Event changed_;      ///< Pulsed for those who wait to send, or for the opening.

  // Receiving.
  std::uint64_t used_ = 0;       ///< Of this end's window.
  std::uint64_t owed_ = 0;       ///< Of that, what is free again and the peer does not know of.
  std::uint64_t held_ = 0;       ///< Of messages that nobody has taken.
  std::uint64_t delivered_ = 0;  ///< The number of the last message that could be taken.
  std::uint64_t arrived_ = 0;    ///< Messages, those included that came early.
  hyperframes::detail::List<Arrived> queue_;
  FromLane small_, large_;
  hyperframes::detail::List<ChannelWatch> watches_;
  std::vector<Arrival> arrivals_;  ///< By type, what came so far; the first few types.
  std::uint64_t other_arrivals_ = 0;
  bool listening_ = false;

  // What the peer is to be told.
  Owing owing_{*this};
  friend class ChannelPeer;
  bool owes_open_ = false, owes_accept_ = false, close_said_ = false;
  std::optional<std::uint64_t> peer_sent_;  ///< It has closed, after so many.
  std::unique_ptr<std::string> why_closed_, why_peer_closed_;
  std::unique_ptr<Error> failure_;  ///< The session's end, or the refusal.
};

}  // namespace hyperframes::net::detail
