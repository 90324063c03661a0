#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/apps/ps/cluster_view.hpp>
#include <hyperframes/apps/ps/shard_context.hpp>
#include <hyperframes/apps/sim/detail/ps_checker.hpp>

namespace hyperframes::sim::detail {
namespace {

std::string text_of(const ps::PushKey& key) {
  return fmt::format("epoch {}, unit {}, batch {}", key.epoch, key.unit, key.batch);
}

}  // namespace

// ---- The rules ----------------------------------------------------------------------------------

void PsChecker::check_count(const Who& who, const Push& push, float count, const char* when) {
  if (count == 1) return;
  violate_(fmt::format("{} of parameter shard {} by {}: the push of {} {} {} times", when,
                       push.shard, who.name, text_of(push.key),
                       count == 0 ? "was acknowledged, and counts" : "counts", count));
}

std::size_t PsChecker::opened_by(unsigned node, std::uint64_t boot) const {
  return static_cast<std::size_t>(std::ranges::count_if(owners_, [&](const auto& owner) {
    return owner.second.node == node && owner.second.boot == boot;
  }));
}

// Tokens only grow, and one belongs to one node.
void PsChecker::opened(const Who& who, ps::ShardId shard, std::uint64_t token) {
  ++recoveries_;
  Owner& owner = owners_[shard];
  if (token < owner.token)
    violate_(fmt::format("{} opens parameter shard {} under token {}, after token {}", who.name,
                         shard, token, owner.token));
  if (token == owner.token && (who.node != owner.node || who.boot < owner.boot))
    violate_(fmt::format("{} opens parameter shard {} under token {}, which is node {}'s", who.name,
                         shard, token, owner.node));
  owner = {token, who.boot, who.node};
}

void PsChecker::recovered(const Who& who, ps::TableId table, ps::ShardId shard,
                          const CountOf& count_of) {
  for (const Push& push : acknowledged_[{table, shard}])
    check_count(who, push, count_of(push.counter), "after the recovery");
}

void PsChecker::pushed(const Who& who, const Push& push, std::uint64_t token, bool fresh,
                       float count) {
  ++(fresh ? pushes_ : duplicates_);
  const Owner& owner = owners_[push.shard];
  if (owner.node != who.node || owner.boot != who.boot || owner.token != token)
    violate_(fmt::format("{} takes a push to parameter shard {}, which is node {}'s now", who.name,
                         push.shard, owner.node));
  if (push.counter != 0)
    check_count(who, push, count, fresh ? "after a push" : "after a push that was sent again");
}

void PsChecker::view_adopted(ps::ShardId shard, std::vector<LiveWorker> live) {
  live_[shard] = std::move(live);
}

// Whoever is live by the shard's view has completed what it says itself, or what it joined at.
void PsChecker::pull_answered(const Who& who, ps::ShardId shard, std::uint32_t job,
                              std::uint64_t step) {
  ++pulls_;
  if (step <= bound_) return;
  for (const LiveWorker& worker : live_[shard]) {
    if (worker.job != job) continue;
    const std::uint64_t clock = std::max(worker.joined_at_clock, clocks_[{job, worker.worker}]);
    if (clock + bound_ >= step) continue;
    violate_(fmt::format(
        "{} answers a pull for step {} on parameter shard {} while worker {} has completed {} "
        "steps, and the staleness bound is {}",
        who.name, step, shard, worker.worker, clock, bound_));
  }
}

void PsChecker::acknowledged(const Push& push) {
  ++acknowledgements_;
  if (push.counter != 0) acknowledged_[{push.table, push.shard}].push_back(push);
}

void PsChecker::clock_set(std::uint32_t job, std::uint32_t worker, std::uint64_t clock) {
  auto& known = clocks_[{job, worker}];
  known = std::max(known, clock);
}

// ---- A process of the simulator -----------------------------------------------------------------

void CheckedProcess::opened(const ps::ShardContext& context) {
  checker_.opened(who_, context.options.shard, context.options.token);
}

void CheckedProcess::recovered(const ps::ShardContext& context, const ps::TableState& state) {
  checker_.recovered(who_, state.spec().id, context.options.shard,
                     [&state](std::uint64_t counter) { return ps::read_counter(state, counter); });
}

void CheckedProcess::pushed(const ps::ShardContext& context, const ps::TableState& state,
                            const ps::PushBody& push, bool fresh) {
  const std::uint64_t counter = ps::counter_of(push);
  checker_.pushed(who_, {state.spec().id, context.options.shard, push.key, counter},
                  context.options.token, fresh,
                  counter == 0 ? 0 : ps::read_counter(state, counter));
}

void CheckedProcess::view_adopted(const ps::ShardContext& context, const ps::ClusterView& view) {
  std::vector<PsChecker::LiveWorker> live;
  for (const auto& each : view.workers)
    live.push_back({each.job, each.worker, each.joined_at_clock});
  checker_.view_adopted(context.options.shard, std::move(live));
}

void CheckedProcess::pull_answered(const ps::ShardContext& context, std::uint32_t job,
                                   std::uint64_t step) {
  checker_.pull_answered(who_, context.options.shard, job, step);
}

void CheckedProcess::acknowledged(ps::TableId table, ps::ShardId shard, const ps::PushKey& key,
                                  std::uint64_t counter) {
  checker_.acknowledged({table, shard, key, counter});
}

void CheckedProcess::clock_set(std::uint32_t job, std::uint32_t worker, std::uint64_t clock) {
  checker_.clock_set(job, worker, clock);
}

// ---- Real processes -----------------------------------------------------------------------------

namespace {

/// Takes in one node's observations, in their order.
class Replay {
 public:
  Replay(PsChecker& checker, unsigned node, std::string name)
      : checker_(checker), who_{.node = node, .boot = 0, .name = std::move(name)} {}

  void take(const ps::Observation& seen) {
    const PsChecker::Push push = {seen.table, seen.shard, seen.key(), seen.counter};
    switch (seen.kind) {
      using enum ps::Observation::Kind;
      case started: return start();
      case opened: return checker_.opened(who_, seen.shard, seen.token);
      case counted: counts_[seen.counter] = seen.count; return;
      case recovered: return recover(seen);
      case pushed: return checker_.pushed(who_, push, seen.token, seen.fresh != 0, seen.count);
      case pull_answered: return checker_.pull_answered(who_, seen.shard, seen.job, seen.step);
      case live: live_.push_back({seen.job, seen.worker, seen.step}); return;
      case view_adopted: return checker_.view_adopted(seen.shard, std::exchange(live_, {}));
      case acknowledged: return checker_.acknowledged(push);
      case clock_set: return checker_.clock_set(seen.job, seen.worker, seen.step);
    }
  }

 private:
  void start() {
    ++who_.boot;
    counts_.clear();  // of what was cut short by a kill
    live_.clear();
  }
  void recover(const ps::Observation& seen) {
    checker_.recovered(who_, seen.table, seen.shard, [this](std::uint64_t counter) {
      const auto found = counts_.find(counter);
      return found == counts_.end() ? 0 : found->second;
    });
    counts_.clear();
  }

  PsChecker& checker_;
  PsChecker::Who who_;
  std::map<std::uint64_t, float> counts_;
  std::vector<PsChecker::LiveWorker> live_;
};

}  // namespace

void check_observations(std::span<const ObservedNode> nodes, PsChecker& checker) {
  struct Seen {
    const ps::Observation* observation;
    Replay* by;
    std::pair<std::int64_t, std::size_t> place;  // by time; what is of one moment, as written
  };
  std::vector<Replay> replays;
  replays.reserve(nodes.size());
  std::vector<Seen> all;
  for (const ObservedNode& node : nodes) {
    replays.emplace_back(checker, static_cast<unsigned>(replays.size()), node.name);
    for (const auto& each : node.observations)
      all.push_back({&each, &replays.back(), {each.time_ns, all.size()}});
  }
  std::ranges::sort(all, {}, &Seen::place);
  for (const Seen& seen : all) seen.by->take(*seen.observation);
}

}  // namespace hyperframes::sim::detail
