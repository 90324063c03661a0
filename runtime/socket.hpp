// Stream sockets, without blocking the shard.
//
//   hf::Socket socket = co_await hf::Socket::connect(address, hf::after(5s));
//   co_await socket.send(std::move(segments));           // all of it
//   for (hf::Buffer chunk; !(chunk = co_await socket.receive()).empty();) use(chunk);
//
// One shard's; one coroutine may send while another receives. It must not be destroyed or moved
// into while an operation of it is awaited. Errors are the system's (std::errc::connection_reset),
// unless they are named here; a deadline that passes is Errc::deadline_exceeded, a cancellation
// Errc::cancelled. What arrives is handed out in chunks
// of the shard's receive memory, so that an idle connection holds none; keep a chunk and that
// memory stays taken. A few chunks are read ahead, then the peer waits. `receive_exactly` fills
// memory of yours straight from the kernel.
#pragma once

#include <hyperframes/runtime/address.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <vector>

namespace hyperframes {

class Socket {
 public:
  /// None is open: only `is_open`, `close` and assignment make sense.
  Socket() noexcept;
  Socket(Socket&&) noexcept;
  Socket& operator=(Socket&&) noexcept;
  /// Closes without waiting. What the kernel still reads from memory stays alive until it is done.
  ~Socket();

  /// Without a deadline the system's own patience counts, some minutes. Small sends are not held
  /// back (TCP_NODELAY).
  static Task<Socket> connect(Address address, Time deadline = no_deadline);
  /// Takes over a connected descriptor, which no other shard uses any more. On a shard.
  static Socket adopt(int descriptor, Address peer);
  /// Gives the descriptor up, to be adopted on another shard. Nothing may have been received yet,
  /// and no call may be pending.
  int release() noexcept;

  bool is_open() const noexcept;
  const Address& peer() const noexcept;
  /// In bytes; 0: the system's default. A send completes only while less than this is unsent in the
  /// kernel: what is queued later, and matters more, then overtakes what is queued here.
  void set_unsent_backlog(std::size_t bytes) noexcept;

  /// The next chunk, of any size up to the driver's (16 KiB); empty at the end of the stream, then
  /// and ever after. What has arrived is handed out before an error is thrown. One coroutine at a
  /// time.
  Task<Buffer> receive(Time deadline = no_deadline);
  /// A chunk that has arrived already, or an empty buffer, which says nothing of the end; never
  /// suspends.
  Buffer try_receive() noexcept;
  /// Fills `into`: first from chunks that have arrived, then straight from the kernel. Throws
  /// Errc::closed if the stream ends before. Cancelled when a part has come, the stream is out of
  /// step, and every later receive throws.
  Task<void> receive_exactly(Buffer into);
  /// Returns when the kernel has taken all of `data`; throws when it refused a part. Calls don't
  /// interleave: one at a time. Cancelled or late, a part may have been sent, and the stream is out
  /// of step.
  Task<void> send(Segments data, Time deadline = no_deadline);
  /// No more sends; the peer reads the end of the stream.
  Task<void> shutdown_send();
  /// No other operation may be under way. Takes place also in a cancelled chain; errors of it are
  /// not told.
  Task<void> close();

 private:
  class State;
  explicit Socket(std::unique_ptr<State> state) noexcept;
  Task<void> receive_part(Buffer& into);
  [[noreturn]] void ended_early(const Buffer& into) const;
  std::unique_ptr<State> state_;
};

/// A socket that others connect to. One shard's.
///
///   hf::Listener listener = hf::Listener::bind(*hf::Address::parse("127.0.0.1", 0));
///   scope.spawn(serve(co_await listener.accept()));
class Listener {
 public:
  Listener() noexcept = default;
  Listener(Listener&& other) noexcept;
  /// Swaps: what this listened on is closed with `other`.
  Listener& operator=(Listener&& other) noexcept;
  /// As `close`.
  ~Listener();

  /// Binds exactly `address`; port 0 picks one, see `address()`. `backlog`: connections that may
  /// wait for `accept`. Throws the system's error with address and remedy. On a shard.
  static Listener bind(const Address& address, int backlog = 512);
  const Address& address() const noexcept { return address_; }
  /// The next connection; several may wait for one. Throws Errc::closed if the listener is closed
  /// meanwhile; it must not be destroyed. Out of descriptors it throws the system's error, and may
  /// be called again.
  Task<Socket> accept(Time deadline = no_deadline);
  bool is_open() const noexcept { return descriptor_ >= 0; }
  /// Nothing listens there any more, and what waits in `accept` ends.
  void close() noexcept;

 private:
  int descriptor_ = -1;
  bool of_system_ = false;  ///< A descriptor of this process, which any thread can close.
  Address address_;
};

/// The addresses of a name, or of a numeric address as it stands, in the system's order; at least
/// one. Throws Errc::unreachable. Runs where blocking calls do (hf::offload): a cancelled one waits
/// for the name server all the same.
Task<std::vector<Address>> resolve(std::string host, std::uint16_t port);

}  // namespace hyperframes
