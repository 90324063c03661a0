#include <algorithm>
#include <deque>
#include <hyperframes/net/channel/gather.hpp>
#include <hyperframes/net/channel/state.hpp>
#include <hyperframes/runtime/combinators.hpp>

namespace hyperframes::net {
namespace {

using detail::ChannelRef;
using detail::ChannelState;
using detail::ChannelWatch;
using Channels = std::vector<ChannelRef>;

Channels states_of(std::span<Channel> channels) {
  Channels states;
  states.reserve(channels.size());
  for (const Channel& channel : channels) {
    if (!channel)
      throw Error(Errc::invalid_argument, "use several channels", "one of them is empty");
    states.push_back(channel.state());
  }
  return states;
}

Task<void> send_each(Channels channels, std::vector<TypedMessage> messages, Time deadline) {
  std::vector<Task<void>> sends;
  sends.reserve(channels.size());
  for (std::size_t i = 0; i < channels.size(); ++i)
    sends.push_back(ChannelState::send(channels[i], std::move(messages[i]), deadline));
  co_await when_all(std::move(sends));
}

/// False: the deadline has passed.
Task<bool> wait_until(Event* event, Time deadline) {
  try {
    co_await event->wait(deadline);
  } catch (const Error& error) {
    // Another deadline, of those that wait for this, ends it as well.
    if (!error.is(Errc::deadline_exceeded) || Clock::now() < deadline) throw;
    co_return false;
  }
  co_return true;
}

Task<std::vector<TypedMessage>> take_each(Channels channels, TypeFilter filter, Time deadline) {
  Event come;
  std::deque<ChannelWatch> watches;
  for (const ChannelRef& channel : channels) watches.emplace_back(*channel, filter, come);
  const auto lacks = [&filter](const ChannelRef& channel) { return !channel->has(filter); };
  for (bool in_time = true;;) {
    const auto first = std::ranges::find_if(channels, lacks);
    if (first == channels.end()) break;
    if (!in_time) throw(*first)->unmatched(filter);
    // Any that has ended ends the wait for all.
    for (auto it = first; it != channels.end(); ++it)
      if (lacks(*it)) (*it)->throw_if_over(filter);
    come.reset();
    in_time = co_await wait_until(&come, deadline);
  }
  std::vector<TypedMessage> messages;
  messages.reserve(channels.size());
  for (const ChannelRef& channel : channels) messages.push_back(*channel->take(filter));
  co_return messages;
}

/// The one of them that has something, from `first` on.
std::optional<AnyMessage> take_one(const Channels& channels, const TypeFilter& filter,
                                   std::size_t first) {
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::size_t index = (first + i) % channels.size();
    if (auto message = channels[index]->take(filter)) return AnyMessage{index, std::move(*message)};
  }
  return std::nullopt;
}

void throw_if_all_over(const Channels& channels, const TypeFilter& filter) {
  for (const ChannelRef& channel : channels)
    if (!channel->is_finished()) return;
  channels.front()->throw_if_over(filter);
}

Task<AnyMessage> take_any(Channels channels, TypeFilter filter, Time deadline, std::size_t first) {
  if (channels.empty())
    throw Error(Errc::invalid_argument, "receive from any of several channels", "there are none");
  Event come;
  std::deque<ChannelWatch> watches;
  for (const ChannelRef& channel : channels) watches.emplace_back(*channel, filter, come);
  while (true) {
    if (auto any = take_one(channels, filter, first)) co_return std::move(*any);
    throw_if_all_over(channels, filter);
    come.reset();
    const bool in_time = co_await wait_until(&come, deadline);
    if (in_time) continue;
    if (auto any = take_one(channels, filter, first)) co_return std::move(*any);
    throw channels[first % channels.size()]->unmatched(filter);
  }
}

}  // namespace

Task<void> scatter(std::span<Channel> channels, std::vector<TypedMessage> messages, Time deadline) {
  if (channels.size() != messages.size())
    throw Error(Errc::invalid_argument, "scatter messages",
                std::to_string(messages.size()) + " messages for " +
                    std::to_string(channels.size()) + " channels",
                "give one for each");
  return send_each(states_of(channels), std::move(messages), deadline);
}

Task<std::vector<TypedMessage>> gather(std::span<Channel> channels, TypeFilter filter,
                                       Time deadline) {
  return take_each(states_of(channels), std::move(filter), deadline);
}

Task<AnyMessage> gather_any(std::span<Channel> channels, TypeFilter filter, Time deadline,
                            std::size_t first) {
  return take_any(states_of(channels), std::move(filter), deadline, first);
}

}  // namespace hyperframes::net
