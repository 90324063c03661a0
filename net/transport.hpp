// What carries a link's bytes. It knows nothing of frames: it only moves these bytes.
//
//   transport->start(owner);                    // from here on the owner is called back
//   transport->send(std::move(batch));          // one at a time; owner.on_sent() gives it back
//   Buffer target = owner.receive_target();     // where the transport puts what arrives
//
// TCP is one; shared memory and RDMA are others behind the same interface. A transport serves one
// link and belongs to that link's shard; until `start` it may be handed to another shard.
#pragma once

#include <cstddef>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::net {

class Transport {
 public:
  class Owner {
   public:
    /// Where the next bytes shall go, straight from the wire; empty: into memory of the transport,
    /// which then calls `on_chunk`. Asked before each receive.
    virtual Buffer receive_target() noexcept = 0;
    /// Bytes that arrived in the transport's own memory. May also come after a target was given.
    virtual void on_chunk(Buffer chunk) noexcept = 0;
    /// `size` bytes are in the target that was given last.
    virtual void on_filled(std::size_t size) noexcept = 0;
    /// The batch is out: its memory is not read any more, and is given back.
    virtual void on_sent(Segments batch) noexcept = 0;
    /// The last call. Errc::closed: the peer ended the stream in order.
    virtual void on_ended(Error reason) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  /// Buffers of one batch.
  static constexpr std::size_t batch_pieces = 64;

  virtual ~Transport() = default;
  virtual std::string_view name() const noexcept = 0;
  /// Such as "tcp://10.0.0.7:41234".
  virtual std::string peer() const = 0;

  /// For the handshake, before `start`.
  virtual Task<void> receive_exactly(Buffer into, Time deadline) = 0;
  virtual Task<void> send_all(Buffer bytes, Time deadline) = 0;

  /// `unsent_backlog_bytes`: how much may wait below, where nothing can overtake it.
  virtual void start(Owner& owner, std::size_t unsent_backlog_bytes) noexcept = 0;
  /// At most `batch_pieces` buffers, all of this shard. Not before the last one is out.
  virtual void send(Segments batch) noexcept = 0;
  /// No callback comes after this. Allowed inside a callback; destroying is not.
  virtual void stop() noexcept = 0;
};

class TransportListener {
 public:
  virtual ~TransportListener() = default;
  virtual const Endpoint& endpoint() const noexcept = 0;
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
  virtual Task<std::unique_ptr<Transport>> connect(Endpoint address, Time deadline) = 0;
  virtual std::unique_ptr<TransportListener> listen(const Endpoint& address) = 0;
};

}  // namespace hyperframes::net
