// The identity of a pair of nodes, seen from one core shard: what messages are sent through.
//
//   hf::net::SessionRef session = co_await network.connect(endpoint, hf::after(5s));
//   co_await session->send(std::move(message));             // waits for credit, not for delivery
//   co_await session->send(std::move(rows), hf::net::Lane::bulk);
//
// Each core shard has a Session object of its own for a peer, with a link of its own below it, so
// that no shard is a funnel. All of it belongs to that shard. A session ends once: when the peer or
// this node closes it, when the peer's process ends or can't be reached, or when a newer
// incarnation of the peer appears. Everything that waits on it then throws (closed or peer_lost),
// and it stays down. A connection that breaks or goes silent does not end it: its link is taken up
// again over another one, without loss, duplicate or reorder, unless that fails for too long.
#pragma once

#include <cstdint>
#include <hyperframes/net/lane.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <string>
#include <utility>

namespace hyperframes::net {

class Session;
class SessionRef;
namespace detail {
class Link;
class NetworkShard;
}  // namespace detail

/// Receives what a network's sessions deliver. Each call comes on the shard that owns the link;
/// different shards call at the same time. Nothing may throw. A call may send, close and connect.
class MessageHandler {
 public:
  /// In order for each (peer, lane). The sender gets its credit back when the message's buffers are
  /// destroyed: so keeping them holds it up. An ask must be answered once, whatever becomes of it.
  virtual void on_message(Session& session, Lane lane, Message message) noexcept = 0;
  /// Once for each shard and session, before its first message. `session` lives as long as a
  /// SessionRef to it, and at least until on_session_down has returned.
  virtual void on_session_up(Session& /*session*/) noexcept {}
  /// Once for each shard and session, after its last message. Errc::closed: one side closed it.
  virtual void on_session_down(Session& /*session*/, const Error& /*reason*/) noexcept {}
  /// Whether it knows what to do with messages on channels. If not, a peer that sends one breaks
  /// the protocol.
  virtual bool takes_channels() const noexcept { return false; }

 protected:
  ~MessageHandler() = default;
};

struct PeerInfo {
  std::uint64_t node_id = 0;
  std::uint64_t incarnation = 0;  ///< Grows with each start of the peer's process.
  unsigned shard_count = 0;
  std::string boot_id;          ///< Equal on two nodes: same host, same boot.
  std::string address;          ///< As its transport names it, such as "tcp://10.0.0.7:41234".
  bool takes_channels = false;  ///< See MessageHandler::takes_channels.
};

/// Owned by SessionRefs.
class Session {
 public:
  /// Of this shard's links with the peer.
  struct LaneStats {
    std::uint64_t messages_sent = 0, messages_received = 0;
    std::uint64_t messages_acknowledged = 0;  ///< So many, the first ones sent, the peer has.
    std::uint64_t credit_bytes = 0;           ///< What may be sent now.
    std::uint64_t waiting_senders = 0;
    std::uint64_t held_bytes = 0;  ///< Received, and not destroyed yet.
  };
  struct Stats {
    LaneStats lanes[lane_count];
    std::uint64_t bytes_sent = 0, bytes_received = 0;
    std::uint64_t sends = 0;                 ///< System calls' worth of batches.
    std::uint64_t queued_bytes = 0;          ///< Handed over, not yet given to the transport.
    std::uint64_t unacknowledged_bytes = 0;  ///< Held until the peer says that it has them.
    std::uint64_t sent_frames = 0, acknowledged_frames = 0;
    Duration round_trip{0};  ///< Of the latest heartbeat; 0 before the first.
    /// Links of this shard whose connection broke and is not taken up again yet: until then what is
    /// sent waits, and in the end the session is down if that fails.
    std::uint64_t resuming_links = 0;
    std::uint64_t resumes = 0;  ///< How often links went on over another connection.
    std::string transport;      ///< Such as "tcp".
  };
  class SendAwaiter;

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Good as long as the session.
  const PeerInfo& peer() const noexcept { return peer_; }
  bool up() const noexcept { return link_ != nullptr; }
  /// Why it is down; only then.
  const Error& reason() const noexcept { return *reason_; }

  /// Awaitable: `co_await session.send(...)`. Completes when the message was handed over: the peer
  /// has granted room for it, and this shard has queued it, in order. That is not delivery.
  /// Suspends while there is no credit; throws deadline_exceeded (default: 5 s from now), closed,
  /// peer_lost or too_large. An ask also waits until there is room for its answer; only answers
  /// (replies and failures) may pass it meanwhile. The session may end in the meantime. `Time{}`
  /// stands for the default; `no_deadline` waits for good. Cancelled, or late, the message was not
  /// sent.
  [[nodiscard]] SendAwaiter send(Message&& message, Lane lane = Lane::normal,
                                 Time deadline = Time{});
  [[nodiscard]] SendAwaiter send(const Message& message, Lane lane = Lane::normal,
                                 Time deadline = Time{});

  /// The same without waiting: Errc::exhausted, and `message` untouched, if it would have to.
  Result<void> try_send(Message& message, Lane lane = Lane::normal);

  /// Whether it could be sent if there were room: closed, peer_lost or too_large if not.
  Result<void> check(const Message& message) const;

  /// The number of the link that this shard sends through; while it is up.
  std::uint32_t link() const noexcept;

  /// Ends the session on all shards. `why` stands in this node's `reason()`; the peer learns only
  /// that it was closed. What was handed over still goes out, for 3 heartbeats at most; nothing
  /// waits for that: `Network::close` does. A second time it does nothing.
  void close(std::string why);

  /// Once it is down: how it stood at its end.
  Stats stats() const;

 private:
  friend class detail::Link;
  friend class detail::NetworkShard;
  friend class SessionRef;
  explicit Session(PeerInfo peer) : peer_(std::move(peer)) {}
  ~Session();
  detail::Link* link_for(Envelope& envelope) const noexcept;

  PeerInfo peer_;
  detail::Link* link_ = nullptr;  ///< Where this shard sends; null once down.
  std::unique_ptr<Error> reason_;
  std::unique_ptr<Stats> last_;  ///< Once down.
  detail::NetworkShard* owner_ = nullptr;
  std::uint64_t number_ = 0;
  std::uint32_t references_ = 0;  ///< Of this shard only, so not atomic.
};

/// Shared ownership of a Session, on its shard only.
class SessionRef {
 public:
  SessionRef() noexcept = default;
  explicit SessionRef(Session* session) noexcept : session_(session) {
    if (session_) ++session_->references_;
  }
  SessionRef(const SessionRef& other) noexcept : SessionRef(other.session_) {}
  SessionRef(SessionRef&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  SessionRef& operator=(SessionRef other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }
  ~SessionRef() {
    if (session_ && --session_->references_ == 0) delete session_;
  }
  explicit operator bool() const noexcept { return session_ != nullptr; }
  Session* operator->() const noexcept { return session_; }
  Session& operator*() const noexcept { return *session_; }
  Session* get() const noexcept { return session_; }
  friend bool operator==(const SessionRef&, const SessionRef&) = default;

 private:
  Session* session_ = nullptr;
};

/// Lives in the awaiting frame, with the message until that is queued.
class Session::SendAwaiter : public hyperframes::detail::Waiter {
 public:
  SendAwaiter(Session& session, Message&& message, Lane lane, Time deadline) noexcept
      : Waiter(deadline),
        session_(&session),
        message_(std::move(message)),
        lane_(lane),
        lasting_(deadline != Time{}) {}
  SendAwaiter(const SendAwaiter&) = delete;
  ~SendAwaiter() {
    if (promise() && outcome() != Outcome::woken) leave_unsent();
  }

  bool await_ready();
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    if (!lasting_) set_default_deadline();
    if (!begin(handle.promise())) return false;
    enqueue();
    return true;
  }
  void await_resume() {
    if (promise() || failure_) throw_unless_sent();
  }

 private:
  friend class detail::Link;
  void enqueue() noexcept;
  void leave_unsent() noexcept;
  void set_default_deadline() noexcept;
  void throw_unless_sent() const;

  SessionRef session_;
  detail::Link* link_ = nullptr;
  Message message_;
  std::uint64_t total_ = 0;      ///< Bytes on the wire.
  std::uint64_t announced_ = 0;  ///< Message number that waits for a grant; 0: none.
  std::uint64_t arrival_ = 0;    ///< The how manieth to wait on its lane.
  std::unique_ptr<Error> failure_;
  Lane lane_;
  bool lasting_;  ///< It was given a deadline; else the default is looked up only if it waits.
};

// Inline, since most sends never wait: the message is moved once, straight into the awaiting frame.
inline Session::SendAwaiter Session::send(Message&& message, Lane lane, Time deadline) {
  return SendAwaiter(*this, std::move(message), lane, deadline);
}
inline Session::SendAwaiter Session::send(const Message& message, Lane lane, Time deadline) {
  return SendAwaiter(*this, Message(message), lane, deadline);
}

}  // namespace hyperframes::net
