// A program's way to a parameter server: it knows who owns what, and carries pulls and pushes
// through whatever happens to the servers.
//
//   ps::PsClient client(node, {.coordinator = hf::net::Endpoint::parse("tcp://127.0.0.1:6000")});
//   co_await client.start();                                            // the cluster is known
//   std::vector<float> rows = co_await client.pull(table, ids, step);   // in the order of the ids
//
// A call ends when it has succeeded, when its chain is cancelled, or with an error that trying
// again can't mend (a rejected key, a wrong argument). In between, a server that was killed,
// restarted, moved or is slow is asked again, with the same push key, which is what makes its death
// invisible; `waiting()` says for what. Give calls a deadline with `hf::with_deadline` where they
// need one. The messages of the coordinator's functions come from ps.fbs, whose C++
// find_package(hyperframes COMPONENTS ps) makes in the user's build. Everything here belongs to the
// core shard that made it.
#pragma once

#include <cstdint>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/cluster_view.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/apps/ps/push_key.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <optional>
#include <ps.fbs.hpp>
#include <string>
#include <vector>

namespace hyperframes::ps {

class Observer;

/// A push whose messages are made: one for each parameter shard that has rows of it.
class PreparedPush {
 public:
  struct Message {
    ShardId shard = 0;
    std::uint64_t counter = 0;  ///< The id of its counter row; 0: it has none.
    Buffer ids{};               ///< u64 each, by slot.
    Buffer values{};            ///< `width` floats for each.
  };

  TableId table() const noexcept { return table_; }
  const PushKey& key() const noexcept { return key_; }
  const std::vector<Message>& messages() const noexcept { return messages_; }
  /// What a ledger notes of it: one entry a message, in doubt.
  std::vector<LedgerEntry> ledger_entries(std::uint32_t job) const;

 private:
  friend class PsClient;
  TableId table_ = 0;
  PushKey key_;
  std::vector<Message> messages_;
};

class PsClient {
 public:
  struct Options {
    net::Endpoint coordinator{};
    /// How long one attempt may take before it is made again.
    Duration attempt = timing().default_deadline();
    Duration backoff_min = 20ms;
    Duration backoff_max = 250ms;
    Observer* observer = nullptr;  ///< Outlives the client.
  };
  /// How far a worker is, and who it is. Goes along with every pull and push, and is repeated to
  /// every parameter shard each heartbeat, so that a restarted one learns it again.
  struct WorkerClock {
    std::uint32_t job = 0;
    std::uint32_t worker = 0;
    std::uint64_t clock = 0;  ///< Steps completed: all their pushes are acknowledged.
  };

  /// `node` has a network, and outlives this.
  PsClient(Node& node, Options options);
  /// Ends following and ticking; `close` first for an orderly end. No call of it may be under way.
  ~PsClient();
  PsClient(const PsClient&) = delete;
  PsClient& operator=(const PsClient&) = delete;

  /// Begins to follow the coordinator; completes when the parameter shards are placed, however long
  /// that takes. Once, and before all else: without it calls throw Errc::invalid_argument. Throws
  /// what trying again can't mend, such as a wrong key.
  Task<void> start();
  /// Stops following the coordinator and repeating the clock. Calls that are under way do not end
  /// by it: cancel them before. Nothing may be called after it but the destructor.
  Task<void> close();

  /// What the coordinator published last; null before the first one.
  const std::shared_ptr<const ClusterView>& view() const noexcept;
  /// The table, once the view shows it: waits for good if nobody makes one of that name.
  Task<TableSpec> table(std::string name);

  // ---- Rows ------------------------------------------------------------------------------------

  /// Rows of `ids` (distinct; those with the top bit set count: counter_bit), `width` floats each,
  /// in their order; one that nobody has pushed to reads as its initializer says, and is not made.
  /// With a clock it waits until the slowest worker is within the staleness bound of `step`;
  /// without one it reads what is there. Servers that are away are waited for, without a limit.
  Task<std::vector<float>> pull(TableSpec table, std::vector<std::uint64_t> ids,
                                std::uint64_t step = 0);
  /// Groups the rows by slot and shard. `gradients`: `width` floats for each of `ids`, which are
  /// distinct; Errc::invalid_argument for another number of them. Waits for send memory. `counted`:
  /// with a leased key each message gets a counter row, which an audit compares with a ledger. Such
  /// rows stay in the table for good: without a ledger don't ask for them. All workers of a job do
  /// alike.
  Task<PreparedPush> prepare_push(TableSpec table, PushKey key, std::vector<std::uint64_t> ids,
                                  std::vector<float> gradients, bool counted = true);
  /// Completes when all messages are acknowledged. `forget_before`: of the unit's lease, as
  /// unit_order() has it.
  Task<void> push(PreparedPush prepared, std::uint64_t step = 0, std::uint64_t forget_before = 0);

  /// From now on sent with all calls and to all shards; a clock never goes back, but for a new
  /// worker. Without: an observer, for whom nobody waits.
  void set_clock(std::optional<WorkerClock> clock);

  // ---- The coordinator -------------------------------------------------------------------------

  /// Makes those that are missing; their ids are given by the coordinator (`table` has them). One
  /// that is there and equal is left alone; else Errc::already_exists, with what differs, and none
  /// is made. Durable when it completes.
  Task<void> create_tables(std::vector<TableSpec> tables);
  /// Each is asked again until the coordinator has answered; what it refuses (ps.fbs says when) is
  /// thrown.
  Task<protocol::JobTerms> open_job(protocol::OpenJob::Fields request);
  Task<protocol::UnitLease> lease_unit(protocol::LeaseUnit::Fields request);
  Task<protocol::UnitLease> finish_unit(protocol::FinishUnit::Fields request);
  Task<protocol::WorkerOrders> progress(protocol::WorkerProgress::Fields request);
  Task<void> leave_job(protocol::LeaveJob::Fields request);
  Task<protocol::ClusterStatus> status();
  Task<protocol::ShardStatus> shard_status(ShardId shard);

  /// What has kept a call from succeeding for longer than a second: the oldest; empty if nothing.
  std::string waiting() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hyperframes::ps
