// Mutual exclusion between coroutines of one shard, across their suspensions.
//
//   hf::Mutex mutex;
//   auto lock = co_await mutex.lock();       // suspends, never blocks the thread
//   co_await file.write_at(0, page);         // fine: others wait in line
//
// This is the lock that may be held across a co_await. A std::mutex may not: the thread it
// belongs to goes on with other coroutines. `BlockingSection` marks code that holds one; in
// debug builds, a coroutine that suspends inside such a section aborts with the line. A lock
// without that mark is seen by clang-tidy alone (`./dev tidy`), never at run time.
#pragma once

#include <hyperframes/runtime/detail/blocking_section.hpp>
#include <hyperframes/runtime/semaphore.hpp>

namespace hyperframes {

class Mutex {
 public:
  /// Unlocks when it is destroyed, or by `release()`. On the mutex's shard, while that exists.
  using Lock = Semaphore::Permit;
  /// In line, first come first served, not recursive. Throws Errc::deadline_exceeded or
  /// Errc::cancelled while it waits.
  [[nodiscard]] Semaphore::Awaiter lock(Time deadline = no_deadline) noexcept {
    return semaphore_.acquire(1, deadline);
  }
  bool locked() const noexcept { return semaphore_.available() == 0; }

 private:
  Semaphore semaphore_{1};
};

/// Holds a lock of the standard library for a stretch of code that must not suspend. On any thread.
template <class StandardMutex>
class BlockingSection {
 public:
  explicit BlockingSection(StandardMutex& mutex) : mutex_(mutex) {
    mutex_.lock();
    detail::enter_blocking_section();
  }
  ~BlockingSection() {
    detail::leave_blocking_section();
    mutex_.unlock();
  }
  BlockingSection(const BlockingSection&) = delete;
  BlockingSection& operator=(const BlockingSection&) = delete;

 private:
  StandardMutex& mutex_;
};

}  // namespace hyperframes
