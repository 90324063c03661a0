#include <fmt/format.h>

#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/parameter_shard.hpp>
#include <hyperframes/apps/ps/recovery.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>

namespace hyperframes::ps {

ParameterShard::ParameterShard(ShardOptions options, ViewFeed* feed, const Lease* lease)
    : options_(std::move(options)), feed_(feed), lease_(lease) {}

ParameterShard::~ParameterShard() {
  if (context_) context_->clocks.clear_waiting();
}

Task<void> ParameterShard::started() {
  const auto view = co_await feed_->newer_than(0);
  context_ = std::make_shared<ShardContext>(options_, view->placement.value());
  context_->cluster = view->cluster;
  context_->lease = lease_;
  const Time begin = shard().reactor().now();
  co_await recover_shard(*context_, view->tables);
  if (options_.begun) co_await options_.begun();
  const Duration took = shard().reactor().now() - begin;
  context_->counts.recovery_ms = std::chrono::duration<double, std::milli>(took).count();
  if (options_.observer) options_.observer->opened(*context_);
  start(context_->log->run());
  co_await adopt_view(view);
  start(follow_view(view->version));
  start(drop_unwanted_pulls());
  if (options_.snapshot_interval > Duration::zero()) start(write_snapshots());
}

Task<void> ParameterShard::stopping() {
  // Nobody was told that what is still queued is durable; writing it anyway loses less.
  if (context_ && context_->log) co_await context_->log->finish();
}

Task<void> ParameterShard::follow_view(std::uint64_t adopted) {
  while (true) {
    const auto view = co_await feed_->newer_than(adopted);
    co_await adopt_view(view);
    adopted = view->version;
  }
}

Task<void> ParameterShard::adopt_view(std::shared_ptr<const ClusterView> view) {
  ClockTable& clocks = context_->clocks;
  if (options_.observer) options_.observer->view_adopted(*context_, *view);
  clocks.set_bound(view->staleness_bound);
  std::map<std::uint32_t, std::vector<LiveWorker>> live;
  for (const WorkerEntry& worker : view->workers)
    live[worker.job].push_back({worker.worker, worker.joined_at_clock});
  std::vector<std::uint32_t> jobs;
  for (const auto& [job, workers] : live) {
    jobs.push_back(job);
    clocks.set_live(job, workers);
  }
  clocks.forget_other_jobs(jobs);
  for (const TableSpec& spec : view->tables) {
    if (!spawned_.insert(spec.id).second) continue;
    // The files know no other tables than those that were recovered. Reading them for a new one
    // would keep it, and the next views, behind a snapshot under way.
    if (!context_->recovered.contains(spec.id))
      context_->recovered.emplace(spec.id, empty_state(*context_, spec));
    SpawnOptions child;
    child.name = fmt::format("ps/shard/{}/{}", options_.shard, spec.name);
    child.restart = {.kind = Restart::permanent, .intensity = 5, .period = 30s};
    child.mailbox.bytes = 256u << 20;
    co_await spawn<TablePart>(std::move(child), context_, spec);
  }
}

Task<void> ParameterShard::write_snapshots() {
  while (true) {
    co_await sleep_for(options_.snapshot_interval);
    std::string failure;
    try {
      co_await write_snapshot();
    } catch (const Error& error) {
      if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) throw;
      failure = error.what();
    }
    // The log still holds everything: the next snapshot is a new chance.
    if (!failure.empty()) log::warning("no snapshot this time: " + failure);
  }
}

// One at a time. Those who ask while one is being written share the next: it holds what they saw.
Task<void> ParameterShard::write_snapshot() {
  struct Wanted {
    explicit Wanted(std::size_t& count) noexcept : count(count) { ++count; }
    ~Wanted() { --count; }
    std::size_t& count;
  };
  const Wanted wanted(snapshots_wanted_);
  const std::uint64_t begun_before = snapshots_begun_;
  const auto lock = co_await context_->snapshot_mutex.lock();
  if (last_written_ > begun_before) co_return;
  const std::uint64_t number = ++snapshots_begun_;
  co_await ps::write_snapshot(*context_, {spawned_.begin(), spawned_.end()});
  last_written_ = number;
  ++context_->counts.snapshots;
}

// Pulls whose askers gave up, or died, would wait on for the slowest worker.
Task<void> ParameterShard::drop_unwanted_pulls() {
  while (true) {
    co_await sleep_for(timing().heartbeat());
    context_->clocks.drop_unwanted();
  }
}

Task<void> ParameterShard::tick(protocol::WorkerClock clock) {
  context_->clocks.tick(clock.job(), clock.worker(), clock.clock());
  co_return;
}

Task<void> ParameterShard::checkpoint(protocol::Nothing, Reply<protocol::ShardStatus> reply) {
  if (snapshots_wanted_ > max_waiting_checkpoints)
    throw Error(
        Errc::overloaded, fmt::format("write a checkpoint of parameter shard {}", options_.shard),
        fmt::format("{} others wait already", snapshots_wanted_ - 1), "one is enough: wait for it");
  co_await write_snapshot();
  reply.send(describe());
}

Task<void> ParameterShard::status(protocol::Nothing, Reply<protocol::ShardStatus> reply) {
  reply.send(describe());
  co_return;
}

protocol::ShardStatus::Fields ParameterShard::describe() const {
  const auto& counts = context_->counts;
  const auto log = context_->log->stats();
  protocol::ShardStatus::Fields fields;
  fields.shard = options_.shard;
  for (const auto& [id, part] : context_->parts) {
    fields.rows += part->state().rows();
    fields.row_bytes += part->state().memory_bytes();
  }
  fields.pushes = counts.pushes;
  fields.duplicates = counts.duplicates;
  fields.pulls = counts.pulls;
  fields.pulls_waiting = context_->clocks.waiting();
  fields.log_bytes = log.written_bytes;
  fields.durable_lsn = log.durable_lsn;
  fields.applied_lsn = context_->log->next_lsn() - 1;
  fields.syncs = log.syncs;
  fields.snapshots = counts.snapshots;
  fields.recovery_ms = counts.recovery_ms;
  fields.replayed_records = counts.replayed_records;
  fields.acknowledged = counts.acknowledged;
  fields.staleness = context_->clocks.staleness();
  return fields;
}

}  // namespace hyperframes::ps
