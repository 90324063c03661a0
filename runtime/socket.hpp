// Stream sockets, without blocking the shard.
//
//   auto socket = co_await hf::Socket::connect(address, hf::after(5s));
//   co_await socket.send(std::move(segments));           // all of it
//   while (hf::Buffer chunk = co_await socket.receive(); !chunk.empty()) use(chunk);
//
// One shard's; one coroutine may send while another receives. What arrives is handed out in chunks
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
  Socket() noexcept;
  Socket(Socket&&) noexcept;
  Socket& operator=(Socket&&) noexcept;
  /// Closes without waiting. What the kernel still reads from memory stays alive until it is done.
  ~Socket();

  static Task<Socket> connect(Address address, Time deadline = no_deadline);
  /// Takes over a connected descriptor, which no other shard uses any more.
  static Socket adopt(int descriptor, Address peer);
  /// Gives the descriptor up, to be adopted on another shard. Nothing may have been received yet,
  /// and no call may be pending.
  int release() noexcept;

  bool is_open() const noexcept;
  const Address& peer() const noexcept;
  /// A send completes only while less than this is unsent in the kernel: what is queued later, and
  /// matters more, then overtakes what is queued here.
  void set_unsent_backlog(std::size_t bytes) noexcept;

  /// The next chunk; empty at the end of the stream. Throws on errors, Errc::deadline_exceeded.
  Task<Buffer> receive(Time deadline = no_deadline);
  /// A chunk that has arrived already, or an empty buffer; never suspends.
  Buffer try_receive() noexcept;
  /// Fills `into`: first from chunks that have arrived, then straight from the kernel. Throws
  /// Errc::closed if the stream ends before. Cancelled when a part has come, the stream is out of
  /// step, and every later receive throws.
  Task<void> receive_exactly(Buffer into);
  /// Returns when the kernel has taken, or refused, all of `data`. Calls don't interleave: one at a
  /// time.
  Task<void> send(Segments data, Time deadline = no_deadline);
  /// No more sends; the peer reads the end of the stream.
  Task<void> shutdown_send();
  Task<void> close();

 private:
  class State;
  explicit Socket(std::unique_ptr<State> state) noexcept;
  Task<void> receive_part(Buffer& into);
  [[noreturn]] void ended_early(const Buffer& into) const;
  std::unique_ptr<State> state_;
};

class Listener {
 public:
  Listener() noexcept = default;
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  ~Listener();

  /// Binds exactly `address`; port 0 picks one, see `address()`. On a shard.
  static Listener bind(const Address& address, int backlog = 512);
  const Address& address() const noexcept { return address_; }
  /// Throws Errc::closed if the listener is closed meanwhile; it must not be destroyed.
  Task<Socket> accept(Time deadline = no_deadline);
  bool is_open() const noexcept { return descriptor_ >= 0; }
  /// Nothing listens there any more, and what waits in `accept` ends.
  void close() noexcept;

 private:
  int descriptor_ = -1;
  bool of_system_ = false;  ///< A descriptor of this process, which any thread can close.
  Address address_;
};

/// The addresses of a name, or of a numeric address as it stands. Throws Errc::unreachable.
Task<std::vector<Address>> resolve(std::string host, std::uint16_t port);

}  // namespace hyperframes
