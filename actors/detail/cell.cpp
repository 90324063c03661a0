#include <hyperframes/actors/detail/cell.hpp>

#include <algorithm>
#include <cassert>
#include <hyperframes/actors/actor.hpp>
#include <hyperframes/actors/detail/call_chain.hpp>
#include <hyperframes/actors/detail/children.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/receipt.hpp>
#include <hyperframes/actors/detail/start_waiter.hpp>
#include <hyperframes/actors/detail/stream_end.hpp>
#include <hyperframes/actors/detail/watch.hpp>
#include <hyperframes/actors/inbox.hpp>
#include <hyperframes/actors/report.hpp>
#include <hyperframes/runtime/log.hpp>
#include <new>
#include <utility>

namespace hyperframes::detail {
namespace {

// Letters that one actor handles before others get their turn.
constexpr unsigned letters_per_run = 16;

bool is_error(const std::exception_ptr& failure, Error* into = nullptr) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (into) *into = error;
    return true;
  } catch (...) {
    return false;
  }
}

/// While in scope, Replies that are destroyed answer with what `make()` returns.
template <class Make>
class DropReason final : public NodeShard::DropReason {
 public:
  DropReason(NodeShard& shard, Make make) noexcept
      : make_(std::move(make)), shard_(shard), previous_(std::exchange(shard.drop_reason, this)) {}
  DropReason(const DropReason&) = delete;
  ~DropReason() { shard_.drop_reason = previous_; }

 private:
  Error error() const override { return make_(); }
  Make make_;
  NodeShard& shard_;
  const NodeShard::DropReason* previous_;
};

}  // namespace

// ---- turns that are suspended -----------------------------------------------

/// A coroutine whose only purpose is to be what a suspended handler continues with: it tells the
/// cell that the turn has ended. Made only for handlers that do suspend.
struct ActorCell::Turn : ListNode {
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  ActorCell* cell = nullptr;
  Task<void> task;
  TurnKind kind = TurnKind::letter;
  bool exclusive = false;
  const MethodInfo* method = nullptr;
  Time since{};  ///< When it was suspended for the first time.
  std::coroutine_handle<> frame;

  static Turn& make(ActorCell& cell, Task<void> task, TurnKind kind, bool exclusive,
                    const MethodInfo* method);
  const PromiseBase& promise() const noexcept;
};

struct ActorCell::Turn::promise_type : PromiseBase, Turn {
  struct Coroutine {
    Handle handle;
  };
  Coroutine get_return_object() noexcept {
    const auto handle = Handle::from_promise(*this);
    PromiseBase::handle = handle;
    frame = handle;
    return {handle};
  }
  struct Start {
    promise_type& turn;
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<>) noexcept {}
    // Resumed by the handler's end.
    void await_resume() noexcept { turn.cell->turn_ended(turn); }
  };
  Start initial_suspend() noexcept { return {*this}; }
  std::suspend_never final_suspend() noexcept { return {}; }
  void return_void() noexcept {}
  void unhandled_exception() noexcept { std::terminate(); }
  ~promise_type() { forget_turn(*this); }
};

const PromiseBase& ActorCell::Turn::promise() const noexcept {
  return static_cast<const promise_type&>(*this);
}

namespace {
struct TurnCoroutine {
  using promise_type = ActorCell::Turn::promise_type;
  TurnCoroutine(promise_type::Coroutine made) noexcept : handle(made.handle) {}
  ActorCell::Turn::Handle handle;
};
TurnCoroutine wait_for_end() { co_return; }
}  // namespace

ActorCell::Turn& ActorCell::Turn::make(ActorCell& cell, Task<void> task, TurnKind kind,
                                       bool exclusive, const MethodInfo* method) {
  promise_type& turn = wait_for_end().handle.promise();
  PromiseBase& handler = task.handle().promise();
  turn.core = handler.core;
  turn.group = handler.group;
  turn.is_turn = true;
  turn.owner = handler.owner;
  turn.since = cell.home->shard.now();
  turn.child = &handler;
  handler.parent = &turn;
  turn.cell = &cell;
  turn.task = std::move(task);
  turn.kind = kind;
  turn.exclusive = exclusive;
  turn.method = method;
  return turn;
}

// ---- identity ---------------------------------------------------------------

CellExtras::CellExtras(ActorCell& cell) noexcept : clock(cell) {}
CellExtras::~CellExtras() = default;

ActorCell::ActorCell(NodeShard& home, std::uint32_t slot) noexcept
    : Work(&ActorCell::run),
      home(&home),
      core(&home.shard),
      delivered(home.delivered),
      slot(slot),
      owner(home.owner_of(slot)) {}
ActorCell::~ActorCell() = default;

const std::string& ActorCell::name() const noexcept {
  static const std::string none;
  return more ? more->name : none;
}

CellExtras& ActorCell::extras() {
  if (!more) more = std::make_unique<CellExtras>(*this);
  return *more;
}

const ServiceInfo* ActorCell::service() const noexcept {
  if (object) return &object->service();
  return more ? more->service : nullptr;
}

void ActorCell::home_schedule() noexcept { home->shard.schedule(this, group()); }

// ---- what it does, for people -----------------------------------------------

namespace {

const char* name_of(ActorCell::Phase phase) noexcept {
  switch (phase) {
    case ActorCell::Phase::free: return "free";
    case ActorCell::Phase::starting: return "starting";
    case ActorCell::Phase::open: return "open";
    case ActorCell::Phase::stopping: return "stopping";
    case ActorCell::Phase::closing: return "closing";
    case ActorCell::Phase::pausing: return "pausing";
  }
  return "unknown";
}

const char* name_of(ActorCell::TurnKind kind) noexcept {
  switch (kind) {
    case ActorCell::TurnKind::letter: return "letter";
    case ActorCell::TurnKind::down: return "down";
    case ActorCell::TurnKind::started: return "started";
    case ActorCell::TurnKind::stopping: return "stopping";
    case ActorCell::TurnKind::background: return "background";
    case ActorCell::TurnKind::inbox: return "inbox";
  }
  return "unknown";
}

}  // namespace

ActorReport ActorCell::report(std::size_t most_turns) {
  ActorReport report;
  report.id = id;
  report.name = name();
  if (const ServiceInfo* info = service()) report.service = info->name;
  report.shard = home->shard.index();
  report.state = name_of(phase);
  report.busy = busy;
  report.mailbox_messages = mailbox.size();
  report.mailbox_bytes = mailbox_bytes;
  report.mailbox_limit = limits->messages;
  report.waiting_senders = senders.size() + arrivals.size();
  report.handled = handled;
  report.owner = owner;
  if (more) {
    report.parent = more->parent.id;
    report.restarts = more->restart_count;
    report.last_failure = more->last_failure;
  }
  turns.for_each([&](Turn& turn) {
    if (report.turns.size() == most_turns) {
      ++report.turns_left_out;
      return;
    }
    const auto& root = static_cast<const Turn::promise_type&>(turn);
    report.turns.push_back({.kind = name_of(turn.kind),
                            .method = turn.method ? turn.method->name : "",
                            .exclusive = turn.exclusive,
                            .suspended_for = home->shard.now() - turn.since,
                            .chain = chain_of(root.child)});
  });
  return report;
}

// ---- the mailbox ------------------------------------------------------------

bool ActorCell::has_room(const Letter& letter) const noexcept {
  if (mailbox.empty()) return true;  // even what is larger than the bound must pass at some time
  return mailbox.size() < limits->messages && mailbox_bytes + letter.bytes <= limits->bytes;
}

void ActorCell::admit(Letter* letter) noexcept {
  if (letter->kind == Letter::Kind::tell) {
    letter->deadline = no_deadline;
    if (Receipt* receipt = std::exchange(letter->receipt, nullptr))
      receipt->send_home(*home, std::nullopt);
  }
  mailbox_bytes += letter->bytes;
  mailbox.push(letter);
  if (mailbox.size() >= limits->messages || mailbox_bytes >= limits->bytes) note_congestion();
  if (!busy && phase == Phase::open) schedule();
}

// Where letters are dropped, senders of other shards have nothing to wait for.
void ActorCell::note_congestion() noexcept {
  if (drops()) return;
  const bool waiting = !senders.empty() || !arrivals.empty();
  const bool full = mailbox.size() >= limits->messages || mailbox_bytes >= limits->bytes;
  congested.store(waiting || full, std::memory_order_relaxed);
}

bool ActorCell::make_room_for(Letter& letter) noexcept {
  if (limits->overflow != Overflow::drop_oldest) return false;
  while (!has_room(letter)) {
    Letter* oldest = pop();
    constexpr const char* why = "the mailbox was full, and newer messages came";
    home->note_dead(*oldest, this, Errc::overloaded, why);
    fail(oldest, Error(Errc::overloaded, std::string("ask ") + oldest->method->name, why));
  }
  return true;
}

ActorCell::Taken ActorCell::offer(Letter* letter, std::optional<Error>* why) noexcept {
  Error* refusal = nullptr;
  std::optional<Error> own;
  if (!accepts()) [[unlikely]] {
    home->note_dead(*letter, this, Errc::actor_down, "the actor is ending");
    refusal = &own.emplace(Errc::actor_down, std::string("send ") + letter->method->name,
                           "the actor is ending");
  } else if (has_room(*letter) || make_room_for(*letter)) [[likely]] {
    admit(letter);
    return Taken::yes;
  } else if (limits->overflow == Overflow::suspend) {
    congested.store(true, std::memory_order_relaxed);
    return Taken::full;
  } else {
    home->note_dead(*letter, this, Errc::overloaded, "the mailbox is full");
    const bool drops = limits->overflow == Overflow::drop_newest;
    const bool told = letter->kind == Letter::Kind::tell;
    refusal = &own.emplace(Errc::overloaded, std::string("send ") + letter->method->name,
                           "the mailbox is full", "send less, or let its actor do less a message");
    if (drops && told) {
      fail(letter, std::move(*refusal));
      return Taken::yes;  // dropped, as its policy says, without the sender's notice
    }
  }
  if (why) *why = *refusal;
  fail(letter, std::move(*refusal));
  return Taken::refused;
}

bool ActorCell::arrive(Letter* letter) noexcept {
  const bool same = generation == letter->generation && id;
  if (!same || !accepts()) {
    home->note_dead(*letter, same ? this : nullptr, Errc::actor_down, "the actor has ended");
    fail(letter, Error(Errc::actor_down, std::string("send ") + letter->method->name,
                       "the actor has ended", "find or start it again"));
    return false;
  }
  if ((arrivals.empty() && has_room(*letter)) || make_room_for(*letter)) {
    admit(letter);
    return false;
  }
  if (limits->overflow == Overflow::suspend) {
    drop_expired_arrivals();
    arrivals.push(letter);
    congested.store(true, std::memory_order_relaxed);
    return true;
  }
  home->note_dead(*letter, this, Errc::overloaded, "the mailbox is full");
  if (limits->overflow == Overflow::drop_newest && letter->kind == Letter::Kind::tell &&
      letter->receipt)
    std::exchange(letter->receipt, nullptr)->send_home(*home, std::nullopt);
  fail(letter, Error(Errc::overloaded, std::string("send ") + letter->method->name,
                     "the mailbox is full", "send less, or let its actor do less a message"));
  return false;
}

Letter* ActorCell::pop_arrival() noexcept {
  Letter* letter = arrivals.pop();
  if (letter && letter->holds_credit) release_credit(*letter);
  return letter;
}

// Senders that gave up leave their letters here, mostly oldest deadlines first: they must not pile
// up. Behind one that has time they are looked for whenever as many again may have come.
void ActorCell::drop_expired_arrivals() noexcept {
  const Time now = home->shard.now();
  const auto drop = [&] {
    Letter* letter = pop_arrival();
    constexpr const char* why = "there was no room for it in time";
    home->note_dead(*letter, this, Errc::deadline_exceeded, why);
    fail(letter, Error(Errc::deadline_exceeded, std::string("send ") + letter->method->name, why));
  };
  while (!arrivals.empty() && arrivals.front()->deadline <= now) drop();
  if (arrivals.size() < CellExtras::least_sweep) {
    if (more) more->next_sweep = CellExtras::least_sweep;
    return;
  }
  if (arrivals.size() < extras().next_sweep) return;
  for (std::uint32_t left = arrivals.size(); left > 0; --left) {
    if (arrivals.front()->deadline <= now) {
      drop();
    } else {
      arrivals.push(arrivals.pop());
    }
  }
  more->next_sweep = std::max(2 * arrivals.size(), CellExtras::least_sweep);
}

Letter* ActorCell::pop() noexcept {
  auto* letter = mailbox.pop();
  if (!letter) return nullptr;
  mailbox_bytes -= letter->bytes;
  if (congested.load(std::memory_order_relaxed)) [[unlikely]]
    admit_waiting();
  return letter;
}

// Coroutines of this shard and letters from elsewhere take turns.
void ActorCell::admit_waiting() noexcept {
  drop_expired_arrivals();
  while (!senders.empty() || !arrivals.empty()) {
    bool admitted = false;
    if (!senders.empty() && has_room(*senders.front().letter())) {
      SendWaiter& sender = *senders.pop_front();
      Letter* letter = sender.letter();
      sender.taken();
      admit(letter);
      admitted = true;
    }
    if (!arrivals.empty() && has_room(*arrivals.front())) {
      admit(pop_arrival());
      admitted = true;
    }
    if (!admitted) break;
  }
  note_congestion();
}

Letter* ActorCell::take() noexcept {
  while (Letter* letter = pop()) {
    const bool given_up =
        letter->kind == Letter::Kind::ask && letter->origin == home && !letter->waiting;
    if (letter->deadline > home->shard.now() && !given_up) [[likely]]
      return letter;
    constexpr const char* why = "its deadline passed in the mailbox";
    home->note_dead(*letter, this, Errc::deadline_exceeded, why);
    fail(letter, Error(Errc::deadline_exceeded, std::string("ask ") + letter->method->name, why));
  }
  return nullptr;
}

// ---- turns ------------------------------------------------------------------

void ActorCell::run(Work* work) noexcept { static_cast<ActorCell*>(work)->work(); }

void ActorCell::work() noexcept {
  queued = false;
  unsigned left = letters_per_run;
  while (phase == Phase::open && !busy) {
    if (stop_requested) return begin_end(ExitReason::normal, {});
    if (left-- == 0) {
      if (!mailbox.empty() || !control.empty()) schedule();
      return;
    }
    if (is_inbox) {
      auto& inbox = static_cast<InboxActor&>(*object);
      busy = true;
      if (!control.empty()) {
        std::unique_ptr<Watch> watch(static_cast<Watch*>(control.pop()));
        inbox.hand_over(std::move(watch->down));
      } else if (Letter* letter = take()) {
        ++handled;
        delivered.add();
        inbox.hand_over(letter);
      } else {
        busy = false;
      }
      return;
    }
    if (!control.empty()) [[unlikely]] {
      std::unique_ptr<Watch> watch(static_cast<Watch*>(control.pop()));
      begin_call(TurnKind::down, nullptr, [&] { return object->on_down(std::move(watch->down)); });
      continue;
    }
    Letter* letter = take();
    if (!letter) return;
    ++handled;
    delivered.add();
    const MethodInfo* method = letter->method;
    const Time deadline =
        method->streams ? letter->content_as<StreamOffer>().deadline : letter->deadline;
    begin_chain(*this, *letter);
    begin_call(TurnKind::letter, method, [&] { return method->invoke(*object, letter); }, deadline);
  }
}

[[gnu::always_inline]] inline void ActorCell::end_turn(Task<void>& task, TurnKind kind,
                                                       const MethodInfo* method) noexcept {
  try {
    task.handle().promise().take();
    task = {};  // a Reply that its frame still holds is dropped here
  } catch (...) {
    return turn_failed(std::current_exception(), task, kind, method);
  }
  if (kind == TurnKind::started) {
    opened();
  } else if (kind == TurnKind::inbox) {
    begin_end(ExitReason::normal, {});
  }
}

void ActorCell::begin_turn(Task<void> task, TurnKind kind, bool exclusive, const MethodInfo* method,
                           Time deadline) noexcept {
  const auto handle = task.handle();
  PromiseBase& promise = handle.promise();
  promise.core = &home->shard;
  promise.cancel = kind == TurnKind::stopping ? nullptr : &cancel;
  promise.owner = owner;
  promise.group = static_cast<std::uint8_t>(group());
  promise.deadline = deadline;
  running = true;
  RunningTurn here(*this, exclusive || kind == TurnKind::inbox, kind == TurnKind::letter);
  handle.resume();
  running = false;
  // Used up it would wrap around, and what this ran inside of goes on.
  if (core->transfer_budget == 0) core->transfer_budget = 1;
  const bool ended_meanwhile = phase == Phase::closing;
  if (handle.done()) [[likely]] {
    end_turn(task, kind, method);
  } else {
    busy |= exclusive;
    Turn& turn = Turn::make(*this, std::move(task), kind, exclusive, method);
    here.suspended(turn.promise());
    turns.push_back(turn);
  }
  if (ended_meanwhile) [[unlikely]]
    progress();
}

void ActorCell::start_background(Task<void> task) noexcept {
  start_background(std::move(task), group());
}

void ActorCell::start_background(Task<void> task, Group in) noexcept {
  PromiseBase& promise = task.handle().promise();
  promise.core = &home->shard;
  promise.cancel = &cancel;
  promise.owner = owner;
  promise.group = static_cast<std::uint8_t>(in);
  turns.push_back(Turn::make(*this, std::move(task), TurnKind::background, false, nullptr));
  promise.schedule();
}

void ActorCell::constructor_failed() noexcept {
  while (Turn* turn = turns.pop_front()) turn->frame.destroy();
  forget_others();
  if (more) {
    more->children.reset();
    more->traps_exits = false;
  }
  is_inbox = stop_requested = false;
}

void ActorCell::turn_ended(Turn& turn) noexcept {
  turn.unlink();
  if (turn.exclusive) busy = false;
  Task<void> task = std::move(turn.task);
  end_turn(task, turn.kind, turn.method);
  progress();
}

// Thrown by a handler that is no coroutine, or has no memory for its frame.
void ActorCell::call_failed(std::exception_ptr failure, TurnKind kind,
                            const MethodInfo* method) noexcept {
  running = false;
  const bool ended_meanwhile = phase == Phase::closing;
  Task<void> none;
  turn_failed(std::move(failure), none, kind, method);
  if (ended_meanwhile) progress();
}

void ActorCell::turn_failed(std::exception_ptr failure, Task<void>& task, TurnKind kind,
                            const MethodInfo* method) noexcept {
  const bool ending = phase == Phase::closing || phase == Phase::stopping;
  const bool answers = is_error(failure) && kind == TurnKind::letter;
  {
    DropReason reason(*home, [&] {
      Error error(Errc::actor_down, method ? std::string("ask ") + method->name : "ask an actor",
                  "the actor ended before it answered: " + text_of(failure));
      if (answers && !ending) is_error(failure, &error);
      return error;
    });
    task = {};
    home->unwound.end(*this);
  }
  if (ending) {
    if (kind == TurnKind::stopping)
      log::warning("actor '" + name() + "' failed while it stopped: " + text_of(failure));
    return;
  }
  if (!answers) return crash(std::move(failure), kind == TurnKind::started);
  if (method->oneway)
    log::warning(std::string("a handler of ") + method->name + " failed: " + text_of(failure));
}

// ---- beginning and end ------------------------------------------------------

void ActorCell::start(Actor* made) noexcept {
  object = made;
  phase = Phase::starting;
  if (more) {
    more->was_open = more->restored = false;
    more->stragglers.clear();
  }
  if (is_inbox) {
    auto& inbox = static_cast<InboxActor&>(*made);
    opened();
    busy = true;  // until it receives
    begin_call(TurnKind::inbox, nullptr, [&] { return inbox.body(); });
    return;
  }
  begin_call(TurnKind::started, nullptr,
             [&] { return more && more->kept ? begin_life(made) : made->started(); });
}

// With what the last life left.
Task<void> ActorCell::begin_life(Actor* made) {
  if (Task<void> restored = more->factory->restore(*made, std::move(more->kept)))
    co_await std::move(restored);
  more->restored = true;
  if (Task<void> starting = made->started()) co_await std::move(starting);
}

void ActorCell::opened() noexcept {
  if (phase != Phase::starting) return;
  phase = Phase::open;
  if (more) {
    more->was_open = true;
    if (std::exchange(more->tells_began, false)) tell_supervisor({.what = ChildNews::What::began});
  }
  tell_spawner();
  if (!mailbox.empty() || !control.empty() || stop_requested) schedule();
}

void ActorCell::tell_spawner() noexcept {
  if (more && more->spawner) std::exchange(more->spawner, nullptr)->notify();
}

void ActorCell::deliver_down(Watch* watch) noexcept {
  control.push(watch);
  if (!busy && phase == Phase::open) schedule();
}

void ActorCell::watch(const Destination& other, bool link, bool requested) {
  auto watch = std::make_unique<Watch>(*home);
  watch->watcher = address();
  watch->link = link;
  watch->requested = requested;
  extras().watching.push_back(watch->by_watcher);
  watch.release()->begin(other);
}

void ActorCell::link_with(const Destination& other, bool requested) {
  bool linked = false;
  extras().watching.for_each(
      [&](WatchByWatcher& each) { linked |= each.watch.link && each.watch.is_of(other); });
  if (!linked) watch(other, true, requested);
}

void ActorCell::unlink_from(const Destination& other) noexcept {
  if (!more) return;
  more->watching.for_each([&](WatchByWatcher& each) {
    if (each.watch.link && each.watch.is_of(other)) each.watch.abandon();
  });
}

std::size_t ActorCell::link_count() const noexcept { return more ? more->watching.size() : 0; }

void ActorCell::link_broken(const Down& down) noexcept {
  if (!is_abnormal(down.reason)) return;
  const std::string who = down.name.empty() ? std::to_string(down.id) : "'" + down.name + "'";
  crash(std::make_exception_ptr(Error(Errc::actor_down, "live on without linked actor " + who,
                                      "it ended (" + std::string(hyperframes::name(down.reason)) +
                                          ")" + (down.text.empty() ? "" : ": " + down.text))),
        false);
}

void ActorCell::stop() noexcept {
  if (phase == Phase::pausing) {
    more->clock.stop();
    more->reason = ExitReason::stopped;
    return finish();
  }
  if (phase == Phase::starting || phase == Phase::open) return begin_end(ExitReason::stopped, {});
  // It is ending already, but would come back.
  if (phase != Phase::free && comes_back()) {
    more->reason = ExitReason::stopped;
    more->suspending = false;
  }
}

void ActorCell::suspend() noexcept {
  if (phase == Phase::pausing && !more->held) {
    more->clock.stop();
    more->held = true;
    return tell_supervisor({.what = ChildNews::What::held});
  }
  if (phase == Phase::starting || phase == Phase::open) {
    extras().suspending = true;
    return begin_end(ExitReason::stopped, {});
  }
  more->awaited = true;  // it ends by itself, and what follows counts
}

void ActorCell::revive() noexcept {
  if (phase != Phase::pausing || !more->held) return;
  more->held = false;
  more->tells_began = true;
  restart();
}

void ActorCell::crash(std::exception_ptr cause, bool at_start) noexcept {
  if (!accepts() || phase == Phase::pausing) return;
  home->crashes.add();
  if (at_start && home->start_failure) {
    *home->start_failure = cause;
    extras().failed_start = true;
  } else if (at_start && extras().spawner) {
    extras().start_failure = cause;
    extras().failed_start = true;
  }
  begin_end(ExitReason::crashed, text_of(cause));
}

void ActorCell::begin_end(ExitReason reason, std::string text, std::vector<Cause> causes) noexcept {
  if (phase == Phase::closing || phase == Phase::stopping || phase == Phase::free) return;
  CellExtras& extras = this->extras();
  extras.reason = reason;
  extras.text = std::move(text);
  extras.causes = std::move(causes);
  if (reason == ExitReason::crashed) {
    extras.last_failure = extras.text;
    extras.failed_start |= extras.spawner != nullptr;  // also if not by `started` itself
  }
  extras.orderly = reason != ExitReason::crashed && phase == Phase::open && !is_inbox &&
                   extras.grace != Duration::zero();
  phase = Phase::closing;
  if (running || !turns.empty()) cancel.cancel(Errc::cancelled);
  progress();
  // What did not end at once has a grace period; children have their own, once they are told.
  const bool ending = id && (phase == Phase::closing || phase == Phase::stopping);
  if (ending && (running || !turns.empty())) start_grace();
}

void ActorCell::start_grace() noexcept {
  const Duration grace = more->grace.value_or(default_ask_span);
  const Time now = home->shard.now();
  if (grace < Time::max() - now) home->shard.start_timer(more->clock, now + grace);
}

// Goes one step further once the last turn, or the last child, has ended.
void ActorCell::progress() noexcept {
  if (phase == Phase::open) {
    if (!busy && (!mailbox.empty() || !control.empty() || stop_requested)) schedule();
    return;
  }
  if (phase != Phase::closing && phase != Phase::stopping) return;
  if (running || !turns.empty() || in_progress) return;
  if (more->orderly) {
    more->orderly = false;
    phase = Phase::stopping;
    in_progress = true;
    begin_call(TurnKind::stopping, nullptr, [this] { return object->stopping(); });
    in_progress = false;
    if (!turns.empty()) return;
  }
  phase = Phase::closing;
  if (has_children() && more->children->stop_last()) return more->clock.stop();
  finish_incarnation();
}

void ActorCell::clock_fired() noexcept {
  if (phase == Phase::pausing) return restart();
  if (more->grace != Duration::zero()) note_straggler();
  more->orderly = false;
  phase = Phase::closing;
  destroy_turns();
  progress();  // its children may still have to end
}

void ActorCell::note_straggler() noexcept {
  more->stragglers.push_back(who());
  SupervisionEvent event = this->event(Decision::destroy);
  if (!turns.empty()) {
    const auto& root = static_cast<const Turn::promise_type&>(turns.front());
    event.text = chain_of(root.child).to_string();
  }
  record(std::move(event));
}

// Replies that its turns, or its object, still hold answer with why it ended.
void ActorCell::destroy_turns(bool with_object) noexcept {
  const CellExtras& extras = *more;
  DropReason reason(*home, [&] {
    return Error(Errc::actor_down, "ask an actor",
                 "actor '" + extras.name + "' ended (" +
                     std::string(hyperframes::name(extras.reason)) + ")" +
                     (extras.text.empty() ? "" : ": " + extras.text));
  });
  while (Turn* turn = turns.pop_front()) turn->frame.destroy();
  if (with_object) delete std::exchange(object, nullptr);
}

// What others still have to tell it is for the object that asked, not for its successor.
void ActorCell::forget_others() noexcept {
  if (more)
    while (!more->watching.empty()) more->watching.front().watch.abandon();
  while (auto* watch = static_cast<Watch*>(control.pop())) delete watch;
}

void ActorCell::finish_incarnation() noexcept {
  CellExtras& extras = *more;
  extras.clock.stop();
  phase = Phase::closing;
  if (object) extras.service = &object->service();
  destroy_turns();
  const Verdict verdict = judge();
  if (verdict == Verdict::restart || verdict == Verdict::hold) take_snapshot();
  destroy_turns(true);
  forget_others();
  extras.children.reset();
  is_inbox = busy = stop_requested = extras.traps_exits = false;
  if (cancel.cancelled()) {
    std::destroy_at(&cancel);
    std::construct_at(&cancel);
  }
  carry_out(verdict);
}

void ActorCell::take_snapshot() noexcept {
  // Who was interrupted while it started has broken nothing: what it was given is good.
  const bool unbroken = more->restored && more->reason != ExitReason::crashed;
  if (!object || !more->factory || !(more->was_open || unbroken)) return;
  try {
    more->kept = more->factory->snapshot(*object, more->reason);
  } catch (...) {
    more->kept.reset();
    log::warning("actor " + who() +
                 " begins anew, since its snapshot failed: " + text_of(std::current_exception()));
  }
}

bool ActorCell::comes_back() const noexcept {
  if (more->suspending) return true;
  const ExitReason reason = more->reason;
  if (more->policy.kind == Restart::permanent) return reason != ExitReason::stopped;
  return more->policy.kind == Restart::transient && reason == ExitReason::crashed;
}

ActorCell::Verdict ActorCell::judge() noexcept {
  CellExtras& extras = *more;
  const bool back = comes_back() && !extras.failed_start && !home->closed();
  const bool told = std::exchange(extras.suspending, false);
  if (!back) return Verdict::end;
  if (told) return Verdict::hold;
  return extras.budget.take(extras.policy, home->shard.now()) ? Verdict::restart : Verdict::give_up;
}

void ActorCell::carry_out(Verdict verdict) noexcept {
  CellExtras& extras = *more;
  const bool supervised = extras.policy.kind != Restart::temporary;
  switch (verdict) {
    case Verdict::restart:
    case Verdict::hold: return pause_for(verdict);
    case Verdict::give_up: {
      SupervisionEvent event = this->event(Decision::give_up);
      event.reason = extras.reason = ExitReason::exhausted;
      record(std::move(event));
      break;
    }
    case Verdict::end:
      if (extras.failed_start || home->closed()) break;
      if (extras.reason == ExitReason::crashed ||
          (supervised && extras.reason == ExitReason::normal))
        record(event(Decision::end));
  }
  finish();
}

// Between two lives: until its own clock, or its supervisor, has it go on.
void ActorCell::pause_for(Verdict verdict) noexcept {
  CellExtras& extras = *more;
  phase = Phase::pausing;
  if (!extras.keep_mailbox)
    empty_mailbox("actor " + who() + " " + ended_text(extras.reason, extras.text) +
                  "; its mailbox is not kept over a restart");
  ++extras.restart_count;
  home->restarts.add();
  const bool awaited = std::exchange(extras.awaited, false);
  if (verdict == Verdict::hold) {
    extras.held = true;
    return tell_supervisor({.what = ChildNews::What::held});
  }
  const Duration pause = extras.budget.pause(extras.policy);
  SupervisionEvent event = this->event(Decision::restart);
  event.pause = pause;
  if (extras.strategy == Strategy::one_for_one) {
    record(std::move(event));
    if (awaited) {
      extras.held = true;
      return tell_supervisor({.what = ChildNews::What::held});
    }
    home->shard.start_timer(extras.clock, after(pause));
    return;
  }
  extras.held = true;
  tell_supervisor({.what = ChildNews::What::failed,
                   .event = std::make_unique<SupervisionEvent>(std::move(event))});
}

SupervisionEvent ActorCell::event(Decision decision) const {
  SupervisionEvent event;
  event.at = home->shard.now();
  event.decision = decision;
  event.actor = id;
  event.shard = home->shard.index();
  event.name = more->name;
  event.supervisor = more->parent.id;
  event.strategy = more->strategy;
  event.reason = more->reason;
  event.text = more->text;
  event.causes = more->causes;
  event.causes.insert(event.causes.begin(), {id, more->name, more->reason, more->text});
  event.restarts = more->budget.used();
  event.intensity = more->policy.intensity;
  event.period = more->policy.period;
  return event;
}

std::string ActorCell::who() const { return title_of(more ? more->name : std::string(), id); }

void ActorCell::record(SupervisionEvent event) const noexcept {
  home->core.record(std::move(event));
}

void ActorCell::tell_of_end() noexcept {
  CellExtras& extras = *more;
  ChildNews news{.what = ChildNews::What::ended,
                 .down = {id, extras.name, extras.reason, extras.text},
                 .causes = std::move(extras.causes),
                 .stragglers = std::move(extras.stragglers),
                 .restarts = extras.budget.used(),
                 .period = extras.policy.period};
  tell_supervisor(std::move(news));
}

void ActorCell::tell_supervisor(ChildNews news) noexcept {
  home->report_to_parent(more->parent, address(), std::move(news));
}

void ActorCell::restart() noexcept {
  Actor* made = nullptr;
  try {
    made = home->make(*this, *more->factory);
  } catch (...) {
    home->crashes.add();
    constructor_failed();
    more->reason = ExitReason::crashed;
    more->text = more->last_failure = text_of(std::current_exception());
    more->causes.clear();
    return carry_out(judge());
  }
  start(made);
}

void ActorCell::empty_mailbox(const std::string& why) noexcept {
  constexpr Errc cause = Errc::actor_down;
  const auto end = [&](Letter* letter) {
    home->note_dead(*letter, this, cause, why);
    fail(letter, Error(cause, std::string("send ") + letter->method->name,
                       "actor '" + name() + "' ended before it came to it"));
  };
  while (Letter* letter = mailbox.pop()) end(letter);
  mailbox_bytes = 0;
  while (Letter* letter = pop_arrival()) end(letter);
  while (SendWaiter* sender = senders.pop_front()) {
    home->note_dead(*sender->letter(), this, cause, why);
    sender->refused(Error(cause, std::string("send ") + sender->letter()->method->name,
                          "actor '" + name() + "' ended before there was room for it"));
  }
  congested.store(false, std::memory_order_relaxed);
}

void ActorCell::finish() noexcept {
  CellExtras& extras = *more;
  phase = Phase::closing;
  const bool letters = !mailbox.empty() || !arrivals.empty() || !senders.empty();
  empty_mailbox(letters ? "actor " + who() + " " + ended_text(extras.reason, extras.text)
                        : std::string());
  if (!extras.stragglers.empty())
    extras.text += (extras.text.empty() ? "" : "; ") + destroyed_text(extras.stragglers);
  while (Watch* watch = extras.watches.pop_front()) {
    watch->down = {id, extras.name, extras.reason, extras.text, watch->link};
    watch->send_home();
  }
  if (!extras.name.empty()) home->core.registry.remove(extras.name, address());
  if (extras.parent.cell) tell_of_end();
  if (extras.spawner) {
    extras.spawner->failure =
        extras.start_failure
            ? extras.start_failure
            : std::make_exception_ptr(
                  Error(Errc::actor_down, "spawn actor " + who(),
                        "before it had started it " + ended_text(extras.reason, extras.text)));
    tell_spawner();
  }
  home->free_cell(*this);
}

void ActorCell::kill() noexcept {
  if (!more) extras();
  more->reason = ExitReason::stopped;
  more->policy.kind = Restart::temporary;
  more->suspending = false;
  if (more->children) more->children->forget_all();
  more->orderly = false;
  if (phase == Phase::pausing) {
    more->clock.stop();
    return finish();
  }
  finish_incarnation();
}

Children& ActorCell::children() {
  auto& children = extras().children;
  if (!children) children = std::make_unique<Children>(*this);
  return *children;
}

void ActorCell::take_news(Address child, ChildNews news) noexcept {
  if (!has_children()) return;
  auto failure = more->children->take(child, std::move(news));
  if (failure) return child_given_up(std::move(failure->text), std::move(failure->causes));
  if (phase == Phase::closing) progress();
}

void ActorCell::child_given_up(std::string text, std::vector<Cause> causes) noexcept {
  if (!accepts() || phase == Phase::pausing) return;
  home->crashes.add();
  begin_end(ExitReason::crashed, std::move(text), std::move(causes));
}

void CellExtras::Clock::run(Timer& timer) noexcept {
  static_cast<Clock&>(timer).cell.clock_fired();
}

}  // namespace hyperframes::detail
