// A conversation between two programs: typed messages both ways, each in order, each once.
//
//   hf::net::Channel channel = co_await messenger.connect("tcp://127.0.0.1:6000");
//   co_await channel.send({.type = "demo.chat.line", .body = hf::Buffer::copy_of("hello")});
//   hf::net::TypedMessage answer = co_await channel.recv("demo.chat.*");
//
// It comes from a Messenger (net/channel/messenger.hpp), which connects by URI; nothing here
// depends on what carries the bytes. Many channels share one session, and one link of it, and do
// not hold each other up: what a peer may send on a channel before somebody receives is bounded by
// its window (Messenger::Options::window_bytes), and one that is full stops its own sender only.
// The credit goes back when the receiver has destroyed the last buffer of a message, not when it
// was handed over.
//
// A connection that breaks is taken up again below it. When the peer's process ends, what it had
// sent until then can still be received; after that `recv` throws peer_lost. What such an error
// says was acknowledged was in the peer's memory: whether its program received that, only an answer
// tells. A Channel and its messages belong to the shard that made it. Plain threads have
// net/channel/blocking.hpp.
#pragma once

#include <hyperframes/net/channel/channel_stats.hpp>
#include <hyperframes/net/channel/message_type.hpp>
#include <hyperframes/net/channel/state.hpp>
#include <hyperframes/net/channel/typed_message.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <optional>
#include <string>

namespace hyperframes::net {

/// One end; owned, and closed when it is destroyed. What is made by moving from it, or without
/// arguments, is empty, and for nothing but assignment.
class Channel {
 public:
  Channel() noexcept = default;
  Channel(Channel&&) noexcept = default;
  Channel& operator=(Channel&& other) noexcept;
  ~Channel() { close(); }

  /// Completes when the message was handed over, in order; that is not delivery. Waits while the
  /// peer's window is full; throws deadline_exceeded (default: 5 s from now) if that lasts, and the
  /// message was not sent then. invalid_argument: no type, or a metadata key that is not declared,
  /// at this end or the other; the text names it and lists those that are. too_large: more than
  /// the peer can ever take. closed, peer_lost. Several may send at the same time.
  [[nodiscard]] Task<void> send(TypedMessage message, Time deadline = Time{});
  /// The same without waiting: Errc::exhausted, and `message` untouched, if it would have to.
  Result<void> try_send(TypedMessage& message);

  /// The first message that matches and that nobody has taken. Others stay, in order, for those
  /// who want them, and hold the window's room meanwhile. One that matches nothing for a while is
  /// reported in the log, and in the error of its deadline, with the types that did come. Throws
  /// closed or peer_lost once nothing more can come, deadline_exceeded (default: none), cancelled;
  /// then no message was taken.
  [[nodiscard]] Task<TypedMessage> recv(TypeFilter filter = {}, Time deadline = no_deadline);
  /// The same without waiting; empty if there is none.
  std::optional<TypedMessage> try_recv(const TypeFilter& filter = {});

  /// Another channel with the same peer, over the same session and on this shard. Errc::exhausted:
  /// the peer has as many as it takes. Others as Messenger::connect.
  [[nodiscard]] Task<Channel> open(Time deadline = Time{});

  /// What was handed over still arrives; `why` (1,024 characters) is told to the peer, whose `recv`
  /// throws closed after that. What came and was not received is dropped. A second time it does
  /// nothing.
  void close(std::string why = {}) noexcept;

  explicit operator bool() const noexcept { return static_cast<bool>(state_); }
  /// Something may still be sent.
  bool up() const noexcept { return state_->sends(); }
  const PeerInfo& peer() const noexcept { return state_->session()->peer(); }
  ChannelStats stats() const { return state_->stats(); }
  /// For the library: takes over what a messenger made.
  explicit Channel(detail::ChannelRef state) noexcept : state_(std::move(state)) {}
  const detail::ChannelRef& state() const noexcept { return state_; }

 private:
  detail::ChannelRef state_;
};

}  // namespace hyperframes::net
