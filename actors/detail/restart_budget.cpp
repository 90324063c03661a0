#include <hyperframes/actors/detail/restart_budget.hpp>

#include <algorithm>

namespace hyperframes::detail {

// Not by sums: a period may be as long as there is time.
bool RestartBudget::take(const RestartPolicy& policy, Time now) {
  std::erase_if(taken_, [&](Time at) { return now - at >= policy.period; });
  if (taken_.size() >= policy.intensity) return false;
  taken_.push_back(now);
  return true;
}

Duration RestartBudget::pause(const RestartPolicy& policy) const noexcept {
  Duration pause = policy.backoff_min;
  for (std::size_t i = 1; i < taken_.size() && pause < policy.backoff_max; ++i)
    pause = pause < policy.backoff_max / 2 ? 2 * pause : policy.backoff_max;
  return pause;
}

}  // namespace hyperframes::detail
