// What carries a link's bytes. It knows nothing of frames: it only moves these bytes.
//
//   transport->start(owner, 256u << 10);        // from here on the owner is called back
//   transport->send(std::move(batch));          // one at a time; owner.on_sent() gives it back
//   // owner.receive_target(), on_filled(), on_chunk(): what arrives, and where it shall lie
//
// The interface behind which kinds of transport differ: net/tcp/tcp.hpp and net/shm/shm.hpp are
// two, and net/tls/tls.hpp stands on another one. For who adds a transport: programs name them by
// their Endpoint. A transport serves one link and belongs to that link's shard, where all calls are
// made and come back; until `start` it may be handed to another shard.
#pragma once

#include <cstddef>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::net {

class Transport {
 public:
  /// Whom it serves; outlives it, or calls `stop` first. No call may throw, or destroy the
  /// transport.
  class Owner {
   public:
    /// Where the next bytes shall go, straight from the wire; empty: into memory of the transport,
    /// which then calls `on_chunk`. Asked before each receive.
    virtual Buffer receive_target() noexcept = 0;
    /// Bytes that arrived in the transport's own memory. May also come after a target was given.
    virtual void on_chunk(Buffer chunk) noexcept = 0;
    /// `size` bytes are in the target that was given last.
    virtual void on_filled(std::size_t size) noexcept = 0;
    /// Bytes that arrived in memory of the peer's, which can change them still: whatever is looked
    /// at is copied first. They go back to it when the last reference ends. Returns how many bytes
    /// it has copied, which the transport counts as its turn's work. By default they all are, and
    /// arrive as a chunk.
    virtual std::size_t on_loan(Buffer piece) noexcept {
      const std::size_t size = piece.size();
      on_chunk(Buffer::copy_of(piece.bytes()));
      return size;
    }
    /// The batch is out: its memory is not read any more, and is given back.
    virtual void on_sent(Segments batch) noexcept = 0;
    /// Nothing is sent or received any more. Errc::closed: the peer ended the stream in order, as
    /// the system does for a process that ends. Errc::corrupt: it breaks this transport's rules,
    /// and would over the next one too. Only `on_released` may still come.
    virtual void on_ended(Error reason) noexcept = 0;
    /// The system has let go of all that an abandoned transport had given it.
    virtual void on_released() noexcept {}

   protected:
    ~Owner() = default;
  };

  /// Buffers of one batch.
  static constexpr std::size_t batch_pieces = 64;
  /// A buffer of a batch that is as large holds payload of one frame and nothing else, so that it
  /// may come as a loan; a smaller one may also hold frames, which `on_loan` does not take.
  static constexpr std::size_t least_payload = 16 << 10;
  /// To lend less than that costs more than to copy it.
  static constexpr std::size_t least_loan = 4096;

  /// As `stop`; closes the connection. On its shard.
  virtual ~Transport() = default;
  /// The kind: "tcp".
  virtual std::string_view name() const noexcept = 0;
  /// Such as "tcp://10.0.0.7:41234".
  virtual std::string peer() const = 0;

  /// For the handshake, before `start`: all of the bytes, or it throws Errc::closed (the peer
  /// ended), deadline_exceeded, cancelled or the system's error.
  virtual Task<void> receive_exactly(Buffer into, Time deadline) = 0;
  virtual Task<void> send_all(Buffer bytes, Time deadline) = 0;
  /// In the handshake, once the peer has proved who it is, before whatever is sent to it next:
  /// passes it what nobody else may have.
  virtual void trust_peer() noexcept {}
  /// In the handshake, once the peer has proved who it is, and has called that if it ever does:
  /// takes what it passed. Throws Errc::corrupt.
  virtual Task<void> receive_trusted() { co_return; }

  /// `unsent_backlog_bytes`: how much may wait below, where nothing can overtake it.
  virtual void start(Owner& owner, std::size_t unsent_backlog_bytes) noexcept = 0;
  /// At most `batch_pieces` buffers, all of this shard. Not before the last one is out.
  virtual void send(Segments batch) noexcept = 0;
  /// No callback comes after this. Allowed inside a callback; destroying is not.
  virtual void stop() noexcept = 0;
  /// A few bytes that leave behind all that was sent, if there is room for them at once; only while
  /// no batch is on its way, and nothing is sent after them. For a transport that stands on this
  /// one, and has a word for its end. Elsewhere than on TCP they are dropped.
  virtual void send_last(std::span<const std::byte> bytes) noexcept { static_cast<void>(bytes); }

  /// Whether `send` would lend that buffer to the peer as it is, in the next batch, instead of
  /// moving its bytes: it lies in memory for that, from a multiple of 64 bytes on, and is at least
  /// `least_loan` long. Where a copy moves it through memory, a loan takes no time, however large.
  virtual bool would_lend(const Buffer& piece) const noexcept {
    static_cast<void>(piece);
    return false;
  }
  /// Whether `on_loan` may come.
  virtual bool may_bring_loans() const noexcept { return false; }

  /// Whether a link can go on over another transport once this one broke: whether `abandon` works.
  virtual bool can_be_abandoned() const noexcept { return false; }
  /// As `stop`, for a link that goes on over another transport. The peer sees that the connection
  /// broke, not that it ended in order. Returns the batch that `send` has not given back; the
  /// system may still read it, and still write into the last receive target, until `is_released`.
  virtual Segments abandon() noexcept {
    stop();
    return {};
  }
  /// After `abandon`. If it is false then, `on_released` comes.
  virtual bool is_released() const noexcept { return true; }
};

/// Where peers connect to. On one shard; nothing listens there any more once it is destroyed.
class TransportListener {
 public:
  virtual ~TransportListener() = default;
  /// With the port that was picked.
  virtual const Endpoint& endpoint() const noexcept = 0;
  /// The next peer, of which nothing is known yet. Cancelled, it throws.
  virtual Task<std::unique_ptr<Transport>> accept() = 0;
};

/// Makes transports of one kind.
class TransportProvider {
 public:
  virtual ~TransportProvider() = default;
  /// The addresses behind an endpoint, in the order in which to try them. Errc::unreachable.
  virtual Task<std::vector<Endpoint>> resolve(Endpoint endpoint) = 0;
  /// Of an address from `resolve`: whether only this host can reach it.
  virtual bool is_local(const Endpoint& address) const noexcept = 0;
  /// To one address from `resolve`. Throws Errc::deadline_exceeded or the system's error.
  virtual Task<std::unique_ptr<Transport>> connect(Endpoint address, Time deadline) = 0;
  /// On one address from `resolve`; port 0 picks one. Throws with the address and the cause.
  virtual std::unique_ptr<TransportListener> listen(const Endpoint& address) = 0;
};

}  // namespace hyperframes::net
