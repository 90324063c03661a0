// A node: the actors of one process, their names, and the way to those of other processes.
//
//   hf::Node node(runtime, {.name = "server"});
//   auto counter = co_await node.spawn<CounterActor>("counter");              // on this shard
//   auto remote = co_await (co_await node.connect(endpoint)).find<demo::Counter>("counter");
//
// Several nodes may share a runtime. A node is made and destroyed off the shards, while its runtime
// exists; everything else is called on a shard of that (else Errc::invalid_argument), unless it
// says otherwise. References, replies and remote nodes must not outlive it. Threads that are no
// shard call actors by actors/foreign.hpp or actors/asio.hpp.
#pragma once

#include <concepts>
#include <functional>
#include <hyperframes/actors/actor.hpp>
#include <hyperframes/actors/dead_letter.hpp>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/factory.hpp>
#include <hyperframes/actors/down.hpp>
#include <hyperframes/actors/inbox.hpp>
#include <hyperframes/actors/ref.hpp>
#include <hyperframes/actors/report.hpp>
#include <hyperframes/actors/spawn_options.hpp>
#include <hyperframes/actors/supervision_event.hpp>
#include <hyperframes/actors/within.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes {

class Node;
class Runtime;

namespace detail {
class NodeCore;

template <class Made, class... Arguments>
std::unique_ptr<Factory> factory_of(const SpawnOptions& options, Arguments... arguments) {
  return std::make_unique<FactoryOf<Made, Arguments...>>(options.restart.kind != Restart::temporary,
                                                         std::move(arguments)...);
}
/// Starts an actor on the shard that `options` names. Throws like Node::spawn.
Task<Address> spawn_actor(NodeCore& core, SpawnOptions&& options, std::unique_ptr<Factory> factory,
                          Address parent);
/// A reference to an actor of this process.
inline ActorRef reference_to(Address address) noexcept {
  return ActorRef(Destination{address.cell, nullptr, address.id});
}

}  // namespace detail

/// A process that this node has a session with. A plain value, as valid as its node.
class RemoteNode {
 public:
  explicit RemoteNode(detail::RemotePeer& peer) noexcept : peer_(&peer) {}
  std::uint64_t id() const noexcept;
  /// Grows with each start of that process.
  std::uint64_t incarnation() const noexcept;

  /// The actor that is registered there under `name`. Throws Errc::not_found; invalid_argument if
  /// it has another service than `Service`; peer_lost, deadline_exceeded. Asks that process each
  /// time.
  template <class Service>
  Task<typename Service::Ref> find(std::string name, Within within = {}) {
    co_return typename Service::Ref(co_await find(std::move(name), Service::service_id, within));
  }
  /// What the actors of that process do, as Node::inspect() has it, as NodeReport::to_json().
  Task<std::string> inspect_json(Within within = {});

 private:
  Task<ActorRef> find(std::string name, std::uint64_t service_id, Within within);
  detail::RemotePeer* peer_;
};

class Node {
 public:
  struct Options {
    std::string name = "node";  ///< In logs and reports; need not be unique.
    /// Without it the node talks to no other process.
    std::optional<net::Network::Options> network{};
    /// Called on the shard where a letter died, so on several at a time. Must not throw or block.
    std::function<void(const DeadLetter&)> on_dead_letter{};
    /// HOST:PORT, such as "127.0.0.1:9464", on which the node shows what it does to programs of
    /// this host: Prometheus text at /metrics, the actors at /actors (JSON) and /dump (text), what
    /// supervisors decided at /events (JSON). Only loopback, since nobody has to prove who they
    /// are; port 0 picks one. Empty: off. It has threads of its own. The constructor throws what
    /// stands in the way.
    std::string http_address{};
    /// So many of the latest decisions of supervisors are kept, for `events`. At least one.
    std::size_t kept_events = 1000;
  };

  explicit Node(Runtime& runtime) : Node(runtime, Options()) {}
  /// Throws what net::Network's constructor does, and the system's error for `http_address`.
  Node(Runtime& runtime, Options options);
  /// Ends what is left, without grace; `close` first for an orderly end. Waits for each shard.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// On any thread, as the next two.
  const std::string& name() const noexcept;
  Runtime& runtime() const noexcept;
  /// The identity that peers see; 0 without a network.
  std::uint64_t id() const noexcept;

  /// Starts an actor, and waits until its `started()` has ended, without a deadline. Throws what
  /// that, or the constructor, throws; Errc::already_exists for its name; invalid_argument for
  /// options that make no sense. A start that failed is reported when the actor has ended, and its
  /// name is free. Cancelled, it tells what it has started to stop, and does not wait for that: the
  /// name may be taken a while. The arguments are moved to the actor's shard; if it may be
  /// restarted, they are kept there and copied.
  template <class Made, class... Arguments>
    requires std::derived_from<Made, Actor>
  Task<typename Made::Service::Ref> spawn(SpawnOptions options, Arguments... arguments) {
    auto made = detail::factory_of<Made>(options, std::move(arguments)...);
    const detail::Address address =
        co_await detail::spawn_actor(*core_, std::move(options), std::move(made), {});
    co_return typename Made::Service::Ref(detail::reference_to(address));
  }
  /// By its name alone: on the calling shard, with default options.
  template <class Made, std::convertible_to<std::string> Name, class... Arguments>
    requires std::derived_from<Made, Actor>
  Task<typename Made::Service::Ref> spawn(Name name, Arguments... arguments) {
    return spawn<Made>(SpawnOptions{.name = std::move(name)}, std::move(arguments)...);
  }

  /// The inbox form: `function(Service::Inbox, arguments...)` returns the task that receives.
  /// `function` is kept with the actor, so it may be a lambda that captures (by value, if it may be
  /// restarted).
  template <class Service, class Function, class... Arguments>
    requires(!std::derived_from<Service, Actor>)
  Task<typename Service::Ref> spawn(SpawnOptions options, Function function,
                                    Arguments... arguments) {
    using Made = detail::InboxOf<Service, Function, Arguments...>;
    auto made = detail::factory_of<Made>(options, std::move(function), std::move(arguments)...);
    const detail::Address address =
        co_await detail::spawn_actor(*core_, std::move(options), std::move(made), {});
    co_return typename Service::Ref(detail::reference_to(address));
  }
  template <class Service, std::convertible_to<std::string> Name, class Function,
            class... Arguments>
    requires(!std::derived_from<Service, Actor>)
  Task<typename Service::Ref> spawn(Name name, Function function, Arguments... arguments) {
    return spawn<Service>(SpawnOptions{.name = std::move(name)}, std::move(function),
                          std::move(arguments)...);
  }

  /// The actor of this node that is registered under `name`: Errc::not_found, or invalid_argument
  /// if it has another service. Also from foreign threads.
  template <class Service>
  Result<typename Service::Ref> find(const std::string& name) const {
    auto found = find(name, Service::service_id);
    if (!found) return found.error();
    return typename Service::Ref(*found);
  }
  /// The registered names, sorted. Also from foreign threads.
  std::vector<std::string> names() const;
  /// Actors that have not ended, on the current shard.
  std::size_t actor_count() const;

  /// What the actors of all shards do, and which lines they wait on (actors/report.hpp). A shard
  /// that does not answer in time is named with what holds it up.
  Task<NodeReport> inspect(InspectOptions options = {}) const;
  /// The same from a thread that runs no shard, which it blocks. Throws invalid_argument on others.
  NodeReport inspect_from_outside(InspectOptions options = {}) const;
  /// What supervisors decided (actors/supervision_event.hpp), after that number, the oldest first:
  /// at most Options::kept_events. On any thread.
  SupervisionEvents events(std::uint64_t after = 0) const;
  /// Where Options::http_address is served, with the port that was picked; empty if it is off. On
  /// any thread.
  std::string http_address() const;

  /// Tells an actor of this node to stop: it takes no more letters, its turns are cancelled, then
  /// `stopping()` runs and its children end. It is not restarted, whatever its policy. Does not
  /// wait (`join` does); one that has ended is left alone. Errc::invalid_argument for one of
  /// another process.
  void stop(const ActorRef& actor);
  /// Waits for the end of an actor of any process, or its loss; a restart is no end. The actor is
  /// left alone if the wait ends first (Errc::deadline_exceeded, or cancelled). Of one that has
  /// ended before: ExitReason::not_found.
  Task<Down> join(ActorRef actor, Time deadline = no_deadline);

  /// Accepts peers; see net::Network::listen. Errc::unsupported without a network, here and below.
  Task<net::Endpoint> listen(net::Endpoint endpoint);
  /// The node at `endpoint`; connects if there is no session with it yet. Throws as
  /// net::Network::connect. When its connection is lost, asks throw Errc::peer_lost; connect again.
  Task<RemoteNode> connect(net::Endpoint endpoint, Within within = {});
  net::Network& network();

  /// Stops all actors, shard by shard from shard 0, on each the youngest first, and children with
  /// their parents; waits for them, then closes the network, all until `grace` has passed. Returns
  /// who had not ended, of those without a parent: names, or "actor ID". Each actor's own
  /// SpawnOptions::shutdown holds, so `grace` should be longer than those of the deepest tree in a
  /// row. What is spawned meanwhile is left to the destructor.
  Task<std::vector<std::string>> close(Duration grace);

 private:
  friend class detail::NodeCore;
  friend class Actor;

  Result<ActorRef> find(const std::string& name, std::uint64_t service_id) const;

  std::unique_ptr<detail::NodeCore> core_;
};

template <class Child, class... Arguments>
Task<typename Child::Service::Ref> Actor::spawn(SpawnOptions options, Arguments... arguments) {
  auto factory = detail::factory_of<Child>(options, std::move(arguments)...);
  const detail::Address made = co_await detail::spawn_actor(*node().core_, std::move(options),
                                                            std::move(factory), cell_->address());
  co_return typename Child::Service::Ref(detail::reference_to(made));
}

}  // namespace hyperframes
