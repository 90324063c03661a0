#include <hyperframes/actors/detail/children.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <ranges>
#include <utility>

namespace hyperframes::detail {

using State = Child::State;

void Children::set_strategy(Strategy strategy) {
  if (!places_.empty())
    throw Error(Errc::invalid_argument, "choose how actor " + supervisor_.who() + " supervises",
                "it has children already", "choose before the first one is spawned");
  strategy_ = strategy;
}

// ---- places -----------------------------------------------------------------

std::shared_ptr<Child> Children::expect(const SpawnOptions& options) {
  auto place = std::make_shared<Child>();
  place->name = options.name;
  place->restart = options.restart.kind;
  place->where = places_.insert(places_.end(), place);
  place->listed = true;
  return place;
}

void Children::remove(Child& place) noexcept {
  by_id_.erase(place.address.id);
  if (std::exchange(place.listed, false)) places_.erase(place.where);  // perhaps its last owner
}

void Children::know(const Place& place, Address address) {
  place->address = address;
  by_id_.emplace(address.id, place);
}

Children::Place Children::find(Address address) const noexcept {
  const auto found = by_id_.find(address.id);
  return found == by_id_.end() ? nullptr : found->second;
}

Children::Place Children::find(const std::string& name, const char* tried) const {
  std::string names;
  for (const Place& place : places_) {
    if (place->name == name) return place;
    names += (names.empty() ? "'" : ", '") + place->name + "'";
  }
  throw Error(Errc::not_found, std::string(tried) + " '" + name + "'",
              "supervisor " + supervisor_.who() + " has no child of that name",
              names.empty() ? "it has none" : "it has " + names);
}

// The word of who it is and its spawner's come each by its own way, in any order.
void Children::born(const Place& place, Address child) noexcept {
  if (!place->listed) {
    if (child.cell) supervisor_.home->tell_to_stop(child);
    return;
  }
  place->announced = true;
  if (child.cell) know(place, child);
  if (!child.cell) {
    place->state = State::ended;
    if (!place->spec) remove(*place);
  } else if (place->given_up) {
    place->state = State::ending;
    supervisor_.home->tell_to_stop(child);
  }
  changed_.pulse();
}

bool Children::arrived(const Place& place, Address child) noexcept {
  if (!place->listed) return false;
  if (!child.cell) {
    place->given_up = true;
    if (place->address.cell) born(place, place->address);
  } else {
    if (!place->announced) know(place, child);
    // Else it has ended, or crashed, already.
    if (place->address == child && place->state == State::spawning) place->state = State::running;
    if (place->in_round) {  // its siblings have begun anew since it was begun
      ending_ = true;
      begin_round();
    }
  }
  changed_.pulse();
  return true;
}

// ---- news -------------------------------------------------------------------

std::optional<Children::Failure> Children::take(Address child, ChildNews news) noexcept {
  if (news.what == ChildNews::What::born) {
    if (const Place place = news.place.lock()) born(place, child);
    return std::nullopt;
  }
  const Place place = find(child);
  if (!place) {
    if (news.event) record_end(std::move(*news.event));
    return std::nullopt;
  }
  std::optional<Failure> failure;
  switch (news.what) {
    case ChildNews::What::born: break;
    case ChildNews::What::began:
      if (place->state == State::starting) place->state = State::running;
      break;
    case ChildNews::What::held:
      place->state = State::held;
      if (place->stopped || place->by_hand > 0) break;  // who has told it goes on
      place->in_round = true;
      begin_round();
      break;
    case ChildNews::What::failed: take_failure(place, std::move(*news.event)); break;
    case ChildNews::What::ended: failure = take_end(place, news); break;
  }
  changed_.pulse();
  return failure;
}

namespace {
Children::Failure given_up(const Down& child, std::uint32_t restarts, Duration period,
                           std::vector<Cause> causes) {
  causes.insert(causes.begin(), {child.id, child.name, child.reason, child.text});
  return {"child " + title_of(child.name, child.id) + " was given up after " +
              restarts_text(restarts, period) + ": " + child.text,
          std::move(causes)};
}
}  // namespace

std::optional<Children::Failure> Children::take_end(const Place& place, ChildNews& news) noexcept {
  place->state = State::ended;
  by_id_.erase(std::exchange(place->address, {}).id);
  place->stopped |= news.down.reason == ExitReason::stopped;
  if (place->stopped) place->in_round = false;
  place->down = news.down;
  if (!place->spec || place->restart == Restart::temporary) remove(*place);
  if (!supervisor_.accepts()) {
    auto& stragglers = supervisor_.more->stragglers;
    std::ranges::move(news.stragglers, std::back_inserter(stragglers));
    return std::nullopt;
  }
  if (news.down.reason != ExitReason::exhausted) return std::nullopt;
  return given_up(news.down, news.restarts, news.period, std::move(news.causes));
}

void Children::take_failure(const Place& failed, SupervisionEvent event) noexcept {
  failed->state = State::held;
  if (!supervisor_.accepts()) return record_end(std::move(event));  // it will be told to stop
  take_along(failed, std::move(event));
}

// Of one that fails while all are ending: nobody starts it again.
void Children::record_end(SupervisionEvent event) noexcept {
  event.decision = Decision::end;
  event.pause = Duration::zero();
  supervisor_.home->core.record(std::move(event));
}

namespace {
// As events have it: what their readers look for among `name` and `actor`.
std::string known_as(const Child& child) {
  return child.name.empty() ? fmt::format("{:016x}", child.address.id) : child.name;
}
}  // namespace

void Children::take_along(const Place& failed, SupervisionEvent event) noexcept {
  pause_ = std::max(pause_, event.pause);
  bool goes_along = strategy_ == Strategy::one_for_all;
  for (const Place& place : places_) {
    goes_along |= place == failed;
    if (!goes_along || place->stopped) continue;
    const bool was_in_round = std::exchange(place->in_round, true);
    if (place == failed) continue;
    if (place->restart != Restart::temporary) {
      event.along.push_back(known_as(*place));
    } else if (!was_in_round) {
      event.ended.push_back(known_as(*place));
    }
  }
  supervisor_.home->core.record(std::move(event));
  ending_ = true;
  begin_round();
}

// In a round; false if it was the last time. What its own cell would do, if it had one.
bool Children::take_failed_start(const Place& place, const std::exception_ptr& failure) {
  if (place->stopped || !place->listed) return true;
  const RestartPolicy& policy = place->spec->options().restart;
  SupervisionEvent event;
  event.at = supervisor_.home->shard.now();
  const bool again = place->budget.take(policy, event.at);
  event.decision = again ? Decision::restart : Decision::give_up;
  event.actor = place->down.id;
  event.name = place->name;
  event.shard = shard_of(*place);
  event.supervisor = supervisor_.id;
  event.strategy = strategy_;
  event.reason = again ? ExitReason::crashed : ExitReason::exhausted;
  event.text = text_of(failure);
  event.causes = {{event.actor, event.name, ExitReason::crashed, event.text}};
  event.restarts = place->budget.used();
  event.intensity = policy.intensity;
  event.period = policy.period;
  if (again) {
    event.pause = place->budget.pause(policy);
    take_along(place, std::move(event));
    return true;
  }
  const Down down{event.actor, event.name, event.reason, event.text};
  Failure last = given_up(down, event.restarts, event.period, {});
  supervisor_.home->core.record(std::move(event));
  supervisor_.child_given_up(std::move(last.text), std::move(last.causes));
  return false;
}

// ---- ending and beginning several of them -----------------------------------

void Children::begin_round() noexcept {
  if (working_ || !supervisor_.accepts()) return;
  working_ = true;
  supervisor_.start_background(run_round(), Group::system);
}

// The youngest first.
Children::Place Children::last_to_end() const noexcept {
  for (const Place& place : places_ | std::views::reverse) {
    const State state = place->state;
    const bool lives =
        state == State::running || state == State::starting || state == State::ending;
    if (place->in_round && lives) return place;
  }
  return nullptr;
}

Children::Place Children::first_to_begin() const noexcept {
  for (const Place& place : places_) {
    if (!place->in_round) continue;
    if (place->state == State::held) return place;
    if (place->state == State::ended && place->spec && !place->stopped) return place;
  }
  return nullptr;
}

void Children::tell_to_end(Child& place) noexcept {
  if (std::exchange(place.state, State::ending) == State::ending) return;
  if (place.restart == Restart::temporary) return supervisor_.home->tell_to_stop(place.address);
  supervisor_.home->tell_to_suspend(place.address);
}

// Who was woken before the supervisor began to end was not cancelled: it must begin nobody.
Task<void> Children::run_round() {
  while (supervisor_.accepts()) {
    if (ending_) {
      if (const Place last = last_to_end()) {
        tell_to_end(*last);
        co_await changed_.wait();
        continue;
      }
      ending_ = false;
    }
    if (pause_ > Duration::zero()) {
      co_await sleep_for(std::exchange(pause_, Duration::zero()));
      continue;  // others may have failed meanwhile
    }
    const Place next = first_to_begin();
    if (!next) break;
    next->in_round = false;  // who fails from here on puts it back
    if (next->state == State::ended) {
      if (!co_await spawn_in_round(next)) co_return;
    } else {
      revive(*next);
      while (is_beginning(*next) && !ending_) co_await changed_.wait();
    }
    changed_.pulse();
  }
  working_ = false;
}

// Also if it is restarted by hand meanwhile.
bool Children::is_beginning(const Child& place) noexcept {
  return !place.in_round && place.state != State::running && place.state != State::ended;
}

void Children::revive(Child& place) noexcept {
  place.state = State::starting;
  supervisor_.home->tell_to_revive(place.address);
}

// False if the supervisor ends.
Task<bool> Children::spawn_in_round(Place place) {
  std::exception_ptr failure;
  try {
    co_await spawn(place);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!supervisor_.accepts()) co_return false;
  co_return !failure || take_failed_start(place, failure);
}

void Children::require_alive(const std::string& tried) const {
  if (!supervisor_.accepts()) throw Error(Errc::actor_down, tried, "its supervisor ends");
}

Task<Address> Children::spawn(Place place) {
  require_alive("start child '" + place->name + "'");
  std::exception_ptr failure;
  try {
    co_return co_await spawn_child(supervisor_.home->core, place->spec->options(),
                                   place->spec->factory(), supervisor_.address(), place);
  } catch (...) {
    failure = std::current_exception();
  }
  // The news of its end come by another way.
  while (place->state != State::ended) co_await changed_.wait();
  std::rethrow_exception(failure);
}

// ---- by hand ----------------------------------------------------------------

SupervisionEvent Children::event_by_hand(const Child& place, Address actor) const {
  SupervisionEvent event;
  event.at = supervisor_.home->shard.now();
  event.by_hand = true;
  event.actor = actor.id;
  event.name = place.name;
  event.shard = actor.cell ? actor.cell->home->shard.index() : 0;
  event.supervisor = supervisor_.id;
  event.strategy = strategy_;
  event.reason = ExitReason::stopped;
  return event;
}

void Children::record_by_hand(const Child& place, Address actor, Decision decision) {
  SupervisionEvent event = event_by_hand(place, actor);
  event.decision = decision;
  supervisor_.home->core.record(std::move(event));
}

// Who asked is told as well; but others read the events, and it is down.
void Children::record_failed_start(const Child& place, const std::exception_ptr& failure) {
  if (place.stopped || !supervisor_.accepts()) return;  // it was ended, and so did not fail
  SupervisionEvent event = event_by_hand(place, {});
  event.actor = place.down.id;
  event.shard = shard_of(place);
  event.reason = ExitReason::crashed;
  event.text = text_of(failure);
  event.causes = {{event.actor, event.name, event.reason, event.text}};
  supervisor_.home->core.record(std::move(event));
}

unsigned Children::shard_of(const Child& place) const noexcept {
  const unsigned shard = place.spec->options().shard;
  return shard == this_shard ? supervisor_.home->shard.index() : shard;
}

Task<ActorRef> Children::add(ChildSpec spec) {
  const std::string& name = spec.options().name;
  if (std::ranges::any_of(places_, [&](const Place& each) { return each->name == name; }))
    throw Error(Errc::already_exists, "add child '" + name + "' to supervisor " + supervisor_.who(),
                "it has one of that name", "use another name, or remove that one");
  const Place place = expect(spec.options());
  place->spec.emplace(std::move(spec));
  try {
    co_return reference_to(co_await spawn(place));
  } catch (...) {
    if (place->state == State::ended) remove(*place);
    throw;
  }
}

Task<Down> Children::stop(std::string name, bool forget) {
  const Place place = find(name, forget ? "remove child" : "stop child");
  if (place->state != State::ended && !place->stopped)
    record_by_hand(*place, place->address, Decision::end);
  place->stopped = true;
  place->in_round = false;
  for (Address told; place->state != State::ended;) {
    if (place->address.cell && place->address != told)
      supervisor_.home->tell_to_stop(told = place->address);
    co_await changed_.wait();
  }
  if (forget) remove(*place);
  co_return place->down;
}

Task<ActorRef> Children::restart(std::string name) {
  const Place place = find(name, "restart child");
  if (place->restart == Restart::temporary && place->state != State::ended)
    throw Error(Errc::invalid_argument, "restart child '" + name + "'", "it is temporary",
                "remove it, and add another one");
  if (place->state == State::ended && !place->in_round) co_return co_await start_again(place);
  record_by_hand(*place, place->address, Decision::restart);
  place->stopped = false;
  struct ByHand {
    explicit ByHand(Child& child) noexcept : child(child) { ++child.by_hand; }
    ~ByHand() { --child.by_hand; }
    Child& child;
  } by_hand(*place);
  for (bool told = false; true;) {
    require_alive("restart child '" + name + "'");
    if (place->stopped || !place->listed)
      throw Error(Errc::actor_down, "restart child '" + name + "'", "it was stopped meanwhile");
    const bool lives = place->state == State::running || place->state == State::starting;
    if (place->in_round) {
      told = true;  // with its siblings
    } else if (place->state == State::running && told) {
      co_return reference_to(place->address);
    } else if (place->state == State::ended) {
      co_return reference_to(co_await spawn_by_hand(place));
    } else if (place->state == State::held) {
      revive(*place);
      told = true;
    } else if (place->state != State::spawning && !std::exchange(told, true) && lives) {
      tell_to_end(*place);
    }
    co_await changed_.wait();
  }
}

Task<Address> Children::spawn_by_hand(Place place) {
  try {
    co_return co_await spawn(place);
  } catch (...) {
    record_failed_start(*place, std::current_exception());
    throw;
  }
}

Task<ActorRef> Children::start_again(Place place) {
  const bool was_stopped = std::exchange(place->stopped, false);
  try {
    const Address made = co_await spawn_by_hand(place);
    record_by_hand(*place, made, Decision::restart);
    co_return reference_to(made);
  } catch (...) {
    place->stopped |= was_stopped;
    place->in_round &= !place->stopped;
    throw;
  }
}

std::vector<ChildState> Children::list() const {
  std::vector<ChildState> list;
  for (const Place& place : places_) {
    ChildState& child = list.emplace_back();
    child.name = place->name;
    child.restart = place->restart;
    if (place->address.cell) child.actor = reference_to(place->address);
    child.state = place->state == State::running && !place->in_round ? ChildState::State::running
                  : place->state == State::ended && !place->in_round
                      ? ChildState::State::ended
                      : ChildState::State::restarting;
  }
  return list;
}

// ---- the supervisor's end ---------------------------------------------------

bool Children::stop_last() noexcept {
  while (!places_.empty()) {
    const Child& last = *places_.back();
    if (last.address.cell) supervisor_.home->tell_to_stop(last.address);
    if (last.address.cell || !last.announced) return true;
    remove(*places_.back());  // it has ended
  }
  return false;
}

// ---- words ------------------------------------------------------------------

std::string title_of(const std::string& name, std::uint64_t id) {
  return name.empty() ? fmt::format("{:016x}", id) : "'" + name + "'";
}

std::string ended_text(ExitReason reason, const std::string& text) {
  const std::string cause = text.empty() ? "" : ": " + text;
  switch (reason) {
    case ExitReason::normal: return "ended" + cause;
    case ExitReason::stopped: return "was told to stop" + cause;
    case ExitReason::exhausted: return "was given up" + cause;
    default: return std::string(name(reason)) + cause;
  }
}

std::string restarts_text(std::uint32_t restarts, Duration period) {
  const double seconds = std::chrono::duration<double>(period).count();
  return fmt::format("{} restart{} in {:g} s", restarts, restarts == 1 ? "" : "s", seconds);
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

std::string destroyed_text(const std::vector<std::string>& stragglers) {
  std::string names;
  for (const std::string& name : stragglers) names += (names.empty() ? "" : ", ") + name;
  return "destroyed, since they had not ended in time: " + names;
}

}  // namespace hyperframes::detail
