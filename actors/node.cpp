#include <hyperframes/actors/node.hpp>

#include <algorithm>
#include <hyperframes/actors/detail/children.hpp>
#include <hyperframes/actors/detail/inspection.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/page.hpp>
#include <hyperframes/actors/detail/remote.hpp>
#include <hyperframes/actors/detail/watch.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <thread>
#include <utility>

#include "hyperframes_system.fbs.hpp"

namespace hyperframes {
namespace detail {
namespace {

using system::Directory;

/// Answers other nodes that look for an actor by its name, or want to see all.
class DirectoryActor final : public Directory::Actor {
 public:
  explicit DirectoryActor(NodeCore* core) : core_(*core) {}

  Task<void> find_(system::Lookup request, Reply<system::Found> reply) override {
    const std::string name(request.name());
    const auto entry = core_.registry.find(name);
    if (!entry.service)
      throw Error(Errc::not_found, "find actor '" + name + "'", "no actor has that name there",
                  "check the name, and that it has been started");
    if (request.service_id() != 0 && request.service_id() != entry.service->id)
      throw Error(Errc::invalid_argument, "find actor '" + name + "'",
                  std::string("it has service ") + entry.service->name,
                  "ask for that service, or for another name");
    reply.send({.actor = entry.address.id});
    co_return;
  }

  Task<void> inspect(system::Look, Reply<WithSegments<system::Report>> reply) override {
    const auto inspection = Inspection::begin(core_, InspectOptions());
    auto report = std::make_shared<NodeReport>(co_await inspection->result());
    const std::string json = co_await offload([report] { return report->to_json(); });
    reply.send({}, Segments(Buffer::copy_of(json)));
  }

 private:
  NodeCore& core_;
};

}  // namespace

// ---- names ------------------------------------------------------------------

void Registry::add(const std::string& name, Address address) {
  std::scoped_lock lock(mutex_);
  const bool is_new = entries_.try_emplace(name, Entry{address, nullptr}).second;
  if (!is_new)
    throw Error(Errc::already_exists, "register actor '" + name + "'", "the name is taken",
                "use another one, or stop the actor that has it");
}
void Registry::set_service(const std::string& name, const ServiceInfo& service) {
  std::scoped_lock lock(mutex_);
  entries_.at(name).service = &service;
}
void Registry::remove(const std::string& name, Address address) noexcept {
  std::scoped_lock lock(mutex_);
  const auto entry = entries_.find(name);
  if (entry != entries_.end() && entry->second.address == address) entries_.erase(entry);
}
Registry::Entry Registry::find(const std::string& name) const {
  std::scoped_lock lock(mutex_);
  const auto entry = entries_.find(name);
  return entry == entries_.end() ? Entry{} : entry->second;
}
std::string Registry::name_in(unsigned shard, std::uint32_t slot) const {
  std::scoped_lock lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    const std::uint64_t id = entry.address.id;
    if (actor_id::shard_of(id) == shard && actor_id::slot_of(id) == slot) return name;
  }
  return {};
}
std::vector<std::string> Registry::names() const {
  std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_)
    if (entry.service) names.push_back(name);
  return names;
}

// ---- the core ---------------------------------------------------------------

NodeCore::NodeCore(Node& node, Runtime& runtime, Node::Options given)
    : node(node), runtime(runtime), options(std::move(given)), events(options.kept_events) {
  runtime.require_foreign_thread("start a node");
  shards_.resize(runtime.shard_count());
  first_owner_ = runtime.add_witness(*this);
  runtime.on_every_shard([this](Shard& shard) {
    shards_[shard.index()] = std::make_unique<NodeShard>(*this, shard);
    if (shard.index() > 0) return;
    events.begin(shard.now());
    start_directory();
  });
  try {
    if (options.network)
      network_ = std::make_unique<net::Network>(runtime, *options.network, *this);
    if (!options.http_address.empty()) page_ = std::make_unique<Page>(*this, options.http_address);
  } catch (...) {
    end();
    throw;
  }
}

// The first actor of the first shard: other nodes know its id.
void NodeCore::start_directory() {
  at(0).start_now({.options = {},
                   .factory = std::make_unique<FactoryOf<DirectoryActor, NodeCore*>>(false, this),
                   .parent = {}});
}

NodeCore::~NodeCore() { end(); }

void NodeCore::end() noexcept {
  page_.reset();
  runtime.remove_witness(*this);
  await_inspections();
  network_.reset();
  runtime.on_every_shard([this](Shard& shard) { at(shard.index()).destroy_actors(); });
  drain();
  // Memory of a shard is given back on it.
  runtime.on_every_shard([this](Shard& shard) {
    for (auto& [key, peer] : peers_) peer->release(shard.index());
    shards_[shard.index()].reset();
  });
}

// Those that shards still have to come to refer to parts of this node.
void NodeCore::await_inspections() noexcept {
  while (inspections.load() > 0) {
    runtime.run_left_over();
    std::this_thread::sleep_for(1ms);
  }
}

// Until nothing that parts of this node sent each other is under way any more.
void NodeCore::drain() noexcept {
  while (true) {
    std::mutex mutex;
    std::uint64_t posted = 0, received = 0;
    runtime.on_every_shard([&](Shard& shard) {
      std::scoped_lock lock(mutex);
      posted += at(shard.index()).posted;
      received += at(shard.index()).received;
    });
    if (posted == received) return;
    runtime.run_left_over();
  }
}

NodeShard& NodeCore::here() {
  Shard* shard = Shard::current();
  if (!shard || &shard->runtime() != &runtime)
    throw Error(Errc::invalid_argument, "use node '" + options.name + "'",
                "the caller runs on no shard of its runtime", "use Runtime::run");
  return at(shard->index());
}

// ---- what it does, for people -----------------------------------------------

std::string NodeCore::owner_name(unsigned shard, std::uint32_t owner) const {
  // Not less first_owner_: who asks may see a number from before this node was, while that is set.
  const std::uint32_t slot = owner % Witness::owners;
  const std::string name = registry.name_in(shard, slot);
  const std::string of_node = " of node '" + options.name + "'";
  if (!name.empty()) return "actor '" + name + "'" + of_node;
  return "an actor without a name (the " + std::to_string(slot) + "th on its shard)" + of_node;
}

void NodeCore::dump(Shard& shard, std::string& text) const {
  constexpr std::uint32_t most_cells = 16'384, most_actors = 200;
  constexpr std::size_t most_turns = 8, most_text = 1 << 20;
  NodeShard* const part = shards_[shard.index()].get();
  if (!part) return;
  const std::uint32_t cells = std::min(part->slot_count(), most_cells);
  std::size_t shown = 0, left_out = 0;
  for (std::uint32_t slot = 0; slot < cells; ++slot) {
    ActorCell* const cell = part->cell_in(slot);
    if (!cell || (cell->turns.empty() && cell->mailbox.empty())) continue;
    if (++shown > most_actors || text.size() > most_text) {
      ++left_out;
    } else {
      text += "  " + cell->report(most_turns).to_string() + "\n";
    }
  }
  if (left_out > 0) text += "  and " + std::to_string(left_out) + " more actors that wait\n";
  if (cells < part->slot_count())
    text += "  not looked at: " + std::to_string(part->slot_count() - cells) + " actors\n";
}

net::Network& NodeCore::network() {
  if (!network_)
    throw Error(Errc::unsupported, "use the network of node '" + options.name + "'",
                "it was made without one", "set Node::Options::network");
  return *network_;
}

RemotePeer& NodeCore::peer(const net::PeerInfo& info) {
  std::scoped_lock lock(peers_mutex_);
  auto& peer = peers_[{info.node_id, info.incarnation}];
  if (!peer) peer = std::make_unique<RemotePeer>(*this, info);
  return *peer;
}

Task<RemotePeer*> NodeCore::connect(net::Endpoint endpoint, Time deadline) {
  const net::SessionRef session = co_await network().connect(endpoint, deadline);
  RemotePeer& peer = this->peer(session->peer());
  peer.set_endpoint(endpoint);
  peer.on(here().shard.index()).session = session;
  co_return &peer;
}

void NodeCore::on_message(net::Session& session, net::Lane lane, net::Message message) noexcept {
  NodeShard& here = at(Shard::current()->index());
  receive(here, peer(session.peer()).on(here.shard.index()), session, lane, std::move(message));
}

void NodeCore::on_session_up(net::Session& session) noexcept {
  peer(session.peer()).on(Shard::current()->index()).session = net::SessionRef(&session);
}

void NodeCore::on_session_down(net::Session& session, const Error& reason) noexcept {
  PeerShard& part = peer(session.peer()).on(Shard::current()->index());
  if (part.session.get() == &session) part.went_down(reason);
}

namespace {

/// A child on its way to its parent, an actor of this shard that may end meanwhile.
class Adoption {
 public:
  Adoption(Address parent, std::shared_ptr<Child> place) noexcept
      : parent_(parent), place_(std::move(place)) {}
  Adoption(const Adoption&) = delete;
  ~Adoption() { end({}); }
  void end(Address child) noexcept {
    if (!place_) return;
    const auto place = std::move(place_);
    ActorCell& parent = *parent_.cell;
    const bool awaited = parent.id == parent_.id && parent.has_children() &&
                         parent.more->children->arrived(place, child);
    if (!awaited && child.cell) parent.home->tell_to_stop(child);
  }

 private:
  Address parent_;
  std::shared_ptr<Child> place_;
};

Task<Address> spawn_on(NodeShard* here, NodeShard* there, NodeShard::SpawnRequest request) {
  if (there == here) co_return co_await there->spawn(std::move(request));
  auto moved = std::make_shared<NodeShard::SpawnRequest>(std::move(request));
  co_return co_await call_on(there->shard,
                             [there, moved] { return there->spawn(std::move(*moved)); });
}

NodeShard& shard_for(NodeCore& core, const SpawnOptions& options) {
  const unsigned shard = options.shard == this_shard ? core.here().shard.index() : options.shard;
  if (shard < core.shard_count()) return core.at(shard);
  throw Error(Errc::invalid_argument, "spawn actor '" + options.name + "'",
              "there is no shard " + std::to_string(shard),
              "the runtime has " + std::to_string(core.shard_count()));
}

}  // namespace

Task<Address> spawn_child(NodeCore& core, SpawnOptions options, std::unique_ptr<Factory> factory,
                          Address parent, std::shared_ptr<Child> place) {
  NodeShard::SpawnRequest request{{}, std::move(factory), parent};
  if (parent.cell->id == parent.id) {
    Children& siblings = parent.cell->children();
    request.strategy = siblings.strategy();
    if (!place) place = siblings.expect(options);
    place->state = Child::State::spawning;
    place->announced = place->given_up = false;
    request.birth = Birth(parent, place);
  }
  Adoption adoption(parent, std::move(place));
  NodeShard* const there = &shard_for(core, options);
  request.options = std::move(options);
  const Address made = co_await spawn_on(&core.here(), there, std::move(request));
  adoption.end(made);
  co_return made;
}

Task<Address> spawn_actor(NodeCore& core, SpawnOptions&& options, std::unique_ptr<Factory> factory,
                          Address parent) {
  if (parent.cell)
    return spawn_child(core, std::move(options), std::move(factory), parent, nullptr);
  NodeShard& here = core.here();
  NodeShard& there = shard_for(core, options);
  NodeShard::SpawnRequest request{std::move(options), std::move(factory), {}};
  if (&there == &here) return there.spawn(std::move(request));
  return spawn_on(&here, &there, std::move(request));
}

SupervisionEvents NodeCore::events_since(std::uint64_t after) const {
  SupervisionEvents seen = events.since(after);
  seen.now = Clock::now();
  return seen;
}

void NodeCore::record(SupervisionEvent event) noexcept {
  const std::string text = event.to_string();
  if (event.decision == Decision::give_up || event.reason == ExitReason::crashed) {
    event.decision == Decision::restart ? log::warning(text) : log::error(text);
  } else {
    event.decision == Decision::destroy ? log::warning(text) : log::info(text);
  }
  events.add(std::move(event));
}

}  // namespace detail

// ---- Node -------------------------------------------------------------------

Node::Node(Runtime& runtime, Options options)
    : core_(std::make_unique<detail::NodeCore>(*this, runtime, std::move(options))) {}
Node::~Node() = default;

const std::string& Node::name() const noexcept { return core_->options.name; }
Runtime& Node::runtime() const noexcept { return core_->runtime; }
std::uint64_t Node::id() const noexcept {
  return core_->options.network ? core_->network().node_id() : 0;
}
net::Network& Node::network() { return core_->network(); }
std::vector<std::string> Node::names() const { return core_->registry.names(); }
std::size_t Node::actor_count() const {
  detail::NodeShard& here = core_->here();
  return here.actor_count() - (here.shard.index() == 0 ? 1 : 0);  // the directory is not the user's
}

Task<NodeReport> Node::inspect(InspectOptions options) const {
  core_->here();  // throws off the shards
  const auto inspection = detail::Inspection::begin(*core_, options);
  co_return co_await inspection->result();
}

SupervisionEvents Node::events(std::uint64_t after) const { return core_->events_since(after); }

NodeReport Node::inspect_from_outside(InspectOptions options) const {
  if (Shard::current())
    throw Error(Errc::invalid_argument, "look at a node's actors", "this thread runs a shard",
                "co_await inspect() instead");
  return detail::Inspection::begin(*core_, options)->wait();
}

std::string Node::http_address() const {
  return core_->page() ? core_->page()->address() : std::string();
}

Result<ActorRef> Node::find(const std::string& name, std::uint64_t service_id) const {
  const auto entry = core_->registry.find(name);
  if (!entry.service)
    return Error(Errc::not_found, "find actor '" + name + "' in node '" + this->name() + "'",
                 "no actor has that name", "check the name, and that it has been started");
  if (entry.service->id != service_id)
    return Error(Errc::invalid_argument, "find actor '" + name + "' in node '" + this->name() + "'",
                 std::string("it has service ") + entry.service->name,
                 "ask for that service, or for another name");
  return ActorRef(detail::Destination{entry.address.cell, nullptr, entry.address.id});
}

void Node::stop(const ActorRef& actor) {
  const auto& to = actor.destination();
  if (!to.cell)
    throw Error(Errc::invalid_argument, "stop an actor",
                to.id ? "it runs in another process" : "the reference is empty",
                "stop it from its own process");
  core_->here().tell_to_stop({to.cell, to.id});
}

Task<Down> Node::join(ActorRef actor, Time deadline) {
  if (!actor)
    throw Error(Errc::invalid_argument, "join an actor", "the reference is empty",
                "find or spawn the actor first");
  co_return co_await detail::JoinWaiter(&core_->here(), actor.destination(), deadline);
}

Task<net::Endpoint> Node::listen(net::Endpoint endpoint) {
  return core_->network().listen(std::move(endpoint));
}

Task<RemoteNode> Node::connect(net::Endpoint endpoint, Within within) {
  co_return RemoteNode(*co_await core_->connect(std::move(endpoint), detail::resolve(within)));
}

namespace {
/// Notes whether it ended in time.
Task<void> await_end(detail::NodeCore* core, detail::Destination actor, Time limit, bool* ended) {
  try {
    co_await detail::JoinWaiter(&core->here(), actor, limit);
    *ended = true;
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) throw;
  }
}
}  // namespace

// All are told, and waited for, at the same time: who is slow uses up nobody else's grace.
Task<std::vector<std::string>> Node::close(Duration grace) {
  const Time limit = after(grace);
  std::vector<std::pair<detail::Address, std::string>> actors;
  for (unsigned shard = 0; shard < core_->shard_count(); ++shard) {
    detail::NodeShard* part = &core_->at(shard);
    const auto told = co_await call_on(part->shard, [part] { return part->stop_all(); });
    actors.insert(actors.end(), told.begin(), told.end());
  }
  const auto ended = std::make_unique<bool[]>(actors.size());
  std::vector<Task<void>> ends;
  for (std::size_t i = 0; i < actors.size(); ++i) {
    const detail::Address& actor = actors[i].first;
    ends.push_back(await_end(core_.get(), {actor.cell, nullptr, actor.id}, limit, &ended[i]));
  }
  co_await when_all(std::move(ends));
  std::vector<std::string> left;
  for (std::size_t i = 0; i < actors.size(); ++i) {
    const auto& [address, name] = actors[i];
    if (!ended[i]) left.push_back(name.empty() ? "actor " + std::to_string(address.id) : name);
  }
  if (core_->options.network)
    co_await core_->network().close(std::max(limit - Clock::now(), Duration(1ms)));
  co_return left;
}

// ---- RemoteNode -------------------------------------------------------------

std::uint64_t RemoteNode::id() const noexcept { return peer_->node_id; }
std::uint64_t RemoteNode::incarnation() const noexcept { return peer_->incarnation; }

Task<ActorRef> RemoteNode::find(std::string name, std::uint64_t service_id, Within within) {
  detail::RemotePeer* peer = peer_;
  const detail::Directory::Ref directory(
      ActorRef(detail::Destination{nullptr, peer, detail::actor_id::directory}));
  const system::Lookup request({.name = std::move(name), .service_id = service_id});
  const auto found = co_await directory.find_(request, within);
  co_return ActorRef(detail::Destination{nullptr, peer, found.actor()});
}

Task<std::string> RemoteNode::inspect_json(Within within) {
  const detail::Directory::Ref directory(
      ActorRef(detail::Destination{nullptr, peer_, detail::actor_id::directory}));
  const auto answer = co_await directory.inspect({}, within);
  std::string json;
  for (std::size_t i = 0; i < answer.segments.count(); ++i) json += answer.segments[i].text();
  co_return json;
}

}  // namespace hyperframes
