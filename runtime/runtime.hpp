// A set of core shards and the threads that run them.
//
//   hf::Runtime runtime({.shards = 2});
//   int answer = runtime.run([](hf::Runtime&) -> hf::Task<int> { co_return 42; });   // on shard 0
//   runtime.stop(5s);                                     // or let the destructor do it
//
// Nothing is global: several runtimes may live in one process. Stopping cancels every task,
// joins them, and names those that did not end by the deadline; nothing is resumed after that.
#pragma once

#include <functional>
#include <future>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hyperframes {

class Runtime {
 public:
  enum class Driver : std::uint8_t {
    automatic,  ///< io_uring.
    uring,
  };
  struct Options {
    unsigned shards = 0;  ///< 0: one for each core this process may use.
    Driver driver = Driver::automatic;
    Shard::Options shard = {};  ///< For every shard; `index` is filled in.
    bool pin_threads = false;   ///< Bind shard i to the i-th core this process may use.
    unsigned offload_threads = 2;
    Duration stop_deadline = 5s;    ///< Used by the destructor.
    Duration stall_threshold = 1s;  ///< A turn longer than this is logged with its line. 0: off.
  };
  struct StopReport {
    bool clean = true;
    std::vector<std::string>
        stragglers;  ///< What had not ended by the deadline, and where it waits.
  };

  /// Starts the threads. Throws if a driver can't start, naming the limit that stood in the way.
  explicit Runtime(Options options);
  Runtime() : Runtime(Options()) {}
  /// For drivers that bring their own loop: no threads; the caller runs each shard's turns.
  Runtime(Options options, std::vector<std::unique_ptr<Reactor>> reactors,
          std::unique_ptr<Offload> offload);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  unsigned shard_count() const noexcept { return static_cast<unsigned>(shards_.size()); }
  Shard& shard(unsigned index) noexcept { return *shards_[index]; }
  Offload& offload() noexcept { return *offload_; }

  /// Runs `function(*this)`, which returns a Task, on a shard, and blocks this (foreign) thread
  /// until it ends. Returns its value or throws its exception. `function` stays alive throughout.
  template <class Function>
  auto run(Function function, unsigned shard = 0);

  /// Cancels all tasks, joins them until `deadline` has passed, then destroys what is left.
  /// Idempotent. Not from a shard.
  StopReport stop(Duration deadline);
  /// Runs `function` on every shard, from a foreign thread, and waits.
  void on_every_shard(std::function<void(Shard&)> function);
  /// Where no thread runs the shards (a stopped runtime, a driver that brings its own loop): runs what
  /// is ready or has been posted, once, without the reactors. For whoever must wait for that.
  void run_left_over();
  /// Turns that outlasted the stall threshold so far.
  std::uint64_t stall_count() const noexcept { return stalls_.load(std::memory_order_relaxed); }
  /// All counters, summed over the shards. From a foreign thread.
  std::vector<MetricSample> collect_metrics();
  /// The chains of lines that every task of every shard waits on. From a foreign thread.
  std::string dump();

  // ---- The steps of `stop`, for a driver that runs the turns itself (no threads).
  void cancel_tasks() noexcept;
  /// Tasks of all shards that have not ended.
  std::size_t task_count() const noexcept;
  /// Destroys what is left, the newest first and shard 0 last: what a first task owns outlives its
  /// users.
  void destroy_tasks() noexcept;

 private:
  friend class Shard;
  class StallWatch;
  void connect_rings();
  void run_shard(Shard& shard);

  Options options_;
  std::unique_ptr<Offload> offload_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::thread> threads_;
  std::unique_ptr<StallWatch> stall_watch_;
  std::atomic<unsigned> running_{0};
  std::atomic<bool> started_{false};
  std::atomic<std::uint64_t> stalls_{0};
  bool failed_to_start_ = false;
  bool stopped_ = false;
};

template <class Function>
auto Runtime::run(Function function, unsigned shard) {
  using Value = typename std::invoke_result_t<Function&, Runtime&>::value_type;
  std::promise<Value> promise;
  auto future = promise.get_future();
  auto body = [](Runtime& runtime, Function& function, std::promise<Value>& promise) -> Task<void> {
    try {
      if constexpr (std::is_void_v<Value>) {
        co_await function(runtime);
        promise.set_value();
      } else {
        promise.set_value(co_await function(runtime));
      }
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  };
  detail::start_on(*shards_[shard], [&] { return body(*this, function, promise); });
  return future.get();
}

}  // namespace hyperframes
