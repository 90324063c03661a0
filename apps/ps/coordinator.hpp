// The coordinator, as an actor: who takes part in a cluster and who works on what.
//
//   co_await node.spawn<ps::Coordinator>({.name = std::string(ps::coordinator_name)},
//                                        ps::CoordinatorOptions{.path = "work/coordinator.db"});
//   auto lease = co_await coordinator.join_server({.name = "ps-0", ...});
//
// It answers from CoordinatorStore, whose calls run on the offload executor; this actor adds the
// watching of the view and the passing of time. It holds nothing that its next start could not read
// again, so it may be killed at any moment: whoever asked asks again.
#pragma once

#include <hyperframes/apps/ps/coordinator_store.hpp>
#include <hyperframes/runtime/mutex.hpp>
#include <hyperframes/runtime/time.hpp>
#include <list>
#include <memory>
#include <ps.fbs.hpp>
#include <string>

namespace hyperframes::ps {

/// Under which the coordinator is registered on its node.
inline constexpr const char* coordinator_name = "ps/coordinator";

struct CoordinatorOptions {
  std::string path{};             ///< The database file. Its folder is made if it is missing.
  std::uint32_t num_shards = 0;   ///< Fixed by the first placement. 0: as it did, 16 before.
  std::uint32_t num_servers = 1;  ///< How many the first placement waits for.
  std::uint32_t staleness_bound = 3;
  Duration heartbeat_timeout = 30s;  ///< After which a silent worker is evicted.
  /// Processes that may wait for the next view at a time. One more, and the one that has waited
  /// longest is answered with the view it knows: who is gone can't keep others out.
  std::size_t max_watchers = 16'384;
  Machine* machine = &Machine::real();  ///< Where the database is; outlives the actor.
};

class Coordinator final : public protocol::Coordinator::Actor {
 public:
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator() override;

 private:
  Task<void> started() override;
  Task<void> stopping() override;
  Task<void> join_server(protocol::JoinServer request, Reply<protocol::ServerLease> reply) override;
  Task<void> renew_lease(protocol::RenewLease request, Reply<protocol::ServerLease> reply) override;
  Task<void> watch(protocol::WatchRequest request, Reply<protocol::ClusterView> reply) override;
  Task<void> create_tables(protocol::CreateTables request,
                           Reply<protocol::ClusterView> reply) override;
  Task<void> open_job(protocol::OpenJob request, Reply<protocol::JobTerms> reply) override;
  Task<void> lease_unit(protocol::LeaseUnit request, Reply<protocol::UnitLease> reply) override;
  Task<void> finish_unit(protocol::FinishUnit request, Reply<protocol::UnitLease> reply) override;
  Task<void> progress(protocol::WorkerProgress request,
                      Reply<protocol::WorkerOrders> reply) override;
  Task<void> leave_job(protocol::LeaveJob request, Reply<protocol::Nothing> reply) override;
  Task<void> status(protocol::Nothing request, Reply<protocol::ClusterStatus> reply) override;

  struct Watcher {
    Time answer_at;  // with the view that it knows
    Reply<protocol::ClusterView> reply;
  };

  /// Calls `function(store, now)` off the shard, then tells the watchers if the view has changed.
  template <class Function>
  auto on_store(Function function)
      -> Task<std::invoke_result_t<Function&, CoordinatorStore&, Time>>;
  void publish(const ClusterView& view);
  Task<void> pass_time();
  Task<void> answer_watchers_in_time();
  protocol::ServerLease::Fields server_lease(bool granted) const;

  CoordinatorOptions options_;
  std::shared_ptr<CoordinatorStore> store_;
  Mutex store_mutex_;
  protocol::ClusterView view_;
  std::list<Watcher> watchers_;
};

}  // namespace hyperframes::ps
