#include <hyperframes/actors/detail/inspection.hpp>

#include <algorithm>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <iterator>
#include <map>

namespace hyperframes::detail {
namespace {

// What a shard looks at before others get their turn: so many cells, and so long. (Where time
// stands still during a turn, only the first.) In the system group, `yield` would leave others
// nothing.
constexpr std::uint32_t cells_a_slice = 1024;
constexpr Duration slice = 500us;
constexpr Duration pause = 50us;
constexpr std::uint32_t cells_a_look_at_the_clock = 16;
// Of all the chains of one shard; then the turns of the others are only counted.
constexpr std::size_t most_places = 100'000;

/// Keeps those that do something in preference to those that do not.
class Selection {
 public:
  Selection(ShardPart& part, const InspectOptions& options) : part_(part), options_(options) {}

  void look_at(ActorCell& cell) {
    ++part_.shard.actors;
    part_.shard.mailbox_messages += cell.depth();
    const bool idle = cell.is_idle() && cell.name().empty();
    auto& kept = idle ? idle_ : part_.actors;
    if (kept.size() == options_.actors_per_shard) return;
    kept.push_back(cell.report(places_ < most_places ? options_.turns_per_actor : 0));
    for (const TurnReport& turn : kept.back().turns) places_ += turn.chain.place_count();
  }
  void finish() {
    const std::size_t room = options_.actors_per_shard - part_.actors.size();
    if (idle_.size() > room) idle_.resize(room);
    std::ranges::move(idle_, std::back_inserter(part_.actors));
    part_.shard.actors_left_out = part_.shard.actors - part_.actors.size();
    std::ranges::sort(part_.actors, {}, &ActorReport::id);
  }

 private:
  ShardPart& part_;
  const InspectOptions& options_;
  std::vector<ActorReport> idle_;
  std::size_t places_ = 0;
};

/// When a shard that looks through its cells should let others run.
class Slices {
 public:
  explicit Slices(Shard& shard) : shard_(shard) { begin(); }
  void begin() { until_ = shard_.reactor().now() + slice; }
  bool over_after(std::uint32_t slot) const {
    if (slot % cells_a_slice == cells_a_slice - 1) return true;
    return slot % cells_a_look_at_the_clock == cells_a_look_at_the_clock - 1 &&
           shard_.reactor().now() >= until_;
  }

 private:
  Shard& shard_;
  Time until_;
};

void add_sessions(NodeShard& part, const InspectOptions& options, ShardPart& into) {
  if (!part.core.options.network) return;
  for (const net::SessionRef& session : part.core.network().sessions()) {
    if (into.sessions.size() == options.sessions_per_shard) {
      ++into.shard.sessions_left_out;
      continue;
    }
    into.sessions.push_back(
        {session->peer().node_id, session->peer().address, part.shard.index(), session->stats()});
  }
}

void add_shard(NodeShard& part, const InspectOptions& options, ShardReport& into) {
  into.index = part.shard.index();
  into.answered = true;
  into.load = part.shard.load();
  Shard::Tasks tasks = part.shard.tasks(options.tasks_per_shard);
  into.tasks = std::move(tasks.shown);
  into.tasks_left_out = tasks.left_out;
  into.load.root_tasks -= std::erase_if(into.tasks, [](const Shard::TaskState& task) {
    return task.spawned_at.file == "inspection.cpp";  // the one that looks
  });
  if (!options.metrics) return;
  part.shard.publish_load();
  into.metrics = part.shard.metrics();
}

/// What runs in an actor's scopes, while the actor waits for something else, is shown with it.
void give_to_actors(std::vector<Shard::TaskState>& tasks, std::vector<ActorReport>& actors) {
  std::map<std::uint32_t, ActorReport*> owners;
  for (ActorReport& actor : actors)
    if (actor.owner) owners[actor.owner] = &actor;
  std::erase_if(tasks, [&](Shard::TaskState& task) {
    const auto found = owners.find(task.owner);
    if (!task.in_scope || found == owners.end()) return false;
    TurnReport& turn = found->second->turns.emplace_back();
    turn.kind = "task";
    turn.chain = std::move(task.chain);
    return true;
  });
}

}  // namespace

class Inspection::Token {
 public:
  explicit Token(NodeCore& core) noexcept : core_(core) { core_.inspections.fetch_add(1); }
  Token(const Token&) = delete;
  ~Token() { core_.inspections.fetch_sub(1); }

 private:
  NodeCore& core_;
};

/// Tells the shard on which a coroutine waits.
struct Inspection::Arrived : Work {
  explicit Arrived(std::shared_ptr<Inspection> of) : Work(&Arrived::run), of(std::move(of)) {}
  static void run(Work* work) noexcept {
    std::unique_ptr<Arrived> self(static_cast<Arrived*>(work));
    self->of->complete_.set();
  }
  std::shared_ptr<Inspection> of;
};

Inspection::Inspection(NodeCore& core, InspectOptions options)
    : core_(core), options_(options), parts_(core.shard_count()), missing_(core.shard_count()) {
  Shard* const here = Shard::current();
  if (here && &here->runtime() == &core.runtime) home_ = here;
}

std::shared_ptr<Inspection> Inspection::begin(NodeCore& core, InspectOptions options) {
  auto self = std::make_shared<Inspection>(core, options);
  for (unsigned i = 0; i < core.shard_count(); ++i) {
    auto token = std::make_shared<Token>(core);
    NodeShard* const part = &core.at(i);
    start_on(
        part->shard, [self, token, part] { return describe(self, token, part); },
        std::source_location::current(), Group::system);
  }
  return self;
}

Task<void> Inspection::describe(std::shared_ptr<Inspection> self, std::shared_ptr<Token> token,
                                NodeShard* part) {
  ShardPart result;
  add_shard(*part, self->options_, result.shard);
  add_sessions(*part, self->options_, result);
  Selection selection(result, self->options_);
  Slices slices(part->shard);
  for (std::uint32_t slot = 0; slot < part->slot_count(); ++slot) {
    if (ActorCell* cell = part->cell_in(slot)) selection.look_at(*cell);
    if (!slices.over_after(slot)) continue;
    co_await sleep_for(pause);
    slices.begin();
  }
  selection.finish();
  give_to_actors(result.shard.tasks, result.actors);
  const unsigned index = part->shard.index();
  token.reset();  // the node is not needed any more
  self->put(index, std::move(result));
}

void Inspection::put(unsigned shard, ShardPart part) {
  std::scoped_lock lock(mutex_);
  parts_[shard] = std::move(part);
  if (--missing_ > 0) return;
  changed_.notify_all();
  if (home_) home_->post(new Arrived(shared_from_this()), Group::system);
}

Task<NodeReport> Inspection::result() {
  try {
    co_await complete_.wait(after(options_.patience));
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) throw;
  }
  co_return take();
}

NodeReport Inspection::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, options_.patience, [this] { return missing_ == 0; });
  lock.unlock();
  return take();
}

NodeReport Inspection::take() {
  NodeReport report;
  report.node = core_.options.name;
  report.id = core_.options.network ? core_.network().node_id() : 0;
  report.at = Clock::now();
  report.events = core_.events.since(0, options_.events).events;
  std::scoped_lock lock(mutex_);
  home_ = nullptr;  // nobody waits any more
  for (unsigned i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    if (!part) {
      auto& missing = report.shards.emplace_back();
      missing.index = i;
      missing.doing = core_.runtime.describe_turn(i);
      continue;
    }
    report.shards.push_back(std::move(part->shard));
    std::ranges::move(part->actors, std::back_inserter(report.actors));
    std::ranges::move(part->sessions, std::back_inserter(report.sessions));
    part.reset();
  }
  return report;
}

}  // namespace hyperframes::detail
