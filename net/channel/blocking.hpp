// Channels for programs without coroutines: the same messages, from any thread.
//
//   hf::net::blocking::Messenger messenger;
//   hf::net::blocking::Channel channel = messenger.connect("tcp://127.0.0.1:6000");
//   channel.send({.type = "demo.chat.line", .body = hf::Buffer::copy_of("hello")});
//
// A messenger has a thread of its own, on which a shard does the work; the calls block the thread
// that makes them, and any number of threads may call at the same time, on one channel too. What is
// received is copied out of the shard's memory, so that it may be kept and destroyed anywhere; who
// cannot afford that uses coroutines (net/channel/messenger.hpp). Not for a shard's thread, which
// must never be blocked: there every call throws Errc::would_deadlock at once. Nor for a child that
// was forked since, which has not got the messenger's thread: every call throws Errc::unsupported.
#pragma once

#include <hyperframes/net/channel/messenger.hpp>
#include <hyperframes/net/channel/typed_message.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <string>

namespace hyperframes::net::blocking {

/// For good.
inline constexpr Duration forever = Duration::max();

namespace detail {
struct Core;
class Handle;
}  // namespace detail

/// One end of a channel, closed when it is destroyed, or with its messenger: after that its
/// functions throw Errc::closed. One that was moved from is for nothing but assignment. It is moved
/// or destroyed when no call of it is under way. Errors are those of net::Channel.
class Channel {
 public:
  Channel() noexcept;
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();

  /// The buffers must be made on plain threads (Buffer::heap, Buffer::copy_of), or have come from
  /// such a channel: Errc::invalid_argument if they belong to a shard.
  void send(TypedMessage message, Duration within = 5s);
  /// Throws Errc::deadline_exceeded after `within`, as all of these; then no message was taken.
  TypedMessage recv(TypeFilter filter = {}, Duration within = forever);
  /// Another channel with the same peer.
  Channel open(Duration within = 5s);
  void close(std::string why = {});
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  PeerInfo peer() const;
  ChannelStats stats() const;

 private:
  friend class Messenger;
  explicit Channel(std::unique_ptr<detail::Handle> handle) noexcept;
  std::unique_ptr<detail::Handle> handle_;
};

class Messenger {
 public:
  using Options = net::Messenger::Options;

  /// Starts a thread. Throws as Runtime and net::Messenger do.
  explicit Messenger(Options options);
  Messenger() : Messenger(Options()) {}
  /// Closes, if that was not done, and waits up to 2 s for what was sent to arrive.
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  /// As net::Messenger's, and with its errors; Errc::closed after `close`.
  Endpoint listen(std::string uri);
  Channel connect(std::string uri, Duration within = 5s);
  Channel accept(Duration within = forever);
  /// As net::Messenger::close: returns how many messages the peers have not acknowledged when
  /// `drain` is over, those included that were lost with a peer before.
  std::uint64_t close(Duration drain = 2s);

 private:
  std::shared_ptr<detail::Core> core_;
};

}  // namespace hyperframes::net::blocking
