// What must hold in a parameter server's cluster, checked at each operation, from what the shipped
// code says of itself (ps::Observer) and what was acknowledged to clients.
//
//   PsChecker checker([&](std::string text) { stage.violate(text); });
//   ServerProcess server(options, runtime, folder, {.observer = &process.observer});
//
// A push counts in a counter row of its own, which reads 1 once it is applied. So each operation is
// checked by one look into a table; at a recovery each push that was acknowledged is looked up
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <hyperframes/apps/ps/observer.hpp>
#include <hyperframes/apps/ps/push_key.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::sim::detail {

class PsChecker {
 public:
  /// `bound`: the staleness bound as it was configured.
  PsChecker(std::uint64_t bound, std::function<void(std::string)> violate)
      : bound_(bound), violate_(std::move(violate)) {}

  /// What one process says.
  class Process final : public ps::Observer {
   public:
    Process(PsChecker& checker, unsigned node, std::uint64_t boot, std::string name)
        : checker_(checker), node_(node), boot_(boot), name_(std::move(name)) {}

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
    unsigned node_;
    std::uint64_t boot_;
    std::string name_;
  };

  std::uint64_t pulls() const noexcept { return pulls_; }
  std::uint64_t pushes() const noexcept { return pushes_; }
  std::uint64_t duplicates() const noexcept { return duplicates_; }
  std::uint64_t acknowledgements() const noexcept { return acknowledgements_; }
  std::uint64_t recoveries() const noexcept { return recoveries_; }
  /// Shards that a process has opened.
  std::size_t opened_by(unsigned node, std::uint64_t boot) const;

 private:
  struct Acknowledged {
    std::uint64_t counter;
    ps::PushKey key;
  };
  struct Owner {
    std::uint64_t token = 0, boot = 0;
    unsigned node = 0;
  };
  using Part = std::pair<ps::TableId, ps::ShardId>;
  struct WorkerIn {
    std::uint32_t job, worker;
    std::uint64_t joined_at_clock;
  };
  void check_count(const std::string& who, const ps::ShardContext& context,
                   const ps::TableState& state, std::uint64_t counter, const ps::PushKey& key,
                   const char* when);

  std::uint64_t bound_;
  std::function<void(std::string)> violate_;
  std::map<Part, std::vector<Acknowledged>> acknowledged_;
  std::map<ps::ShardId, Owner> owners_;
  std::map<ps::ShardId, std::vector<WorkerIn>> live_;  // as the shard's view has it
  std::map<std::uint32_t, std::uint64_t> clocks_;      // by worker, as it said itself
  std::uint64_t pulls_ = 0, pushes_ = 0, duplicates_ = 0, acknowledgements_ = 0, recoveries_ = 0;
};

}  // namespace hyperframes::sim::detail
