// The latest decisions of a node's supervisors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <hyperframes/actors/supervision_event.hpp>
#include <hyperframes/runtime/time.hpp>
#include <mutex>

namespace hyperframes::detail {

/// Ends of actors are rare beside messages, and come from all shards: so one lock guards it.
class EventRing {
 public:
  explicit EventRing(std::size_t capacity) noexcept : capacity_(capacity ? capacity : 1) {}
  /// When its node has begun, which is told with the events: to be called before all else.
  void begin(Time now) noexcept { begun_ = now; }
  /// Numbers it.
  void add(SupervisionEvent event);
  /// Those after that number, the latest `most` of them.
  SupervisionEvents since(std::uint64_t after, std::size_t most = SIZE_MAX) const;

 private:
  const std::size_t capacity_;
  Time begun_{};
  mutable std::mutex mutex_;
  std::deque<SupervisionEvent> events_;
  std::uint64_t latest_ = 0;
};

}  // namespace hyperframes::detail
