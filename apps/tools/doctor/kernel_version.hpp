// The running kernel's version, as far as features depend on it.
//
//   if (kernel_version(files) < KernelVersion{5, 12}) ...     // empty is less than any
//   kernel_version(files)->major;
//   kernel_version(files)->minor;
#pragma once

#include <compare>
#include <hyperframes/apps/tools/doctor/host_files.hpp>
#include <optional>

namespace hyperframes::tools::doctor {

struct KernelVersion {
  unsigned major = 0, minor = 0;
  friend auto operator<=>(const KernelVersion&, const KernelVersion&) = default;
};

std::optional<KernelVersion> kernel_version(const HostFiles& files);

}  // namespace hyperframes::tools::doctor
