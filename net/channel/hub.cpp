#include <algorithm>
#include <hyperframes/net/channel/hub.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::net::detail {
namespace {

/// Closes a channel that nobody has got hold of.
class Unclaimed {
 public:
  explicit Unclaimed(ChannelRef channel) noexcept : channel_(std::move(channel)) {}
  Unclaimed(const Unclaimed&) = delete;
  ~Unclaimed() {
    if (channel_) channel_->close("");
  }
  ChannelState& operator*() const noexcept { return *channel_; }
  ChannelRef claim() noexcept { return std::exchange(channel_, ChannelRef()); }

 private:
  ChannelRef channel_;
};

}  // namespace

Task<ChannelRef> ChannelShard::open(SessionRef session, Time deadline) {
  const std::string tried = "open a channel with " + session->peer().address;
  if (!session->peer().takes_channels)
    throw Error(Errc::unsupported, tried,
                "it has no channels: actors, or an older release, answer there",
                "connect to the address of a Messenger");
  const auto found = peers_.find(session.get());
  if (found == peers_.end()) {
    if (!session->up()) throw session->reason();
    throw Error(Errc::closed, tried, "the messenger has closed");
  }
  Unclaimed channel(found->second->begin_open());
  co_await (*channel).until_open(deadline);
  co_return channel.claim();
}

Task<ChannelRef> ChannelShard::accept(Time deadline) {
  while (unaccepted_.empty()) {
    if (stopped_) throw *stopped_;
    bool late = false;
    try {
      co_await opened_.wait(deadline);
    } catch (const Error& error) {
      // Another deadline, of those that wait for this, ends it as well.
      if (!error.is(Errc::deadline_exceeded) || Clock::now() < deadline) throw;
      late = true;
    }
    if (late && unaccepted_.empty() && !stopped_)
      throw Error(Errc::deadline_exceeded, "accept a channel", "no peer has opened one in time",
                  "see that a peer connects to an address that this messenger listens on");
  }
  ChannelRef first = std::move(unaccepted_.front());
  unaccepted_.pop_front();
  co_return first;
}

bool ChannelShard::may_open() const noexcept {
  return !stopped_ && unaccepted_.size() < options_->max_channels;
}

void ChannelShard::on_opened(ChannelRef channel) noexcept {
  unaccepted_.push_back(std::move(channel));
  opened_.pulse();
}

void ChannelShard::on_message(Session& session, Lane lane, Message message) noexcept {
  if (const auto found = peers_.find(&session); found != peers_.end())
    found->second->on_message(lane, std::move(message));
}

void ChannelShard::on_session_up(Session& session, std::uint64_t own_node) noexcept {
  const bool odd = own_node < session.peer().node_id;
  peers_.emplace(&session,
                 std::make_shared<ChannelPeer>(*this, SessionRef(&session), options_, odd));
}

// What such a peer has sent can still be received, once its channel is accepted.
void ChannelShard::on_session_down(Session& session, const Error& reason) noexcept {
  const auto found = peers_.find(&session);
  if (found == peers_.end()) return;
  found->second->went_down(reason);
  peers_.erase(found);
  std::erase_if(unaccepted_, [&](const ChannelRef& channel) {
    const bool useless = channel->session().get() == &session && !channel->holds_unmatched();
    if (useless) channel->close("");
    return useless;
  });
}

void ChannelShard::stop(const Error& reason) noexcept {
  if (!stopped_) stopped_ = reason;
  opened_.pulse();
}

void ChannelShard::clear() noexcept {
  stop(Error(Errc::closed, "accept a channel", "the messenger has ended"));
  for (const auto& channel : unaccepted_) channel->close("");
  unaccepted_.clear();
  peers_.clear();
}

ChannelHub::ChannelHub(Runtime& runtime, std::shared_ptr<const ChannelOptions> options) {
  for (unsigned i = 0; i < runtime.shard_count(); ++i)
    shards_.push_back(std::make_unique<ChannelShard>(options));
}

void ChannelHub::on_message(Session& session, Lane lane, Message message) noexcept {
  here().on_message(session, lane, std::move(message));
}

void ChannelHub::on_session_up(Session& session) noexcept { here().on_session_up(session, node_); }

void ChannelHub::on_session_down(Session& session, const Error& reason) noexcept {
  here().on_session_down(session, reason);
}

}  // namespace hyperframes::net::detail
