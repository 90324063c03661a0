#include <algorithm>
#include <bit>
#include <hyperframes/runtime/timer.hpp>

namespace hyperframes {

std::uint64_t TimerWheel::tick_of(Time time) noexcept {
  const auto count = time.time_since_epoch().count();
  return count <= 0 ? 0 : static_cast<std::uint64_t>(count) >> tick_bits;
}

TimerWheel::TimerWheel(Time now) noexcept : tick_(tick_of(now)) {}

void TimerWheel::start(Timer& timer, Time deadline) noexcept {
  timer.unlink();
  timer.deadline_ = deadline;
  if (deadline != no_deadline) place(timer);
}

// Level l holds what differs from now in the l-th group of six bits, counted from below, and in
// none above: in slots of 64^l ticks, of which all that are in use lie after the current one.
void TimerWheel::place(Timer& timer) noexcept {
  // Beyond the wheel's reach it waits in the last slot of the top level and is placed again from
  // there.
  constexpr std::uint64_t reach = (slots - 1) << (slot_bits * (levels - 1));
  // Rounded up, so that a timer never fires early.
  const std::uint64_t due_tick = std::clamp(tick_of(timer.deadline_) + 1, tick_, tick_ + reach);
  const std::uint64_t distance = due_tick ^ tick_;
  int level = distance < slots ? 0 : (63 - std::countl_zero(distance)) / slot_bits;
  level = std::min(level, levels - 1);
  const std::uint64_t slot = (due_tick >> (level * slot_bits)) & (slots - 1);
  wheel_[level][slot].push_back(timer);
  occupied_[level] |= std::uint64_t{1} << slot;
}

// The first tick with something to do: a slot of the lowest level is due, or one of a higher level
// begins. A lower level's comes before any of a higher one.
std::uint64_t TimerWheel::next_event() noexcept {
  for (int level = 0; level < levels; ++level) {
    const int shift = level * slot_bits;
    const std::uint64_t base = tick_ >> shift;
    const int here = static_cast<int>(base & (slots - 1));
    // Starting with the current slot; those before it belong to the next lap of the top level.
    for (std::uint64_t bits = std::rotr(occupied_[level], here); bits; bits &= bits - 1) {
      const std::uint64_t at = base + static_cast<std::uint64_t>(std::countr_zero(bits));
      const std::uint64_t slot = at & (slots - 1);
      if (!wheel_[level][slot].empty()) return std::max(at << shift, tick_);
      occupied_[level] &= ~(std::uint64_t{1} << slot);
    }
  }
  return never;
}

// On its way no slot in use may be passed. The slots that begin at `tick` come down from above.
void TimerWheel::move_to(std::uint64_t tick) noexcept {
  if (tick == tick_) return;
  tick_ = tick;
  for (int level = 1; level < levels; ++level) {
    if (tick_ & ((std::uint64_t{1} << (level * slot_bits)) - 1)) return;
    const std::uint64_t slot = (tick_ >> (level * slot_bits)) & (slots - 1);
    occupied_[level] &= ~(std::uint64_t{1} << slot);
    detail::List<Timer> moving;
    while (Timer* timer = wheel_[level][slot].pop_front()) moving.push_back(*timer);
    while (Timer* timer = moving.pop_front()) place(*timer);
  }
}

std::size_t TimerWheel::advance(Time now, std::size_t budget) noexcept {
  const std::uint64_t target = tick_of(now);
  std::size_t ran = 0;
  while (true) {
    while (Timer* timer = due_.pop_front()) {
      timer->run_(*timer);
      if (++ran == budget) return ran;
    }
    if (tick_ > target) return ran;
    move_to(std::min(next_event(), target + 1));
    if (tick_ > target) return ran;
    const std::uint64_t slot = tick_ & (slots - 1);
    occupied_[0] &= ~(std::uint64_t{1} << slot);
    while (Timer* timer = wheel_[0][slot].pop_front()) due_.push_back(*timer);
    move_to(tick_ + 1);
  }
}

Time TimerWheel::next_expiry() noexcept {
  if (!due_.empty()) return Time{};
  const std::uint64_t event = next_event();
  if (event > tick_of(Time::max())) return Time::max();
  return Time(Duration(static_cast<std::int64_t>(event << tick_bits)));
}

}  // namespace hyperframes
