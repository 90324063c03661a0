// Timers of a shard, in a hierarchical wheel: starting and stopping one is O(1), since nearly
// every deadline is stopped before it fires.
//
//   hf::Timer tick([](hf::Timer& self) noexcept { expired(self.deadline()); });
//   shard.start_timer(tick, hf::after(1s));
//   tick.stop();                          // or let its destructor do it
//
// A timer never fires early, and at most one wheel tick (65.536 µs) plus one turn late. Coroutines
// have sleep_for and deadlines; this is what those stand on. One shard's.
#pragma once

#include <array>
#include <cstdint>
#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/time.hpp>

namespace hyperframes {

/// Fires once for each start. It has a fixed place: derive from it to find the state around it by
/// static_cast in `run`, which may start it again, or destroy it.
class Timer : public detail::ListNode {
 public:
  using Run = void (*)(Timer&) noexcept;
  explicit Timer(Run run) noexcept : run_(run) {}
  void stop() noexcept { unlink(); }
  bool running() const noexcept { return linked(); }
  /// Of the last start.
  Time deadline() const noexcept { return deadline_; }

 private:
  friend class TimerWheel;
  Run run_;
  Time deadline_{};
};

/// One shard's timers. `now` must never decrease.
class TimerWheel {
 public:
  explicit TimerWheel(Time now) noexcept;
  /// Restarts it if it is running. A deadline that has passed fires in the next tick; with
  /// `no_deadline` it does not run.
  void start(Timer& timer, Time deadline) noexcept;
  /// Runs what is due at `now`, at most `budget` timers, and returns how many ran. The rest runs
  /// at the next call.
  std::size_t advance(Time now, std::size_t budget) noexcept;
  /// No timer fires before this. May be earlier than the first deadline, never later.
  Time next_expiry() noexcept;

 private:
  static constexpr int tick_bits = 16, slot_bits = 6, levels = 7;
  static constexpr std::uint64_t slots = 1u << slot_bits;
  static std::uint64_t tick_of(Time time) noexcept;
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  void place(Timer& timer) noexcept;
  std::uint64_t next_event() noexcept;
  void move_to(std::uint64_t tick) noexcept;

  std::uint64_t tick_;  ///< Everything before this tick has fired.
  std::array<std::array<detail::List<Timer>, slots>, levels> wheel_;
  std::array<std::uint64_t, levels> occupied_{};  ///< One bit a slot; may be set for an empty one.
  detail::List<Timer> due_;
};

}  // namespace hyperframes
