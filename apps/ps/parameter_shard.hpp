// One parameter shard, as an actor: it recovers the shard's state, supervises its tables, its log
// and its snapshots, and keeps the workers' clocks.
//
//   auto shard = co_await node.spawn<hf::ps::ParameterShard>({.name = "ps/shard/3", .shard = 1},
//                                                            options, feed, lease);
#pragma once

#include <hyperframes/apps/ps/shard_context.hpp>
#include <hyperframes/apps/ps/table_part.hpp>
#include <hyperframes/apps/ps/view_feed.hpp>
#include <ps.fbs.hpp>
#include <set>

namespace hyperframes::ps {

class ParameterShard final : public protocol::ParameterShard::Actor {
 public:
  /// Checkpoints that may wait for the one under way; they share the next.
  static constexpr std::size_t max_waiting_checkpoints = 64;

  /// `feed`: the view as this core shard knows it; it and `lease` outlive the actor.
  ParameterShard(ShardOptions options, ViewFeed* feed, const Lease* lease);
  ~ParameterShard() override;

 private:
  Task<void> started() override;
  Task<void> stopping() override;
  Task<void> tick(protocol::WorkerClock clock) override;
  Task<void> checkpoint(protocol::Nothing request, Reply<protocol::ShardStatus> reply) override;
  Task<void> status(protocol::Nothing request, Reply<protocol::ShardStatus> reply) override;

  Task<void> recover();
  /// Adopts each view that is newer than `adopted`.
  Task<void> follow_view(std::uint64_t adopted);
  Task<void> adopt_view(std::shared_ptr<const ClusterView> view);
  Task<void> write_snapshots();
  Task<void> write_snapshot();
  Task<void> drop_unwanted_pulls();
  protocol::ShardStatus::Fields describe() const;

  ShardOptions options_;
  ViewFeed* feed_;
  const Lease* lease_;
  std::shared_ptr<ShardContext> context_;
  std::set<TableId> spawned_;
  std::uint64_t snapshots_begun_ = 0, last_written_ = 0;  // by their order
  std::size_t snapshots_wanted_ = 0;                      // waiting or under way
};

}  // namespace hyperframes::ps
