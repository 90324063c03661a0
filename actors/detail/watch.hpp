// One actor or coroutine that wants to know of one actor's end.
#pragma once

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/down.hpp>

namespace hyperframes::detail {

class JoinWaiter;
class PeerShard;
class RemotePeer;

/// A watch in its watcher's list.
struct WatchByWatcher : ListNode {
  explicit WatchByWatcher(Watch& watch) noexcept : watch(watch) {}
  Watch& watch;
};

/// Made by the watcher's shard, linked at the watched actor, and sent back with its end. Freed at
/// home, once nothing of it is under way any more.
struct Watch : Work, ListNode {
  struct Cancellation : Work {
    explicit Cancellation(Watch& watch) noexcept : Work(nullptr), watch(watch) {}
    Watch& watch;
  };

  explicit Watch(NodeShard& home) noexcept
      : Work(nullptr), home(&home), by_watcher(*this), cancellation(*this) {}
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  NodeShard* home;
  Address target;
  Down down;
  bool link = false;       ///< Half of a link: its watcher ends with its target.
  bool requested = false;  ///< The half that the target asked for: which has lived until then.

  // The rest belongs to the home shard.
  RemotePeer* peer = nullptr;      ///< Where the target runs, if in another process; there it is
  std::uint64_t target_id = 0;     ///< known by its id,
  std::uint64_t number = 0;        ///< and this by its number.
  PeerShard* on_behalf = nullptr;  ///< The watcher's process, which knows this by `number`.
  WatchByWatcher by_watcher;
  Cancellation cancellation;
  Address watcher;               ///< An actor; or
  JoinWaiter* waiter = nullptr;  ///< a coroutine; or, once it gave up, neither.
  int under_way = 0;

  /// On the home shard.
  void begin(const Destination& of) noexcept;
  bool is_of(const Destination& other) const noexcept {
    return other.peer ? peer == other.peer && target_id == other.id
                      : !peer && target == Address{other.cell, other.id};
  }
  /// On the home shard: the watcher no longer cares.
  void abandon() noexcept;
  /// On the target's shard: its end is known.
  void send_home() noexcept;
  /// On the home shard: the target's process has told its end, or is lost.
  void ended(Down of) noexcept;
  void lost(const Error& reason) noexcept;

 private:
  void begin_at_peer() noexcept;
  void came_home() noexcept;
};

/// A coroutine's wait for an actor's end.
class JoinWaiter : public Waiter {
 public:
  JoinWaiter(NodeShard* home, const Destination& target, Time deadline) noexcept
      : Waiter(deadline), home_(home), target_(target) {}
  ~JoinWaiter() {
    if (watch_) watch_->abandon();
  }
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return start(handle.promise());
  }
  Down await_resume();

  void came(Down down) noexcept {
    down_ = std::move(down);
    watch_ = nullptr;
    wake();
  }

 private:
  bool start(PromiseBase& promise) noexcept;
  NodeShard* home_;
  Destination target_;
  Watch* watch_ = nullptr;
  Down down_;
};

}  // namespace hyperframes::detail
