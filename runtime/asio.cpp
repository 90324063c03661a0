#include <hyperframes/runtime/asio.hpp>

#include <algorithm>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <atomic>
#include <condition_variable>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/asio_reactor.hpp>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace hyperframes {
namespace {

/// The driver of a shard on somebody else's io_context. Its turns are handlers of a strand; the
/// gate's lock, which they hold, keeps them off while another thread does something on the shard.
class StrandReactor final : public detail::AsioReactor {
 public:
  StrandReactor(asio::io_context& context, AsioReactorOptions options)
      : AsioReactor(asio::make_strand(context.get_executor()), options) {}
  ~StrandReactor() override { shut(); }

  std::string_view name() const noexcept override { return "asio, embedded"; }
  void wait(Time) noexcept override {}  // nothing here has a thread that could

  void wake() noexcept override {
    if (queued_.exchange(true, std::memory_order_acq_rel)) return;
    asio::post(executor_, [gate = gate_] {
      std::scoped_lock lock(gate->mutex);
      if (gate->reactor) static_cast<StrandReactor*>(gate->reactor)->turn();
    });
  }

  std::unique_lock<std::recursive_mutex> hold_turns() override {
    return std::unique_lock(gate_->mutex);
  }
  std::unique_lock<std::recursive_mutex> try_hold_turns() {
    return std::unique_lock(gate_->mutex, std::try_to_lock);
  }

  void attach(Shard& shard) noexcept {
    const auto held = hold_turns();
    shard_ = &shard;
    wake();
  }
  /// No turn begins any more, and no handler of asio's does anything.
  void detach() noexcept {
    const auto held = hold_turns();
    shard_ = nullptr;
    gate_->reactor = nullptr;
  }

 private:
  void run_handlers() noexcept override {}  // the io_context does
  void on_activity() noexcept override { wake(); }

  // One turn, then others' handlers.
  void turn() noexcept {
    queued_.store(false, std::memory_order_release);
    if (!shard_) return;
    const bool more = shard_->turn();
    if (more || has_deliverable()) return wake();
    const Time until = shard_->rest();
    if (until == Time{}) return wake();
    arm(until);
  }

  Shard* shard_ = nullptr;
  std::atomic<bool> queued_{false};
};

/// Blocking calls as handlers of an executor of the embedder's.
class ExecutorOffload final : public Offload {
 public:
  explicit ExecutorOffload(asio::any_io_executor executor) : executor_(std::move(executor)) {}

  void execute(detail::OffloadJob* job) noexcept override {
    state_->pending.fetch_add(1);
    asio::post(executor_, Call(state_, job));
  }

  std::size_t pending() const noexcept { return state_->pending.load(); }

  // Those that have not begun may have to wait for this very thread.
  std::vector<std::string> end(Time until) override {
    std::unique_lock lock(state_->mutex);
    state_->ended = true;
    const auto none_runs = [this] { return state_->running.empty(); };
    if (until == no_deadline) {
      state_->changed.wait(lock, none_runs);
    } else {
      state_->changed.wait_for(lock, until - Clock::read_system(), none_runs);
    }
    std::vector<std::string> left;
    for (const detail::OffloadJob* job : state_->running) left.push_back(state_->names[job]);
    return left;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<std::size_t> pending{0};
    bool ended = false;
    std::vector<const detail::OffloadJob*> running;
    std::map<const detail::OffloadJob*, std::string> names;
  };

  /// Owns the job until it runs. One that never does is kept reachable: it frees itself by running.
  class Call {
   public:
    Call(std::shared_ptr<State> state, detail::OffloadJob* job) noexcept
        : state_(std::move(state)), job_(job) {}
    Call(Call&& other) noexcept
        : state_(std::move(other.state_)), job_(std::exchange(other.job_, nullptr)) {}
    ~Call() {
      if (job_) keep(job_);
    }
    void operator()() {
      detail::OffloadJob* const job = std::exchange(job_, nullptr);
      {
        std::scoped_lock lock(state_->mutex);
        if (state_->ended) return keep(job);
        state_->running.push_back(job);
        state_->names[job] = job->description();
      }
      job->run(job);
      std::scoped_lock lock(state_->mutex);
      std::erase(state_->running, job);
      state_->names.erase(job);
      state_->pending.fetch_sub(1);
      state_->changed.notify_all();
    }

   private:
    void keep(detail::OffloadJob* job) noexcept {
      static std::mutex mutex;
      static auto& kept = *new detail::WorkQueue;
      {
        std::scoped_lock lock(mutex);
        kept.push(job);
      }
      state_->pending.fetch_sub(1);
    }
    std::shared_ptr<State> state_;
    detail::OffloadJob* job_;
  };

  asio::any_io_executor executor_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

std::string version_text(unsigned version) {
  return std::to_string(version / 100000) + "." + std::to_string(version / 100 % 1000) + "." +
         std::to_string(version % 100);
}

}  // namespace

void detail::check_asio_build(const AsioBuild& program) {
  const AsioBuild library;
  const std::string tried = "embed Hyperframes into an asio program";
  if (program.version != library.version)
    throw Error(Errc::version_mismatch, tried,
                "it was compiled with asio " + version_text(program.version) +
                    ", the library with asio " + version_text(library.version),
                "compile both with one of them");
  if (program.threads != library.threads || program.io_uring != library.io_uring)
    throw Error(Errc::version_mismatch, tried,
                "it was compiled with other ASIO_ definitions than the library",
                "link hyperframes::asio, which brings them, and define no others");
}

/// Shared with the timer of a stop in progress.
struct AsioRuntime::Impl : std::enable_shared_from_this<AsioRuntime::Impl> {
  explicit Impl(asio::io_context& context) : timer(context), work(asio::make_work_guard(context)) {}

  using Holds = std::vector<std::unique_lock<std::recursive_mutex>>;
  void step();
  bool cancel_and_look();
  bool finish(bool late);
  void name_what_is_left(const Holds& holds);
  void tell_done();

  std::mutex mutex;
  asio::steady_timer timer;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::vector<StrandReactor*> reactors;
  ExecutorOffload* offload = nullptr;
  std::unique_ptr<Runtime> runtime;  ///< Null once destroyed.
  std::vector<bool> cancelled;
  std::vector<Done> waiting;
  bool stopping = false, stopped = false;
  Time limit = no_deadline;
  Runtime::StopReport report;
};

AsioRuntime::AsioRuntime(asio::io_context& context, Options options, detail::AsioBuild program)
    : executor_(context.get_executor()) {
  detail::check_asio_build(program);
  if (options.shards == 0)
    throw Error(Errc::invalid_argument, "make a runtime on an io_context", "it has no shards",
                "give it one, or as many as the io_context has threads");
  impl_ = std::make_shared<Impl>(context);
  std::vector<std::unique_ptr<Reactor>> drivers;
  for (unsigned i = 0; i < options.shards; ++i) {
    auto driver = std::make_unique<StrandReactor>(context, options.reactor);
    impl_->reactors.push_back(driver.get());
    drivers.push_back(std::move(driver));
  }
  const asio::any_io_executor blocking = options.offload ? options.offload : executor_;
  auto offload = std::make_unique<ExecutorOffload>(blocking);
  impl_->offload = offload.get();
  impl_->cancelled.resize(options.shards);
  impl_->runtime =
      std::make_unique<Runtime>(Runtime::Options{.shards = options.shards, .shard = options.shard},
                                std::move(drivers), std::move(offload));
  for (unsigned i = 0; i < options.shards; ++i)
    impl_->reactors[i]->attach(impl_->runtime->shard(i));
}

AsioRuntime::~AsioRuntime() {
  for (StrandReactor* reactor : impl_->reactors) reactor->detach();
  std::scoped_lock lock(impl_->mutex);
  impl_->timer.cancel();
  impl_->runtime.reset();
  if (!impl_->stopped) impl_->report.clean = false;
  impl_->tell_done();
}

Runtime& AsioRuntime::runtime() noexcept { return *impl_->runtime; }

void AsioRuntime::stop(Duration grace, Done done) {
  std::scoped_lock lock(impl_->mutex);
  impl_->waiting.push_back(std::move(done));
  if (impl_->stopped) return impl_->tell_done();
  if (std::exchange(impl_->stopping, true)) return;
  const Time now = Clock::read_system();
  impl_->limit = grace < no_deadline - now ? now + grace : no_deadline;
  asio::post(executor_, [impl = impl_] { impl->step(); });
}

// Looks again every millisecond. On a thread of the io_context, so nothing here may wait: a shard
// that is in its turn is looked at the next time.
void AsioRuntime::Impl::step() {
  std::scoped_lock lock(mutex);
  if (!runtime || stopped) return;
  const bool late = Clock::read_system() >= limit;
  if ((cancel_and_look() || late) && finish(late)) return;
  timer.expires_after(std::chrono::milliseconds(1));
  timer.async_wait([self = shared_from_this()](const asio::error_code&) { self->step(); });
}

// Whether all tasks have ended, and the calls that they may have left.
bool AsioRuntime::Impl::cancel_and_look() {
  bool all = offload->pending() == 0;
  for (unsigned i = 0; i < reactors.size(); ++i) {
    const auto held = reactors[i]->try_hold_turns();
    if (held && !cancelled[i]) {
      runtime->cancel_tasks(i);
      cancelled[i] = true;
      reactors[i]->wake();
    }
    all = all && held && runtime->task_count(i) == 0;
  }
  return all;
}

// False if it is to be tried again: a shard whose tasks had all ended may have begun another turn.
bool AsioRuntime::Impl::finish(bool late) {
  Holds holds;
  for (StrandReactor* reactor : reactors) holds.push_back(reactor->try_hold_turns());
  const bool all = std::ranges::all_of(holds, [](const auto& held) { return held.owns_lock(); });
  if (!all && !late) return false;
  stopped = true;
  name_what_is_left(holds);
  if (all) {
    // The newest first and shard 0 last: what a first task owns outlives its users.
    runtime->destroy_tasks();
    for (StrandReactor* reactor : reactors) reactor->detach();
    holds.clear();
    runtime->end_shards();
  }
  report.clean = report.stragglers.empty();
  tell_done();
  return true;
}

void AsioRuntime::Impl::name_what_is_left(const Holds& holds) {
  for (unsigned i = 0; i < reactors.size(); ++i) {
    if (!holds[i]) {
      report.stragglers.push_back("shard " + std::to_string(i) + " is stuck in one turn");
      log::warning("can't be stopped: " + report.stragglers.back());
      continue;
    }
    for (std::string& line : runtime->describe_tasks(i)) {
      log::warning("had not ended by the stop deadline and is destroyed: " + line);
      report.stragglers.push_back(std::move(line));
    }
  }
}

void AsioRuntime::Impl::tell_done() {
  work.reset();
  for (const Done& done : std::exchange(waiting, {})) done(report);
}

}  // namespace hyperframes
