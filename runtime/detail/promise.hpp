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
#include <source_location>
#include <utility>

namespace hyperframes::detail {

/// The part of a promise that does not depend on the result type. All on one shard.
///
/// The links give two views of one chain: `continuation`/`parent` is who is resumed at the end,
/// `child` is whom we wait for, so a dump can walk from a root to the line it is suspended on.
class PromiseBase {
 public:
  PromiseBase() noexcept = default;
  PromiseBase(const PromiseBase&) = delete;
  PromiseBase& operator=(const PromiseBase&) = delete;
  ~PromiseBase() {
    if (work.queued) core->ready[group].remove(&work);
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
    return std::forward<Awaitable>(awaitable);
  }

  void inherit(PromiseBase& from) noexcept {
    parent = &from;
    core = from.core;
    cancel = from.cancel;
    group = from.group;
    from.child = this;
  }

  void leave_parent() noexcept {
    if (parent) parent->child = nullptr;
    parent = nullptr;
  }

  /// Queues the coroutine for resumption on its shard. At most once for each suspension.
  void schedule() noexcept {
    assert(!work.queued && core);
    work.queued = true;
    core->ready[group].push(&work);
  }

  ResumeWork work;
  std::coroutine_handle<> continuation;
  PromiseBase* parent = nullptr;
  PromiseBase* child = nullptr;
  ShardCore* core = nullptr;  ///< The shard it runs on; null off a shard.
  CancelSource* cancel = nullptr;
  std::source_location suspended_at;
  std::uint8_t group = 1;
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
