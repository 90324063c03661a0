// Gathers what the shards of a node say about their actors.
#pragma once

#include <condition_variable>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/report.hpp>
#include <hyperframes/runtime/event.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace hyperframes::detail {

/// What one shard says.
struct ShardPart {
  ShardReport shard;
  std::vector<ActorReport> actors;
  std::vector<SessionReport> sessions;
};

/// Shared by who asks and by the shards, since one that is stuck may answer when nobody waits any
/// more. The node waits for those at its end.
class Inspection : public std::enable_shared_from_this<Inspection> {
 public:
  /// Asks every shard. From any thread.
  static std::shared_ptr<Inspection> begin(NodeCore& core, InspectOptions options);
  explicit Inspection(NodeCore& core, InspectOptions options);
  Inspection(const Inspection&) = delete;

  /// Waits on a shard, or on another thread.
  Task<NodeReport> result();
  NodeReport wait();

 private:
  struct Arrived;
  /// Counts as under way while it lives.
  class Token;
  static Task<void> describe(std::shared_ptr<Inspection> self, std::shared_ptr<Token> token,
                             NodeShard* part);
  void put(unsigned shard, ShardPart part);
  NodeReport take();

  NodeCore& core_;
  const InspectOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<ShardPart>> parts_;
  std::size_t missing_;
  Shard* home_ = nullptr;  ///< The shard on which a coroutine waits.
  Event complete_;         ///< That shard's.
};

}  // namespace hyperframes::detail
