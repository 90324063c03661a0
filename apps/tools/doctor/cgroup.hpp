// What the control groups around this process leave it, of either version.
//
//   const Cgroup group = read_cgroup(files);
//   if (group.memory) fmt::print("{} of {} bytes", group.memory_used, *group.memory);
//   if (group.cores) fmt::print("{} cores' worth of time", *group.cores);
//
// The narrowest of all groups from the process's own to the root decides.
#pragma once

#include <cstdint>
#include <hyperframes/apps/tools/doctor/host_files.hpp>
#include <optional>

namespace hyperframes::tools::doctor {

struct Cgroup {
  std::optional<std::uint64_t> memory = {};  ///< Bytes; empty: no limit.
  std::uint64_t memory_used = 0;             ///< Of the group whose limit that is.
  std::optional<double> cores = {};          ///< Cores' worth of time; empty: no limit.
  std::uint64_t throttled = 0;               ///< Periods in which the group was held up.
};

Cgroup read_cgroup(const HostFiles& files);

}  // namespace hyperframes::tools::doctor
