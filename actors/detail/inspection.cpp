#include <hyperframes/actors/detail/inspection.hpp>

#include <algorithm>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <iterator>

namespace hyperframes::detail {
namespace {

// Cells that a shard looks at before others get their turn.
constexpr std::uint32_t cells_a_slice = 1024;

/// Keeps those that do something in preference to those that do not.
class Selection {
 public:
  Selection(ShardPart& part, const InspectOptions& options) : part_(part), options_(options) {}

  void look_at(ActorCell& cell) {
    ++part_.shard.actors;
    part_.shard.mailbox_messages += cell.depth();
    const bool idle = cell.is_idle() && cell.name().empty();
    auto& kept = idle ? idle_ : part_.actors;
    const std::size_t room = options_.actors_per_shard;
    if (kept.size() < room) kept.push_back(cell.report(options_.turns_per_actor));
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
  into.tasks = part.shard.tasks(options.tasks_per_shard);
  into.tasks_left_out = into.load.root_tasks - std::min(into.load.root_tasks, into.tasks.size());
  std::erase_if(into.tasks, [](const Shard::TaskState& task) {
    return task.spawned_at.file == "inspection.cpp";  // the one that looks
  });
  if (!options.metrics) return;
  part.shard.publish_load();
  into.metrics = part.shard.metrics();
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
    start_on(part->shard, [self, token, part] { return describe(self, token, part); });
  }
  return self;
}

Task<void> Inspection::describe(std::shared_ptr<Inspection> self, std::shared_ptr<Token> token,
                                NodeShard* part) {
  ShardPart result;
  add_shard(*part, self->options_, result.shard);
  add_sessions(*part, self->options_, result);
  Selection selection(result, self->options_);
  for (std::uint32_t slot = 0; slot < part->slot_count(); ++slot) {
    if (slot % cells_a_slice == cells_a_slice - 1) co_await yield();
    if (ActorCell* cell = part->cell_in(slot)) selection.look_at(*cell);
  }
  selection.finish();
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
