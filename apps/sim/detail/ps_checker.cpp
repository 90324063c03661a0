#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <hyperframes/apps/ps/cluster_view.hpp>
#include <hyperframes/apps/ps/shard_context.hpp>
#include <hyperframes/apps/sim/detail/ps_checker.hpp>
#include <span>

namespace hyperframes::sim::detail {
namespace {

float read_counter(const ps::TableState& state, std::uint64_t counter) {
  std::vector<float> row(state.spec().width);
  state.pull(std::as_bytes(std::span(&counter, 1)), std::as_writable_bytes(std::span(row)));
  return row[0];
}

/// The id of its counter row, or 0.
std::uint64_t counter_of(const ps::PushBody& push) {
  for (std::uint32_t i = 0; i < push.count; ++i) {
    std::uint64_t id = 0;
    std::memcpy(&id, push.ids + i * sizeof id, sizeof id);
    if (ps::is_counter(id)) return id;
  }
  return 0;
}

std::string text_of(const ps::PushKey& key) {
  return fmt::format("epoch {}, unit {}, batch {}", key.epoch, key.unit, key.batch);
}

}  // namespace

void PsChecker::check_count(const std::string& who, const ps::ShardContext& context,
                            const ps::TableState& state, std::uint64_t counter,
                            const ps::PushKey& key, const char* when) {
  const float count = read_counter(state, counter);
  if (count == 1) return;
  violate_(fmt::format("{} of parameter shard {} by {}: the push of {} {} {} times", when,
                       context.options.shard, who, text_of(key),
                       count == 0 ? "was acknowledged, and counts" : "counts", count));
}

std::size_t PsChecker::opened_by(unsigned node, std::uint64_t boot) const {
  return static_cast<std::size_t>(std::ranges::count_if(owners_, [&](const auto& owner) {
    return owner.second.node == node && owner.second.boot == boot;
  }));
}

// Tokens only grow, and one belongs to one node.
void PsChecker::Process::opened(const ps::ShardContext& context) {
  ++checker_.recoveries_;
  const std::uint64_t token = context.options.token;
  Owner& owner = checker_.owners_[context.options.shard];
  if (token < owner.token)
    checker_.violate_(fmt::format("{} opens parameter shard {} under token {}, after token {}",
                                  name_, context.options.shard, token, owner.token));
  if (token == owner.token && (node_ != owner.node || boot_ < owner.boot))
    checker_.violate_(fmt::format("{} opens parameter shard {} under token {}, which is node {}'s",
                                  name_, context.options.shard, token, owner.node));
  owner = {token, boot_, node_};
}

void PsChecker::Process::recovered(const ps::ShardContext& context, const ps::TableState& state) {
  for (const auto& push : checker_.acknowledged_[{state.spec().id, context.options.shard}])
    checker_.check_count(name_, context, state, push.counter, push.key, "after the recovery");
}

void PsChecker::Process::pushed(const ps::ShardContext& context, const ps::TableState& state,
                                const ps::PushBody& push, bool fresh) {
  ++(fresh ? checker_.pushes_ : checker_.duplicates_);
  const Owner& owner = checker_.owners_[context.options.shard];
  if (owner.node != node_ || owner.boot != boot_ || owner.token != context.options.token)
    checker_.violate_(fmt::format("{} takes a push to parameter shard {}, which is node {}'s now",
                                  name_, context.options.shard, owner.node));
  if (const std::uint64_t counter = counter_of(push))
    checker_.check_count(name_, context, state, counter, push.key,
                         fresh ? "after a push" : "after a push that was sent again");
}

void PsChecker::Process::view_adopted(const ps::ShardContext& context,
                                      const ps::ClusterView& view) {
  auto& live = checker_.live_[context.options.shard];
  live.clear();
  for (const auto& each : view.workers)
    live.push_back({each.job, each.worker, each.joined_at_clock});
}

// Whoever is live by the shard's view has completed what it says itself, or what it joined at.
void PsChecker::Process::pull_answered(const ps::ShardContext& context, std::uint32_t job,
                                       std::uint64_t step) {
  ++checker_.pulls_;
  if (step <= checker_.bound_) return;
  for (const WorkerIn& worker : checker_.live_[context.options.shard]) {
    if (worker.job != job) continue;
    const std::uint64_t clock = std::max(worker.joined_at_clock, checker_.clocks_[worker.worker]);
    if (clock + checker_.bound_ >= step) continue;
    checker_.violate_(fmt::format(
        "{} answers a pull for step {} on parameter shard {} while worker {} has completed {} "
        "steps, and the staleness bound is {}",
        name_, step, context.options.shard, worker.worker, clock, checker_.bound_));
  }
}

void PsChecker::Process::acknowledged(ps::TableId table, ps::ShardId shard, const ps::PushKey& key,
                                      std::uint64_t counter) {
  ++checker_.acknowledgements_;
  if (counter != 0) checker_.acknowledged_[{table, shard}].push_back({counter, key});
}

void PsChecker::Process::clock_set(std::uint32_t, std::uint32_t worker, std::uint64_t clock) {
  auto& known = checker_.clocks_[worker];
  known = std::max(known, clock);
}

}  // namespace hyperframes::sim::detail
