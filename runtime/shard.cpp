#include <algorithm>
#include <cassert>
#include <hyperframes/runtime/detail/current_pool.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <map>
#include <utility>

namespace hyperframes {
namespace {
// Only Shard::current() and CurrentShard touch it: nothing else may keep a reference to it.
thread_local Shard* current_shard = nullptr;

// A turn looks at the clock after 1, 2, 4, ... work items, and at least once in this many.
constexpr std::uint32_t longest_clock_stride = 32;
// Symmetric transfers before a chain goes through the ready queue; bounds stack and starvation.
constexpr std::uint32_t transfers_per_work = 256;
constexpr std::size_t arrivals_per_turn = 1024;
// Above this many ready items of a group, a turn takes in fewer from other shards than it has run.
constexpr std::size_t comfortable_backlog = 1024;
constexpr std::size_t timers_per_turn = 256;
// A shard that polls looks so often for something to do before its next turn, which looks at the
// clock for timers, and at no more than so many things: some hundred nanoseconds.
constexpr std::size_t looks_per_turn = 64, things_per_turn = 256;
// What an item counts for its group beside the time that it took: a clock may stand still.
constexpr std::uint64_t least_work_ns = 50;
}  // namespace

/// A task that the shard itself owns.
struct Shard::Root : detail::ListNode {
  Root(Shard& shard, std::source_location from)
      : shard(shard), launched(&Root::finished, &cancel, from, this) {}
  static void finished(detail::Launched& launched) noexcept {
    auto* root = static_cast<Root*>(launched.context());
    if (launched.failure) root->shard.report_failure(launched);
    delete root;
  }
  Shard& shard;
  CancelSource cancel;
  detail::Launched launched;
};

[[gnu::noinline]] Shard* Shard::current() noexcept {
  Shard* shard = current_shard;
  // An opaque use, so that no caller's copy of the thread's address is assumed to stay valid.
  asm volatile("" : "+r"(shard));
  return shard;
}

CurrentShard::CurrentShard(Shard& shard) noexcept
    : previous_(std::exchange(current_shard, &shard)) {
  detail::current_frame_pool = shard.frames_;
}
CurrentShard::~CurrentShard() {
  current_shard = previous_;
  detail::current_frame_pool = previous_ ? previous_->frames_ : nullptr;
}

Shard::Shard(Runtime& runtime, Options options, std::unique_ptr<Reactor> reactor)
    : runtime_(runtime),
      options_(options),
      reactor_(std::move(reactor)),
      now_(reactor_->now()),
      timers_(now_),
      frames_(new detail::FramePool),
      send_pool_(*this, {.name = "send", .quota_bytes = options.send_quota_bytes}),
      receive_pool_(*this, {.name = "receive", .quota_bytes = options.receive_quota_bytes}) {
  usage_[static_cast<std::size_t>(Group::user)].shares = options_.user_shares;
  for (const GroupOptions& group : options_.groups) usage_[groups_in_use_++].shares = group.shares;
}

Shard::~Shard() {
  {
    CurrentShard here(*this);
    destroy_roots();
    take_returned_blocks();  // the driver's among them, while it lives
    reactor_.reset();
    take_returned_blocks();
  }
  detail::FramePool::retire(frames_);
}

Offload& Shard::offload() const noexcept { return runtime_.offload(); }

void Shard::spawn(Task<void> task, Group group, std::source_location from) {
  assert(current() == this && "spawn on the shard itself; from elsewhere use call_on or post");
  if (static_cast<std::size_t>(group) >= groups_in_use_)
    throw Error(Errc::invalid_argument, "spawn a task",
                "the runtime has no scheduling group of number " +
                    std::to_string(static_cast<unsigned>(group)),
                "take one that Runtime::group gives");
  if (closed_) return;
  auto* root = new Root(*this, from);
  roots_.push_back(*root);
  root->launched.start(std::move(task), *this, static_cast<std::uint8_t>(group), 0);
  if (stopping_) root->cancel.cancel(Errc::shutting_down);
}

void Shard::report_failure(const detail::Launched& launched) noexcept {
  std::string cause = "an exception of unknown type";
  try {
    std::rethrow_exception(launched.failure);
  } catch (const Error& error) {
    if (stopping_ && (error.is(Errc::shutting_down) || error.is(Errc::cancelled))) return;
    cause = error.what();
  } catch (const std::exception& error) {
    cause = error.what();
  } catch (...) {
  }
  const auto from = launched.from();
  log::error("a task spawned at " + std::string(from.file_name()) + ":" +
             std::to_string(from.line()) + " failed: " + cause);
}

void Shard::cancel_roots() noexcept {
  stopping_ = true;
  roots_.for_each([](Root& root) { root.cancel.cancel(Errc::shutting_down); });
}

void Shard::destroy_roots() noexcept {
  while (Root* root = roots_.pop_back()) delete root;
}

void Shard::post(detail::Work* work, Group group) noexcept {
  const std::size_t index = ring_of(group);
  Shard* from = current();
  if (from == this) return schedule(work, group);
  if (!from || &from->runtime_ != &runtime_) {
    if (!foreign_[index].push(work)) return runtime_.run_late(*this, work, group);
    // Pairs with the fence in `idle`: either we see it asleep, or it sees what we pushed.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_relaxed)) reactor_->wake();
    return;
  }
  auto& waiting = from->overflow_[options_.index][index];
  if (!waiting.empty() || !incoming_[from->options_.index][index]->push(work, index)) {
    waiting.push(work);
    ++from->overflow_count_;
  }
  from->ring_doorbell_of(*this);
}

bool Shard::has_ring_room(Group group) noexcept {
  const std::size_t index = ring_of(group);
  Shard* from = current();
  if (from == this || !from || &from->runtime_ != &runtime_) return true;
  return from->overflow_[options_.index][index].empty() &&
         incoming_[from->options_.index][index]->has_room();
}

// Rung at the end of the turn, once for all that was sent in it.
void Shard::ring_doorbell_of(Shard& target) noexcept {
  if (std::ranges::find(woken_, &target) == woken_.end()) woken_.push_back(&target);
}

void Shard::flush_outgoing() noexcept {
  if (overflow_count_) {
    for (std::size_t target = 0; target < overflow_.size(); ++target) {
      for (std::size_t group = 0; group < ring_count; ++group) {
        auto& waiting = overflow_[target][group];
        if (waiting.empty()) continue;
        Shard& shard = runtime_.shard(static_cast<unsigned>(target));
        auto& ring = *shard.incoming_[options_.index][group];
        while (!waiting.empty() && ring.has_room()) {
          ring.push(waiting.pop(), group);
          --overflow_count_;
        }
        ring_doorbell_of(shard);
      }
    }
  }
  for (Shard* target : woken_) {
    // Pairs with the fence in `idle`: either we see it asleep, or it sees what we pushed.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (target->sleeping_.load(std::memory_order_relaxed)) target->reactor_->wake();
  }
  woken_.clear();
  for (auto& chain : homebound_) chain.pool->take_back(chain.first, chain.last);
  homebound_.clear();
}

void Shard::send_home(detail::FrameHeader* header) noexcept {
  auto* frame = reinterpret_cast<detail::FreeFrame*>(header + 1);
  for (auto& chain : homebound_) {
    if (chain.pool != header->owner) continue;
    frame->next = chain.first;
    chain.first = frame;
    return;
  }
  frame->next = nullptr;
  homebound_.push_back({header->owner, frame, frame});
}

void Shard::take_back(detail::Block* block) noexcept {
  block->next = returned_blocks_.load(std::memory_order_relaxed);
  while (!returned_blocks_.compare_exchange_weak(block->next, block, std::memory_order_release,
                                                 std::memory_order_relaxed)) {
  }
  // Memory alone is no reason to wake a shard, unless some task there waits for it. Pairs with the
  // fence in `idle`: either we see that task, or the shard sees the block before it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!memory_waiters_.load(std::memory_order_relaxed)) return;
  if (Shard* from = current()) {
    from->ring_doorbell_of(*this);
  } else if (sleeping_.load(std::memory_order_relaxed)) {
    reactor_->wake();
  }
}

void Shard::take_returned_blocks() noexcept {
  if (!returned_blocks_.load(std::memory_order_relaxed)) return;
  detail::Block* block = returned_blocks_.exchange(nullptr, std::memory_order_acquire);
  while (block) {
    detail::Block* next = block->next;
    if (--block->references == 0) block->dispose(block);
    block = next;
  }
}

// The system group's work is always taken in. The user group's is left in the rings while there is
// much to do already, so that the senders feel it and wait; but a share of what was run is taken,
// so that a backlog of this shard's own making can't shut the others out.
void Shard::take_arrivals() noexcept {
  if (!arrivals_waiting()) return;
  constexpr auto system = static_cast<std::size_t>(Group::system);
  constexpr auto user = static_cast<std::size_t>(Group::user);
  const std::size_t backlog = ready_of_users();
  std::size_t room = std::max(comfortable_backlog - std::min(comfortable_backlog, backlog),
                              (user_work_last_turn_ + 1) / 2);
  const std::size_t count = incoming_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto& rings = incoming_[(first_incoming_ + i) % count];
    if (!rings[system]) continue;
    rings[system]->drain(ready, arrivals_per_turn);
    if (room > 0) room -= rings[user]->drain(ready, room);
  }
  first_incoming_ = count ? (first_incoming_ + 1) % count : 0;
  for (std::size_t ring = 0; ring < ring_count; ++ring) foreign_[ring].drain(ready[ring]);
  take_returned_blocks();
}

bool Shard::arrivals_waiting() const noexcept {
  for (const auto& rings : incoming_)
    for (const auto& ring : rings)
      if (ring && !ring->empty()) return true;
  return !foreign_[0].empty() || !foreign_[1].empty() ||
         returned_blocks_.load(std::memory_order_relaxed);
}

std::uint32_t Shard::run_group(std::size_t group, std::uint32_t most, Time limit) noexcept {
  detail::WorkQueue& queue = ready[group];
  running_group = static_cast<std::uint8_t>(group);
  // What becomes ready meanwhile waits for the next turn once the limits are reached.
  std::uint32_t stride = 1, next_look = 1;
  std::uint32_t count = 0;
  while (count < most) {
    if (stop_requested_.load(std::memory_order_relaxed)) break;
    detail::Work* work = queue.pop();
    if (!work) break;
    transfer_budget = transfers_per_work;
    ++work_run_;
    work->run(work);
    running_at.store({}, std::memory_order_relaxed);
    running_owner.store(0, std::memory_order_relaxed);
    if (++count < next_look || queue.empty()) continue;
    if (reactor_->now() >= limit) break;
    stride = std::min(2 * stride, longest_clock_stride);
    next_look = count + stride;
  }
  return count;
}

// A group that had nothing to do begins where the others are: it saves nothing up.
std::size_t Shard::next_group() noexcept {
  std::size_t next = 0;
  for (std::size_t group = 1; group < groups_in_use_; ++group) {
    if (ready[group].empty()) continue;
    usage_[group].had = std::max(usage_[group].had, least_had_);
    if (!next || usage_[group].had < usage_[next].had) next = group;
  }
  if (next) least_had_ = usage_[next].had;
  return next;
}

// In units so small that no share makes nothing of an item, and so counted that none ever
// overflows.
void Shard::charge(Usage& usage, Duration took, std::uint32_t count) noexcept {
  constexpr std::uint64_t much = std::uint64_t{1} << 60;
  const auto spent = static_cast<std::uint64_t>(std::clamp<Duration>(took, 0ns, 1h).count());
  usage.had += std::max<std::uint64_t>(1, ((spent + count * least_work_ns) << 20) / usage.shares);
  if (usage.had < much) return;
  for (Usage& each : usage_) each.had -= std::min(each.had, least_had_);
  least_had_ = 0;
}

// In slices that are short against a turn, so that groups with work alternate within each.
void Shard::run_users() noexcept {
  const Time limit = now_ + options_.turn_time_limit;
  const std::uint32_t most = options_.turn_work_limit;
  if (groups_in_use_ == 2) {
    user_work_last_turn_ = run_group(static_cast<std::size_t>(Group::user), most, limit);
    return;
  }
  user_work_last_turn_ = 0;
  while (user_work_last_turn_ < most) {
    const std::size_t group = next_group();
    if (!group) return;
    const auto left = static_cast<std::uint32_t>(most - user_work_last_turn_);
    const Time begun = reactor_->now();
    const std::uint32_t count = run_group(group, std::min(left, std::max(1u, most / 16)),
                                          std::min(limit, begun + options_.turn_time_limit / 8));
    const Time ended = reactor_->now();
    charge(usage_[group], ended - begun, count);
    user_work_last_turn_ += count;
    if (ended >= limit || stop_requested_.load(std::memory_order_relaxed)) return;
  }
}

bool Shard::has_ready() const noexcept {
  for (std::size_t group = 0; group < groups_in_use_; ++group)
    if (!ready[group].empty()) return true;
  return false;
}

std::size_t Shard::ready_of_users() const noexcept {
  std::size_t count = 0;
  for (std::size_t group = 1; group < groups_in_use_; ++group) count += ready[group].size();
  return count;
}

void Shard::remove_poller(Poller& poller) noexcept {
  const auto found = std::ranges::find(pollers_, &poller);
  if (found == pollers_.end()) return;
  if (polling_) {
    *found = nullptr;
  } else {
    pollers_.erase(found);
  }
}

// One may remove itself and others, and add some. Those for which a turn leaves no time come first
// in the next one; half of it is for the groups.
void Shard::poll_pollers() noexcept {
  if (pollers_.empty()) return;
  const Time limit = now_ + options_.turn_time_limit / 2;
  polling_ = true;
  std::size_t polled = 0;
  while (polled < pollers_.size()) {
    Poller* const poller = pollers_[polled++];
    const std::size_t did = poller ? poller->poll() : 0;
    work_run_ += did;
    if (did && polled < pollers_.size() && reactor_->now() >= limit) break;
  }
  polling_ = false;
  if (polled < pollers_.size())
    std::rotate(pollers_.begin(), pollers_.begin() + static_cast<std::ptrdiff_t>(polled),
                pollers_.end());
  std::erase(pollers_, nullptr);
}

void Shard::arm_pollers() noexcept {
  for (Poller* poller : pollers_) poller->arm();
  pollers_armed_ = true;
}

void Shard::disarm_pollers() noexcept {
  if (!std::exchange(pollers_armed_, false)) return;
  for (Poller* poller : pollers_) poller->disarm();
}

bool Shard::pollers_ready() const noexcept {
  return std::ranges::any_of(pollers_, [](const Poller* poller) { return poller->ready(); });
}

bool Shard::turn() noexcept {
  sleeping_.store(false, std::memory_order_relaxed);
  disarm_pollers();
  return turn_from(reactor_->now());
}

bool Shard::turn_from(Time started) noexcept {
  CurrentShard here(*this);
  ++turns_;
  // Delivering is part of the turn: who is told of a completion may get stuck as well.
  turn_started_.store(started.time_since_epoch().count(), std::memory_order_relaxed);
  now_ = started;  // who is told of a completion may set a deadline
  if (reactor_->poll()) now_ = reactor_->now();
  poll_pollers();
  take_arrivals();
  timers_.advance(now_, timers_per_turn);
  run_group(static_cast<std::size_t>(Group::system), options_.turn_work_limit,
            now_ + options_.turn_time_limit);
  run_users();
  // What they sent need not wait for the next turn, which looks at all else first.
  if (!ready[static_cast<std::size_t>(Group::system)].empty())
    run_group(static_cast<std::size_t>(Group::system), options_.turn_work_limit,
              now_ + 2 * options_.turn_time_limit);
  flush_outgoing();
  if (ready_of_users() >= backlog_to_report_) report_backlog();
  turn_started_.store(0, std::memory_order_relaxed);
  return has_ready();
}

Time Shard::next_turn() noexcept {
  if (has_ready() || overflow_count_ || arrivals_waiting()) return Time{};
  return timers_.next_expiry();
}

Time Shard::rest() noexcept {
  const Time until = next_turn();
  if (until <= now_) return Time{};
  sleeping_.store(true, std::memory_order_relaxed);
  arm_pollers();
  // Pairs with the fences of those who post: either they see us asleep, or we see what they posted.
  // The same holds for what pollers look at.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!arrivals_waiting() && !pollers_ready()) return until;
  disarm_pollers();
  sleeping_.store(false, std::memory_order_relaxed);
  return Time{};
}

void Shard::run() noexcept {
  Time started = reactor_->now();
  while (!stop_requested_.load(std::memory_order_acquire)) {
    const std::uint64_t before = work_run_;
    const bool more = turn_from(started);
    const Time ended = reactor_->now();
    if (work_run_ != before) {
      busy_ns_ += static_cast<std::uint64_t>((ended - started).count());
      last_busy_ = ended;
    }
    started = more ? ended : idle(ended);
  }
  // Tasks go first: each takes leave of the operation that it waits for.
  CurrentShard here(*this);
  closed_ = true;
  destroy_roots();
  // One that was stuck comes here late, and has its chance all the same.
  drain(std::max(drain_until_, started + 1s));
}

void Shard::drain(Time until) noexcept {
  CurrentShard here(*this);
  held_by_system_ = !reactor_->drain(until);
  drained_ = true;
}

// A turn that finds nothing costs ten times what it takes to see that there is nothing, most of it
// for looks at the clock. What comes meanwhile would wait for its end. With many pollers or shards
// one look takes as long as a turn.
Time Shard::look_out(Time now) const noexcept {
  const std::size_t things = 1 + pollers_.size() + incoming_.size();
  const std::size_t looks = std::clamp<std::size_t>(things_per_turn / things, 1, looks_per_turn);
  for (std::size_t look = 0; look < looks; ++look)
    if (reactor_->has_news() || pollers_ready() || arrivals_waiting()) return now;
  return reactor_->now();
}

// Polls for a while after the last work, since a sleeping core costs tens of microseconds to wake;
// then sleeps. The span adapts: it grows when waiting paid off, and shrinks when it did not, so
// that an idle shard costs nothing.
Time Shard::idle(Time now) noexcept {
  if (options_.spin_always || now - last_busy_ < spin_span_) return look_out(now);
  const Time until = next_turn();
  if (until <= now) return now;
  CurrentShard here(*this);
  sleeping_.store(true, std::memory_order_relaxed);
  arm_pollers();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!arrivals_waiting() && !pollers_ready() && !stop_requested_.load(std::memory_order_acquire)) {
    ++sleeps_;
    reactor_->wait(until);
    const Duration slept = reactor_->now() - now;
    now += slept;
    if (slept < options_.spin_limit) {
      spin_span_ = std::min(options_.spin_limit, std::max<Duration>(2 * spin_span_, 4us));
    } else if (slept > 4 * options_.spin_limit) {
      spin_span_ /= 2;
    }
  }
  disarm_pollers();
  sleeping_.store(false, std::memory_order_relaxed);
  return now;
}

void Shard::request_stop(Time drain_until) noexcept {
  drain_until_ = drain_until;
  stop_requested_.store(true, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  reactor_->wake();
}

Shard::Load Shard::load() const noexcept {
  return {turns_,          work_run_,        sleeps_,       busy_ns_,
          ready[0].size(), ready_of_users(), roots_.size(), frames_->outstanding()};
}

void Shard::keep_in_sight(detail::Launched& task) noexcept { scoped_.push_back(task); }

Shard::Tasks Shard::tasks(std::size_t limit) const {
  constexpr std::size_t most_looked_at = 100'000;
  Tasks tasks;
  std::size_t places = 0, looked_at = 0;
  const auto show = [&](const detail::Launched& task, bool in_scope) {
    if (tasks.shown.size() == limit || places >= shown_places) return false;
    tasks.shown.push_back({AwaitPlace(task.from()), task.chain(), in_scope, task.owner()});
    places += tasks.shown.back().chain.place_count();
    return true;
  };
  const_cast<detail::List<Root>&>(roots_).visit_while(
      [&](Root& root) { return show(root.launched, false); });
  tasks.left_out = roots_.size() - tasks.shown.size();
  const_cast<detail::List<detail::Launched>&>(scoped_).visit_while([&](detail::Launched& task) {
    if (*task.joiners == 0 && !show(task, true)) ++tasks.left_out;
    return ++looked_at < most_looked_at;
  });
  return tasks;
}

std::string Shard::TaskState::to_string() const {
  return (in_scope ? "in a scope, spawned at " : "spawned at ") + std::string(spawned_at.file) +
         ":" + std::to_string(spawned_at.line) + ": " + chain.to_string();
}

std::vector<std::string> Shard::describe_roots() const {
  std::vector<std::string> lines;
  const Tasks all = tasks();
  for (const TaskState& task : all.shown)
    if (!task.in_scope)
      lines.push_back("shard " + std::to_string(index()) + ", " + task.to_string());
  if (const std::size_t roots = roots_.size(); roots > lines.size())
    lines.push_back("shard " + std::to_string(index()) + ", and " +
                    std::to_string(roots - lines.size()) + " more tasks");
  return lines;
}

std::vector<Shard::Backlog> Shard::backlog(std::size_t limit) const {
  struct Kind {
    bool coroutine = false;
    std::source_location at;
    std::size_t count = 0;
  };
  std::map<std::pair<const void*, std::uint32_t>, Kind> kinds;
  for (const auto& queue : ready) {
    queue.for_each([&](const detail::Work& work) {
      Kind kind;
      kind.coroutine = work.run == &detail::PromiseBase::resume;
      if (kind.coroutine) kind.at = static_cast<const detail::PromiseBase&>(work).suspended_at;
      const void* key = kind.coroutine ? kind.at.function_name() : nullptr;
      ++kinds.try_emplace({key, kind.at.line()}, kind).first->second.count;
    });
  }
  std::vector<Backlog> all;
  for (const auto& [key, kind] : kinds) {
    std::string where = !kind.coroutine  ? "work that is no coroutine"
                        : kind.at.line() ? detail::describe(kind.at)
                                         : "a coroutine that starts";
    all.push_back({std::move(where), kind.count});
  }
  std::ranges::sort(all, [](const Backlog& a, const Backlog& b) {
    return a.count != b.count ? a.count > b.count : a.where < b.where;
  });
  if (all.size() > limit) all.resize(limit);
  return all;
}

void Shard::report_backlog() noexcept {
  const std::size_t size = ready_of_users();
  while (backlog_to_report_ <= size) backlog_to_report_ *= 2;
  std::string text = "shard " + std::to_string(index()) + " has a backlog of " +
                     std::to_string(size) + " ready items, most of them at:";
  for (const auto& [where, count] : backlog())
    text += "\n  " + std::to_string(count) + " x " + where;
  log::warning(text);
}

std::string Shard::dump() {
  std::string text;
  for (const auto& [where, count] : backlog())
    text += "  ready: " + std::to_string(count) + " x " + where + "\n";
  const Tasks all = tasks();
  for (const TaskState& task : all.shown) text += "  " + task.to_string() + "\n";
  if (all.left_out > 0) text += "  and " + std::to_string(all.left_out) + " more tasks\n";
  runtime_.let_witnesses_dump(*this, text);
  return text;
}

void Shard::publish_load() {
  metrics_.counter("hyperframes_turns_total", "Turns of the shard's loop").set(turns_);
  metrics_.counter("hyperframes_work_total", "Work items run").set(work_run_);
  metrics_.counter("hyperframes_sleeps_total", "Times the shard slept").set(sleeps_);
  metrics_.counter("hyperframes_busy_ns_total", "Time in turns that did work").set(busy_ns_);
  metrics_.counter("hyperframes_ready_system", "Items of the system group ready to run")
      .set(ready[static_cast<std::size_t>(Group::system)].size());
  metrics_.counter("hyperframes_ready_user", "Items of all other groups ready to run")
      .set(ready_of_users());
  metrics_.counter("hyperframes_root_tasks", "Tasks that the shard owns").set(roots_.size());
}

void Shard::close() noexcept {
  CurrentShard here(*this);
  closed_ = true;
  destroy_roots();
  for (std::size_t ring = 0; ring < ring_count; ++ring) foreign_[ring].close(ready[ring]);
}

bool Shard::run_left_over() noexcept {
  CurrentShard here(*this);
  const std::uint64_t before = work_run_;
  bool moved = overflow_count_ > 0 || arrivals_waiting();
  // What is begun after the drain is cancelled here.
  if (drained_) moved |= reactor_->poll() > 0;
  flush_outgoing();
  take_arrivals();
  for (auto& queue : ready) {
    while (detail::Work* work = queue.pop()) {
      transfer_budget = transfers_per_work;
      ++work_run_;
      work->run(work);
    }
  }
  flush_outgoing();
  take_returned_blocks();
  return moved || work_run_ != before;
}

}  // namespace hyperframes
