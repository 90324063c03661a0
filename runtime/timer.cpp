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
  // Rounded up, so that a timer never fires early.
  place(timer, deadline == Time::max() ? ~std::uint64_t{0} : tick_of(deadline) + 1);
}

// Level l holds what is due within 64^(l+1) ticks, in slots of 64^l ticks.
void TimerWheel::place(Timer& timer, std::uint64_t due_tick) noexcept {
  if (due_tick < tick_) due_tick = tick_;
  constexpr std::uint64_t reach = std::uint64_t{1} << (slot_bits * levels);
  // Beyond the wheel's reach it waits in the last slot and is placed again from there.
  if (due_tick - tick_ >= reach) due_tick = tick_ + reach - 1;
  const std::uint64_t distance = due_tick ^ tick_;
  int level = distance < slots ? 0 : (63 - std::countl_zero(distance)) / slot_bits;
  level = std::min(level, levels - 1);
  const std::uint64_t slot = (due_tick >> (level * slot_bits)) & (slots - 1);
  wheel_[level][slot].push_back(timer);
  occupied_[level] |= std::uint64_t{1} << slot;
}

// Called when the lowest level wrapped: brings the slot that begins now down from above.
void TimerWheel::cascade() noexcept {
  for (int level = 1; level < levels; ++level) {
    const std::uint64_t slot = (tick_ >> (level * slot_bits)) & (slots - 1);
    auto& list = wheel_[level][slot];
    occupied_[level] &= ~(std::uint64_t{1} << slot);
    detail::List<Timer> moving;
    while (Timer* timer = list.pop_front()) moving.push_back(*timer);
    while (Timer* timer = moving.pop_front())
      place(*timer,
            timer->deadline_ == Time::max() ? ~std::uint64_t{0} : tick_of(timer->deadline_) + 1);
    if (slot != 0) break;
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
    if (std::ranges::all_of(occupied_, [](std::uint64_t bits) { return bits == 0; })) {
      tick_ = target + 1;
      return ran;
    }
    const std::uint64_t slot = tick_ & (slots - 1);
    const std::uint64_t ahead = occupied_[0] >> slot;
    if (ahead & 1) {
      occupied_[0] &= ~(std::uint64_t{1} << slot);
      while (Timer* timer = wheel_[0][slot].pop_front()) due_.push_back(*timer);
    }
    // Skip the empty slots of this lap in one step.
    const std::uint64_t rest = ahead >> 1;
    const std::uint64_t step = rest ? std::countr_zero(rest) + 1 : slots - slot;
    const std::uint64_t next = std::min(tick_ + step, target + 1);
    const bool wrapped = (next & ~(slots - 1)) != (tick_ & ~(slots - 1));
    tick_ = next;
    if (wrapped) cascade();
  }
}

Time TimerWheel::next_expiry() noexcept {
  if (!due_.empty()) return Time{};
  for (int level = 0; level < levels; ++level) {
    const std::uint64_t base = tick_ >> (level * slot_bits);
    const std::uint64_t here = base & (slots - 1);
    // A slot at or after the current one in this lap; earlier bits belong to the next lap.
    for (std::uint64_t bits = occupied_[level] >> here << here; bits; bits &= bits - 1) {
      const std::uint64_t slot = std::countr_zero(bits);
      if (wheel_[level][slot].empty()) {
        occupied_[level] &= ~(std::uint64_t{1} << slot);
        continue;
      }
      const std::uint64_t tick = ((base & ~(slots - 1)) | slot) << (level * slot_bits);
      return Time(Duration(static_cast<std::int64_t>(std::max(tick, tick_) << tick_bits)));
    }
  }
  return Time::max();
}

}  // namespace hyperframes
