// A count of permits for coroutines of one shard, first come first served.
//
//   hf::Semaphore slots(8);
//   auto permit = co_await slots.acquire(1, hf::after(5s));
//   // the permit goes back when it is destroyed, on this shard; the Semaphore must exist then
//
// Who asks for many holds up those behind, who may need fewer: nobody is passed over.
#pragma once

#include <cassert>
#include <cstddef>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <utility>

namespace hyperframes {

class Semaphore {
 public:
  /// `permits` to begin with; `release` may add more.
  explicit Semaphore(std::size_t permits) noexcept : available_(permits) {}
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  /// What was acquired; movable. Discarding it gives it back at once: name it.
  class [[nodiscard]] Permit {
   public:
    Permit() noexcept = default;
    /// Takes charge of permits that `try_take` took.
    Permit(Semaphore& from, std::size_t count) noexcept : from_(&from), count_(count) {}
    Permit(Permit&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)), count_(other.count_) {}
    Permit& operator=(Permit other) noexcept {
      std::swap(from_, other.from_);
      std::swap(count_, other.count_);
      return *this;
    }
    ~Permit() { release(); }
    /// Gives it back now; a second time it does nothing.
    void release() noexcept {
      if (from_) std::exchange(from_, nullptr)->release(count_);
    }

   private:
    Semaphore* from_ = nullptr;
    std::size_t count_ = 0;
  };

  class Awaiter : public detail::Waiter {
   public:
    Awaiter(Semaphore& semaphore, std::size_t count, Time deadline) noexcept
        : Waiter(deadline, Errc::deadline_exceeded, &Awaiter::left),
          semaphore_(semaphore),
          count_(count) {}
    /// A permit that was granted and never taken, because the frame was destroyed, goes back.
    ~Awaiter() {
      if (granted_) {
        semaphore_.release(count_);
      } else {
        leave();
      }
    }
    bool await_ready() noexcept { return granted_ = semaphore_.try_take(count_); }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      if (!begin(handle.promise())) return false;
      semaphore_.waiters_.push_back(*this);
      return true;
    }
    Permit await_resume() {
      if (!granted_) throw_unless_woken("acquire a semaphore");
      granted_ = false;
      return Permit(semaphore_, count_);
    }

   private:
    friend class Semaphore;
    // Whoever stood behind it may need less.
    static void left(Waiter& self) noexcept { static_cast<Awaiter&>(self).semaphore_.admit(); }
    Semaphore& semaphore_;
    std::size_t count_;
    bool granted_ = false;
  };

  /// Suspends until `count` permits are there. More than there will ever be waits forever. Throws
  /// Errc::deadline_exceeded or Errc::cancelled if it would have to wait on.
  [[nodiscard]] Awaiter acquire(std::size_t count = 1, Time deadline = no_deadline) noexcept {
    return Awaiter(*this, count, deadline);
  }
  /// Takes permits without waiting; to be given back by `release`. False, and none taken, if there
  /// are not as many or somebody waits.
  [[nodiscard]] bool try_take(std::size_t count) noexcept {
    if (!waiters_.empty() || available_ < count) return false;
    available_ -= count;
    return true;
  }
  /// Resumes nobody before it returns: who may go on is queued.
  void release(std::size_t count) noexcept {
    available_ += count;
    admit();
  }
  std::size_t available() const noexcept { return available_; }

 private:
  void admit() noexcept {
    while (!waiters_.empty() && available_ >= waiters_.front().count_) {
      Awaiter& next = waiters_.front();
      available_ -= next.count_;
      next.granted_ = true;
      next.wake();
    }
  }

  std::size_t available_;
  detail::List<Awaiter> waiters_;
};

}  // namespace hyperframes
