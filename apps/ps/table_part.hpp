// One table's rows on one parameter shard, as an actor: pulls, pushes, and what they wait for.
//
//   auto rows = co_await part.pull({.step = 7, ...}, std::move(ids));    // waits for slow workers
//   co_await part.push({.epoch = 0, .unit = 3, .batch = 1, ...}, std::move(ids_and_gradients));
//
// A push is applied at once and answered when it is durable; pulls that wait for the staleness
// bound wait outside the mailbox, and hold nothing of what the network lends, so pushes go on. The
// rows live and die with the actor: a restarted one reads them from snapshot and log.
#pragma once

#include <hyperframes/apps/ps/shard_context.hpp>
#include <memory>
#include <ps.fbs.hpp>
#include <span>

namespace hyperframes::ps {

class TablePart final : public protocol::TablePart::Actor {
 public:
  static constexpr std::size_t max_request_rows = 4u << 20;
  /// What may wait on one parameter shard: pulls, and the bytes of their ids.
  static constexpr std::size_t max_waiting_pulls = 4096;
  static constexpr std::size_t max_waiting_bytes = 256u << 20;

  TablePart(std::shared_ptr<ShardContext> context, TableSpec spec);
  ~TablePart() override;

  TableState& state() noexcept { return *state_; }
  const TableSpec& spec() const noexcept { return spec_; }

 private:
  using PullAnswer = Reply<WithSegments<protocol::PullReply>>;

  Task<void> started() override;
  Task<void> pull(protocol::PullRequest request, Segments segments, PullAnswer reply) override;
  Task<void> push(protocol::PushRequest request, Segments segments,
                  Reply<protocol::PushReply> reply) override;

  void note_pull(std::uint32_t job, std::uint64_t step);
  void park_pull(std::uint32_t job, std::uint64_t step, Buffer ids, PullAnswer reply);
  void answer_pull(std::span<const std::byte> ids, PullAnswer reply);
  void answer_when_durable(std::uint64_t lsn, bool duplicate, Reply<protocol::PushReply> reply);
  void check_ids(std::span<const std::byte> ids, std::uint64_t map_version) const;
  std::string who() const;

  std::shared_ptr<ShardContext> context_;
  TableSpec spec_;
  std::unique_ptr<TableState> state_;
};

}  // namespace hyperframes::ps
