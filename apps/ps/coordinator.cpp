#include <algorithm>
#include <filesystem>
#include <hyperframes/apps/ps/coordinator.hpp>
#include <hyperframes/apps/ps/detail/retry.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <optional>
#include <utility>

namespace hyperframes::ps {
namespace {

/// So long before a watcher's deadline it is answered with the view that it knows.
constexpr Duration watch_margin = 1s;
/// However patient a watcher says it is: it may be gone.
constexpr Duration longest_watch = 30s;

std::uint32_t milliseconds(Duration span) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(span).count());
}

CoordinatorStore::Options store_options(const CoordinatorOptions& options) {
  return {.path = options.path,
          .num_servers = options.num_servers,
          .num_shards = options.num_shards,
          .staleness_bound = options.staleness_bound,
          .server_lease = timing().lease(),
          .heartbeat_timeout = timing().scaled(options.heartbeat_timeout),
          .machine = options.machine};
}

std::shared_ptr<CoordinatorStore> open_store(const CoordinatorOptions& options, Time now) {
  const auto folder = std::filesystem::absolute(options.path).parent_path();
  if (const auto made = options.machine->make_directories(folder.string()); made < 0)
    throw Error::system(static_cast<int>(-made),
                        "make the coordinator's folder '" + folder.string() + "'", {},
                        "choose a --workdir that this user may write");
  return std::make_shared<CoordinatorStore>(store_options(options), now);
}

protocol::UnitLease::Fields encode_grant(const UnitGrant& grant) {
  const auto state = [&] {
    switch (grant.state) {
      case UnitGrant::State::granted: return protocol::LeaseState::granted;
      case UnitGrant::State::wait: return protocol::LeaseState::wait;
      case UnitGrant::State::done: return protocol::LeaseState::done;
      case UnitGrant::State::evicted: break;
    }
    return protocol::LeaseState::evicted;
  }();
  return {.state = state,
          .epoch = grant.unit.epoch,
          .unit = grant.unit.unit,
          .first_batch = grant.first_batch,
          .forget_before = grant.forget_before,
          .clock = grant.clock};
}

WorkerReport decode_report(const protocol::WorkerProgress& progress) {
  return {.worker = progress.worker(),
          .clock = progress.clock(),
          .unit = {progress.epoch(), progress.unit()},
          .batch = progress.batch(),
          .samples = progress.samples(),
          .loss = progress.loss(),
          .auc = progress.auc(),
          .waiting = std::string(progress.waiting())};
}

protocol::JobStatus::Fields encode_job(const JobState& job) {
  const auto& definition = job.definition;
  return {.job = job.job,
          .name = definition.name,
          .epochs = definition.epochs,
          .units = definition.units(),
          .units_done = job.units_done,
          .samples = definition.samples * definition.epochs,
          .samples_done = job.samples_done,
          .finished = job.units_done == definition.units()};
}

protocol::WorkerStatus::Fields encode_worker(const WorkerState& worker) {
  return {.worker = worker.report.worker,
          .job = worker.job,
          .name = worker.name,
          .clock = worker.report.clock,
          .samples = worker.report.samples,
          .loss = worker.report.loss,
          .auc = worker.report.auc,
          .waiting = worker.report.waiting,
          .state = worker.live ? protocol::NodeState::up : protocol::NodeState::silent};
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options) : options_(std::move(options)) {}
Coordinator::~Coordinator() = default;

Task<void> Coordinator::started() {
  const auto options = options_;
  const Time now = Clock::now();
  store_ = co_await offload([options, now] { return open_store(options, now); });
  co_await on_store([](CoordinatorStore&, Time) {});  // makes the first view
  start(pass_time());
  start(answer_watchers_in_time());
}

Task<void> Coordinator::stopping() {
  co_await on_store([](CoordinatorStore& store, Time now) { store.expire(now); });
}

template <class Function>
auto Coordinator::on_store(Function function)
    -> Task<std::invoke_result_t<Function&, CoordinatorStore&, Time>> {
  using Value = std::invoke_result_t<Function&, CoordinatorStore&, Time>;
  struct Outcome {
    std::optional<hyperframes::detail::ValueOf<Value>> value;
    std::exception_ptr failure;
    std::optional<ClusterView> view;  // if it is another one than before
  };
  const auto lock = co_await store_mutex_.lock();
  const std::uint64_t known = view_ ? view_.version() : 0;
  // The job keeps the store: it may still run when this actor is gone.
  auto job = [store = store_, function, known, now = Clock::now()]() mutable {
    Outcome outcome;
    try {
      if constexpr (std::is_void_v<Value>) {
        function(*store, now);
        outcome.value.emplace();
      } else {
        outcome.value.emplace(function(*store, now));
      }
    } catch (...) {
      outcome.failure = std::current_exception();
    }
    if (store->view_version() != known) outcome.view = store->view();
    return outcome;
  };
  Outcome outcome = co_await offload(std::move(job));
  if (outcome.view) publish(*outcome.view);
  if (outcome.failure) std::rethrow_exception(outcome.failure);
  if constexpr (!std::is_void_v<Value>) co_return std::move(*outcome.value);
}

// ---- The view -----------------------------------------------------------------------------------

void Coordinator::publish(const ClusterView& view) {
  view_ = protocol::ClusterView(view.encode());
  auto waiting = std::exchange(watchers_, {});
  for (auto& watcher : waiting) watcher.reply.send(view_);
}

Task<void> Coordinator::watch(protocol::WatchRequest request, Reply<protocol::ClusterView> reply) {
  if (view_.version() != request.known_version()) {
    // A version that is not ours yet is from a database that this one replaced: ours counts.
    reply.send(view_);
    co_return;
  }
  if (watchers_.size() >= options_.max_watchers) {
    watchers_.front().reply.send(view_);
    watchers_.pop_front();
  }
  const Time answer_at = std::min(reply.deadline() - watch_margin, after(longest_watch));
  watchers_.push_back({answer_at, std::move(reply)});
}

Task<void> Coordinator::answer_watchers_in_time() {
  while (true) {
    co_await sleep_for(watch_margin / 4);
    const Time now = Clock::now();
    for (auto watcher = watchers_.begin(); watcher != watchers_.end();) {
      if (watcher->answer_at > now) {
        ++watcher;
        continue;
      }
      watcher->reply.send(view_);
      watcher = watchers_.erase(watcher);
    }
  }
}

Task<void> Coordinator::pass_time() {
  detail::Every said(5s);
  while (true) {
    co_await sleep_for(timing().heartbeat());
    co_await failpoint("coordinator-heartbeat");
    try {
      co_await on_store([](CoordinatorStore& store, Time now) { store.expire(now); });
    } catch (const Error& error) {
      if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) throw;
      if (said.due())
        log::error(std::string("the coordinator could not write down who is there: ") +
                   error.what());
    }
  }
}

// ---- Servers ------------------------------------------------------------------------------------

protocol::ServerLease::Fields Coordinator::server_lease(bool granted) const {
  return {.granted = granted,
          .lease_ms = milliseconds(timing().lease()),
          .view_version = view_.version(),
          .num_shards = store_->num_shards(),
          .cluster = view_.cluster()};
}

Task<void> Coordinator::join_server(protocol::JoinServer request,
                                    Reply<protocol::ServerLease> reply) {
  const CoordinatorStore::JoinRequest join{.name = std::string(request.name()),
                                           .node_id = request.node_id(),
                                           .incarnation = request.incarnation(),
                                           .endpoint = std::string(request.endpoint()),
                                           .cluster = request.cluster(),
                                           .previous = request.previous(),
                                           .accept_loss = request.accept_loss()};
  struct Answer {
    bool granted = false;
    std::vector<ShardMark> marks;
  };
  const Answer answer = co_await on_store([join](CoordinatorStore& store, Time now) {
    const bool granted = store.join_server(join, now);
    return Answer{granted, store.marks_of(join.node_id)};
  });
  auto lease = server_lease(answer.granted);
  for (const ShardMark& mark : answer.marks)
    lease.marks.push_back(protocol::ShardMark::Fields{.shard = mark.shard, .record = mark.record});
  reply.send(lease);
}

Task<void> Coordinator::renew_lease(protocol::RenewLease request,
                                    Reply<protocol::ServerLease> reply) {
  const auto node = request.node_id();
  const auto incarnation = request.incarnation();
  const bool recovered = request.recovered();
  std::vector<ShardMark> marks;
  for (const auto& mark : request.marks()) marks.push_back({mark.shard(), mark.record()});
  const bool granted =
      co_await on_store([node, incarnation, recovered, marks](CoordinatorStore& store, Time now) {
        if (!store.renew_lease(node, incarnation, now)) return false;
        store.note_disk(node, recovered, marks);
        return true;
      });
  reply.send(server_lease(granted));
}

Task<void> Coordinator::create_tables(protocol::CreateTables request,
                                      Reply<protocol::ClusterView> reply) {
  std::vector<TableSpec> tables;
  if (request.tables() != nullptr)
    for (const auto* table : *request.tables()) tables.push_back(decode_table_spec(*table));
  co_await on_store([tables](CoordinatorStore& store, Time) { store.create_tables(tables); });
  reply.send(view_);
}

// ---- Workers ------------------------------------------------------------------------------------

Task<void> Coordinator::open_job(protocol::OpenJob request, Reply<protocol::JobTerms> reply) {
  const CoordinatorStore::OpenRequest open{.definition = {.name = std::string(request.name()),
                                                          .samples = request.samples(),
                                                          .dataset_hash = request.dataset_hash(),
                                                          .model_hash = request.model_hash(),
                                                          .batch_size = request.batch_size(),
                                                          .unit_batches = request.unit_batches(),
                                                          .epochs = request.epochs(),
                                                          .seed = request.seed()},
                                           .worker_name = std::string(request.worker_name()),
                                           .incarnation = request.incarnation(),
                                           .restart = request.restart()};
  const auto terms = co_await on_store(
      [open](CoordinatorStore& store, Time now) { return store.open_job(open, now); });
  reply.send({.job = terms.job,
              .worker = terms.worker,
              .first_clock = terms.first_clock,
              .staleness_bound = options_.staleness_bound,
              .heartbeat_timeout_ms = milliseconds(timing().scaled(options_.heartbeat_timeout)),
              .kept = terms.kept,
              .forgotten_samples = terms.forgotten_samples});
}

Task<void> Coordinator::lease_unit(protocol::LeaseUnit request, Reply<protocol::UnitLease> reply) {
  const auto worker = request.worker();
  const auto clock = request.clock();
  const auto grant = co_await on_store([worker, clock](CoordinatorStore& store, Time now) {
    store.note_clock(worker, clock);
    return store.lease_unit(worker, now);
  });
  reply.send(encode_grant(grant));
}

Task<void> Coordinator::finish_unit(protocol::FinishUnit request,
                                    Reply<protocol::UnitLease> reply) {
  const auto worker = request.worker();
  const UnitId unit{request.epoch(), request.unit()};
  const auto clock = request.clock();
  const auto grant = co_await on_store([worker, unit, clock](CoordinatorStore& store, Time now) {
    store.note_clock(worker, clock);
    return store.finish_unit(worker, unit, now);
  });
  reply.send(encode_grant(grant));
}

Task<void> Coordinator::progress(protocol::WorkerProgress request,
                                 Reply<protocol::WorkerOrders> reply) {
  const auto report = decode_report(request);
  const bool live = co_await on_store(
      [report](CoordinatorStore& store, Time now) { return store.report(report, now); });
  reply.send({.evicted = !live, .view_version = view_.version()});
}

Task<void> Coordinator::leave_job(protocol::LeaveJob request, Reply<protocol::Nothing> reply) {
  const auto worker = request.worker();
  co_await on_store([worker](CoordinatorStore& store, Time) { store.leave_job(worker); });
  reply.send({});
}

Task<void> Coordinator::status(protocol::Nothing, Reply<protocol::ClusterStatus> reply) {
  auto fields = co_await on_store([](CoordinatorStore& store, Time) {
    protocol::ClusterStatus::Fields status{};
    status.view = store.view().encode();
    for (const auto& job : store.jobs()) status.jobs.push_back(encode_job(job));
    for (const auto& worker : store.workers()) status.workers.push_back(encode_worker(worker));
    return status;
  });
  reply.send(fields);
}

}  // namespace hyperframes::ps
