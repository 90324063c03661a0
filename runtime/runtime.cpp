#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/asio.hpp>
#include <hyperframes/runtime/reactor/uring.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <latch>
#include <mutex>
#include <set>

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

/// How long the system may take to let go of what was in flight.
Duration drain_patience() { return timing().scaled(2s); }

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

// One line for all shards.
void report_drivers(const std::vector<std::exception_ptr>& refusals) {
  const auto refused =
      std::ranges::find_if(refusals, [](const auto& why) { return why != nullptr; });
  if (refused == refusals.end()) return;
  const auto count =
      std::ranges::count_if(refusals, [](const auto& why) { return why != nullptr; });
  try {
    std::rethrow_exception(*refused);
  } catch (const Error& error) {
    log::warning(std::to_string(count) + " of " + std::to_string(refusals.size()) +
                 " shards run on the asio driver, since io_uring was refused: " + error.what());
  }
}

/// So many lines, and what is left out counted.
std::string first_lines(std::string_view text, std::size_t most) {
  std::size_t end = 0, lines = 0;
  for (; lines < most && end < text.size(); ++lines)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  std::string first(text.substr(0, end));
  if (const auto more = std::ranges::count(text.substr(end), '\n'); more > 0)
    first += "  and " + std::to_string(more) + " more lines\n";
  return first;
}

/// Takes the place of the executor that has ended: a call that is made now never comes back. It is
/// kept reachable, since it frees itself by running.
class EndedOffload final : public Offload {
 public:
  void execute(detail::OffloadJob* job) noexcept override {
    static std::mutex mutex;
    static auto& kept = *new detail::WorkQueue;
    std::scoped_lock lock(mutex);
    kept.push(job);
  }
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
  static constexpr Duration between_dumps = 60s;
  static constexpr std::size_t lines_of_dump = 200;

  // Each shard says itself who waits for what on it: the stuck one when it goes on. Now and then
  // only, since a log is to stay readable.
  void have_shards_say() {
    const Time now = Clock::read_system();
    if (said_ != Time{} && now - said_ < between_dumps) return;
    said_ = now;
    for (unsigned i = 0; i < runtime_.shard_count(); ++i) {
      auto say = [&shard = runtime_.shard(i)] {
        if (const std::string text = shard.dump(); !text.empty())
          log::warning("what waits on shard " + std::to_string(shard.index()) +
                       ", because some shard was stuck:\n" + first_lines(text, lines_of_dump));
      };
      runtime_.shard(i).post(new Call(std::move(say)), Group::system);
    }
  }

  void watch() {
    std::vector<std::int64_t> reported(runtime_.shard_count(), 0);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, threshold_ / 2, [this] { return stopping_; })) {
      const Time now = Clock::read_system();
      note_pause(now - std::exchange(woken_, now) - threshold_ / 2, now);
      for (unsigned i = 0; i < runtime_.shard_count(); ++i) {
        const auto started = runtime_.shard(i).turn_started_.load(std::memory_order_relaxed);
        const auto running_since = std::max(started, went_on_.time_since_epoch().count());
        const auto span = now.time_since_epoch().count() - running_since;
        if (!started || span < threshold_.count() || reported[i] == started) continue;
        reported[i] = started;
        log::warning(runtime_.stuck_at(runtime_.shard(i)) +
                     ": a task blocks or computes without a co_await; move it to hf::offload or "
                     "add co_await hf::yield()");
        have_shards_say();
        runtime_.stalls_.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }

  // This thread asked for a moment's sleep. When it gets far more, no thread of the process may
  // have run, and no task is to blame for the turn that it was in: its time counts from here on.
  void note_pause(Duration overslept, Time now) {
    if (overslept < std::max(threshold_ / 2, shortest_pause)) return;
    went_on_ = now;
    for (unsigned i = 0; i < runtime_.shard_count(); ++i) {
      const auto started = runtime_.shard(i).turn_started_.load(std::memory_order_relaxed);
      if (!started || now.time_since_epoch().count() - started < threshold_.count()) continue;
      log::warning("this process stood still for " + std::to_string(overslept.count() / 1'000'000) +
                   " ms: it was stopped (a signal, a debugger, a pause of its machine), or others "
                   "had the CPU; shard " +
                   std::to_string(i) + " was in a turn, and its tasks are not to blame");
      return;
    }
  }

  static constexpr Duration shortest_pause = 500ms;

  Runtime& runtime_;
  Duration threshold_;
  Time said_{};
  Time woken_ = Clock::read_system();
  Time went_on_{};  // after the last pause
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

std::string Runtime::stuck_at(const Shard& shard) const {
  const auto started = shard.turn_started_.load(std::memory_order_relaxed);
  const auto span = Clock::read_system().time_since_epoch().count() - started;
  const std::source_location at = shard.running_at.load(std::memory_order_relaxed);
  return "shard " + std::to_string(shard.index()) + " has been in one turn for " +
         std::to_string(started ? span / 1'000'000 : 0) + " ms, " +
         (at.line() ? "last seen at " + detail::describe(at) : "in work that is no coroutine") +
         owner_of_turn(shard);
}

std::string Runtime::owner_of_turn(const Shard& shard) const {
  const std::uint32_t owner = shard.running_owner.load(std::memory_order_relaxed);
  const std::size_t number = owner / Witness::owners;
  if (number == 0) return {};
  std::shared_lock lock(witnesses_mutex_);
  const Witness* witness = number <= witnesses_.size() ? witnesses_[number - 1] : nullptr;
  const std::string name = witness ? witness->owner_name(shard.index(), owner) : std::string();
  return name.empty() ? name : ", in " + name;
}

std::string Runtime::describe_turn(unsigned shard) const {
  const Shard& asked = *shards_[shard];
  if (asked.turn_started_.load(std::memory_order_relaxed)) return stuck_at(asked);
  return "shard " + std::to_string(shard) + " is between turns";
}

std::uint32_t Runtime::add_witness(const Witness& witness) {
  constexpr std::size_t most = (std::size_t{1} << 32) / Witness::owners - 1;
  std::unique_lock lock(witnesses_mutex_);
  auto place = std::ranges::find(witnesses_, nullptr);
  if (place == witnesses_.end()) {
    if (witnesses_.size() == most) return 0;
    place = witnesses_.insert(place, nullptr);
  }
  *place = &witness;
  return static_cast<std::uint32_t>(place - witnesses_.begin() + 1) * Witness::owners;
}

void Runtime::remove_witness(const Witness& witness) noexcept {
  std::unique_lock lock(witnesses_mutex_);
  std::ranges::replace(witnesses_, &witness, static_cast<const Witness*>(nullptr));
}

void Runtime::let_witnesses_dump(Shard& shard, std::string& text) const {
  std::shared_lock lock(witnesses_mutex_);
  for (const Witness* witness : witnesses_)
    if (witness) witness->dump(shard, text);
}

namespace {

void check_limits(const Shard::Options& options) {
  const auto check = [](bool fine, const char* what) {
    if (!fine)
      throw Error(Errc::invalid_argument, "start a runtime", std::string(what) + " is 0",
                  "leave it as it is, or give it at least 1");
  };
  check(options.turn_work_limit > 0, "turn_work_limit");
  check(options.turn_time_limit > Duration::zero(), "turn_time_limit");
  check(options.ring_capacity > 0, "ring_capacity");
}

void check_groups(const Shard::Options& options) {
  const std::string tried = "start a runtime with scheduling groups";
  const auto refuse = [&](std::string found, const char* remedy) {
    throw Error(Errc::invalid_argument, tried, std::move(found), remedy);
  };
  constexpr std::size_t most = group_count - 2;
  constexpr std::uint32_t most_shares = 1'000'000;
  if (options.groups.size() > most)
    refuse(std::to_string(options.groups.size()) + " groups were to be added",
           "add six at most: several kinds of work may share one");
  const auto check_shares = [&](const std::string& name, std::uint32_t shares) {
    if (shares == 0) refuse("group '" + name + "' has no shares", "give it at least one");
    if (shares > most_shares)
      refuse("group '" + name + "' has " + std::to_string(shares) + " shares",
             "give 1,000,000 at most: only their ratio counts");
  };
  check_shares("user", options.user_shares);
  std::set<std::string_view> names{"", "system", "user"};
  for (const GroupOptions& group : options.groups) {
    if (!names.insert(group.name).second)
      refuse("the name '" + group.name + "' is empty or taken", "give each a name of its own");
    check_shares(group.name, group.shares);
  }
}

}  // namespace

Group Runtime::group(std::string_view name) const {
  std::string known = "there are system, user";
  if (name == "system") return Group::system;
  if (name == "user") return Group::user;
  for (std::size_t i = 0; i < options_.shard.groups.size(); ++i) {
    if (options_.shard.groups[i].name == name) return static_cast<Group>(i + 2);
    known += ", " + options_.shard.groups[i].name;
  }
  throw Error(Errc::not_found, "find scheduling group '" + std::string(name) + "'", known,
              "add it to Runtime::Options::shard.groups");
}

Runtime::Runtime(Options options) : options_(options), threaded_(true) {
  check_limits(options_.shard);
  check_groups(options_.shard);
  if (options_.shards == 0) options_.shards = static_cast<unsigned>(usable_cores().size());
  offload_ = make_thread_offload(options_.offload_threads);
  shards_.resize(options_.shards);
  ended_.resize(options_.shards);
  start_threads();
  if (options_.stall_threshold <= Duration::zero()) return;
  try {
    stall_watch_ = std::make_unique<StallWatch>(*this, options_.stall_threshold);
  } catch (...) {
    shut_down(no_deadline);
    throw;
  }
}

// `refusal`: why io_uring is not the driver, where it was to be.
std::unique_ptr<Reactor> Runtime::make_reactor(std::exception_ptr& refusal) const {
  if (options_.driver == Driver::asio) return make_asio_reactor();
  try {
    return make_uring_reactor();
  } catch (const Error& error) {
    if (options_.driver == Driver::uring || !error.is(Errc::unsupported)) throw;
    if (!has_asio_reactor())
      throw Error(error.code(), error.tried(),
                  error.found() + "; the asio driver would take over, and this build has none",
                  error.remedy() + ". Or install libasio-dev and rebuild");
    refusal = std::current_exception();
  }
  return make_asio_reactor();
}

void Runtime::start_threads() {
  const auto cores = usable_cores();
  std::latch ready(options_.shards), go(1);
  std::vector<std::exception_ptr> failures(options_.shards), refusals(options_.shards);
  // Each driver is made on the thread that will use it: io_uring binds a ring to its submitter.
  auto body = [&](unsigned i) {
    ::pthread_setname_np(::pthread_self(), ("hf-shard-" + std::to_string(i)).c_str());
    if (options_.pin_threads) pin_this_thread(cores[i % cores.size()]);
    try {
      Shard::Options shard = options_.shard;
      shard.index = i;
      shards_[i] = std::make_unique<Shard>(*this, shard, make_reactor(refusals[i]));
    } catch (...) {
      failures[i] = std::current_exception();
    }
    Shard* const shard = shards_[i].get();
    ready.count_down();
    go.wait();
    if (shard && failed_to_start_) shard->drain(Clock::read_system() + 1s);
    if (shard && !failed_to_start_) run_shard(*shard);
  };
  for (unsigned i = 0; i < options_.shards; ++i) {
    try {
      threads_.emplace_back(body, i);
    } catch (const std::system_error& error) {
      failures[i] = std::make_exception_ptr(
          Error(error.code(), "start a thread for shard " + std::to_string(i), {},
                "run fewer shards, or raise the limit of processes (ulimit -u)"));
      ready.count_down();
    }
  }
  ready.wait();
  for (auto& failure : failures) failed_to_start_ |= failure != nullptr;
  if (!failed_to_start_) {
    report_drivers(refusals);
    connect_rings();
  }
  go.count_down();
  if (failed_to_start_) {
    for (auto& thread : threads_) thread.join();
    shards_.clear();
    for (auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
  }
  started_.wait(false);
}

Runtime::Runtime(Options options, std::vector<std::unique_ptr<Reactor>> reactors,
                 std::unique_ptr<Offload> offload)
    : options_(options), offload_(std::move(offload)) {
  check_limits(options_.shard);
  check_groups(options_.shard);
  for (auto& reactor : reactors) {
    Shard::Options shard = options_.shard;
    shard.index = shard_count();
    shards_.push_back(std::make_unique<Shard>(*this, shard, std::move(reactor)));
  }
  ended_.resize(shards_.size());
  connect_rings();
}

void Runtime::connect_rings() {
  const std::size_t count = shards_.size();
  for (std::size_t to = 0; to < count; ++to) {
    shards_[to]->overflow_.resize(count);
    shards_[to]->incoming_.resize(count);
    for (std::size_t from = 0; from < count; ++from) {
      if (from == to) continue;
      for (auto& ring : shards_[to]->incoming_[from])
        ring = std::make_unique<detail::WorkRing>(options_.shard.ring_capacity);
    }
  }
}

void Runtime::run_shard(Shard& shard) {
  if (running_.fetch_add(1) + 1 == options_.shards) {
    started_.store(true);
    started_.notify_all();
  }
  shard.run();
  // The rest is anybody's who holds the lock: from here on, what is posted to this shard runs on
  // the thread that posts it.
  std::scoped_lock lock(left_over_mutex_);
  shard.close();
  ended_[shard.index()] = true;
  run_all_left_over();
  ended_changed_.notify_all();
}

bool Runtime::await_end(std::size_t shard, Time until) {
  if (until == no_deadline) {
    std::unique_lock lock(left_over_mutex_);
    ended_changed_.wait(lock, [&] { return ended_[shard] == true; });
    return true;
  }
  // What is left over may get stuck as well, and then keeps the lock: so this never waits for it.
  while (true) {
    {
      const std::unique_lock lock(left_over_mutex_, std::try_to_lock);
      if (lock && ended_[shard]) return true;
    }
    if (Clock::read_system() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

Runtime::~Runtime() {
  const Time limit = after(std::max(options_.stop_deadline, timing().scaled(1s)));
  stop_threads(options_.stop_deadline);
  shut_down(limit);
}

void Runtime::shut_down(Time limit) {
  stop_threads(Duration::zero());
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!threads_[i].joinable()) continue;
    if (!await_end(i, Clock::read_system())) {
      log::warning("the runtime's end waits for it: " + stuck_at(*shards_[i]));
      await_end(i, no_deadline);
    }
    if (shards_[i]->held_by_system_) {
      threads_[i].detach();  // it has nothing left to do, and ends when the system lets it
    } else {
      threads_[i].join();
    }
  }
  // All loops have ended. Tasks go first, then offloaded calls come back, then the drivers let go
  // of memory, and what one shard still holds of another's goes home.
  close_ended_shards();
  for (const auto& left : offload_->end(limit))
    log::warning("did not return by the runtime's end and is left behind: " + left);
  offload_ = std::make_unique<EndedOffload>();
  drain_shards();
  gate_->close();
  std::scoped_lock lock(left_over_mutex_);
  run_all_left_over();
  shards_.clear();
}

/// Who of the shards has answered so far, and the lines of the last answer.
struct Runtime::Survey {
  explicit Survey(std::size_t shards) : stuck(shards) {}
  std::vector<bool> stuck;  ///< Did not answer in time, and is not asked again.
  std::vector<std::string> lines;
};

// What the shards write to lives on its own: one that is stuck may answer when nobody waits any
// more.
void Runtime::survey(Survey& survey, Time limit,
                     std::function<std::vector<std::string>(Shard&)> ask) {
  struct Answers {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<bool> missing;
    std::size_t missing_count = 0;
    std::vector<std::string> lines;
  };
  auto answers = std::make_shared<Answers>();
  answers->missing.resize(shards_.size());
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    answers->missing[i] = !survey.stuck[i];
    answers->missing_count += !survey.stuck[i];
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (survey.stuck[i]) continue;
    auto answer = [answers, ask, i, &shard = *shards_[i]] {
      auto lines = ask(shard);
      std::scoped_lock lock(answers->mutex);
      for (auto& line : lines) answers->lines.push_back(std::move(line));
      answers->missing[i] = false;
      --answers->missing_count;
      answers->changed.notify_all();
    };
    shards_[i]->post(new Call(std::move(answer)), Group::system);
  }
  std::unique_lock lock(answers->mutex);
  const auto complete = [&] { return answers->missing_count == 0; };
  if (limit == no_deadline) {
    answers->changed.wait(lock, complete);
  } else {
    answers->changed.wait_for(lock, limit - Clock::read_system(), complete);
  }
  for (std::size_t i = 0; i < shards_.size(); ++i)
    if (answers->missing[i]) survey.stuck[i] = true;
  survey.lines = std::move(answers->lines);
}

void Runtime::require_foreign_thread(const char* tried) const {
  const Shard* const here = Shard::current();
  if (threaded_ && here && &here->runtime() == this)
    throw Error(Errc::invalid_argument, tried,
                "called on one of the runtime's own shards, which it would wait for",
                "call it on another thread; a coroutine can await call_on, or hf::offload");
}

void Runtime::require_shard(unsigned shard, const char* tried) const {
  if (shard < shards_.size()) return;
  throw Error(Errc::invalid_argument, tried,
              "there is no shard " + std::to_string(shard) + "; the runtime has " +
                  std::to_string(shards_.size()),
              "count them from 0");
}

Runtime::StopReport Runtime::stop(Duration deadline) {
  if (!threaded_)
    throw Error(Errc::invalid_argument, "stop a runtime",
                "the program runs its turns, so it can't wait for them here",
                "stop what runs them: AsioRuntime::async_stop, or the end of the simulated node");
  require_foreign_thread("stop a runtime");
  return stop_threads(deadline);
}

Runtime::StopReport Runtime::stop_threads(Duration deadline) {
  std::scoped_lock lock(stop_mutex_);
  if (std::exchange(stopped_, true) || !threaded_) return report_;
  stall_watch_.reset();
  const Time limit = after(deadline);
  // A shard that only has to wait for a core gets a while to answer, whatever the deadline.
  const auto patience = [limit] { return std::max(limit, after(timing().scaled(1s))); };
  const std::vector<std::string> nothing;
  Survey left(shards_.size());
  survey(left, patience(), [nothing](Shard& shard) {
    shard.cancel_roots();
    return nothing;
  });
  while (true) {
    survey(left, patience(), [nothing](Shard& shard) {
      return shard.roots_.empty() ? nothing : std::vector<std::string>(1);
    });
    if (left.lines.empty() || Clock::read_system() >= limit) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!left.lines.empty())
    survey(left, patience(), [](Shard& shard) { return shard.describe_roots(); });
  for (const auto& line : left.lines)
    log::warning("had not ended by the stop deadline and is destroyed: " + line);
  report_.stragglers = std::move(left.lines);
  survey(left, patience(), [nothing](Shard& shard) {
    shard.closed_ = true;
    shard.destroy_roots();
    return nothing;
  });
  const Time drained = std::max(limit, after(drain_patience()));
  const Time ended = drained == no_deadline ? drained : drained + timing().scaled(500ms);
  for (auto& shard : shards_) shard->request_stop(drained);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (left.stuck[i] || !await_end(i, ended)) {
      report_.stragglers.push_back(stuck_at(*shards_[i]));
      log::warning("can't be stopped: " + report_.stragglers.back());
    } else if (shards_[i]->held_by_system_) {
      report_.stragglers.push_back("the system holds on to operations of shard " +
                                   std::to_string(i));
    } else {
      threads_[i].join();
    }
  }
  report_.clean = report_.stragglers.empty();
  return report_;
}

// Where no threads ran them: those close their shards themselves.
void Runtime::close_ended_shards() {
  std::scoped_lock lock(left_over_mutex_);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (ended_[i]) continue;
    shards_[i]->close();
    ended_[i] = true;
  }
  run_all_left_over();
}

void Runtime::run_all_left_over() noexcept {
  constexpr int most_rounds = 10'000;  // against work that always makes more
  bool more = true;
  for (int round = 0; more && round < most_rounds; ++round) {
    more = false;
    for (std::size_t i = 0; i < shards_.size(); ++i)
      if (ended_[i]) more |= shards_[i]->run_left_over();
  }
}

void Runtime::run_late(Shard& shard, detail::Work* work, Group group) noexcept {
  std::scoped_lock lock(left_over_mutex_);
  {
    CurrentShard here(shard);
    shard.schedule(work, group);
  }
  run_all_left_over();
}

void Runtime::run_left_over() {
  std::scoped_lock lock(left_over_mutex_);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const auto held = shards_[i]->reactor().hold_turns();
    if (held && !ended_[i]) {
      shards_[i]->turn();  // what the shard has of its own is more than is left over
    } else if (ended_[i] || !threaded_) {
      shards_[i]->run_left_over();
    }
  }
}

void Runtime::on_every_shard(std::function<void(Shard&)> function) {
  if (!threaded_) {
    for (auto& shard : shards_) {
      const auto held = shard->reactor().hold_turns();
      CurrentShard here(*shard);
      if (held) shard->now_ = std::max(shard->now_, shard->reactor().now());
      function(*shard);
      if (held) shard->reactor().wake();  // it may have left work for a turn
    }
    return;
  }
  require_foreign_thread("run something on every shard");
  Survey all(shards_.size());
  survey(all, no_deadline, [&function](Shard& shard) {
    function(shard);
    return std::vector<std::string>();
  });
}

std::vector<unsigned> Runtime::on_every_shard_until(Time limit,
                                                    std::function<void(Shard&)> function) {
  std::vector<unsigned> missing;
  if (!threaded_) {
    on_every_shard(std::move(function));
    return missing;
  }
  Survey all(shards_.size());
  survey(all, limit, [function = std::move(function)](Shard& shard) {
    function(shard);
    return std::vector<std::string>();
  });
  for (unsigned i = 0; i < shard_count(); ++i)
    if (all.stuck[i]) missing.push_back(i);
  return missing;
}

void Runtime::cancel_tasks() noexcept {
  for (unsigned i = 0; i < shard_count(); ++i) cancel_tasks(i);
}

void Runtime::cancel_tasks(unsigned shard) noexcept {
  const auto held = shards_[shard]->reactor().hold_turns();
  CurrentShard here(*shards_[shard]);
  shards_[shard]->cancel_roots();
}

std::size_t Runtime::task_count() const noexcept {
  std::size_t count = 0;
  for (unsigned i = 0; i < shards_.size(); ++i) count += task_count(i);
  return count;
}

std::size_t Runtime::task_count(unsigned shard) const noexcept {
  const auto held = shards_[shard]->reactor().hold_turns();
  return shards_[shard]->roots_.size();
}

std::vector<std::string> Runtime::describe_tasks(unsigned shard) const {
  const auto held = shards_[shard]->reactor().hold_turns();
  return shards_[shard]->describe_roots();
}

void Runtime::destroy_tasks() noexcept {
  for (auto shard = shards_.rbegin(); shard != shards_.rend(); ++shard) {
    const auto held = (*shard)->reactor().hold_turns();
    CurrentShard here(**shard);
    (*shard)->destroy_roots();
  }
}

void Runtime::end_shards() noexcept {
  close_ended_shards();
  drain_shards();
}

void Runtime::drain_shards() noexcept {
  std::scoped_lock lock(left_over_mutex_);
  for (auto& shard : shards_) shard->drain(after(drain_patience()));
  run_all_left_over();
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

std::string Runtime::dump(Duration patience) {
  struct Texts {
    std::mutex mutex;
    std::vector<std::string> of;
  };
  auto texts = std::make_shared<Texts>();
  texts->of.resize(shards_.size());
  const auto missing = on_every_shard_until(after(patience), [texts](Shard& shard) {
    std::string text = shard.dump();
    std::scoped_lock lock(texts->mutex);
    texts->of[shard.index()] = std::move(text);
  });
  for (const unsigned shard : missing) {
    std::string text = "  did not answer: " + describe_turn(shard) + "\n";
    std::scoped_lock lock(texts->mutex);
    texts->of[shard] = std::move(text);
  }
  std::string all;
  std::scoped_lock lock(texts->mutex);
  for (std::size_t i = 0; i < texts->of.size(); ++i)
    all += "shard " + std::to_string(i) + "\n" + texts->of[i];
  return all;
}

}  // namespace hyperframes
