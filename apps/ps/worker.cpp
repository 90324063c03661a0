#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/dataset/metrics.hpp>
#include <hyperframes/apps/ps/batch_source.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/dedup.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/apps/ps/running_score.hpp>
#include <hyperframes/apps/ps/signal_watch.hpp>
#include <hyperframes/apps/ps/worker.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace hyperframes::ps {
namespace {

constexpr Duration report_interval = 500ms;
constexpr Duration wait_pause = 200ms;
constexpr std::size_t score_window = 16'384;
constexpr std::uint64_t evaluation_batch = 8192;

using LeaseState = protocol::LeaseState;

std::string default_name() {
  char host[256] = "worker";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}-{}", host, ::getpid());
}

TableSpec table_for(const WorkerOptions& options, const ModelConfig& model) {
  TableSpec spec;
  spec.name = options.job + "/features";
  spec.width = static_cast<std::uint32_t>(model.width());
  spec.optimizer = model.optimizer == ModelConfig::Optimizer::adagrad ? OptimizerKind::adagrad
                                                                      : OptimizerKind::sgd;
  spec.learning_rate = model.learning_rate;
  spec.initial_accumulator = model.initial_accumulator;
  spec.initializer = model.latent ? InitializerKind::normal : InitializerKind::zero;
  spec.initializer_scale = model.latent ? model.initial_scale : 0;
  spec.initializer_from = 1;  // the weight starts at 0
  spec.seed = options.seed;
  return spec;
}

net::Network::Options network_options(const WorkerOptions& options) {
  net::Network::Options network;
  network.insecure = options.insecure;
  if (!options.key_file.empty()) network.key = net::Key::from_file(options.key_file);
  return network;
}

class Worker {
 public:
  Worker(WorkerOptions options, ModelConfig model, Node& node)
      : options_(std::move(options)),
        model_(std::move(model)),
        node_(node),
        client_(node_, {.coordinator = net::Endpoint::parse("tcp://" + options_.coordinator_addr)}),
        score_(score_window) {
    if (options_.epochs == 0) options_.epochs = model_.config().epochs;
  }

  Task<int> run() {
    Scope scope;
    int status = 1;
    scope.spawn(work(scope, status));
    scope.spawn(wait_for_stop(scope));
    std::exception_ptr failure;
    try {
      co_await scope.join();
    } catch (...) {
      failure = std::current_exception();
    }
    co_await shielded(close());
    if (failure && !finished_ && !stop_.is_set()) std::rethrow_exception(failure);
    co_return status;
  }

  void request_stop() noexcept { stop_.set(); }

 private:
  Task<void> wait_for_stop(Scope& scope) {
    co_await stop_.wait();
    log::info("leaving the job: what is acknowledged stays, the rest of the unit is leased again");
    scope.cancel(Errc::shutting_down);
  }

  Task<void> work(Scope& scope, int& status) {
    co_await client_.start();
    source_ = co_await offload([this] { return open_source(); });
    co_await client_.create_tables({table_for(options_, model_.config())});
    table_ = co_await client_.table(options_.job + "/features");
    if (options_.evaluate) {
      co_await evaluate();
    } else {
      if (!options_.ledger.empty()) ledger_ = co_await Ledger::open(options_.ledger);
      co_await train();
    }
    status = 0;
    finished_ = true;
    scope.cancel();
  }

  std::shared_ptr<const BatchSource> open_source() const {
    BatchSource::Options source;
    source.batch_size = options_.batch_size;
    source.unit_batches = options_.unit_batches;
    source.seed = options_.seed;
    return std::make_shared<const BatchSource>(options_.data_dir, model_.config(), source);
  }

  Task<void> close() {
    if (terms_) {
      // Best effort: a worker that can't say good-bye is evicted after a while.
      const auto terms = *terms_;
      try {
        co_await with_deadline(client_.leave_job({.job = terms.job(), .worker = terms.worker()}),
                               after(1s));
      } catch (const Error&) {
      }
    }
    if (ledger_) co_await ledger_->close();
    co_await client_.close();
    co_await node_.close(2s);
  }

  // ---- Training --------------------------------------------------------------------------------

  Task<void> join_job() {
    protocol::OpenJob::Fields job;
    job.name = options_.job;
    job.worker_name = options_.name;
    job.samples = source_->samples();
    job.dataset_hash = source_->fingerprint();
    job.batch_size = static_cast<std::uint32_t>(options_.batch_size);
    job.unit_batches = static_cast<std::uint32_t>(options_.unit_batches);
    job.epochs = options_.epochs;
    job.seed = options_.seed;
    job.restart = !options_.resume && !terms_;
    job.incarnation = node_.network().incarnation();
    terms_ = co_await client_.open_job(job);
    clock_ = terms_->first_clock();
    announce_clock();
  }

  void announce_clock() {
    client_.set_clock(PsClient::WorkerClock{terms_->job(), terms_->worker(), clock_});
  }

  Task<void> train() {
    co_await join_job();
    Scope reporting;
    reporting.spawn(report());
    auto lease = co_await lease_unit();
    while (lease.state() != LeaseState::done) {
      if (lease.state() == LeaseState::granted && co_await train_unit(lease)) {
        lease = co_await finish_unit(lease);
      } else if (lease.state() == LeaseState::wait) {
        co_await sleep_for(wait_pause);
        lease = co_await lease_unit();
      } else {
        log::warning("the coordinator gave this worker up; it joins anew");
        evicted_ = false;
        co_await join_job();
        lease = co_await lease_unit();
      }
    }
    reporting.cancel();
    try {
      co_await reporting.join();
    } catch (const Error& error) {
      if (!error.is(Errc::cancelled)) throw;
    }
    co_await client_.progress(progress());
  }

  Task<protocol::UnitLease> lease_unit() {
    auto lease = co_await client_.lease_unit({.job = terms_->job(), .worker = terms_->worker()});
    enter(lease);
    co_return lease;
  }

  Task<protocol::UnitLease> finish_unit(protocol::UnitLease done) {
    auto lease = co_await client_.finish_unit({.job = terms_->job(),
                                               .worker = terms_->worker(),
                                               .epoch = done.epoch(),
                                               .unit = done.unit()});
    enter(lease);
    co_return lease;
  }

  void enter(const protocol::UnitLease& lease) {
    if (lease.clock() <= clock_) return;
    clock_ = lease.clock();
    announce_clock();
  }

  // False if the coordinator gave us up meanwhile. One push is in flight while the next batch is
  // pulled and computed, unless the staleness bound forbids it: then the pull waits for the push.
  Task<bool> train_unit(protocol::UnitLease lease) {
    epoch_ = lease.epoch();
    unit_ = lease.unit();
    batch_ = lease.first_batch();
    const auto batches = static_cast<std::uint32_t>(source_->sampler().batches(unit_));
    Scope pushing;
    std::uint64_t step = clock_;
    for (std::uint32_t number = batch_; number < batches && !evicted_; ++number, ++step) {
      auto push = co_await learn(number, step);
      co_await pushing.join();
      pushing.spawn(deliver(std::move(push), step, forget_before(lease)));
    }
    co_await pushing.join();
    co_return !evicted_;
  }

  std::uint64_t forget_before(const protocol::UnitLease& lease) const {
    const std::uint64_t units = source_->sampler().units();
    const std::uint64_t number = lease.forget_before();
    return unit_order(static_cast<std::uint32_t>(number / units),
                      static_cast<std::uint32_t>(number % units));
  }

  Task<PreparedPush> learn(std::uint32_t number, std::uint64_t step) {
    const auto source = source_;
    const std::uint32_t epoch = epoch_, unit = unit_;
    const Batch batch = co_await offload([=] { return source->batch(epoch, unit, number); });
    const std::vector<float> rows = co_await client_.pull(table_, batch.ids, step);
    std::vector<float> gradients(rows.size()), predictions(batch.samples());
    const double loss = model_.gradients(batch, rows, gradients, predictions);
    score_.add(predictions, batch.labels, loss);
    samples_ += batch.samples();
    co_return co_await client_.prepare_push(table_, PushKey::leased(epoch, unit, number), batch.ids,
                                            std::move(gradients));
  }

  Task<void> deliver(PreparedPush push, std::uint64_t step, std::uint64_t forget) {
    std::vector<LedgerEntry> entries;
    if (ledger_) {
      entries = push.ledger_entries(terms_->job());
      co_await ledger_->add(entries);
    }
    co_await failpoint("worker-before-push");
    co_await client_.push(std::move(push), step, forget);
    co_await failpoint("worker-after-push");
    if (ledger_) {
      for (auto& entry : entries) entry = entry.acknowledged();
      co_await ledger_->add(std::move(entries));
      co_await ledger_->sync();
    }
    ++batch_;
    clock_ = std::max(clock_, step + 1);
    announce_clock();
  }

  // ---- Saying how it goes ----------------------------------------------------------------------

  protocol::WorkerProgress::Fields progress() const {
    protocol::WorkerProgress::Fields fields;
    fields.job = terms_->job();
    fields.worker = terms_->worker();
    fields.clock = clock_;
    fields.epoch = epoch_;
    fields.unit = unit_;
    fields.batch = batch_;
    fields.samples = samples_;
    fields.loss = score_.loss();
    fields.auc = score_.auc();
    fields.waiting = client_.waiting();
    return fields;
  }

  Task<void> report() {
    const bool terminal = ::isatty(STDERR_FILENO);
    Time next_word = after(5s);
    while (true) {
      co_await sleep_for(report_interval);
      const auto fields = progress();
      const auto orders = co_await client_.progress(fields);
      if (orders.evicted()) evicted_ = true;
      const bool due = terminal || Clock::now() >= next_word;
      if (!due) continue;
      next_word = after(5s);
      const std::string line = fmt::format(
          "epoch {} of {}  unit {}  samples {}  loss {:.4f}  auc {:.4f}  {}", epoch_ + 1,
          options_.epochs, unit_, samples_, fields.loss, fields.auc, fields.waiting);
      if (terminal) {
        fmt::print(stderr, "\r\033[K{}", line);
      } else {
        log::info(line);
      }
    }
  }

  // ---- Evaluation ------------------------------------------------------------------------------

  Task<void> evaluate() {
    std::vector<float> predictions;
    std::vector<std::uint8_t> labels;
    const auto source = source_;
    for (std::uint64_t first = 0; first < source->samples(); first += evaluation_batch) {
      const std::uint64_t count = std::min(evaluation_batch, source->samples() - first);
      const Batch batch = co_await offload([=] { return source->in_order(first, count); });
      const std::vector<float> rows = co_await client_.pull(table_, batch.ids);
      std::vector<float> part(batch.samples());
      model_.predict(batch, rows, part);
      predictions.insert(predictions.end(), part.begin(), part.end());
      for (const float label : batch.labels) labels.push_back(label > 0.5f);
    }
    const double auc = dataset::auc(predictions, labels);
    const double loss = dataset::logloss(predictions, labels);
    if (options_.json) {
      const nlohmann::json result{{"auc", auc}, {"logloss", loss}, {"samples", labels.size()}};
      fmt::print("{}\n", result.dump());
    } else {
      fmt::print("samples {}\nauc     {:.4f}\nlogloss {:.4f}\n", labels.size(), auc, loss);
    }
    std::fflush(stdout);
  }

  WorkerOptions options_;
  Model model_;
  Node& node_;
  PsClient client_;
  std::shared_ptr<const BatchSource> source_;
  TableSpec table_;
  std::unique_ptr<Ledger> ledger_;
  std::optional<protocol::JobTerms> terms_;
  RunningScore score_;
  std::uint64_t clock_ = 0, samples_ = 0;
  std::uint32_t epoch_ = 0, unit_ = 0, batch_ = 0;
  bool evicted_ = false, finished_ = false;
  Event stop_;
};

}  // namespace

int run_worker(WorkerOptions options) try {
  if (options.name.empty()) options.name = default_name();
  ModelConfig model = ModelConfig::load(options.model_config);
  SignalWatch signals;
  Runtime::Options runtime_options;
  runtime_options.shards = 1;
  Runtime runtime(runtime_options);
  Node node(runtime, {.name = options.name, .network = network_options(options)});
  // A worker belongs to its shard: made, used, asked to stop and destroyed there.
  std::unique_ptr<Worker> worker;
  signals.start([&] {
    runtime.run([&](Runtime&) -> Task<void> {
      if (worker) worker->request_stop();
      co_return;
    });
  });
  return runtime.run([&](Runtime&) -> Task<int> {
    worker = std::make_unique<Worker>(std::move(options), std::move(model), node);
    std::exception_ptr failure;
    int status = 1;
    try {
      status = co_await worker->run();
    } catch (...) {
      failure = std::current_exception();
    }
    worker.reset();
    if (failure) std::rethrow_exception(failure);
    co_return status;
  });
} catch (const std::exception& error) {
  log::error(error.what());
  return 1;
}

}  // namespace hyperframes::ps
