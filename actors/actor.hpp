// The base of every actor, below the base that is generated for its service.
//
//   class Counter final : public demo::Counter::Actor {
//     hf::Task<void> add(demo::Add request, hf::Reply<demo::Value> reply) override { ... }
//   };                                             // started by node.spawn<Counter>("counter")
//
// All of it happens on one shard. One letter is handled at a time: the next one begins when the
// handler has ended, also if it suspends, unless its method is marked `interleaved` in the schema
// (docs/reference/headers.md lists such marks). A handler that throws hf::Error answers with it;
// any other exception crashes the actor. At the actor's end its handlers are cancelled, and
// destroyed when its grace period (SpawnOptions::shutdown) is over.
//
// Handlers take what they get by value. One that need not wait may be a plain function, which costs
// no coroutine frame; it ends with `return {}`, and throws alike:
//
//   hf::Task<void> get(demo::Nothing, hf::Reply<demo::Value> reply) override {
//     reply.send({.total = total_});
//     return {};
//   }
#pragma once

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/letter.hpp>
#include <hyperframes/actors/down.hpp>
#include <hyperframes/actors/ref.hpp>
#include <hyperframes/actors/reply.hpp>
#include <hyperframes/actors/spawn_options.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/task.hpp>

namespace hyperframes {

class Node;

class Actor {
 public:
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;
  virtual ~Actor();

  /// Memory of the actor's shard.
  static void* operator new(std::size_t size);
  static void operator delete(void* memory) noexcept;

 protected:
  /// Only for what `spawn` makes: the members below work in constructors too.
  Actor() noexcept;

  // ---- to override ----------------------------------------------------------

  /// Before the first letter, after each restart too (and after `restore`, actors/restart.hpp).
  /// What it throws, `spawn` throws, and the actor is not restarted; at a restart it counts as a
  /// crash.
  virtual Task<void> started() { return {}; }
  /// After the last letter of an orderly end, not after a crash; its children still run, and end
  /// afterwards. It is not cancelled, but destroyed when the grace period is over (0: not called).
  /// What it throws is logged.
  virtual Task<void> stopping() { return {}; }
  /// An actor that this one monitors has ended; or one that is linked, if it traps exits. Comes
  /// ahead of waiting letters, and is handled as one is; any exception that leaves it crashes the
  /// actor.
  virtual Task<void> on_down(Down /*down*/) { return {}; }

  // ---- to use, on its shard -------------------------------------------------

  Node& node() const noexcept;
  Shard& shard() const noexcept;
  /// Without its service; generated bases have `self()`, which has it.
  ActorRef reference() const noexcept;
  /// Ends this actor once the handler that runs now has ended; a permanent one is then restarted
  /// (to be rid of it, tell it to stop: `stop(reference())`). Its other turns are cancelled.
  void stop() noexcept;
  /// Runs a task beside the handlers; it begins after this has returned. It is cancelled and joined
  /// at the actor's end; an exception that leaves it, also hf::Error, crashes the actor.
  void start(Task<void> task) noexcept;
  /// `on_down` will be called once when that actor, of any process, has ended or was lost (soon,
  /// with ExitReason::not_found, if it has already); its restarts are told to nobody. Twice is told
  /// twice. A restart of this actor ends the watch: monitor anew in started().
  /// Errc::invalid_argument for an empty reference, here and below.
  void monitor(const ActorRef& other);
  /// Ties two actors, of any processes: when one of them ends abnormally, or was lost, the other
  /// one crashes too, or is told by `on_down` if it traps exits. An actor that is restarted has not
  /// ended; its new life is tied to nobody before it links again. Linking twice is linking once.
  void link(const ActorRef& other);
  /// Both are free of each other; what is on its way may still arrive. Not linked: does nothing.
  void unlink(const ActorRef& other);
  /// From now on `on_down` is called when a linked actor has ended, for whatever reason.
  void trap_exits(bool traps = true);
  /// How the children that this actor spawns are restarted, if not one by one; for this life, and
  /// before the first of them: else Errc::invalid_argument.
  void supervise(Strategy strategy);
  /// Starts a child: it is told to stop when this actor ends or restarts, which waits for it; of
  /// several the youngest first. A child that used up its restarts crashes this actor; one that
  /// ends otherwise is told to who monitors it. By default it is temporary, too. Throws as
  /// Node::spawn does. Children that are known beforehand, and are to be handled by name:
  /// actors/supervisor.hpp.
  template <class Child, class... Arguments>
  Task<typename Child::Service::Ref> spawn(SpawnOptions options, Arguments... arguments);
  /// Tells a child, or any other actor of this node, to stop: as Node::stop.
  void stop(const ActorRef& other);

 private:
  friend class detail::ActorCell;
  friend class detail::NodeShard;
  template <class>
  friend class Inbox;
  virtual const detail::ServiceInfo& service() const noexcept = 0;

  detail::ActorCell* cell_;
};

}  // namespace hyperframes
