// One actor as the runtime sees it: identity, mailbox, turns, and what happens at its end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <hyperframes/actors/detail/factory.hpp>
#include <hyperframes/actors/detail/letter.hpp>
#include <hyperframes/actors/detail/restart_budget.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <hyperframes/actors/down.hpp>
#include <hyperframes/actors/mailbox.hpp>
#include <hyperframes/actors/restart.hpp>
#include <hyperframes/actors/supervision_event.hpp>
#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

namespace hyperframes {
class Actor;
struct ActorReport;

namespace detail {

class ActorCell;
class Children;
class NodeShard;
class StartWaiter;
struct ChildNews;
struct Watch;
struct WatchByWatcher;

/// Where an actor is; stays the same over its restarts.
struct Address {
  ActorCell* cell = nullptr;
  std::uint64_t id = 0;
  friend bool operator==(const Address&, const Address&) = default;
};

/// Ids: 1 bit group, 11 bits shard, 24 bits generation (never 0), 28 bits slot.
namespace actor_id {
inline constexpr int slot_bits = 28, generation_bits = 24, shard_bits = 11;
constexpr std::uint64_t make(bool system, unsigned shard, std::uint32_t generation,
                             std::uint32_t slot) noexcept {
  return std::uint64_t{system} << 63 | std::uint64_t{shard} << 52 |
         std::uint64_t{generation} << slot_bits | slot;
}
constexpr std::uint32_t generation_of(std::uint64_t id) noexcept {
  return (id >> slot_bits) & ((1u << generation_bits) - 1);
}
constexpr unsigned shard_of(std::uint64_t id) noexcept { return (id >> 52) & 0x7ff; }
constexpr std::uint32_t slot_of(std::uint64_t id) noexcept { return id & 0xfff'ffff; }
constexpr Group group_of(std::uint64_t id) noexcept {
  return id >> 63 ? Group::system : Group::user;
}
/// The node's directory: the first actor of its first shard.
inline constexpr std::uint64_t directory = make(false, 0, 1, 0);
}  // namespace actor_id

/// First in, first out.
class LetterQueue {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  std::uint32_t size() const noexcept { return size_; }
  Letter* front() const noexcept { return head_; }
  void push(Letter* letter) noexcept {
    letter->next = nullptr;
    if (head_) {
      tail_->next = letter;
    } else {
      head_ = letter;
    }
    tail_ = letter;
    ++size_;
  }
  Letter* pop() noexcept {
    Letter* letter = head_;
    if (letter) {
      head_ = static_cast<Letter*>(letter->next);
      --size_;
    }
    return letter;
  }

 private:
  Letter* head_ = nullptr;
  Letter* tail_ = nullptr;
  std::uint32_t size_ = 0;
};

/// What few actors need, so that an idle one stays small.
struct CellExtras {
  std::string name;
  std::unique_ptr<Factory> factory;
  RestartPolicy policy;
  bool keep_mailbox = true;
  MailboxOptions limits;
  static constexpr std::uint32_t least_sweep = 64;
  std::uint32_t next_sweep = least_sweep;  ///< So many arrivals are searched for expired ones.

  // Restarts.
  const ServiceInfo* service = nullptr;  ///< Of the last object, from its end on.
  RestartBudget budget;
  std::uint64_t restart_count = 0;  ///< All of them.
  std::string last_failure;         ///< What the last crash said.
  std::unique_ptr<KeptState> kept;  ///< From the last life, for the next one.
  /// Of its supervisor, which decides unless that is one_for_one: then this does, in its place.
  Strategy strategy = Strategy::one_for_one;
  bool suspending = false;   ///< Its life ends for its supervisor's sake, which will revive it.
  bool held = false;         ///< Pauses until its supervisor revives it.
  bool awaited = false;      ///< Its supervisor waits until it is held, or has ended.
  bool tells_began = false;  ///< Its supervisor waits until it has started.
  bool was_open = false;     ///< In this life.
  bool restored = false;     ///< In this life.

  // Others.
  Address parent;
  std::unique_ptr<Children> children;
  List<Watch> watches;            ///< Of this actor, by others.
  List<WatchByWatcher> watching;  ///< Of others, by this actor.
  bool traps_exits = false;
  StartWaiter* spawner = nullptr;  ///< Waits until it has started.
  std::exception_ptr start_failure;

  // The end, while it lasts.
  struct Clock : Timer {
    explicit Clock(ActorCell& cell) noexcept : Timer(&Clock::run), cell(cell) {}
    static void run(Timer& timer) noexcept;
    ActorCell& cell;
  };
  explicit CellExtras(ActorCell& cell) noexcept;
  ~CellExtras();
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }
  Clock clock;                    ///< The grace period of a stop, or the pause before a restart.
  std::optional<Duration> grace;  ///< As SpawnOptions::shutdown.
  ExitReason reason = ExitReason::normal;
  std::string text;
  std::vector<Cause> causes;            ///< Ends that led to this one, the latest first.
  std::vector<std::string> stragglers;  ///< That had to be destroyed: its own name, its children's.
  bool failed_start = false;
  bool orderly = false;  ///< `stopping` is still to be called.
};

class ActorCell final : public Work {
 public:
  enum class Phase : std::uint8_t {
    free,
    starting,  ///< `started` runs; letters wait.
    open,
    stopping,  ///< `stopping` runs.
    closing,   ///< Turns were cancelled, children told to stop; waits for both.
    pausing,   ///< Waits to be restarted; letters wait.
  };
  enum class TurnKind : std::uint8_t { letter, down, started, stopping, background, inbox };

  ActorCell(NodeShard& home, std::uint32_t slot) noexcept;
  ActorCell(const ActorCell&) = delete;
  ~ActorCell();

  // ---- what any code on the shard may ask -----------------------------------
  Address address() noexcept { return {this, id}; }
  /// Whether its next letter would be handled as soon as it came.
  bool is_idle() const noexcept {
    return phase == Phase::open && !busy && !running && !is_inbox && !stop_requested &&
           mailbox.empty() && control.empty();
  }
  bool accepts() const noexcept {
    return phase != Phase::free && phase != Phase::closing && phase != Phase::stopping;
  }
  std::size_t depth() const noexcept { return mailbox.size(); }
  /// Whether a full mailbox drops letters, as its policy says.
  bool drops() const noexcept {
    return limits->overflow == Overflow::drop_newest || limits->overflow == Overflow::drop_oldest;
  }
  const std::string& name() const noexcept;
  Group group() const noexcept { return scheduled_in; }
  CellExtras& extras();
  /// Also between restarts; null only before the first object was made.
  const ServiceInfo* service() const noexcept;
  /// What it does now, with at most so many of its suspended turns.
  ActorReport report(std::size_t most_turns);

  // ---- letters --------------------------------------------------------------
  enum class Taken : std::uint8_t { yes, full, refused };
  /// From this shard. `yes`: it is the cell's. `full`: it stays the caller's, who may wait in
  /// `senders`. `refused`: it was ended with an error, which comes back with an ask's letter, and
  /// is put into `why` for a tell.
  Taken offer(Letter* letter, std::optional<Error>* why = nullptr) noexcept;
  /// From elsewhere: takes it in any case. Returns whether it waits for room, in `arrivals`.
  bool arrive(Letter* letter) noexcept;
  /// Takes the next letter that is still worth handling.
  Letter* take() noexcept;

  // ---- control --------------------------------------------------------------
  void deliver_down(Watch* watch) noexcept;
  /// A watch of its own, as a monitor or as its half of a link.
  void watch(const Destination& other, bool link, bool requested = false);
  /// `requested`: by the other one.
  void link_with(const Destination& other, bool requested);
  void unlink_from(const Destination& other) noexcept;
  std::size_t link_count() const noexcept;
  /// A linked actor has ended, and it traps no exits.
  void link_broken(const Down& down) noexcept;
  void stop() noexcept;
  void crash(std::exception_ptr cause, bool at_start) noexcept;
  /// Ends it at once, without grace: its node is being destroyed.
  void kill() noexcept;

  // ---- supervision ----------------------------------------------------------
  /// Its children; made when it is first asked for.
  Children& children();
  bool has_children() const noexcept { return more && more->children; }
  /// From a child.
  void take_news(Address child, ChildNews news) noexcept;
  /// A child has used up its restarts: so this one fails.
  void child_given_up(std::string text, std::vector<Cause> causes) noexcept;
  /// From its supervisor: ends its life in order, and waits for `revive`.
  void suspend() noexcept;
  void revive() noexcept;
  /// About its latest end.
  SupervisionEvent event(Decision decision) const;
  /// "'store'", or its id.
  std::string who() const;

  // ---- turns ----------------------------------------------------------------
  /// What a handler that a sender runs takes of the sender's budget of transfers.
  static constexpr std::uint32_t run_now_cost = 8;
  /// Calls the handler of an idle actor, from a coroutine that sends to it.
  template <class Call>
  void run_now(const MethodInfo& method, Time deadline, Call&& call) noexcept {
    core->transfer_budget -= run_now_cost;
    ++handled;
    delivered.add();
    begin_call(TurnKind::letter, &method, call, deadline);
  }
  void start(Actor* made) noexcept;
  /// `deadline`: of the ask that it handles.
  void begin_turn(Task<void> task, TurnKind kind, bool exclusive, const MethodInfo* method,
                  Time deadline = no_deadline) noexcept;
  /// Begins a task of the actor's own, from the ready queue: also while it is being constructed.
  void start_background(Task<void> task) noexcept;
  void start_background(Task<void> task, Group in) noexcept;
  /// Undoes what a constructor that threw has left.
  void constructor_failed() noexcept;
  /// Queues the cell if it has something to do.
  void schedule() noexcept {
    if (queued) return;
    queued = true;
    home_schedule();
  }

  struct Turn;

  NodeShard* const home;
  ShardCore* const core;  ///< The home's shard.
  Counter& delivered;     ///< Of the home.
  const std::uint32_t slot;
  const std::uint32_t owner;  ///< Of its coroutines (runtime/witness.hpp).
  std::uint32_t generation = 0;
  std::uint64_t id = 0;
  Actor* object = nullptr;
  const MailboxOptions* limits = nullptr;

  Phase phase = Phase::free;
  Group scheduled_in = Group::user;
  bool queued = false;
  bool busy = false;      ///< An exclusive turn is suspended, or the inbox's coroutine works.
  bool running = false;   ///< A handler is on the stack: nobody else may run one.
  bool is_inbox = false;  ///< Letters go to a coroutine that receives them.
  bool stop_requested = false;
  bool in_progress = false;            ///< Guards `progress` against its own turns.
  std::atomic<bool> congested{false};  ///< Read by other shards before they tell.

  LetterQueue mailbox;
  std::size_t mailbox_bytes = 0;
  List<SendWaiter> senders;  ///< Coroutines of this shard that wait for room.
  LetterQueue arrivals;      ///< Letters from elsewhere that wait for room.
  WorkQueue control;         ///< What the system says; no bound, no policy.
  List<Turn> turns;          ///< Suspended ones.
  CancelSource cancel;
  std::unique_ptr<CellExtras> more;
  std::uint64_t handled = 0;

 private:
  friend class NodeShard;
  friend struct CellExtras::Clock;

  static void run(Work* work) noexcept;
  void home_schedule() noexcept;
  void work() noexcept;
  bool has_room(const Letter& letter) const noexcept;
  bool make_room_for(Letter& letter) noexcept;
  void admit(Letter* letter) noexcept;
  void admit_waiting() noexcept;
  void note_congestion() noexcept;
  Letter* pop() noexcept;
  Letter* pop_arrival() noexcept;
  void drop_expired_arrivals() noexcept;

  /// What runs meanwhile runs for an actor; then control goes back to whoever called it, often the
  /// sender's coroutine.
  class OnBehalf {
   public:
    explicit OnBehalf(const ActorCell& cell) noexcept
        : core_(*cell.core),
          owner_(core_.running_owner.load(std::memory_order_relaxed)),
          line_(core_.running_at.load(std::memory_order_relaxed)) {
      core_.running_owner.store(cell.owner, std::memory_order_relaxed);
    }
    OnBehalf(const OnBehalf&) = delete;
    ~OnBehalf() {
      core_.running_owner.store(owner_, std::memory_order_relaxed);
      core_.running_at.store(line_, std::memory_order_relaxed);
    }

   private:
    ShardCore& core_;
    const std::uint32_t owner_;
    const std::source_location line_;
  };

  // A handler that is not a coroutine may throw before there is a task.
  template <class Call>
  void begin_call(TurnKind kind, const MethodInfo* method, Call&& call,
                  Time deadline = no_deadline) noexcept {
    Task<void> task;
    running = true;
    const OnBehalf here(*this);
    try {
      task = call();
    } catch (...) {
      return call_failed(std::current_exception(), kind, method);
    }
    running = false;
    if (task)
      return begin_turn(std::move(task), kind, is_exclusive(kind, method), method, deadline);
    if (kind == TurnKind::started) opened();
    if (phase == Phase::closing) [[unlikely]]
      progress();  // its end began meanwhile
  }
  static bool is_exclusive(TurnKind kind, const MethodInfo* method) noexcept {
    if (kind == TurnKind::letter) return !method->interleaved;
    return kind == TurnKind::down || kind == TurnKind::started;
  }
  void call_failed(std::exception_ptr failure, TurnKind kind, const MethodInfo* method) noexcept;
  void turn_ended(Turn& turn) noexcept;
  void end_turn(Task<void>& task, TurnKind kind, const MethodInfo* method) noexcept;
  void turn_failed(std::exception_ptr failure, Task<void>& task, TurnKind kind,
                   const MethodInfo* method) noexcept;
  void opened() noexcept;
  void begin_end(ExitReason reason, std::string text, std::vector<Cause> causes = {}) noexcept;
  void start_grace() noexcept;
  void note_straggler() noexcept;
  void progress() noexcept;
  void finish_incarnation() noexcept;
  void destroy_turns(bool with_object = false) noexcept;
  void forget_others() noexcept;
  bool comes_back() const noexcept;
  /// What follows a life's end.
  enum class Verdict : std::uint8_t { end, give_up, restart, hold };
  Verdict judge() noexcept;
  void carry_out(Verdict verdict) noexcept;
  void pause_for(Verdict verdict) noexcept;
  void take_snapshot() noexcept;
  void restart() noexcept;
  Task<void> begin_life(Actor* made);
  void finish() noexcept;
  void empty_mailbox(const std::string& why) noexcept;
  void tell_spawner() noexcept;
  void tell_supervisor(ChildNews news) noexcept;
  void tell_of_end() noexcept;
  void record(SupervisionEvent event) const noexcept;
  void clock_fired() noexcept;
};

}  // namespace detail
}  // namespace hyperframes
