// Channels by URI: messaging for programs that have no actors.
//
//   hf::net::Messenger messenger(runtime);
//   co_await messenger.listen("auto://127.0.0.1:6000");    // or tcp://, or shm://name
//   hf::net::Channel channel = co_await messenger.accept();
//
// The other program says `co_await messenger.connect("auto://127.0.0.1:6000")`, and both ends send
// and receive (net/channel/channel.hpp). There is no broker. Two messengers have one session,
// however often and from whichever side they connect; each `connect` makes one more channel on it.
//
// A program that also has actors gives both a network of their own: a Node and a Messenger may run
// on one runtime, each with its own addresses; a channel can't be opened to a Node, nor an actor be
// called at a Messenger, and the error says so (Errc::unsupported). The functions are called on a
// shard of the runtime; the messenger is made and destroyed off the shards, while the runtime
// exists. Programs without coroutines have net/channel/blocking.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/channel/channel.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::net {

namespace detail {
class ChannelHub;
struct ChannelOptions;
}  // namespace detail

class Messenger {
 public:
  struct Options {
    /// Key, node id, memory. Of `receive_budget_bytes` three quarters are for what channels have
    /// received and programs still hold, and bound the largest message; it is per shard.
    Network::Options network = {};
    /// Of metadata, that may be sent and received: small letters, digits, '_', '-' and '.', 64 at
    /// most; up to 256 of them. Both ends have to declare a key that is used.
    std::vector<std::string> keys = {};
    /// What a peer may have on its way or unreceived here on one channel, in bytes on the wire; one
    /// message may go beyond it. Twice the size of usual messages keeps a sender busy. While what
    /// all channels hold fits into the receive budget, none stops another; beyond that all wait for
    /// somebody to receive.
    std::size_t window_bytes = 1u << 20;
    std::size_t max_channels = 131'072;  ///< That one peer may open on a shard here.
    /// After so long a `recv` that matched none of what came is reported in the log.
    Duration report_unmatched_after = 3s;
  };

  /// Starts nothing yet. Throws Errc::invalid_argument for options out of range.
  Messenger(Runtime& runtime, Options options);
  explicit Messenger(Runtime& runtime) : Messenger(runtime, Options()) {}
  /// Ends what `close` did not, without draining. Channels that exist are down then.
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  std::uint64_t node_id() const noexcept;

  /// As Network::listen, which says what it throws; Errc::invalid_argument if `uri` is none.
  Task<Endpoint> listen(std::string uri);
  /// A new channel to the messenger that listens there; connects if there is no session yet. Throws
  /// as Network::connect does; Errc::unsupported if what listens there has no channels;
  /// Errc::exhausted if it has as many as it takes. `Time{}`: 5 s from now.
  Task<Channel> connect(std::string uri, Time deadline = Time{});
  /// The next channel that a peer opened and that came in on this shard. It may have come with
  /// messages, and have ended since. Throws Errc::closed after `close`, deadline_exceeded.
  Task<Channel> accept(Time deadline = no_deadline);

  /// As Network::loan: memory for segments that peers on this host read in place. What a message
  /// has of it comes back once its receiver has let go of all of that message.
  Task<Buffer> loan(std::size_t size, Time deadline = Time{}) {
    return network_->loan(size, deadline);
  }

  /// As Network::close: returns how many messages the peers have not acknowledged, of all that were
  /// sent on any channel since the messenger began, also on channels that were closed or lost. That
  /// they are acknowledged says that they are in the peers' memory, not that anybody received them:
  /// who has to know that, sends an answer.
  Task<std::uint64_t> close(Duration drain);

 private:
  Runtime& runtime_;
  std::shared_ptr<detail::ChannelHub> hub_;
  std::unique_ptr<Network> network_;
};

}  // namespace hyperframes::net
