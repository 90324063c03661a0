// A core shard: one thread on one core, and everything that runs there.
//
//   hf::Shard& here = *hf::Shard::current();
//   here.spawn(refresh_cache());                           // a task that the shard owns
//   int sum = co_await hf::call_on(other, [] { return compute(); });   // runs there, resumes here
//
// A shard shares nothing: ready queues, timers, pools, frames and reactor are its own, and no
// atomic or lock is touched between two coroutines of one shard. Another shard's work arrives
// through a ring for that pair of shards, a foreign thread's through one inbox. A coroutine
// never changes shard.
//
// Everything here is for the shard itself, unless it says otherwise. A program uses `current`,
// `spawn`, `now`, `metrics` and the pools; the rest is for drivers and for the layers above.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <hyperframes/runtime/await_chain.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/detail/frame_pool.hpp>
#include <hyperframes/runtime/detail/inbox.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <hyperframes/runtime/metrics.hpp>
#include <hyperframes/runtime/poller.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/timer.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes {

class Runtime;
class Offload;
namespace detail {
class Launched;
}

/// Scheduling groups. `system` (supervision, heartbeats, timers) comes first in every turn, so that
/// nothing starves it. The others, `user` and those that Shard::Options adds (see Runtime::group),
/// divide what a busy shard has by their shares.
enum class Group : std::uint8_t { system = 0, user = 1 };
/// The most there can be; Shard::groups() says how many there are.
inline constexpr std::size_t group_count = detail::ShardCore::groups;

struct GroupOptions {
  std::string name;  ///< Not empty, and no other group's. See Runtime::group.
  /// To those of the groups that have work at the same time. From 1 to 1,000,000.
  std::uint32_t shares = 100;
};

class Shard : public detail::ShardCore {
 public:
  struct Options {
    unsigned index = 0;                            ///< Filled in by the runtime.
    std::size_t send_quota_bytes = 256u << 20;     ///< Of send_pool().
    std::size_t receive_quota_bytes = 256u << 20;  ///< Of receive_pool().
    std::size_t ring_capacity = 1024;     ///< Items, for each pair of shards; rounded up to 2^n.
    std::uint32_t turn_work_limit = 512;  ///< Work items a group runs in one turn.
    Duration turn_time_limit = 500us;     ///< After which a turn returns to the reactor.
    Duration spin_limit = 50us;           ///< Upper bound of polling before sleep; 0: never spin.
    bool spin_always = false;             ///< Never sleep: for cores given to this process alone.
    std::uint32_t user_shares = 100;      ///< Of Group::user.
    std::vector<GroupOptions> groups{};   ///< Six more at most.
  };

  /// For the runtime, on the shard's thread if it has one.
  Shard(Runtime& runtime, Options options, std::unique_ptr<Reactor> reactor);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// The shard whose turn this thread runs, or null. Never keep a thread-local across a
  /// suspension: this is an opaque call so that the compiler can't.
  static Shard* current() noexcept;

  /// From 0. From any thread.
  unsigned index() const noexcept { return options_.index; }
  /// How many scheduling groups there are: those of a lower number.
  std::size_t groups() const noexcept { return groups_in_use_; }
  /// From any thread.
  Runtime& runtime() const noexcept { return runtime_; }
  Reactor& reactor() const noexcept { return *reactor_; }
  Offload& offload() const noexcept;
  /// When this turn began: what Clock::now() says here.
  Time now() const noexcept { return now_; }
  Metrics& metrics() noexcept { return metrics_; }
  BufferPool& send_pool() noexcept { return send_pool_; }
  BufferPool& receive_pool() noexcept { return receive_pool_; }

  /// Starts `task` here, owned by the shard; it is cancelled and joined when the runtime stops.
  /// An exception that leaves it is logged with the place it was spawned from. Once the shard has
  /// stopped, `task` is destroyed instead. On this shard only. It is queued, and begins after this
  /// has returned; nobody can await it: a Scope's tasks can be. Errc::invalid_argument for a group
  /// that the runtime has not.
  void spawn(Task<void> task, Group group = Group::user,
             std::source_location from = std::source_location::current());

  /// Restarts it if it runs. See runtime/timer.hpp.
  void start_timer(Timer& timer, Time deadline) noexcept { timers_.start(timer, deadline); }

  /// Polls it in every turn from now on. On this shard, also from inside a poll.
  void add_poller(Poller& poller) { pollers_.push_back(&poller); }
  /// One that is not there is left alone.
  void remove_poller(Poller& poller) noexcept;

  /// While somebody here needs memory of this shard that others hold, what they release wakes it.
  /// Counted; on this shard only.
  void begin_memory_wait() noexcept {
    memory_waiters_.store(memory_waiters_.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  }
  void end_memory_wait() noexcept {
    memory_waiters_.store(memory_waiters_.load(std::memory_order_relaxed) - 1,
                          std::memory_order_relaxed);
  }

  /// Queues work on this shard, from this shard; the work stays its owner's, who keeps it in place
  /// until it has run or was taken back.
  void schedule(detail::Work* work, Group group = Group::user) noexcept {
    ready[static_cast<std::size_t>(group)].push(work);
  }
  /// Takes back what was scheduled in that group and has not run.
  void unschedule(detail::Work* work, Group group = Group::user) noexcept {
    ready[static_cast<std::size_t>(group)].remove(work);
  }
  /// Queues work on this shard, from any thread. Never blocks or fails: what a full ring can't
  /// take waits on the sending shard; senders await `ring_room` before they add more. Once the
  /// shard has stopped, `work` runs on the calling thread, or with the runtime's end: it may
  /// release and answer, and resumes nothing.
  void post(detail::Work* work, Group group = Group::user) noexcept;
  /// Whether a post from the current shard would go straight into the ring (or this is that shard).
  /// A coroutine that sends much awaits `ring_room(target)` first (runtime/call_on.hpp).
  bool has_ring_room(Group group = Group::user) noexcept;

  /// Runs one turn: completions, arrivals, timers, then ready work within the budget. Returns
  /// true if ready work is left. Called by the shard's loop or by the driver that embeds it.
  bool turn() noexcept;
  /// When the next turn is due if nothing arrives; `Time{}` if work is ready now.
  Time next_turn() noexcept;
  /// The same, for a driver that goes to sleep then: until the next turn, whoever posts something
  /// calls the reactor's `wake`. On the thread of the last turn, or with the turns held.
  Time rest() noexcept;
  /// The loop of an own thread: turns, polling, sleep; returns after `request_stop`.
  void run() noexcept;
  /// `drain_until`: until when the loop's end waits for the system to let go of memory.
  void request_stop(Time drain_until) noexcept;

  /// So far, and at this moment.
  struct Load {
    std::uint64_t turns, work_run, sleeps, busy_ns;
    std::size_t ready_system, ready_user;  ///< `user`: with all groups that were added.
    std::size_t root_tasks;  ///< Tasks that the shard owns: `spawn`'s, Runtime::run's, call_on's.
    std::size_t frames;      ///< Coroutine frames and letters in use; 0 where they are on the heap.
  };
  Load load() const noexcept;
  /// Writes it into `metrics()`: to be called before those are read.
  void publish_load();
  /// What is ready to run, by the line it is resumed at: the most frequent first.
  struct Backlog {
    std::string where;
    std::size_t count;
  };
  std::vector<Backlog> backlog(std::size_t limit = 5) const;
  /// A task that was spawned, and what it waits for.
  struct TaskState {
    AwaitPlace spawned_at;
    AwaitChain chain;
    bool in_scope = false;    ///< It is a scope's that nobody has joined yet; else the shard's own.
    std::uint32_t owner = 0;  ///< On whose behalf it runs (runtime/witness.hpp).
    std::string to_string() const;  ///< "spawned at main.cpp:12: serve() (main.cpp:20)".
  };
  struct Tasks {
    std::vector<TaskState> shown;
    std::size_t left_out = 0;
  };
  static constexpr std::size_t shown_tasks = 1000;
  static constexpr std::size_t shown_places = 100'000;
  /// Those that no other task's chain leads to, the oldest first: `limit` at most, and none after
  /// so many lines.
  Tasks tasks(std::size_t limit = shown_tasks) const;
  /// The backlog, every task (the oldest, if there are very many) with the chain of lines it is
  /// suspended on, and what the runtime's witnesses add: their actors.
  std::string dump();
  /// For Scope: `task` is one of the tasks while it lives.
  void keep_in_sight(detail::Launched& task) noexcept;

 private:
  friend class Runtime;
  friend void* detail::pool_allocate(std::size_t);
  friend void detail::pool_release(void*) noexcept;
  friend void detail::release(detail::Block*) noexcept;
  friend class BufferPool;
  friend class CurrentShard;
  struct Root;
  static constexpr std::size_t first_backlog_report = 100'000;

  void take_arrivals() noexcept;
  bool arrivals_waiting() const noexcept;
  bool turn_from(Time started) noexcept;
  void poll_pollers() noexcept;
  void arm_pollers() noexcept;
  void disarm_pollers() noexcept;
  bool pollers_ready() const noexcept;
  /// From anywhere else: a block of this shard whose last reference has ended there.
  void take_back(detail::Block* block) noexcept;
  void take_returned_blocks() noexcept;
  void send_home(detail::FrameHeader* header) noexcept;
  void ring_doorbell_of(Shard& target) noexcept;
  /// Runs up to `most` ready items of a group, until `limit`. Returns how many.
  std::uint32_t run_group(std::size_t group, std::uint32_t most, Time limit) noexcept;
  void run_users() noexcept;
  /// The group that has had least for its shares, of those with work but `system`; 0: none has.
  std::size_t next_group() noexcept;
  struct Usage;
  void charge(Usage& usage, Duration took, std::uint32_t count) noexcept;
  bool has_ready() const noexcept;
  std::size_t ready_of_users() const noexcept;
  void report_backlog() noexcept;
  void flush_outgoing() noexcept;
  /// Returns once there may be something to do, or after some hundred nanoseconds.
  Time look_out(Time now) const noexcept;
  /// May sleep. Returns what the clock shows then, or did some hundred nanoseconds before.
  Time idle(Time now) noexcept;
  void report_failure(const detail::Launched& launched) noexcept;
  void cancel_roots() noexcept;
  void destroy_roots() noexcept;
  /// After the last turn: lets the driver end what is in flight.
  void drain(Time until) noexcept;
  /// After the loop has ended: destroys the tasks and takes no more.
  void close() noexcept;
  /// Takes in and runs what is still on its way, and hands over what that leaves for others. False
  /// if there was nothing.
  bool run_left_over() noexcept;
  std::vector<std::string> describe_roots() const;

  Runtime& runtime_;
  Options options_;
  std::unique_ptr<Reactor> reactor_;
  Time now_;
  TimerWheel timers_;
  detail::FramePool* frames_;
  Metrics metrics_;
  BufferPool send_pool_;
  BufferPool receive_pool_;
  /// Rings for each shard that sends here; null for this one. Fixed before the loops start.
  /// On the way there are two classes, `system` and the rest.
  static constexpr std::size_t ring_count = 2;
  static std::size_t ring_of(Group group) noexcept { return group == Group::system ? 0 : 1; }
  std::vector<std::array<std::unique_ptr<detail::WorkRing>, ring_count>> incoming_;
  std::size_t first_incoming_ =
      0;  ///< Where the next turn begins to take, so that all get a share.
  detail::ForeignInbox foreign_[ring_count];
  /// What did not fit into another shard's ring, in order, by target and group.
  std::vector<std::array<detail::WorkQueue, ring_count>> overflow_;
  std::size_t overflow_count_ = 0;
  std::vector<Shard*> woken_;  ///< Shards whose ring got something this turn.
  /// Memory of other shards that was released here, by its home.
  struct Homebound {
    detail::FramePool* pool;
    detail::FreeFrame *first, *last;
  };
  std::vector<Homebound> homebound_;
  std::atomic<detail::Block*> returned_blocks_{nullptr};
  std::atomic<std::size_t> memory_waiters_{0};  ///< Who waits for a pool's memory; written here.
  std::vector<Poller*> pollers_;                ///< Null: removed during the poll.
  bool polling_ = false, pollers_armed_ = false;
  detail::List<Root> roots_;
  detail::List<detail::Launched> scoped_;  ///< Tasks of scopes.
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<std::int64_t> turn_started_{0};  ///< For the stall watch; 0 between turns.
  bool stopping_ = false;
  bool closed_ = false;  ///< Starts no task any more.
  bool drained_ = false;
  bool held_by_system_ = false;  ///< Its thread can't end before the system lets go.
  Time drain_until_{};           ///< Published by stop_requested_.
  /// What a group has had: time by its shares.
  struct Usage {
    std::uint32_t shares = 0;
    std::uint64_t had = 0;
  };
  Usage usage_[group_count];
  std::uint64_t least_had_ = 0;  ///< Of the groups that had work when it was looked at last.
  std::size_t groups_in_use_ = 2;
  std::size_t user_work_last_turn_ = 0;
  std::size_t backlog_to_report_ = first_backlog_report;
  Time last_busy_{};
  Duration spin_span_{0};
  std::uint64_t turns_ = 0, work_run_ = 0, sleeps_ = 0, busy_ns_ = 0;
};

/// Makes `shard` the current one while in scope: for drivers that run turns on others' threads.
class CurrentShard {
 public:
  explicit CurrentShard(Shard& shard) noexcept;
  ~CurrentShard();
  CurrentShard(const CurrentShard&) = delete;

 private:
  Shard* previous_;
};

}  // namespace hyperframes
