// What a network's sessions deliver to when a program has channels: each shard's channels, and
// those that peers opened and nobody has accepted yet.
//
//   auto hub = std::make_shared<ChannelHub>(runtime, options);
//   Network network(runtime, {}, *hub);
//   ChannelRef channel = co_await hub->here().open(session, deadline);
#pragma once

#include <deque>
#include <hyperframes/net/channel/peer.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace hyperframes::net::detail {

/// One shard's part. Lives and dies on it, but for its making.
class ChannelShard final : public ChannelPeer::Owner {
 public:
  explicit ChannelShard(std::shared_ptr<const ChannelOptions> options) noexcept
      : options_(std::move(options)) {}

  Task<ChannelRef> open(SessionRef session, Time deadline) override;
  Task<ChannelRef> accept(Time deadline);

  void on_message(Session& session, Lane lane, Message message) noexcept;
  void on_session_up(Session& session, std::uint64_t own_node) noexcept;
  void on_session_down(Session& session, const Error& reason) noexcept;
  /// Nobody accepts any more.
  void stop(const Error& reason) noexcept;
  /// Lets go of all that belongs to this shard.
  void clear() noexcept;

 private:
  bool may_open() const noexcept override;
  void on_opened(ChannelRef channel) noexcept override;

  std::shared_ptr<const ChannelOptions> options_;
  std::map<const Session*, std::shared_ptr<ChannelPeer>> peers_;
  std::deque<ChannelRef> unaccepted_;
  Event opened_;
  std::optional<Error> stopped_;
};

class ChannelHub final : public MessageHandler {
 public:
  ChannelHub(Runtime& runtime, std::shared_ptr<const ChannelOptions> options);

  ChannelShard& here() noexcept { return *shards_[Shard::current()->index()]; }
  /// Before the network is used.
  void set_node(std::uint64_t node) noexcept { node_ = node; }

 private:
  void on_message(Session& session, Lane lane, Message message) noexcept override;
  void on_session_up(Session& session) noexcept override;
  void on_session_down(Session& session, const Error& reason) noexcept override;
  bool takes_channels() const noexcept override { return true; }

  std::uint64_t node_ = 0;
  std::vector<std::unique_ptr<ChannelShard>> shards_;
};

}  // namespace hyperframes::net::detail
