#include <hyperframes/net/channel/channel.hpp>
#include <hyperframes/net/channel/peer.hpp>

namespace hyperframes::net {
namespace {

Task<Channel> open_beside(detail::ChannelRef state, Time deadline) {
  state->throw_unless_sends("open a channel beside ");
  detail::ChannelRef opened = co_await state->peer()->owner().open(state->session(), deadline);
  co_return Channel(std::move(opened));
}

}  // namespace

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this != &other) {
    close();
    state_ = std::move(other.state_);
  }
  return *this;
}

Task<void> Channel::send(TypedMessage message, Time deadline) {
  return detail::ChannelState::send(state_, std::move(message), deadline);
}

Result<void> Channel::try_send(TypedMessage& message) { return state_->try_send(message); }

Task<TypedMessage> Channel::recv(TypeFilter filter, Time deadline) {
  return detail::ChannelState::receive(state_, std::move(filter), deadline);
}

std::optional<TypedMessage> Channel::try_recv(const TypeFilter& filter) {
  return state_->take(filter);
}

Task<Channel> Channel::open(Time deadline) { return open_beside(state_, deadline); }

void Channel::close(std::string why) noexcept {
  if (state_) state_->close(std::move(why));
}

}  // namespace hyperframes::net
