#include <hyperframes/apps/tools/doctor/kernel_version.hpp>

#include <charconv>

namespace hyperframes::tools::doctor {

std::optional<KernelVersion> kernel_version(const HostFiles& files) {
  const std::string text = files.read("proc/sys/kernel/osrelease").value_or("");
  const char* const end = text.data() + text.size();
  KernelVersion version;
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  if (std::from_chars(major.ptr + 1, end, version.minor).ec != std::errc()) return std::nullopt;
  return version;
}

}  // namespace hyperframes::tools::doctor
