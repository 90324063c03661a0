// How many restarts an actor has had lately, and how long it pauses before the next one.
#pragma once

#include <hyperframes/actors/restart.hpp>
#include <hyperframes/runtime/time.hpp>
#include <vector>

namespace hyperframes::detail {

class RestartBudget {
 public:
  /// One more restart; false if all that the policy allows are used up.
  bool take(const RestartPolicy& policy, Time now);
  /// Those within the policy's period.
  std::uint32_t used() const noexcept { return static_cast<std::uint32_t>(taken_.size()); }
  /// Before the restart that was taken last.
  Duration pause(const RestartPolicy& policy) const noexcept;

 private:
  std::vector<Time> taken_;  ///< The oldest first.
};

}  // namespace hyperframes::detail
