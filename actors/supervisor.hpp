// A supervisor: an actor that only starts others, keeps them alive, and ends them in order.
//
//   hf::SupervisorRef root = co_await node.spawn<hf::Supervisor>({.name = "root"}, hf::Supervision{
//       .strategy = hf::Strategy::rest_for_one,
//       .children = {hf::child<Store>({.name = "store", .restart = always}, path),
//                    hf::child<Index>({.name = "index", .shard = 1, .restart = always})}});
//   co_await root.add(hf::child<Cache>({.name = "cache"}));
//   co_await root.restart("store");                    // and hf::Restart decides after crashes
//
// The children start in the order of their specifications, each when the one before it has started,
// on any shard; they end in the reverse order, each with its own deadline (SpawnOptions::shutdown).
// A child that used up its restarts makes its supervisor fail: the other children are ended, and
// whoever supervises that one decides. So trees are made: hf::child<hf::Supervisor>(...). At the
// root the node logs the end with the whole chain of causes; who joins or monitors the root is told
// it too.
//
// Any other actor supervises what it spawns as well (Actor::spawn, Actor::supervise): this one is
// for children that are known beforehand, and can be handled by name. Each decision is an event
// (actors/supervision_event.hpp). docs/design/supervision.md has the rules.
#pragma once

#include <concepts>
#include <hyperframes/actors/actor.hpp>
#include <hyperframes/actors/node.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hyperframes {

class Supervisor;

/// How a supervisor starts a child, now and later. A value; made by `child`.
class ChildSpec {
 public:
  ChildSpec(SpawnOptions options, std::unique_ptr<detail::Factory> factory)
      : options_(std::move(options)), factory_(std::move(factory)) {}
  ChildSpec(const ChildSpec& other) : options_(other.options_), factory_(other.factory()) {}
  ChildSpec(ChildSpec&&) noexcept = default;
  ChildSpec& operator=(ChildSpec other) noexcept {
    options_ = std::move(other.options_);
    factory_ = std::move(other.factory_);
    return *this;
  }
  ~ChildSpec() = default;

  const SpawnOptions& options() const noexcept { return options_; }
  /// For the runtime: one of its own for each start.
  std::unique_ptr<detail::Factory> factory() const {
    return factory_ ? factory_->clone() : nullptr;  // null once it was moved from
  }

 private:
  SpawnOptions options_;
  std::unique_ptr<detail::Factory> factory_;
};

/// A child with its constructor's arguments, which are copied for each start: on the supervisor's
/// shard, and once more on the child's. So they must be values that any thread may copy, and no
/// Buffer of a shard. It needs a name, unique in the node: supervisors know their children by it,
/// and so does Node::find. SpawnOptions::shard left out means the supervisor's shard. With the
/// default policy it is temporary.
template <class Made, class... Arguments>
  requires std::derived_from<Made, Actor>
ChildSpec child(SpawnOptions options, Arguments... arguments) {
  static_assert((std::is_copy_constructible_v<Arguments> && ...),
                "a child may be started again: its arguments must be copyable");
  auto factory = detail::factory_of<Made>(options, std::move(arguments)...);
  return ChildSpec(std::move(options), std::move(factory));
}
/// The inbox form: as Node::spawn's.
template <class Service, class Function, class... Arguments>
  requires(!std::derived_from<Service, Actor>)
ChildSpec child(SpawnOptions options, Function function, Arguments... arguments) {
  return child<detail::InboxOf<Service, Function, Arguments...>>(
      std::move(options), std::move(function), std::move(arguments)...);
}

/// What a Supervisor is made of.
struct Supervision {
  Strategy strategy = Strategy::one_for_one;
  std::vector<ChildSpec> children{};  ///< In the order in which they start.
};

/// A child as its supervisor knows it.
struct ChildState {
  enum class State : std::uint8_t {
    running,  ///< Or pausing before a restart of its own, or starting again from it (one_for_one).
    restarting,  ///< With others, or by hand; or starting for the first time.
    ended,       ///< Down for now; `restart` starts it again. Temporary ones are not listed.
  };
  std::string name;
  ActorRef actor;  ///< Empty if it has ended.
  State state = State::running;
  Restart restart = Restart::temporary;
};

/// Reaches a supervisor of this process, from its runtime's shards. What is asked for is done by
/// the supervisor, beside what it does itself, and goes on if the asker gives up; another deadline
/// than the default one lets a child's shutdown take its time. Each throws Errc::actor_down if the
/// supervisor has ended, ends meanwhile or is being restarted, and deadline_exceeded;
/// invalid_argument for one of another process, and for an actor of another kind; those with a name
/// not_found, which says what there is.
class SupervisorRef : public ActorRef {
 public:
  using ActorRef::ActorRef;
  SupervisorRef() noexcept = default;
  explicit SupervisorRef(const ActorRef& other) noexcept : ActorRef(other) {}

  /// Starts one more, as the youngest; it lasts until the supervisor's own end or restart. Throws
  /// what its start throws: then there is no such child; Errc::already_exists for a name that a
  /// child of it, or any actor of the node, has; Errc::invalid_argument at once for none. If the
  /// asker gives up, it goes on starting.
  Task<ActorRef> add(ChildSpec spec, Within within = {}) const;
  /// Ends it in order, and keeps its specification, unless it is temporary: it stays down until
  /// `restart`, whatever happens to the others, or until the supervisor itself is restarted. One
  /// that has ended is left alone; one that is still starting is ended, too. Down::text says if it
  /// had to be destroyed.
  Task<Down> stop(std::string name, Within within = {}) const;
  /// Ends it in order and starts it again, alone and without a pause, with its reference; but one
  /// that waits to be restarted with its siblings, with those. If it fails to start, its policy
  /// goes on. One that had ended is started as a new actor, with a new reference and budget: this
  /// throws what its start throws, and it stays down. A temporary one can't be restarted while it
  /// runs (Errc::invalid_argument).
  Task<ActorRef> restart(std::string name, Within within = {}) const;
  /// The same as `stop`, and forgets it.
  Task<Down> remove(std::string name, Within within = {}) const;
  /// The oldest first.
  Task<std::vector<ChildState>> children(Within within = {}) const;
};

class Supervisor final : public Actor {
 public:
  using Service = Supervisor;
  using Ref = SupervisorRef;
  static constexpr std::uint64_t service_id = 0xf8c1'6a0e'53b7'9d24;

  /// Throws Errc::invalid_argument for a child without a name, and for two of one name.
  explicit Supervisor(Supervision plan);

  /// Starts the children. Throws what the first one that fails throws; those before it are ended.
  Task<void> started() override;

 private:
  const detail::ServiceInfo& service() const noexcept override;
  Supervision plan_;
};

}  // namespace hyperframes
