// The base of every actor, below the base that is generated for its service.
//
//   class Counter final : public demo::Counter::Actor {
//     hf::Task<void> add(demo::Add request, hf::Reply<demo::Value> reply) override { ... }
//   };                                             // started by node.spawn<Counter>("counter")
//
// All of it happens on one shard. One letter is handled at a time: the next one begins when the
// handler has ended, also if it suspends, unless its method is marked `interleaved`. A handler that
// throws hf::Error answers with it; any other exception crashes the actor.
//
// A handler that need not wait may be a plain function, which costs no coroutine frame; it ends
// with `return {}`, and throws alike:
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

  /// Before the first letter, after each restart too. What it throws, `spawn` throws; at a restart
  /// it counts as a crash.
  virtual Task<void> started() { return {}; }
  /// After the last letter of an orderly end, not after a crash; it is not cancelled, but destroyed
  /// when the grace period (Timing::default_deadline) is over.
  virtual Task<void> stopping() { return {}; }
  /// An actor that this one monitors has ended; or one that is linked, if it traps exits.
  virtual Task<void> on_down(Down down) { return {}; }

  // ---- to use ---------------------------------------------------------------

  Node& node() const noexcept;
  Shard& shard() const noexcept;
  /// Without its service; generated bases have `self()`, which has it.
  ActorRef reference() const noexcept;
  /// Ends this actor once the handler that runs now has ended. Its other turns are cancelled.
  void stop() noexcept;
  /// Runs a task beside the handlers. It is cancelled and joined at the actor's end; an exception
  /// that leaves it crashes the actor.
  void start(Task<void> task) noexcept;
  /// `on_down` will be called once when that actor, of any process, has ended or was lost (at once
  /// if it has already).
  void monitor(const ActorRef& other);
  /// Ties two actors, of any processes: when one of them ends abnormally, or was lost, the other
  /// one crashes too, or is told by `on_down` if it traps exits. An actor that is restarted has not
  /// ended; its new life is tied to nobody before it links again. Linking twice is linking once.
  void link(const ActorRef& other);
  void unlink(const ActorRef& other);
  /// From now on `on_down` is called when a linked actor has ended, for whatever reason.
  void trap_exits(bool traps = true);
  /// Starts a child: it is told to stop when this actor ends or restarts, which waits for it. A
  /// child that used up its restarts crashes this actor.
  template <class Child, class... Arguments>
  Task<typename Child::Service::Ref> spawn(SpawnOptions options, Arguments... arguments);
  /// Tells a child, or any other actor, to stop.
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
