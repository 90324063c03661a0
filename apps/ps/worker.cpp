#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/batch_source.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/cores.hpp>
#include <hyperframes/apps/ps/dedup.hpp>
#include <hyperframes/apps/ps/evaluation.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/apps/ps/observation_log.hpp>
#include <hyperframes/apps/ps/running_score.hpp>
#include <hyperframes/apps/ps/signal_watch.hpp>
#include <hyperframes/apps/ps/worker_process.hpp>
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
constexpr Duration log_interval = 5s;
constexpr Duration wait_pause = 200ms;
constexpr Duration leave_grace = 3s;  // for the push in flight, then again for the good-bye
constexpr Duration short_leave_grace = 500ms;
constexpr std::size_t score_window = 16'384;

using LeaseState = protocol::LeaseState;

std::string default_name() {
  char host[256] = "worker";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}-{}", host, ::getpid());
}

TableSpec table_for(const std::string& name, const WorkerOptions& options,
                    const ModelConfig& model) {
  TableSpec spec;
  spec.name = name;
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

class Worker {
 public:
  Worker(WorkerOptions options, ModelConfig model, Node& node, WorkerProcess::Hooks hooks)
      : options_(std::move(options)),
        hooks_(std::move(hooks)),
        model_(std::make_shared<const Model>(std::move(model))),
        node_(node),
        client_(node_, {.coordinator = options_.transport.endpoint(options_.coordinator_addr),
                        .observer = hooks_.observer}),
        score_(score_window),
        terminal_(::isatty(STDERR_FILENO) == 1) {
    if (options_.epochs == 0) options_.epochs = model_->config().epochs;
  }

  /// True if it was asked to stop before all was done.
  Task<bool> run() {
    Scope scope;
    scope.spawn(work(scope));
    scope.spawn(wait_for_stop(scope));
    std::exception_ptr failure;
    try {
      co_await scope.join();
    } catch (...) {
      failure = std::current_exception();
    }
    co_await shielded(close());
    if (failure && !ended_ && !stop_.is_set()) std::rethrow_exception(failure);
    co_return stop_.is_set() && !done_;
  }

  void request_stop() noexcept { stop_.set(); }

 private:
  // An orderly end: no new batch is begun, and the push in flight may still be acknowledged.
  Task<void> wait_for_stop(Scope& scope) {
    co_await stop_.wait();
    end_line();
    log::info(terms_ ? "leaving: what is acknowledged stays, the rest of the unit is leased again"
                     : "leaving before it has joined the job");
    // Who is away already is not waited for as long as who may just be slow.
    hurry_ = !terms_ || !client_.waiting().empty();
    co_await sleep_for(grace());
    scope.cancel(Errc::shutting_down);
  }

  Duration grace() const noexcept { return hurry_ ? short_leave_grace : leave_grace; }

  Task<void> work(Scope& scope) {
    // What may be wrong with the caller's files is said before anything is waited for.
    source_ = hooks_.source;
    if (!source_) source_ = co_await offload([this] { return open_source(); });
    if (!options_.ledger.empty()) ledger_ = co_await Ledger::open(options_.ledger, *hooks_.machine);
    co_await client_.start();
    if (options_.evaluate) {
      co_await score();
    } else {
      co_await train(scope);
    }
    ended_ = true;
    scope.cancel();
  }

  std::shared_ptr<const BatchSource> open_source() const {
    BatchSource::Options source;
    source.batch_size = options_.batch_size;
    source.unit_batches = options_.unit_batches;
    source.seed = options_.seed;
    return std::make_shared<const BatchSource>(options_.data_dir, model_->config(), source);
  }

  Task<void> close() {
    end_line();
    if (terms_) {
      try {
        co_await with_deadline(say_good_bye(), after(grace()));
      } catch (const Error& error) {
        log::warning(fmt::format("could not leave job '{}' ({}); the coordinator will notice",
                                 options_.job, error.what()));
      }
    }
    if (ledger_) co_await ledger_->close();
    co_await client_.close();
    co_await node_.close(2s);
    if (terms_ && (done_ || stop_.is_set())) say_result();
  }

  Task<void> say_good_bye() {
    co_await client_.progress(progress());
    co_await client_.leave_job({.job = terms_->job(), .worker = terms_->worker()});
  }

  // ---- Taking part -----------------------------------------------------------------------------

  Task<void> join_job() {
    protocol::OpenJob::Fields job;
    job.name = options_.job;
    job.worker_name = options_.name;
    job.samples = source_->samples();
    job.dataset_hash = source_->fingerprint();
    job.model_hash = model_->config().fingerprint();
    job.batch_size = static_cast<std::uint32_t>(options_.batch_size);
    job.unit_batches = static_cast<std::uint32_t>(options_.unit_batches);
    job.epochs = options_.epochs;
    job.seed = options_.seed;
    job.restart = !options_.resume && !terms_;
    job.incarnation = node_.network().incarnation();
    terms_ = co_await client_.open_job(job);
    clock_ = terms_->first_clock();
    evicted_ = false;
    say_how_it_begins();
    announce_clock();
    const auto name = feature_table_name(options_.job, terms_->job());
    co_await client_.create_tables({table_for(name, options_, model_->config())});
    table_ = co_await client_.table(name);
  }

  void say_how_it_begins() const {
    if (terms_->kept())
      log::warning(fmt::format(
          "--checkpoint_resume none has no effect: others are at work on job '{}', and this worker "
          "joined them; stop them all to begin it anew, or give another --job",
          options_.job));
    if (const auto samples = terms_->forgotten_samples(); samples != 0)
      log::info(
          fmt::format("job '{}' begins anew: {} samples that were learnt under its name are "
                      "forgotten",
                      options_.job, samples));
  }

  void announce_clock() {
    client_.set_clock(PsClient::WorkerClock{terms_->job(), terms_->worker(), clock_});
  }

  // Reports go on beside it until the worker ends. One that can't go on ends the worker: unheard,
  // it would be given up again and again.
  Task<void> train(Scope& scope) {
    if (ledger_) co_await ledger_->begin(client_.view()->cluster);
    co_await join_job();
    scope.spawn(report());
    auto lease = co_await lease_unit();
    came_late_ = lease.state() == LeaseState::done;
    while (lease.state() != LeaseState::done && !stop_.is_set()) {
      if (lease.state() == LeaseState::wait) {
        co_await sleep_for(wait_pause);
        lease = co_await lease_unit();
      } else if (lease.state() == LeaseState::granted && co_await train_unit(lease)) {
        lease = co_await finish_unit(lease);
      } else if (!stop_.is_set()) {
        log::warning("the coordinator gave this worker up; it joins anew");
        co_await join_job();
        lease = co_await lease_unit();
      }
    }
    done_ = lease.state() == LeaseState::done;
  }

  Task<protocol::UnitLease> lease_unit() {
    auto lease = co_await client_.lease_unit(
        {.job = terms_->job(), .worker = terms_->worker(), .clock = clock_});
    enter(lease);
    co_return lease;
  }

  Task<protocol::UnitLease> finish_unit(protocol::UnitLease done) {
    auto lease = co_await client_.finish_unit({.job = terms_->job(),
                                               .worker = terms_->worker(),
                                               .epoch = done.epoch(),
                                               .unit = done.unit(),
                                               .clock = clock_});
    enter(lease);
    co_return lease;
  }

  void enter(const protocol::UnitLease& lease) {
    if (lease.clock() <= clock_) return;
    clock_ = lease.clock();
    announce_clock();
  }

  // ---- Learning --------------------------------------------------------------------------------

  // True once all its batches are acknowledged; false if the worker was given up or is to stop. One
  // push is in flight while the next batch is pulled and computed and the one after it is read,
  // unless the staleness bound forbids it: then the pull waits for the push.
  Task<bool> train_unit(protocol::UnitLease lease) {
    epoch_ = lease.epoch();
    unit_ = lease.unit();
    batch_ = lease.first_batch();
    const auto batches = static_cast<std::uint32_t>(source_->sampler().batches(unit_));
    const std::uint64_t forget = forget_before(lease);
    std::shared_ptr<const Batch> ahead;
    Scope reading, pushing;
    std::uint64_t step = clock_;
    if (batch_ < batches) reading.spawn(read(batch_, ahead));
    for (std::uint32_t number = batch_; number < batches && going_on(); ++number, ++step) {
      co_await reading.join();
      const auto batch = std::move(ahead);
      if (number + 1 < batches) reading.spawn(read(number + 1, ahead));
      auto push = co_await learn(batch, number, step);
      co_await pushing.join();
      if (going_on()) pushing.spawn(deliver(std::move(push), step, forget));
    }
    co_await pushing.join();
    co_await reading.join();
    co_return batch_ == batches && !evicted_;
  }

  bool going_on() const noexcept { return !evicted_ && !stop_.is_set(); }

  std::uint64_t forget_before(const protocol::UnitLease& lease) const {
    const std::uint64_t units = source_->sampler().units();
    const std::uint64_t number = lease.forget_before();
    return unit_order(static_cast<std::uint32_t>(number / units),
                      static_cast<std::uint32_t>(number % units));
  }

  Task<void> read(std::uint32_t number, std::shared_ptr<const Batch>& into) {
    const auto source = source_;
    const std::uint32_t epoch = epoch_, unit = unit_;
    into = co_await offload([source, epoch, unit, number] {
      return std::make_shared<const Batch>(source->batch(epoch, unit, number));
    });
  }

  struct Learnt {
    std::vector<float> gradients, predictions;
    double loss = 0;
  };

  Task<PreparedPush> learn(std::shared_ptr<const Batch> batch, std::uint32_t number,
                           std::uint64_t step) {
    const auto model = model_;
    auto ids = batch->ids;
    const auto rows =
        std::make_shared<const std::vector<float>>(co_await client_.pull(table_, ids, step));
    if (hooks_.think > Duration::zero()) co_await sleep_for(hooks_.think);
    largest_batch_bytes_ = std::max<std::uint64_t>(
        largest_batch_bytes_, ids.size() * sizeof(std::uint64_t) + rows->size() * sizeof(float));
    Learnt learnt = co_await offload([model, batch, rows] {
      Learnt result;
      result.gradients.resize(rows->size());
      result.predictions.resize(batch->samples());
      result.loss = model->gradients(*batch, *rows, result.gradients, result.predictions);
      return result;
    });
    score_.add(learnt.predictions, batch->labels, learnt.loss);
    samples_ += batch->samples();
    co_return co_await client_.prepare_push(table_, PushKey::leased(epoch_, unit_, number),
                                            std::move(ids), std::move(learnt.gradients),
                                            /*counted=*/ledger_ != nullptr);
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
    ++pushed_;
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
    Time said = Clock::now();
    std::uint64_t samples_then = samples_;
    while (true) {
      co_await sleep_for(report_interval);
      const auto fields = progress();
      if (const Duration span = Clock::now() - said; terminal_ || span >= log_interval) {
        say(fields, static_cast<double>(samples_ - samples_then) /
                        std::chrono::duration<double>(span).count());
        said = Clock::now();
        samples_then = samples_;
      }
      const auto orders = co_await client_.progress(fields);
      if (orders.evicted() && fields.worker == terms_->worker()) evicted_ = true;
    }
  }

  void say(const protocol::WorkerProgress::Fields& fields, double samples_per_s) {
    const auto line =
        fmt::format("{}  epoch {} of {}  {:.0f} samples/s  loss {:.4f}  auc {:.4f}{}{}",
                    options_.job, epoch_ + 1, options_.epochs, samples_per_s, fields.loss,
                    fields.auc, fields.waiting.empty() ? "" : "  waits: ", fields.waiting);
    if (!terminal_) return log::info(line);
    fmt::print(stderr, "\r\033[K{}", line);
    line_open_ = true;
  }

  void end_line() {
    if (std::exchange(line_open_, false)) fmt::print(stderr, "\n");
  }

  std::string epochs() const {
    return fmt::format("{} epoch{}", options_.epochs, options_.epochs == 1 ? "" : "s");
  }

  /// The last line: what became of the job, and what to do with it.
  void say_result() const {
    std::string text;
    if (came_late_) {
      text = fmt::format(
          "job '{}' was done before this worker came: {}; nothing was left to train\n"
          "train it anew: --checkpoint_resume none; or give another --job\n",
          options_.job, epochs());
    } else {
      const auto state =
          done_ ? "is done: " + epochs()
                : fmt::format("is left in epoch {} of {}", epoch_ + 1, options_.epochs);
      text = fmt::format("job '{}' {}; this worker pushed {} batches ({} samples){}\n",
                         options_.job, state, pushed_, samples_,
                         pushed_ == 0 ? ""
                                      : fmt::format(", its last loss {:.4f}, AUC {:.4f}",
                                                    score_.loss(), score_.auc()));
    }
    if (const auto advice = pool_advice(options_.transport, largest_batch_bytes_); !advice.empty())
      text += advice + "\n";
    if (done_)
      text += fmt::format(
          "score it: hyperframes_worker --evaluate --coordinator_addr {} --data_dir "
          "TEST_DATA --model_config {}{}\n",
          options_.coordinator_addr, options_.model_config,
          options_.job == WorkerOptions().job ? "" : " --job " + options_.job);
    hooks_.machine->say(text);
  }

  // ---- Scoring ---------------------------------------------------------------------------------

  Task<void> score() {
    auto table = co_await find_feature_table(client_, options_.job);
    auto result = std::make_shared<const Evaluation>(
        co_await evaluate(client_, std::move(table), model_, source_));
    if (!options_.predictions.empty()) {
      const auto path = options_.predictions;
      co_await offload([result, path] { write_predictions(*result, path); });
    }
    if (options_.json) {
      const nlohmann::json object{
          {"auc", result->auc}, {"logloss", result->logloss}, {"samples", result->labels.size()}};
      hooks_.machine->say(object.dump() + "\n");
    } else {
      hooks_.machine->say(fmt::format("samples {}\nauc     {:.4f}\nlogloss {:.4f}\n",
                                      result->labels.size(), result->auc, result->logloss));
    }
    done_ = true;
  }

  WorkerOptions options_;
  WorkerProcess::Hooks hooks_;
  std::shared_ptr<const Model> model_;
  Node& node_;
  PsClient client_;
  std::shared_ptr<const BatchSource> source_;
  TableSpec table_;
  std::unique_ptr<Ledger> ledger_;
  std::optional<protocol::JobTerms> terms_;
  RunningScore score_;
  std::uint64_t clock_ = 0, samples_ = 0, pushed_ = 0, largest_batch_bytes_ = 0;
  std::uint32_t epoch_ = 0, unit_ = 0, batch_ = 0;  // batches of the unit below batch_ are done
  bool evicted_ = false, ended_ = false, done_ = false;
  bool came_late_ = false;  // the job was done when it joined
  bool hurry_ = false;      // on leaving
  bool terminal_, line_open_ = false;
  Event stop_;
};

}  // namespace

struct WorkerProcess::State final : Worker {
  using Worker::Worker;
};

WorkerProcess::WorkerProcess(WorkerOptions options, ModelConfig model, Node& node, Hooks hooks)
    : state_(
          std::make_unique<State>(std::move(options), std::move(model), node, std::move(hooks))) {}
WorkerProcess::~WorkerProcess() = default;
Task<bool> WorkerProcess::run() { return state_->run(); }
void WorkerProcess::request_stop() noexcept { state_->request_stop(); }

namespace {

int exit_status(bool stopped, int signal) { return stopped && signal == SIGINT ? 128 + SIGINT : 0; }

}  // namespace

int run_worker(WorkerOptions options) try {
  if (options.name.empty()) options.name = default_name();
  ModelConfig model = ModelConfig::load(options.model_config);
  const auto observations = ObservationLog::from_environment();
  SignalWatch signals;
  Runtime::Options runtime_options;
  runtime_options.shards = 1;
  runtime_options.pin_threads = bind_to_cores(options.cores, runtime_options.shards);
  Runtime runtime(runtime_options);
  net::Network::Options network = options.security.network();
  options.transport.apply(network);
  Node node(
      runtime,
      {.name = options.name, .network = std::move(network), .http_address = options.http_addr});
  if (const auto page = node.http_address(); !page.empty())
    log::info("shows what it does at http://" + page);
  // A worker belongs to its shard: made, used, asked to stop and destroyed there.
  std::unique_ptr<WorkerProcess> worker;
  const SignalWatch::Ending ending(signals);
  signals.start(
      [&] {
        runtime.run([&](Runtime&) -> Task<void> {
          if (worker) worker->request_stop();
          co_return;
        });
      },
      [&node] { log::info(node.inspect_from_outside().to_string()); });
  const bool stopped = runtime.run([&](Runtime&) -> Task<bool> {
    worker = std::make_unique<WorkerProcess>(std::move(options), std::move(model), node,
                                             WorkerProcess::Hooks{.observer = observations.get()});
    std::exception_ptr failure;
    bool result = false;
    try {
      result = co_await worker->run();
    } catch (...) {
      failure = std::current_exception();
    }
    worker.reset();
    if (failure) std::rethrow_exception(failure);
    co_return result;
  });
  return exit_status(stopped, signals.received());
} catch (const std::exception& error) {
  log::error(error.what());
  return 1;
}

}  // namespace hyperframes::ps
