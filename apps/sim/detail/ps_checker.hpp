// What must hold in a parameter server's cluster, checked at each operation, from what the shipped
// code says of itself (ps::Observer) and what was acknowledged to clients.
//
//   PsChecker checker(bound, [&](std::string text) { stage.violate(text); });
//   ServerProcess server(options, runtime, folder, {.observer = &process.observer});  // simulated
//   check_observations({{"ps-0", ps::read_observations("ps-0.seen")}}, checker);      // real ones
//
// A push counts in a counter row of its own, which reads 1 once it is applied. So each operation is
// checked by one look into a table; at a recovery each push that was acknowledged is looked up
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <hyperframes/apps/ps/observation_log.hpp>
#include <hyperframes/apps/ps/observer.hpp>
#include <hyperframes/apps/ps/push_key.hpp>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::sim::detail {

class PsChecker {
 public:
  /// A process, one of those that its node has had.
  struct Who {
    unsigned node = 0;
    std::uint64_t boot = 0;
    std::string name{};
  };
  struct Push {
    ps::TableId table = 0;
    ps::ShardId shard = 0;
    ps::PushKey key{};
    std::uint64_t counter = 0;  ///< The id of its counter row, or 0.
  };
  struct LiveWorker {
    std::uint32_t job = 0, worker = 0;
    std::uint64_t joined_at_clock = 0;
  };
  using CountOf = std::function<float(std::uint64_t counter)>;

  /// `bound`: the staleness bound as it was configured.
  PsChecker(std::uint64_t bound, std::function<void(std::string)> violate)
      : bound_(bound), violate_(std::move(violate)) {}

  // ---- What happened, in its order
  void opened(const Who& who, ps::ShardId shard, std::uint64_t token);
  void recovered(const Who& who, ps::TableId table, ps::ShardId shard, const CountOf& count_of);
  /// `count`: what its counter reads now.
  void pushed(const Who& who, const Push& push, std::uint64_t token, bool fresh, float count);
  void view_adopted(ps::ShardId shard, std::vector<LiveWorker> live);
  void pull_answered(const Who& who, ps::ShardId shard, std::uint32_t job, std::uint64_t step);
  void acknowledged(const Push& push);
  void clock_set(std::uint32_t job, std::uint32_t worker, std::uint64_t clock);

  std::uint64_t pulls() const noexcept { return pulls_; }
  std::uint64_t pushes() const noexcept { return pushes_; }
  std::uint64_t duplicates() const noexcept { return duplicates_; }
  std::uint64_t acknowledgements() const noexcept { return acknowledgements_; }
  std::uint64_t recoveries() const noexcept { return recoveries_; }
  /// Shards that a process has opened.
  std::size_t opened_by(unsigned node, std::uint64_t boot) const;

 private:
  struct Owner {
    std::uint64_t token = 0, boot = 0;
    unsigned node = 0;
  };
  using Part = std::pair<ps::TableId, ps::ShardId>;
  using JobWorker = std::pair<std::uint32_t, std::uint32_t>;
  void check_count(const Who& who, const Push& push, float count, const char* when);

  std::uint64_t bound_;
  std::function<void(std::string)> violate_;
  std::map<Part, std::vector<Push>> acknowledged_;
  std::map<ps::ShardId, Owner> owners_;
  std::map<ps::ShardId, std::vector<LiveWorker>> live_;  // as the shard's view has it
  std::map<JobWorker, std::uint64_t> clocks_;            // as they said themselves
  std::uint64_t pulls_ = 0, pushes_ = 0, duplicates_ = 0, acknowledgements_ = 0, recoveries_ = 0;
};

/// What one process says, checked as it says it.
class CheckedProcess final : public ps::Observer {
 public:
  CheckedProcess(PsChecker& checker, PsChecker::Who who)
      : checker_(checker), who_(std::move(who)) {}

 private:
  void opened(const ps::ShardContext& context) override;
  void recovered(const ps::ShardContext& context, const ps::TableState& state) override;
  void pushed(const ps::ShardContext& context, const ps::TableState& state,
              const ps::PushBody& push, bool fresh) override;
  void pull_answered(const ps::ShardContext& context, std::uint32_t job,
                     std::uint64_t step) override;
  void view_adopted(const ps::ShardContext& context, const ps::ClusterView& view) override;
  void acknowledged(ps::TableId table, ps::ShardId shard, const ps::PushKey& key,
                    std::uint64_t counter) override;
  void clock_set(std::uint32_t job, std::uint32_t worker, std::uint64_t clock) override;

  PsChecker& checker_;
  PsChecker::Who who_;
};

/// What the processes of one name wrote down, one after the other.
struct ObservedNode {
  std::string name;
  std::vector<ps::Observation> observations;
};

/// Checks what all of them saw, in order of time.
void check_observations(std::span<const ObservedNode> nodes, PsChecker& checker);

}  // namespace hyperframes::sim::detail
