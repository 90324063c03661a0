// What a ready queue holds: a function and a link, embedded in what it works on.
#pragma once

#include <cassert>
#include <coroutine>
#include <cstddef>
#include <cstdint>

namespace hyperframes::detail {

/// An intrusive item. Owned by whoever queued it; in at most one queue at a time. `run` may free
/// it.
struct Work {
  using Run = void (*)(Work*) noexcept;
  explicit Work(Run run) noexcept : run(run) {}
  Run run;
  Work* next = nullptr;
};

/// Resumes a coroutine.
struct ResumeWork : Work {
  ResumeWork() noexcept : Work(&ResumeWork::resume) {}
  std::coroutine_handle<> handle;
  bool queued = false;

 private:
  static void resume(Work* self) noexcept {
    auto* work = static_cast<ResumeWork*>(self);
    work->queued = false;
    work->handle.resume();
  }
};

/// First in, first out; no allocation.
class WorkQueue {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  Work* front() const noexcept { return head_; }
  std::size_t size() const noexcept { return size_; }

  void push(Work* work) noexcept {
    work->next = nullptr;
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

  /// Unlinks one item, in O(n): only for destroying a coroutine that is still queued.
  bool remove(Work* work) noexcept {
    Work* before = nullptr;
    for (Work* at = head_; at; before = at, at = at->next) {
      if (at != work) continue;
      *(before ? &before->next : &head_) = at->next;
      if (tail_ == at) tail_ = before;
      --size_;
      return true;
    }
    return false;
  }

 private:
  Work* head_ = nullptr;
  Work* tail_ = nullptr;
  std::size_t size_ = 0;
};

/// The part of a shard that every suspension touches. First base of Shard, so that frames can
/// queue themselves without knowing the rest of it.
struct ShardCore {
  static constexpr std::size_t groups = 2;
  WorkQueue ready[groups];
  std::uint32_t transfer_budget = 0;
  std::uint8_t running_group = 1;  ///< Of the work that runs now.
};

}  // namespace hyperframes::detail
