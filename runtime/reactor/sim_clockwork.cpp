#include <hyperframes/runtime/reactor/sim_clockwork.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace hyperframes::detail {

void SimClockwork::at(Time time, std::function<void()> act) {
  events_.push_back({std::max(time, now_), ++order_, std::move(act)});
  std::ranges::push_heap(events_, later);
}

bool SimClockwork::run_due() {
  bool any = false;
  while (!events_.empty() && events_.front().time <= now_) {
    std::ranges::pop_heap(events_, later);
    const Event event = std::move(events_.back());
    events_.pop_back();
    ++event_count;
    event.act();
    any = true;
  }
  return any;
}

void SimClockwork::record(std::string_view what, std::uint64_t node, std::uint64_t shard,
                          std::uint64_t detail, std::uint64_t value) {
  fold(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  fold(node << 32 | shard);
  fold(detail);
  fold(value);
  for (const char letter : what) fold(static_cast<unsigned char>(letter));
  if (!listener) return;
  const double seconds = std::chrono::duration<double>(now_.time_since_epoch()).count();
  listener(fmt::format("{:.9f} node {} shard {} {} {} {}", seconds, node, shard, what, detail,
                       static_cast<std::int64_t>(value)));
}

}  // namespace hyperframes::detail
