// A set of core shards and the threads that run them.
//
//   hf::Runtime runtime({.shards = 2});
//   int answer = runtime.run([](hf::Runtime&) -> hf::Task<int> { co_return 42; });   // on shard 0
//   runtime.stop(5s);                                     // or let the destructor do it
//
// Nothing is global: several runtimes may live in one process. Stopping cancels every task,
// joins them, and names those that did not end by the deadline; nothing is resumed after that.
//
// Those functions that say "from a foreign thread" block it until shards have answered: on a shard
// of the runtime they would wait for themselves, and throw Errc::invalid_argument instead. A
// coroutine reaches other shards by runtime/call_on.hpp. Asio programs embed one by
// runtime/asio.hpp.
#pragma once

#include <condition_variable>
#include <functional>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/detail/task_value.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/witness.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

namespace hyperframes {

/// What the shards of a runtime ask the system through.
enum class Driver : std::uint8_t {
  automatic,  ///< io_uring; where that is refused, asio, with a line in the log that says why.
  uring,      ///< io_uring, or an error.
  asio,       ///< epoll through asio, or an error if this build has no asio.
};

class Runtime {
 public:
  struct Options {
    unsigned shards = 0;                ///< 0: one for each core this process may use.
    Shard::Options shard = {};          ///< For every shard; `index` is filled in.
    Driver driver = Driver::automatic;  ///< Of the shards' own threads.
    bool pin_threads = false;           ///< Bind shard i to the i-th core this process may use.
    unsigned offload_threads = 2;       ///< For hf::offload and blocking system calls; at least 1.
    Duration stop_deadline = 5s;  ///< Used by the destructor, also for calls that are offloaded.
    /// A turn longer than this is logged with its line and actor, and, once a minute at most, what
    /// every shard's tasks and actors wait for. 0: off.
    Duration stall_threshold = 1s;
  };
  struct StopReport {
    bool clean = true;  ///< There are no stragglers.
    std::vector<std::string>
        stragglers;  ///< What had not ended by the deadline, and where it waits.
  };

  /// Starts the threads, and returns when all shards run. Throws Errc::unsupported, or the system's
  /// error, if a driver can't start, naming the limit that stood in the way; Errc::invalid_argument
  /// for limits and groups that make no sense (Shard::Options, GroupOptions).
  explicit Runtime(Options options);
  Runtime() : Runtime(Options()) {}
  /// For drivers that bring their own loop, one for each shard: no threads; the caller runs each
  /// shard's turns (Shard::turn), and the steps of `stop` below.
  Runtime(Options options, std::vector<std::unique_ptr<Reactor>> reactors,
          std::unique_ptr<Offload> offload);
  /// Stops with Options::stop_deadline if `stop` was not called, then ends what is left. Waits for
  /// a shard that is stuck in a turn. Off the shards; nodes and networks go before it.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  unsigned shard_count() const noexcept { return static_cast<unsigned>(shards_.size()); }
  /// `index` below shard_count(). From any thread; most of what a Shard does is for its own.
  Shard& shard(unsigned index) noexcept { return *shards_[index]; }
  /// Where blocking calls run; hf::offload uses it.
  Offload& offload() noexcept { return *offload_; }
  /// For hf::offload.
  const std::shared_ptr<detail::OffloadGate>& offload_gate() const noexcept { return gate_; }
  /// "system", "user", or a group that Options::shard adds. Errc::not_found names those there are.
  Group group(std::string_view name) const;

  /// Runs `function(*this)`, which returns a Task, on a shard, and blocks this foreign thread until
  /// its frames are gone. Returns its value or throws its exception; Errc::shutting_down if the
  /// runtime has stopped, or stops before. `function` stays alive throughout: a coroutine lambda
  /// that captures is fine. Throws Errc::invalid_argument for a `shard` that there is not.
  template <class Function>
  auto run(Function function, unsigned shard = 0);

  /// Cancels all tasks, joins them until `deadline` has passed, then destroys what is left. Takes
  /// a few seconds longer at most, so that shards get a chance to answer. One that is stuck in a
  /// turn can't be joined: it is named among the stragglers, resumes nothing more, and the
  /// destructor waits for it; what is posted there meanwhile is answered when it comes back. Later
  /// calls return the first one's report. From a foreign thread. Errc::invalid_argument where the
  /// program runs the turns: there the driver's own stop does all of it.
  StopReport stop(Duration deadline);
  /// Runs `function` on every shard, at the same time where they have threads, from a foreign
  /// thread, and waits. It must not throw.
  void on_every_shard(std::function<void(Shard&)> function);
  /// The same, but waits until `limit` (of Clock::read_system) only. Returns the shards that have
  /// not run it by then; they still will, so it must own what it uses.
  std::vector<unsigned> on_every_shard_until(Time limit, std::function<void(Shard&)> function);
  /// Where no thread runs the shards (a stopped runtime, a driver that brings its own loop): runs
  /// what is ready or has been posted, once, without the reactors. For whoever must wait for that.
  void run_left_over();
  /// Turns that outlasted the stall threshold so far. From any thread.
  std::uint64_t stall_count() const noexcept { return stalls_.load(std::memory_order_relaxed); }
  /// Throws Errc::invalid_argument, which says what was tried, on a shard of this runtime that has
  /// a thread: for what is about to wait for all of them.
  void require_foreign_thread(const char* tried) const;
  /// Throws Errc::invalid_argument for a number that no shard has.
  void require_shard(unsigned shard, const char* tried) const;
  /// All counters, summed over the shards. From a foreign thread.
  std::vector<MetricSample> collect_metrics();
  /// The chains of lines that every task and every actor of every shard waits on, and which shards
  /// did not answer within `patience` and what they do instead. From a foreign thread. A shard is
  /// held up for the time it takes to copy a bounded number of lines.
  std::string dump(Duration patience = 2s);
  /// What that shard does at this moment, also if it is stuck in it: for how long, at which line,
  /// in which actor. From any thread.
  std::string describe_turn(unsigned shard) const;

  /// Until `remove_witness`, which waits until nobody uses it any more, the witness is asked who
  /// the owners are whose first number this returns; 0 when there are too many witnesses.
  std::uint32_t add_witness(const Witness& witness);
  void remove_witness(const Witness& witness) noexcept;

  // ---- The steps of `stop`, for a driver that runs the turns itself (no threads).
  void cancel_tasks() noexcept;
  void cancel_tasks(unsigned shard) noexcept;
  /// Tasks of all shards that have not ended.
  std::size_t task_count() const noexcept;
  std::size_t task_count(unsigned shard) const noexcept;
  /// Where each task of a shard waits, a line each.
  std::vector<std::string> describe_tasks(unsigned shard) const;
  /// Destroys what is left, the newest first and shard 0 last: what a first task owns outlives its
  /// users.
  void destroy_tasks() noexcept;
  /// After the last turn of every shard: ends what is in flight. From here on what is posted to a
  /// shard runs on the thread that posts it.
  void end_shards() noexcept;

 private:
  friend class Shard;
  class StallWatch;
  struct Survey;
  void start_threads();
  StopReport stop_threads(Duration deadline);
  std::unique_ptr<Reactor> make_reactor(std::exception_ptr& refusal) const;
  void connect_rings();
  void run_shard(Shard& shard);
  bool await_end(std::size_t shard, Time until);
  std::string stuck_at(const Shard& shard) const;
  std::string owner_of_turn(const Shard& shard) const;
  void let_witnesses_dump(Shard& shard, std::string& text) const;
  void survey(Survey& survey, Time limit, std::function<std::vector<std::string>(Shard&)> ask);
  void shut_down(Time limit);
  void close_ended_shards();
  void drain_shards() noexcept;
  /// For posts to a shard that has stopped.
  void run_late(Shard& shard, detail::Work* work, Group group) noexcept;
  void run_all_left_over() noexcept;

  Options options_;
  std::shared_ptr<detail::OffloadGate> gate_ = std::make_shared<detail::OffloadGate>();
  std::unique_ptr<Offload> offload_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::thread> threads_;
  std::unique_ptr<StallWatch> stall_watch_;
  std::atomic<unsigned> running_{0};
  std::atomic<bool> started_{false};
  std::atomic<std::uint64_t> stalls_{0};
  bool threaded_ = false;
  bool failed_to_start_ = false;
  std::mutex stop_mutex_;
  bool stopped_ = false;
  StopReport report_;
  /// Held by who runs what is left over, in place of the threads that have ended.
  std::mutex left_over_mutex_;
  std::vector<bool> ended_;  ///< Shards that no thread runs any more.
  std::condition_variable ended_changed_;
  mutable std::shared_mutex witnesses_mutex_;  ///< Shared by all that ask them.
  std::vector<const Witness*> witnesses_;      ///< By number; null: free.
};

namespace detail {

/// Where a thread waits for the outcome of a task of a shard.
template <class Value>
class Delivery {
 public:
  using Stored = std::conditional_t<std::is_void_v<Value>, std::monostate, Value>;

  /// Takes the outcome over whole: the shard keeps no reference to an exception that the waiting
  /// thread may be reading, and touches nothing of this once the lock is free.
  void put(std::optional<Stored> value, std::exception_ptr failure) noexcept {
    std::scoped_lock lock(mutex_);
    value_ = std::move(value);
    failure_ = std::move(failure);
    complete_ = true;
    arrived_.notify_all();
  }
  Value wait() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return complete_; });
    if (failure_) std::rethrow_exception(std::move(failure_));
    if constexpr (!std::is_void_v<Value>) return std::move(*value_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  bool complete_ = false;
  std::optional<Stored> value_;
  std::exception_ptr failure_;
};

/// Delivers the outcome of a task when the last of the task's frames has let go of it: then nothing
/// of the task is left.
template <class Value>
class Outcome {
 public:
  explicit Outcome(Delivery<Value>& delivery) noexcept : delivery_(delivery) {}
  ~Outcome() {
    if (!value && !failure)
      failure = std::make_exception_ptr(Error(Errc::shutting_down, "run a task",
                                              "the runtime stopped before the task had ended"));
    delivery_.put(std::move(value), std::move(failure));
  }

  std::optional<typename Delivery<Value>::Stored> value;
  std::exception_ptr failure;

 private:
  Delivery<Value>& delivery_;
};

}  // namespace detail

template <class Function>
auto Runtime::run(Function function, unsigned shard) {
  using Returned = detail::TaskValue<std::invoke_result_t<Function&, Runtime&>>;
  static_assert(
      Returned::is_task,
      "Runtime::run takes a function that returns an hf::Task; give another awaitable to a "
      "coroutine: [](hf::Runtime&) -> hf::Task<void> { co_await ...; }");
  // If it is none, that is the only error.
  using Value = std::conditional_t<Returned::is_task, typename Returned::type, void>;
  using Outcome = detail::Outcome<Value>;
  require_foreign_thread("run a task to its end");
  require_shard(shard, "run a task to its end");
  auto body = [](Runtime& runtime, Function& function,
                 std::shared_ptr<Outcome> outcome) -> Task<void> {
    try {
      if constexpr (std::is_void_v<Value>) {
        co_await function(runtime);
        outcome->value.emplace();
      } else {
        outcome->value.emplace(co_await function(runtime));
      }
    } catch (...) {
      outcome->failure = std::current_exception();
    }
  };
  detail::Delivery<Value> delivery;
  auto outcome = std::make_shared<Outcome>(delivery);
  detail::start_on(*shards_[shard], [this, &function, &body, outcome = std::move(outcome)] {
    return body(*this, function, outcome);
  });
  return delivery.wait();
}

}  // namespace hyperframes
