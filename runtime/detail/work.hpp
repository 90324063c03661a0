// What a ready queue holds: a function and a link, embedded in what it works on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace hyperframes::detail {

/// An intrusive item. Owned by whoever queued it; in at most one queue at a time. `run` may free
/// it.
struct Work {
  using Run = void (*)(Work*) noexcept;
  explicit Work(Run run) noexcept : run(run) {}
  Run run;
  Work* next = nullptr;
  Work* previous = nullptr;  ///< In a WorkQueue, and only if it is not the first.
};

/// First in, first out; no allocation.
class WorkQueue {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  Work* front() const noexcept { return head_; }
  std::size_t size() const noexcept { return size_; }

  void push(Work* work) noexcept {
    work->next = nullptr;
    work->previous = tail_;
    *(head_ ? &tail_->next : &head_) = work;
    tail_ = work;
    ++size_;
  }

  Work* pop() noexcept {
    Work* work = head_;
    if (work) {
      head_ = work->next;
      --size_;
    }
    return work;
  }

  /// Unlinks one that is in this queue.
  void remove(Work* work) noexcept {
    if (work == head_) {
      pop();
      return;
    }
    work->previous->next = work->next;
    *(work->next ? &work->next->previous : &tail_) = work->previous;
    --size_;
  }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Work* at = head_; at; at = at->next) visit(*at);
  }

 private:
  Work* head_ = nullptr;
  Work* tail_ = nullptr;
  std::size_t size_ = 0;
};

/// The part of a shard that every suspension touches. First base of Shard, so that frames can
/// queue themselves without knowing the rest of it.
struct ShardCore {
  static constexpr std::size_t groups = 8;  ///< `system`, `user`, and those that were added.
  WorkQueue ready[groups];
  std::uint32_t transfer_budget = 0;
  std::uint8_t running_group = 1;  ///< Of the work that runs now.
  /// The line of the co_await that was passed last: other threads read it when this one is stuck.
  std::atomic<std::source_location> running_at{};
  static_assert(std::atomic<std::source_location>::is_always_lock_free);
  /// On whose behalf the work runs: other threads read it as well.
  std::atomic<std::uint32_t> running_owner{0};
};

}  // namespace hyperframes::detail
