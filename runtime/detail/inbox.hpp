// The two ways by which work reaches a shard from outside it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <hyperframes/runtime/detail/work.hpp>
#include <memory>

namespace hyperframes::detail {

/// From any thread: an intrusive stack, taken whole and reversed, so that each sender's order
/// holds.
class ForeignInbox {
 public:
  /// False once it is closed; then the work is still the caller's.
  bool push(Work* work) noexcept {
    Work* head = head_.load(std::memory_order_relaxed);
    do {
      if (head == closed()) return false;
      work->next = head;
    } while (!head_.compare_exchange_weak(head, work, std::memory_order_release,
                                          std::memory_order_relaxed));
    return true;
  }
  bool empty() const noexcept {
    const Work* head = head_.load(std::memory_order_relaxed);
    return head == nullptr || head == closed();
  }
  /// Like `drain`, and takes nothing any more.
  void close(WorkQueue& into) noexcept {
    Work* newest = head_.exchange(closed(), std::memory_order_acq_rel);
    if (newest != closed()) move(newest, into);
  }
  /// Moves everything to `into`, oldest first.
  void drain(WorkQueue& into) noexcept {
    if (!empty()) move(head_.exchange(nullptr, std::memory_order_acquire), into);
  }

 private:
  static void move(Work* newest, WorkQueue& into) noexcept {
    Work* oldest = nullptr;
    while (newest) {
      Work* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    while (oldest) {
      Work* next = oldest->next;
      into.push(oldest);
      oldest = next;
    }
  }

  // The address of something that is never posted.
  Work* closed() const noexcept { return reinterpret_cast<Work*>(const_cast<ForeignInbox*>(this)); }

  alignas(64) std::atomic<Work*> head_{nullptr};
};

/// From one shard to one other. The producer caches the consumer's position and the other way
/// round, so that the common case touches one shared cache line.
class WorkRing {
 public:
  explicit WorkRing(std::size_t capacity)
      : mask_(std::bit_ceil(capacity) - 1), slots_(std::make_unique<std::uintptr_t[]>(mask_ + 1)) {}

  bool has_room() noexcept {
    if (tail_local_ - head_seen_ <= mask_) return true;
    head_seen_ = head_.load(std::memory_order_acquire);
    return tail_local_ - head_seen_ <= mask_;
  }
  /// Producer only. False when full.
  bool push(Work* work, std::size_t group) noexcept {
    if (!has_room()) return false;
    slots_[tail_local_ & mask_] = reinterpret_cast<std::uintptr_t>(work) | group;
    tail_.store(++tail_local_, std::memory_order_release);
    return true;
  }
  /// Consumer only. Moves up to `limit` items into the queues of their groups.
  std::size_t drain(WorkQueue* queues, std::size_t limit) noexcept {
    if (head_local_ == tail_seen_) tail_seen_ = tail_.load(std::memory_order_acquire);
    std::size_t count = 0;
    for (; head_local_ != tail_seen_ && count < limit; ++head_local_, ++count) {
      const std::uintptr_t item = slots_[head_local_ & mask_];
      queues[item & 1].push(reinterpret_cast<Work*>(item & ~std::uintptr_t{1}));
    }
    if (count) head_.store(head_local_, std::memory_order_release);
    return count;
  }
  bool empty() const noexcept { return head_local_ == tail_.load(std::memory_order_acquire); }

 private:
  const std::size_t mask_;
  const std::unique_ptr<std::uintptr_t[]> slots_;
  alignas(64) std::atomic<std::size_t> tail_{0};  // written by the producer
  alignas(64) std::size_t tail_local_ = 0;        // the producer's own
  std::size_t head_seen_ = 0;
  alignas(64) std::atomic<std::size_t> head_{0};  // written by the consumer
  alignas(64) std::size_t head_local_ = 0;        // the consumer's own
  std::size_t tail_seen_ = 0;
};

}  // namespace hyperframes::detail
