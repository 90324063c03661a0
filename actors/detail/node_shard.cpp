#include <hyperframes/actors/detail/node_shard.hpp>

#include <algorithm>
#include <cassert>
#include <hyperframes/actors/actor.hpp>
#include <hyperframes/actors/detail/children.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/remote.hpp>
#include <hyperframes/actors/detail/start_waiter.hpp>
#include <hyperframes/actors/detail/stream_end.hpp>
#include <hyperframes/actors/detail/watch.hpp>
#include <hyperframes/runtime/log.hpp>

namespace hyperframes::detail {
namespace {

constexpr std::uint32_t last_generation = (1u << actor_id::generation_bits) - 1;

const MailboxOptions& usual_limits() {
  static const MailboxOptions limits;
  return limits;
}
bool usual(const MailboxOptions& limits) {
  const MailboxOptions& usual = usual_limits();
  return limits.messages == usual.messages && limits.bytes == usual.bytes &&
         limits.overflow == usual.overflow;
}

/// Says something to another actor's cell, in the lane that no mailbox bounds.
struct Control : Work {
  enum class What : std::uint8_t { stop, suspend, revive, child_news, link, unlink, broken_link };
  Control(What what, Address to) noexcept : Work(&Control::arrive), what(what), to(to) {}
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  static void arrive(Work* work) noexcept {
    std::unique_ptr<Control> self(static_cast<Control*>(work));
    self->to.cell->home->arrived();
    if (self->to.cell->id != self->to.id) return;
    ActorCell& cell = *self->to.cell;
    switch (self->what) {
      case What::stop: return cell.stop();
      case What::suspend: return cell.suspend();
      case What::revive: return cell.revive();
      case What::child_news: return cell.take_news(self->child, std::move(*self->news));
      case What::link: return cell.link_with({self->child.cell, nullptr, self->child.id}, true);
      case What::unlink: return cell.unlink_from({self->child.cell, nullptr, self->child.id});
      case What::broken_link: return cell.link_broken(self->down);
    }
  }

  What what;
  Address to, child;  ///< `child`: or whom it is to link with.
  Down down;
  std::unique_ptr<ChildNews> news;
};

// The cell whose actor is being constructed: how its base class finds it. Set and read within one
// call, so that no suspension lies between.
thread_local ActorCell* constructing = nullptr;

}  // namespace

/// Cells never move, and are used again.
class NodeShard::Chunk {
 public:
  static constexpr std::uint32_t size = 64;
  Chunk() = default;
  Chunk(const Chunk&) = delete;
  ~Chunk() {
    for (ActorCell& cell : cells()) cell.~ActorCell();
  }
  ActorCell& add(NodeShard& home, std::uint32_t slot) {
    return *new (memory_ + sizeof(ActorCell) * used_++) ActorCell(home, slot);
  }
  std::span<ActorCell> cells() noexcept {
    return {std::launder(reinterpret_cast<ActorCell*>(memory_)), used_};
  }

 private:
  alignas(64) std::byte memory_[size * sizeof(ActorCell)];
  std::size_t used_ = 0;
};

ActorCell* cell_being_constructed() noexcept { return constructing; }

NodeShard::NodeShard(NodeCore& core, Shard& shard)
    : core(core),
      shard(shard),
      delivered(shard.metrics().counter("hyperframes_letters_total", "Messages handled by actors")),
      expired(shard.metrics().counter("hyperframes_expired_letters_total",
                                      "Messages dropped since their deadline had passed")),
      dead(shard.metrics().counter("hyperframes_dead_letters_total",
                                   "Messages that no actor could take")),
      dropped(shard.metrics().counter("hyperframes_dropped_letters_total",
                                      "Messages that a full mailbox dropped, as its policy says")),
      late(shard.metrics().counter("hyperframes_late_replies_total",
                                   "Answers that came when nobody waited any more")),
      restarts(shard.metrics().counter("hyperframes_restarts_total", "Actors restarted")),
      crashes(shard.metrics().counter("hyperframes_crashes_total", "Actors crashed")),
      refused_input(shard.metrics().counter("hyperframes_refused_messages_total",
                                            "Messages from peers that did not verify")) {}

NodeShard::~NodeShard() {
  streams_.for_each([](StreamEnd& end) { end.detach(); });
}

NodeShard& NodeShard::sibling(unsigned shard_index) noexcept { return core.at(shard_index); }

std::uint32_t NodeShard::owner_of(std::uint32_t slot) const noexcept {
  return core.first_owner() && slot < Witness::owners ? core.first_owner() + slot : 0;
}

// ---- actors -----------------------------------------------------------------

ActorCell& NodeShard::cell_at(std::uint32_t slot) noexcept {
  return chunks_[slot / Chunk::size]->cells()[slot % Chunk::size];
}

ActorCell& NodeShard::allocate_cell(Group group) {
  ActorCell* cell = nullptr;
  if (!free_cells_.empty()) {
    cell = free_cells_.back();
    free_cells_.pop_back();
  } else {
    if (next_slot_ % Chunk::size == 0) chunks_.push_back(std::make_unique<Chunk>());
    cell = &chunks_.back()->add(*this, next_slot_++);
  }
  ++cell->generation;
  cell->id = actor_id::make(group == Group::system, shard.index(), cell->generation, cell->slot);
  cell->phase = ActorCell::Phase::starting;
  cell->scheduled_in = group;
  cell->limits = &usual_limits();
  ++actor_count_;
  return *cell;
}

void NodeShard::free_cell(ActorCell& cell) noexcept {
  assert(!cell.object && cell.turns.empty() && cell.mailbox.empty());
  if (std::exchange(cell.queued, false)) shard.unschedule(&cell, cell.group());
  cell.id = 0;
  cell.phase = ActorCell::Phase::free;
  cell.handled = 0;
  cell.more.reset();
  // A cell whose ids are used up is taken no more, so that no id ever comes back.
  if (cell.generation < last_generation) free_cells_.push_back(&cell);
  --actor_count_;
}

ActorCell* NodeShard::find(std::uint64_t id) noexcept {
  const std::uint32_t slot = actor_id::slot_of(id);
  if (slot >= next_slot_) return nullptr;
  ActorCell& cell = cell_at(slot);
  return cell.id == id && id ? &cell : nullptr;
}

Actor* NodeShard::make(ActorCell& cell, Factory& factory) {
  struct Constructing {
    explicit Constructing(ActorCell& cell) : previous(std::exchange(constructing, &cell)) {}
    ~Constructing() { constructing = previous; }
    ActorCell* previous;
  } guard(cell);
  return factory.make();
}

namespace {
void check(const RestartPolicy& policy, const std::string& name) {
  const char* found = nullptr;
  if (policy.period < Duration::zero()) found = "the period of its restarts is negative";
  if (policy.backoff_min < Duration::zero()) found = "its backoff_min is negative";
  if (policy.backoff_max < policy.backoff_min) found = "its backoff_max is below its backoff_min";
  if (!found) return;
  throw Error(Errc::invalid_argument, "spawn actor '" + name + "'", found,
              "give 0 or more, and a backoff_max that is not below the backoff_min");
}
}  // namespace

void NodeShard::prepare(ActorCell& cell, SpawnRequest& request) {
  SpawnOptions& options = request.options;
  const bool restarts = options.restart.kind != Restart::temporary;
  if (restarts && !request.factory->repeatable())
    throw Error(Errc::invalid_argument, "spawn actor '" + options.name + "'",
                "its constructor's arguments can't be copied, so it can't be restarted",
                "pass arguments that can be copied, or use Restart::temporary");
  check(options.restart, options.name);
  if (static_cast<std::size_t>(options.group) >= shard.groups())
    throw Error(Errc::invalid_argument, "spawn actor '" + options.name + "'",
                "the runtime has no scheduling group of number " +
                    std::to_string(static_cast<unsigned>(options.group)),
                "take one that Runtime::group gives");
  if (options.mailbox.messages == 0)
    throw Error(Errc::invalid_argument, "spawn actor '" + options.name + "'",
                "its mailbox would hold no message", "allow at least one");
  if (!usual(options.mailbox)) {
    cell.extras().limits = options.mailbox;
    cell.limits = &cell.extras().limits;
  }
  if (restarts) {
    cell.extras().policy = options.restart;
    cell.extras().keep_mailbox = options.keep_mailbox;
  }
  if (options.shutdown) {
    if (*options.shutdown < Duration::zero())
      throw Error(Errc::invalid_argument, "spawn actor '" + options.name + "'",
                  "its shutdown would take less than no time", "give 0 or more");
    cell.extras().grace = options.shutdown;
  }
  if (request.parent.cell) {
    cell.extras().parent = request.parent;
    cell.extras().strategy = request.strategy;
  }
  if (!options.name.empty()) {
    core.registry.add(options.name, cell.address());
    cell.extras().name = std::move(options.name);
  }
}

Task<Address> NodeShard::spawn(SpawnRequest request) {
  if (closed_) throw Error(Errc::shutting_down, "spawn an actor", "its node is being destroyed");
  ActorCell& cell = allocate_cell(request.options.group);
  const Address address = cell.address();
  Actor* made = nullptr;
  try {
    prepare(cell, request);
    made = make(cell, *request.factory);
  } catch (...) {
    if (!cell.name().empty()) core.registry.remove(cell.name(), address);
    cell.constructor_failed();
    free_cell(cell);
    throw;
  }
  if (!cell.name().empty()) core.registry.set_service(cell.name(), made->service());
  if (request.options.restart.kind != Restart::temporary)
    cell.extras().factory = std::move(request.factory);
  request.birth.announce(address);
  co_await StartWaiter(cell, made);
  co_return address;
}

void NodeShard::start_now(SpawnRequest request) {
  ActorCell& cell = allocate_cell(request.options.group);
  prepare(cell, request);
  cell.start(make(cell, *request.factory));
}

std::vector<std::pair<Address, std::string>> NodeShard::stop_all() {
  std::vector<std::pair<Address, std::string>> actors;
  for_each_cell([&](ActorCell& cell) {
    const bool child = cell.more && cell.more->parent.cell;
    if (!child && cell.id != actor_id::directory) actors.emplace_back(cell.address(), cell.name());
  });
  for (auto actor = actors.rbegin(); actor != actors.rend(); ++actor) tell_to_stop(actor->first);
  return actors;
}

void NodeShard::destroy_actors() noexcept {
  closed_ = true;
  for_each_cell([](ActorCell& cell) { cell.kill(); });
}

void NodeShard::tell_to_stop(Address actor) noexcept {
  auto* control = new Control(Control::What::stop, actor);
  post(*actor.cell->home, control, Group::system);
}

void NodeShard::tell_to_link(const Destination& other, ActorCell& actor, bool link) noexcept {
  if (other.peer) {
    net::Message message;
    message.envelope = {.target = other.id,
                        .source = actor.id,
                        .kind = link ? net::MessageKind::link : net::MessageKind::unlink};
    static_cast<void>(other.peer->on(shard.index()).post(std::move(message), net::Lane::control));
    return;
  }
  auto* control =
      new Control(link ? Control::What::link : Control::What::unlink, {other.cell, other.id});
  control->child = actor.address();
  post(*other.cell->home, control, Group::system);
}

void NodeShard::report_broken_link(Address actor, Down down) noexcept {
  auto* control = new Control(Control::What::broken_link, actor);
  control->down = std::move(down);
  post(*this, control, Group::system);
}

// ---- watches of actors of other processes -----------------------------------

std::uint64_t NodeShard::add_watch(Watch& watch) {
  constexpr int number_bits = 52;  // below the shard, as in what an ask is known by
  const std::uint64_t number = std::uint64_t{shard.index()} << number_bits | ++next_watch_;
  watches_.emplace(number, &watch);
  return number;
}

void NodeShard::forget_watch(std::uint64_t number) noexcept { watches_.erase(number); }

Watch* NodeShard::take_watch(std::uint64_t number, const RemotePeer& from) noexcept {
  const auto found = watches_.find(number);
  if (found == watches_.end() || found->second->peer != &from) return nullptr;
  Watch* watch = found->second;
  watches_.erase(found);
  return watch;
}

void NodeShard::fail_watches(RemotePeer& peer, const Error& reason) noexcept {
  std::vector<std::uint64_t> lost;  // who is told may watch others, or give up
  for (const auto& [number, watch] : watches_)
    if (watch->peer == &peer) lost.push_back(number);
  for (const std::uint64_t number : lost)
    if (Watch* watch = take_watch(number, peer)) watch->lost(reason);
}

void NodeShard::report_to_parent(Address parent, Address child, ChildNews news) noexcept {
  auto* control = new Control(Control::What::child_news, parent);
  control->child = child;
  control->news = std::make_unique<ChildNews>(std::move(news));
  post(*parent.cell->home, control, Group::system);
}

void NodeShard::tell_to_suspend(Address actor) noexcept {
  post(*actor.cell->home, new Control(Control::What::suspend, actor), Group::system);
}

void NodeShard::tell_to_revive(Address actor) noexcept {
  post(*actor.cell->home, new Control(Control::What::revive, actor), Group::system);
}

// ---- asks that wait for another process -------------------------------------

// The shard's index lies above the number that its table gave.

unsigned shard_of_correlation(std::uint64_t correlation) noexcept {
  return static_cast<unsigned>(correlation >> SlotTable<Letter>::bits);
}

std::uint64_t NodeShard::add_pending(Letter* letter) {
  const std::uint64_t number = pending_.add(*letter);
  letter->correlation = pending_.slot_of(number);
  letter->at_peer = true;
  return std::uint64_t{shard.index()} << pending_.bits | number;
}

void NodeShard::forget_pending(Letter& letter) noexcept {
  pending_.remove(letter.correlation);
  letter.at_peer = false;
}

Letter* NodeShard::take_pending(std::uint64_t correlation, const RemotePeer& from) noexcept {
  Letter* const letter = pending_.find(correlation);
  if (!letter || letter->peer != &from) return nullptr;
  forget_pending(*letter);
  return letter;
}

void NodeShard::fail_pending(RemotePeer& peer, const Error& reason) noexcept {
  pending_.for_each([&](Letter& letter) {
    if (letter.peer != &peer) return;
    forget_pending(letter);
    set_failure(letter, reason);
    letter.waiting->came_back(&letter);
  });
}

// ---- streams ----------------------------------------------------------------

// Numbers are made as those of asks are.
std::uint64_t NodeShard::add_stream(StreamEnd& end) {
  return std::uint64_t{shard.index()} << streams_.bits | streams_.add(end);
}

void NodeShard::forget_stream(std::uint64_t number) noexcept {
  streams_.remove(streams_.slot_of(number));
}

StreamEnd* NodeShard::find_stream(std::uint64_t number) noexcept {
  StreamEnd* const end = streams_.find(number);
  return end && end->number() == number ? end : nullptr;
}

void NodeShard::fail_streams(RemotePeer& peer, const Error& reason) noexcept {
  streams_.for_each([&](StreamEnd& end) {
    if (end.peer() == &peer) end.fail(reason);
  });
}

// ---- dead letters -----------------------------------------------------------

std::uint64_t NodeShard::id_of(const Letter& letter) const noexcept {
  return actor_id::make(letter.system, shard.index(), letter.generation, letter.cell->slot);
}

void NodeShard::note_dead(const Letter& letter, const ActorCell* cell, Errc cause,
                          std::string_view why) noexcept {
  (cause == Errc::deadline_exceeded ? expired : dead).add();
  if (cause == Errc::overloaded && cell && cell->drops()) dropped.add();
  if (!core.options.on_dead_letter) return;
  core.options.on_dead_letter({id_of(letter), cell ? cell->name() : std::string(),
                               letter.method->name, cause, std::string(why)});
}

void NodeShard::note_dead(std::uint64_t target) noexcept {
  dead.add();
  if (core.options.on_dead_letter)
    core.options.on_dead_letter(
        {target, std::string(), {}, Errc::actor_down, "the actor has ended"});
}

}  // namespace hyperframes::detail
