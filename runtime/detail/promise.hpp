// What every coroutine frame of this project carries, whatever it returns.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <hyperframes/runtime/cancellation.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <source_location>
#include <utility>

namespace hyperframes {
class Shard;

namespace detail {

/// The part of a promise that does not depend on the result type. All on one shard.
///
/// The links give two views of one chain: `continuation`/`parent` is who is resumed at the end,
/// `child` is whom we wait for, so a dump can walk from a root to the line it is suspended on.
class PromiseBase {
 public:
  PromiseBase() noexcept = default;
  PromiseBase(const PromiseBase&) = delete;
  PromiseBase& operator=(const PromiseBase&) = delete;
  ~PromiseBase();

  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* frame) noexcept { pool_release(frame); }

  /// Records the line of every co_await. The awaitable passes through untouched.
  template <class Awaitable>
  Awaitable&& await_transform(
      Awaitable&& awaitable,
      std::source_location where = std::source_location::current()) noexcept {
    suspended_at = where;
    return std::forward<Awaitable>(awaitable);
  }

  void inherit(PromiseBase& from) noexcept {
    parent = &from;
    shard = from.shard;
    cancel = from.cancel;
    group = from.group;
    from.child = this;
  }

  void leave_parent() noexcept {
    if (parent) parent->child = nullptr;
    parent = nullptr;
  }

  /// Queues the coroutine for resumption on its shard. At most once for each suspension.
  void schedule() noexcept;

  ResumeWork work;
  std::coroutine_handle<> continuation;
  PromiseBase* parent = nullptr;
  PromiseBase* child = nullptr;
  Shard* shard = nullptr;
  CancelSource* cancel = nullptr;
  std::source_location suspended_at;
  std::uint8_t group = 1;
  bool scheduled = false;
};

/// Where control goes when one coroutine hands over to another. Normally `next` itself (symmetric
/// transfer). Every few hundred transfers it goes through the ready queue instead: that bounds
/// the stack on compilers that nest transfers, and keeps a chain of ready awaits from starving
/// the rest of the shard.
std::coroutine_handle<> transfer_to(std::coroutine_handle<> next, PromiseBase& promise) noexcept;

}  // namespace detail
}  // namespace hyperframes
