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

/// From one shard to one other. An item's slot says by itself that it is filled, so the consumer,
/// which waits for it, gets it with one cache line; a count of what was pushed would be another
/// one, before it. It says so by a bit that changes with each round over the ring: nobody has to
/// empty a slot, and what stood there in the round before means "nothing yet".
class WorkRing {
 public:
  explicit WorkRing(std::size_t capacity)
      : mask_(std::bit_ceil(capacity) - 1),
        slots_(std::make_unique<std::atomic<std::uintptr_t>[]>(mask_ + 1)) {}

  bool has_room() noexcept {
    if (tail_ - head_seen_ <= mask_) return true;
    head_seen_ = head_.load(std::memory_order_acquire);
    return tail_ - head_seen_ <= mask_;
  }
  /// Producer only. False when full. `group` is 0 or 1.
  bool push(Work* work, std::size_t group) noexcept {
    if (!has_room()) return false;
    slots_[tail_ & mask_].store(reinterpret_cast<std::uintptr_t>(work) | group | round_of(tail_),
                                std::memory_order_release);
    ++tail_;
    return true;
  }
  /// Consumer only. Moves up to `limit` items into the queues of their groups.
  std::size_t drain(WorkQueue* queues, std::size_t limit) noexcept {
    std::size_t count = 0;
    for (; count < limit; ++count, ++head_local_) {
      const std::uintptr_t item = next();
      if (!is_filled(item)) break;
      queues[item & group_bit].push(reinterpret_cast<Work*>(item & ~(group_bit | round_bit)));
    }
    if (count) head_.store(head_local_, std::memory_order_release);
    return count;
  }
  /// Consumer only.
  bool empty() const noexcept { return !is_filled(next()); }

 private:
  static constexpr std::uintptr_t group_bit = 1, round_bit = 2;
  static_assert(alignof(Work) > (group_bit | round_bit));

  /// Set in the first round, as slots are 0 before it.
  std::uintptr_t round_of(std::size_t position) const noexcept {
    return position & (mask_ + 1) ? 0 : round_bit;
  }
  std::uintptr_t next() const noexcept {
    return slots_[head_local_ & mask_].load(std::memory_order_acquire);
  }
  bool is_filled(std::uintptr_t item) const noexcept {
    return (item & round_bit) == round_of(head_local_);
  }

  const std::size_t mask_;
  const std::unique_ptr<std::atomic<std::uintptr_t>[]> slots_;
  alignas(64) std::size_t tail_ = 0;  // the producer's own
  std::size_t head_seen_ = 0;
  alignas(64) std::atomic<std::size_t> head_{0};  // written by the consumer
  alignas(64) std::size_t head_local_ = 0;        // the consumer's own
};

}  // namespace hyperframes::detail
