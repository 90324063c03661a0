// What a channel has done, and what it waits for.
//
//   const hf::net::ChannelStats stats = channel.stats();
//   log("unreceived", stats.unreceived_messages, "of", stats.unreceived_bytes, "bytes");
//   log("may send", stats.credit_bytes);
#pragma once

#include <cstdint>

namespace hyperframes::net {

/// Of one end.
struct ChannelStats {
  std::uint64_t sent = 0;              ///< Messages that were handed over.
  std::uint64_t received = 0;          ///< Messages that came in order, taken or not.
  std::uint64_t unreceived_bytes = 0;  ///< Of those that nobody has taken, on the wire.
  std::uint64_t unreceived_messages = 0;
  std::uint64_t held_bytes = 0;    ///< Received, taken or not, whose buffers are not all destroyed.
  std::uint64_t window_bytes = 0;  ///< Up to so many, and one message more.
  std::int64_t credit_bytes = 0;   ///< What the peer takes now; below 0 after a large message.
};

}  // namespace hyperframes::net
