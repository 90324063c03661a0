// Several channels as one: to spread work out, and to bring results together.
//
//   co_await hf::net::scatter(workers, std::move(parts));              // part i to worker i
//   auto results = co_await hf::net::gather(workers, "ml.worker.done"); // one of each, in that order
//   hf::net::AnyMessage first = co_await hf::net::gather_any(workers);  // whoever is first
//
// On the shard of the channels, which may be moved, but not destroyed, meanwhile; the span itself
// is read when the function is called, not later. Errc::invalid_argument if a channel is empty, or,
// of gather_any, if there are none. To all readers alike: net/channel/broadcast.hpp.
#pragma once

#include <cstddef>
#include <hyperframes/net/channel/channel.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <span>
#include <vector>

namespace hyperframes::net {

/// Sends `messages[i]` on `channels[i]`, all at the same time, so that one which has to wait does
/// not keep the others. Throws Errc::invalid_argument, and nothing was sent, if the numbers differ;
/// the first failure of a send otherwise, when all have ended: those that still waited were not
/// sent. `Time{}`: 5 s from now.
Task<void> scatter(std::span<Channel> channels, std::vector<TypedMessage> messages,
                   Time deadline = Time{});

/// One matching message of each channel, in the order of the channels, once all have one. When it
/// throws (as Channel::recv, with the channel in the text) none was taken.
Task<std::vector<TypedMessage>> gather(std::span<Channel> channels, TypeFilter filter = {},
                                       Time deadline = no_deadline);

struct AnyMessage {
  std::size_t channel = 0;  ///< Whose it is: an index.
  TypedMessage message;
};
/// A matching message of whichever channel has one. Those that have several take turns over the
/// calls if each starts behind the channel that the last one returned: `first` is where to look
/// first. A channel that has ended is passed over; when all have, it throws the first one's reason.
Task<AnyMessage> gather_any(std::span<Channel> channels, TypeFilter filter = {},
                            Time deadline = no_deadline, std::size_t first = 0);

}  // namespace hyperframes::net
