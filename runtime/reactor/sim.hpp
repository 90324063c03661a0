// A cluster in one thread: nodes with their own runtimes, a network and disks between which
// everything can fail, in virtual time, and repeated exactly by its seed.
//
//   hf::SimWorld world({.seed = 7});
//   hf::SimNode& node = world.add_node();
//   int answer = world.run(node, 0, [](hf::Runtime&) -> hf::Task<int> { co_return 42; });
//
// The code under test is the shipped code: Socket, Listener, File, sleep_for, offload and all that
// stands on them. Only the driver below them is replaced. One shard runs at a time, chosen by the
// seed among those that have something to do; when none has, time jumps to the next thing that
// happens. No thread, no wall clock, no address of memory has a say, so the same seed gives the
// same `trace_hash()`, as long as the code under test draws its random numbers and ids from a seed
// too.
//
// Everything here is called from the thread that made the world, between turns or from a task.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/reactor/sim_disk.hpp>
#include <hyperframes/runtime/reactor/sim_network.hpp>
#include <hyperframes/runtime/reactor/sim_random.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes {

class SimBlockingFiles;
class SimWorld;
namespace detail {
class SimClockwork;
}

/// What a crash leaves behind.
struct SimCrash {
  enum class Peers : std::uint8_t {
    told,     ///< As after SIGKILL: the kernel ends or resets every connection.
    silence,  ///< As after a power cut: nothing is sent, and nothing answers until the restart.
  };
  /// As after a power cut. False: the page cache survives, as it does a SIGKILL.
  bool lose_unsynced = true;
  Peers peers = Peers::told;

  static SimCrash kill() noexcept { return {false, Peers::told}; }
  static SimCrash power_cut() noexcept { return {true, Peers::silence}; }
};

struct SimNodeOptions {
  unsigned shards = 1;    ///< Of each process that runs there; 1 or more.
  std::string name = {};  ///< What `resolve` finds it by; default "node<index>".
  Shard::Options shard = {};
  unsigned receive_chunks = 256;
  std::size_t receive_chunk_bytes = 16 << 10;
  std::size_t descriptor_limit = 65536;
};

/// One machine with one process. Made by SimWorld::add_node, and lives as long as the world; what
/// runs on it lives until a crash.
class SimNode {
 public:
  ~SimNode();
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  unsigned index() const noexcept;
  const std::string& name() const noexcept;
  /// 10.0.0.<index + 1>. Within the node 127.0.0.1 works too.
  Address address(std::uint16_t port = 0) const noexcept;
  bool is_up() const noexcept { return runtime_ != nullptr; }
  /// 1 at first, one more after each restart.
  std::uint64_t incarnation() const noexcept { return boots_; }
  /// Of the running process. Not on a node that is down.
  Runtime& runtime() noexcept;
  SimDisk& disk() noexcept;
  /// Open descriptors of the running process.
  std::size_t descriptor_count() const noexcept;

  /// What this node's process does: started on shard 0 now and after each restart. What the task
  /// holds is gone with it. An exception that leaves it is logged. `main` itself, and what a lambda
  /// captured, is kept as long as the node.
  void set_main(std::function<Task<void>(Runtime&)> main);
  /// Makes an object that belongs to the running process. A crash destroys it after all tasks, in
  /// reverse order.
  template <class T, class... Arguments>
  T& emplace(Arguments&&... arguments);

  /// Ends the process at once: no task is resumed, cancelled or joined, and what destructors ask of
  /// the system has no effect. From a task of this node it happens when the current turn has ended.
  void crash(SimCrash what = {});
  /// Starts a new process on what the disk still holds. The node must be down.
  void restart();
  /// Cancels all tasks and runs the world until they have ended or `deadline` has passed; then the
  /// process exits as any does. Not from a task.
  Runtime::StopReport stop(Duration deadline = 5s);

  /// As SIGSTOP: the shards get no turn, while the kernel goes on taking bytes.
  void pause() noexcept { paused_ = true; }
  void resume() noexcept { paused_ = false; }
  /// The clock of this node's shards leaps ahead; `by` is not negative.
  void jump_clock(Duration by) noexcept;
  /// Crashes in place of the `count`-th disk operation from now, which does not take place. 0: it
  /// does not, after all.
  void crash_at_disk_operation(std::uint64_t count, SimCrash what = SimCrash::power_cut());

 private:
  friend class SimBlockingFiles;
  friend class SimWorld;
  struct Owned {
    virtual ~Owned() = default;
  };
  SimNode(SimWorld& world, SimNodeOptions options, unsigned index);
  void boot();
  void start_main();
  void crash_now(SimCrash what);
  void destroy_process() noexcept;
  void own(std::unique_ptr<Owned> owned) { owned_.push_back(std::move(owned)); }

  SimWorld& world_;
  SimNodeOptions options_;
  std::unique_ptr<detail::SimHost> host_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<std::unique_ptr<Owned>> owned_;
  std::vector<Time> busy_until_;
  std::deque<std::function<Task<void>(Runtime&)>>
      mains_;  ///< The last one counts; tasks may use any.
  std::uint64_t boots_ = 0;
  bool paused_ = false;
};

/// A task that was started on a node, and what became of it.
template <class T>
class SimPending {
 public:
  bool done() const noexcept { return state_->done; }
  /// Once. Its value, once done; throws its exception, or Errc::peer_lost if its node crashed
  /// first.
  T take() {
    if (state_->failure) std::rethrow_exception(state_->failure);
    if constexpr (!std::is_void_v<T>) return std::move(*state_->value);
  }

 private:
  friend class SimWorld;
  struct State {
    std::optional<detail::ValueOf<T>> value;
    std::exception_ptr failure;
    bool done = false;
  };
  /// Its last copy goes with the task, whether that ended or not.
  struct Ending {
    explicit Ending(std::shared_ptr<State> state) noexcept : state(std::move(state)) {}
    ~Ending() {
      if (state->done) return;
      state->failure = std::make_exception_ptr(
          Error(Errc::peer_lost, "run a task on a simulated node", "its process ended before it"));
      state->done = true;
    }
    std::shared_ptr<State> state;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class SimWorld {
 public:
  struct Options {
    std::uint64_t seed = 1;
    Duration run_limit = 3600s;                 ///< Virtual time that one `run` may take.
    std::uint64_t turn_limit = 200'000'000;     ///< Turns that one `run` may take.
    Duration turn_min = 300ns, turn_max = 4us;  ///< What a turn costs.
    double long_turn = 0.01;                    ///< Of all turns: up to `long_turn_max`,
    Duration long_turn_max = 300us;             ///< as if the thread had lost its core.
  };
  explicit SimWorld(Options options);
  SimWorld() : SimWorld(Options()) {}
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  /// Up at once. At most 254. The reference stays good as long as the world.
  SimNode& add_node(SimNodeOptions options = {});
  SimNode& node(std::size_t index) noexcept { return *nodes_[index]; }
  std::size_t node_count() const noexcept { return nodes_.size(); }
  SimNetwork& network() noexcept { return network_; }
  std::uint64_t seed() const noexcept { return options_.seed; }
  Time now() const noexcept;
  /// For the test's own choices; it leaves those of the world alone.
  SimRandom& random() noexcept;

  /// Runs `function(runtime)`, which returns a Task, on a shard of a node, until it ends. Returns
  /// its value or throws its exception. Throws Errc::deadline_exceeded when the world's limits are
  /// reached or nothing can happen any more, with what every task waits on.
  template <class Function>
  auto run(SimNode& node, unsigned shard, Function function);
  /// Starts it and returns a SimPending: `wait` for it, or ask whether it is done.
  template <class Function>
  auto start(SimNode& node, unsigned shard, Function function);
  template <class T>
  T wait(SimPending<T> pending) {
    run_until_done([&] { return pending.done(); });
    return pending.take();
  }
  /// Lets so much virtual time pass, with all that happens in it. Not from a task.
  void run_for(Duration span);
  /// Runs until `condition()` holds, which is asked between turns. False if `limit` passes first.
  /// Not from a task.
  bool run_until(std::function<bool()> condition, Duration limit);

  /// Calls `function` off every shard, as something that comes from outside: a fault, a kill.
  void at(Time time, std::function<void()> function);
  void after(Duration span, std::function<void()> function);

  /// Of everything that was delivered so far, and when, and to whom.
  std::uint64_t trace_hash() const noexcept;
  /// Gets one line for everything that enters the trace.
  void set_trace(std::function<void(const std::string&)> listener);
  std::uint64_t turn_count() const noexcept { return turns_; }
  std::uint64_t event_count() const noexcept;
  /// What every task of every node waits on.
  std::string dump();

 private:
  friend class SimNode;
  void run_until_done(const std::function<bool()>& done);
  /// One event time or one turn. False if there is nothing before `limit`.
  bool step(Time limit);
  Time next_turn_of(SimNode& node, unsigned shard);
  void turn(SimNode& node, unsigned shard);
  SimNode* running_node() const noexcept { return running_; }

  Options options_;
  std::unique_ptr<detail::SimClockwork> clockwork_;
  SimNetwork network_;
  std::unique_ptr<detail::SimStreams> streams_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  struct Candidate {
    SimNode* node;
    unsigned shard;
  };
  std::vector<Candidate> candidates_;
  SimNode* running_ = nullptr;
  std::uint64_t turns_ = 0;
  bool stuck_ = false;  // the last step found nothing to do, ever
};

template <class T, class... Arguments>
T& SimNode::emplace(Arguments&&... arguments) {
  struct Holder final : Owned {
    explicit Holder(Arguments&&... arguments) : value(std::forward<Arguments>(arguments)...) {}
    T value;
  };
  auto holder = std::make_unique<Holder>(std::forward<Arguments>(arguments)...);
  T& value = holder->value;
  own(std::move(holder));
  return value;
}

template <class Function>
auto SimWorld::start(SimNode& node, unsigned shard, Function function) {
  using Value = typename std::invoke_result_t<Function&, Runtime&>::value_type;
  using Ending = typename SimPending<Value>::Ending;
  SimPending<Value> pending;
  auto body = [](Runtime& runtime, std::shared_ptr<Function> function,
                 std::shared_ptr<Ending> ending) -> Task<void> {
    auto& state = *ending->state;
    try {
      if constexpr (std::is_void_v<Value>) {
        co_await (*function)(runtime);
        state.value.emplace();
      } else {
        state.value.emplace(co_await (*function)(runtime));
      }
    } catch (...) {
      state.failure = std::current_exception();
    }
    state.done = true;
  };
  detail::start_on(
      node.runtime().shard(shard),
      [body, &runtime = node.runtime(), function = std::make_shared<Function>(std::move(function)),
       ending = std::make_shared<Ending>(pending.state_)] {
        return body(runtime, function, ending);
      });
  return pending;
}

template <class Function>
auto SimWorld::run(SimNode& node, unsigned shard, Function function) {
  return wait(start(node, shard, std::move(function)));
}

}  // namespace hyperframes
