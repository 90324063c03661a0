#include <hyperframes/actors/detail/event_ring.hpp>

#include <algorithm>
#include <utility>

namespace hyperframes::detail {

void EventRing::add(SupervisionEvent event) {
  std::scoped_lock lock(mutex_);
  event.number = ++latest_;
  if (events_.size() == capacity_) events_.pop_front();
  events_.push_back(std::move(event));
}

SupervisionEvents EventRing::since(std::uint64_t after, std::size_t most) const {
  SupervisionEvents seen;
  seen.node_begun = begun_;
  std::scoped_lock lock(mutex_);
  seen.latest = latest_;
  if (after >= latest_) return seen;
  const std::uint64_t wanted = latest_ - after;
  const std::uint64_t shown = std::min<std::uint64_t>({wanted, events_.size(), most});
  seen.lost = wanted - shown;
  seen.events.assign(events_.end() - static_cast<std::ptrdiff_t>(shown), events_.end());
  return seen;
}

}  // namespace hyperframes::detail
