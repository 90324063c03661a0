// What every coroutine frame of this project carries, whatever it returns.
#pragma once

#include <cassert>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <hyperframes/runtime/cancellation.hpp>
#include <hyperframes/runtime/detail/blocking_section.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <hyperframes/runtime/time.hpp>
#include <source_location>
#include <utility>

namespace hyperframes {
struct AwaitChain;
}

namespace hyperframes::detail {

/// What a coroutine waits for that is not one chain but several: a dump goes on there.
class Branches {
 public:
  /// Adds them to `chain`. At `level` AwaitChain::most_levels it only counts them.
  virtual void describe(AwaitChain& chain, unsigned level) const = 0;

 protected:
  ~Branches() = default;
};

/// The part of a promise that does not depend on the result type; itself the work that resumes the
/// coroutine. All on one shard.
///
/// The links give two views of one chain: `parent` is who is resumed at the end, `child` is whom we
/// wait for, so a dump can walk from a root to the line it is suspended on.
class PromiseBase : public Work {
 public:
  PromiseBase() noexcept : Work(&PromiseBase::resume) {}
  PromiseBase(const PromiseBase&) = delete;
  PromiseBase& operator=(const PromiseBase&) = delete;
  ~PromiseBase() {
    if (queued) core->ready[group].remove(this);
    leave_parent();
  }

  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* frame) noexcept { pool_release(frame); }

  /// Records the line of every co_await. The awaitable passes through untouched.
  template <class Awaitable>
  Awaitable&& await_transform(Awaitable&& awaitable, std::source_location where =
                                                         std::source_location::current()) noexcept {
    check_may_suspend(where);
    suspended_at = where;
    if (core) core->running_at.store(where, std::memory_order_relaxed);
    return std::forward<Awaitable>(awaitable);
  }

  void inherit(PromiseBase& from) noexcept {
    parent = &from;
    core = from.core;
    cancel = from.cancel;
    deadline = from.deadline;
    owner = from.owner;
    group = from.group;
    from.child = this;
  }

  void leave_parent() noexcept {
    if (parent) parent->child = nullptr;
    parent = nullptr;
  }

  /// Queues the coroutine for resumption on its shard. At most once for each suspension.
  void schedule() noexcept {
    assert(!queued && core);
    queued = true;
    core->ready[group].push(this);
  }

  /// Says that control goes back to where this coroutine is suspended.
  void note_resumed() const noexcept {
    core->running_at.store(suspended_at, std::memory_order_relaxed);
    core->running_owner.store(owner, std::memory_order_relaxed);
  }
  static void resume(Work* self) noexcept {
    auto& promise = *static_cast<PromiseBase*>(self);
    promise.queued = false;
    promise.note_resumed();
    promise.handle.resume();
  }

  std::coroutine_handle<> handle;
  PromiseBase* parent = nullptr;
  PromiseBase* child = nullptr;
  ShardCore* core = nullptr;  ///< The shard it runs on; null off a shard.
  CancelSource* cancel = nullptr;
  Time deadline = no_deadline;  ///< Nobody waits any longer for what this chain works on.
  const Branches* branches = nullptr;
  std::source_location suspended_at;
  std::uint32_t owner = 0;  ///< On whose behalf it runs, as a Witness numbers them; 0: nobody's.
  std::uint8_t group = 1;
  bool queued = false;
  bool is_turn = false;  ///< An actor's turn: the end of the way up through the parents.
};

/// Where control goes when one coroutine hands over to another. Normally `next` itself (symmetric
/// transfer). Every few hundred transfers it goes through the ready queue instead: that bounds
/// the stack on compilers that nest transfers, and keeps a chain of ready awaits from starving
/// the rest of the shard.
inline std::coroutine_handle<> transfer_to(std::coroutine_handle<> next,
                                           PromiseBase& promise) noexcept {
  if (!promise.core || --promise.core->transfer_budget != 0) return next;
  promise.schedule();
  return std::noop_coroutine();
}

}  // namespace hyperframes::detail
