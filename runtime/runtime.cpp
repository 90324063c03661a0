#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/uring.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <latch>
#include <mutex>

namespace hyperframes {
namespace {

std::vector<unsigned> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> cores;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (unsigned core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

void pin_this_thread(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

/// Work that calls a function once and frees itself.
struct Call : detail::Work {
  explicit Call(std::function<void()> function)
      : Work(&Call::arrive), function(std::move(function)) {}
  static void arrive(Work* work) noexcept {
    std::unique_ptr<Call> self(static_cast<Call*>(work));
    self->function();
  }
  std::function<void()> function;
};

}  // namespace

/// Looks a few times in each threshold whether some shard is still in the turn it was in before.
class Runtime::StallWatch {
 public:
  StallWatch(Runtime& runtime, Duration threshold)
      : runtime_(runtime), threshold_(threshold), thread_([this] { watch(); }) {}
  ~StallWatch() {
    {
      std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void watch() {
    std::vector<std::int64_t> reported(runtime_.shard_count(), 0);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, threshold_ / 2, [this] { return stopping_; })) {
      const Time now = Clock::read_system();
      for (unsigned i = 0; i < runtime_.shard_count(); ++i) {
        const auto started = runtime_.shard(i).turn_started_.load(std::memory_order_relaxed);
        const auto span = now.time_since_epoch().count() - started;
        if (!started || span < threshold_.count() || reported[i] == started) continue;
        reported[i] = started;
        log::warning("shard " + std::to_string(i) + " has been in one turn for " +
                     std::to_string(span / 1'000'000) +
                     " ms: a task blocks or computes without a co_await; move it to hf::offload "
                     "or add co_await hf::yield()");
        runtime_.stalls_.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }

  Runtime& runtime_;
  Duration threshold_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

Runtime::Runtime(Options options) : options_(options) {
  const auto cores = usable_cores();
  if (options_.shards == 0) options_.shards = static_cast<unsigned>(cores.size());
  offload_ = make_thread_offload(options_.offload_threads);
  shards_.resize(options_.shards);
  std::latch ready(options_.shards), go(1);
  std::vector<std::exception_ptr> failures(options_.shards);
  // Each driver is made on the thread that will use it: io_uring binds a ring to its submitter.
  for (unsigned i = 0; i < options_.shards; ++i) {
    threads_.emplace_back([&, i, core = cores[i % cores.size()]] {
      ::pthread_setname_np(::pthread_self(), ("hf-shard-" + std::to_string(i)).c_str());
      if (options_.pin_threads) pin_this_thread(core);
      try {
        Shard::Options shard = options_.shard;
        shard.index = i;
        shards_[i] = std::make_unique<Shard>(*this, shard, make_uring_reactor());
      } catch (...) {
        failures[i] = std::current_exception();
      }
      Shard* const shard = shards_[i].get();
      ready.count_down();
      go.wait();
      if (shard && !failed_to_start_) run_shard(*shard);
    });
  }
  ready.wait();
  for (auto& failure : failures) failed_to_start_ |= failure != nullptr;
  if (!failed_to_start_) connect_rings();
  go.count_down();
  if (failed_to_start_) {
    for (auto& thread : threads_) thread.join();
    shards_.clear();
    for (auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
  }
  started_.wait(false);
  if (options_.stall_threshold > Duration::zero())
    stall_watch_ = std::make_unique<StallWatch>(*this, options_.stall_threshold);
}

Runtime::Runtime(Options options, std::vector<std::unique_ptr<Reactor>> reactors,
                 std::unique_ptr<Offload> offload)
    : options_(options), offload_(std::move(offload)) {
  for (auto& reactor : reactors) {
    Shard::Options shard = options_.shard;
    shard.index = shard_count();
    shards_.push_back(std::make_unique<Shard>(*this, shard, std::move(reactor)));
  }
  connect_rings();
}

void Runtime::connect_rings() {
  const std::size_t count = shards_.size();
  for (std::size_t to = 0; to < count; ++to) {
    shards_[to]->overflow_.resize(count);
    shards_[to]->incoming_.resize(count);
    for (std::size_t from = 0; from < count; ++from)
      if (from != to)
        shards_[to]->incoming_[from] =
            std::make_unique<detail::WorkRing>(options_.shard.ring_capacity);
  }
}

void Runtime::run_shard(Shard& shard) {
  if (running_.fetch_add(1) + 1 == options_.shards) {
    started_.store(true);
    started_.notify_all();
  }
  shard.run();
}

Runtime::~Runtime() {
  stop(options_.stop_deadline);
  // All loops have ended. Offloaded calls come back first, then the drivers let go of memory, then
  // what one shard still holds of another's goes home.
  offload_.reset();
  for (auto& shard : shards_) shard->drain();
  for (auto& shard : shards_) shard->settle();
  for (auto& shard : shards_) shard->settle();
  shards_.clear();
}

Runtime::StopReport Runtime::stop(Duration deadline) {
  StopReport report;
  if (std::exchange(stopped_, true)) return report;
  stall_watch_.reset();
  if (threads_.empty()) return report;
  on_every_shard([](Shard& shard) { shard.cancel_roots(); });
  const Time limit = Clock::read_system() + deadline;
  while (true) {
    std::atomic<std::size_t> left{0};
    on_every_shard([&](Shard& shard) { left += shard.roots_.size(); });
    if (left == 0) break;
    if (Clock::read_system() >= limit) {
      report.clean = false;
      std::mutex mutex;
      on_every_shard([&](Shard& shard) {
        std::scoped_lock lock(mutex);
        for (auto& line : shard.describe_roots()) report.stragglers.push_back(std::move(line));
      });
      for (const auto& straggler : report.stragglers)
        log::warning("had not ended by the stop deadline and was destroyed: " + straggler);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  on_every_shard([](Shard& shard) { shard.destroy_roots(); });
  for (auto& shard : shards_) shard->request_stop();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  return report;
}

void Runtime::on_every_shard(std::function<void(Shard&)> function) {
  if (threads_.empty()) {
    for (auto& shard : shards_) {
      CurrentShard here(*shard);
      function(*shard);
    }
    return;
  }
  std::latch done(static_cast<std::ptrdiff_t>(shards_.size()));
  for (auto& shard : shards_) {
    shard->post(new Call([&, target = shard.get()] {
                  function(*target);
                  done.count_down();
                }),
                Group::system);
  }
  done.wait();
}

void Runtime::cancel_tasks() noexcept {
  for (auto& shard : shards_) {
    CurrentShard here(*shard);
    shard->cancel_roots();
  }
}

std::size_t Runtime::task_count() const noexcept {
  std::size_t count = 0;
  for (const auto& shard : shards_) count += shard->roots_.size();
  return count;
}

void Runtime::destroy_tasks() noexcept {
  for (auto shard = shards_.rbegin(); shard != shards_.rend(); ++shard) {
    CurrentShard here(**shard);
    (*shard)->destroy_roots();
  }
}

void Runtime::run_left_over() {
  if (!threads_.empty()) return;
  for (auto& shard : shards_) shard->run_left_over();
}

std::vector<MetricSample> Runtime::collect_metrics() {
  std::vector<MetricSample> total;
  std::mutex mutex;
  on_every_shard([&](Shard& shard) {
    shard.publish_load();
    std::scoped_lock lock(mutex);
    for (auto& sample : shard.metrics().samples()) {
      auto same = std::ranges::find(total, sample.name, &MetricSample::name);
      if (same == total.end()) {
        total.push_back(std::move(sample));
      } else {
        same->value += sample.value;
      }
    }
  });
  return total;
}

std::string Runtime::dump() {
  std::vector<std::string> texts(shards_.size());
  on_every_shard([&](Shard& shard) { texts[shard.index()] = shard.dump(); });
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i)
    all += "shard " + std::to_string(i) + "\n" + texts[i];
  return all;
}

}  // namespace hyperframes
