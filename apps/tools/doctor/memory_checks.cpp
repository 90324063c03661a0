#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/apps/tools/doctor/cgroup.hpp>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <optional>

namespace hyperframes::tools::doctor {
namespace {

/// Of /proc/meminfo, which counts in units of 1024 bytes.
std::optional<std::uint64_t> meminfo(const Host& host, std::string_view key) {
  const auto words = words_of(host.files.field("proc/meminfo", key).value_or(""));
  const auto number = words.empty() ? std::nullopt : read_whole(words[0]);
  if (!number || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number) * 1024;
}

// A process keeps 128 MiB ready to receive into, and as much again for what it sends and holds.
Check memory(const Host& host) {
  constexpr std::uint64_t least = 256u << 20, enough = 1u << 30;
  const Cgroup group = read_cgroup(host.files);
  const auto total = meminfo(host, "MemTotal");
  Check check{.group = "system", .name = "memory"};
  const bool limited = group.memory && (!total || *group.memory < *total);
  if (!limited && !total) {
    check.status = Status::none;
    check.measured = "/proc/meminfo does not say";
    return check;
  }
  const std::uint64_t size = limited ? *group.memory : *total;
  const std::uint64_t free = limited ? size - std::min(size, group.memory_used)
                                     : meminfo(host, "MemAvailable").value_or(0);
  check.measured = fmt::format("{}, {} of it free", binary_text(size), binary_text(free));
  if (limited) check.measured += ", by the control group's limit";
  check.needed =
      fmt::format("{} or more for a process, and the rows that it holds", binary_text(enough));
  if (size >= enough && free >= least) return check;
  check.status = size < least ? Status::fail : Status::warn;
  check.remedy = limited ? "raise the limit: docker run --memory 4g ..., or systemctl set-property "
                           "SERVICE MemoryMax=4G"
                         : "run fewer programs on this host: 'ps aux --sort -rss | head' shows "
                           "what takes the memory";
  return check;
}

// Rows and pools ask for huge pages (madvise), which "never" refuses.
Check huge_pages(const Host& host) {
  Check check{.group = "system", .name = "huge pages"};
  const auto text = host.files.read("sys/kernel/mm/transparent_hugepage/enabled");
  check.needed = "madvise or always";
  if (!text) {
    check.status = Status::none;
    check.measured = "this kernel has no transparent ones";
    return check;
  }
  const auto open = text->find('['), close = text->find(']');
  const std::string chosen =
      open < close && close != text->npos ? text->substr(open + 1, close - open - 1) : *text;
  check.measured = "transparent: " + chosen;
  if (const auto reserved =
          host.files.number("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
      reserved && *reserved > 0)
    check.measured += fmt::format("; {} of 2 MiB reserved",
                                  with_separators(static_cast<std::uint64_t>(*reserved)));
  if (chosen != "never") return check;
  check.status = Status::warn;
  check.remedy =
      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; for good: "
      "transparent_hugepage=madvise on the kernel's command line";
  return check;
}

Check shared_memory(const Host& host) {
  Check check{.group = "system", .name = "shared memory"};
  const auto refusal = host.probes.try_shared_memory();
  if (!refusal) {
    check.measured = "can be made, sealed and mapped (memfd): shm:// and auto:// work";
    return check;
  }
  check.status = Status::warn;
  check.measured = fmt::format("{}: {}; auto:// uses TCP within this host", refusal->tried(),
                               refusal->code().message());
  check.needed = "memfd_create, with seals";
  check.remedy = "allow memfd_create in the container's seccomp profile";
  return check;
}

// Nothing of ours lies there, but NCCL's segments and data loaders' do.
Check dev_shm(const Host& host) {
  constexpr std::uint64_t least = 64u << 20, enough = 1u << 30;
  Check check{.group = "system", .name = "/dev/shm"};
  const auto space = host.probes.space_of("/dev/shm");
  check.needed = "1 GiB or more, for NCCL and data loaders beside; hyperframes needs none";
  if (!space || space->total == 0) {
    check.status = Status::none;
    check.measured = "there is none";
    return check;
  }
  check.measured =
      fmt::format("{}, {} of it free", binary_text(space->total), binary_text(space->free));
  if (space->total >= enough && space->free >= least) return check;
  check.status = Status::warn;
  check.remedy = space->total < enough
                     ? "mount -o remount,size=8G /dev/shm; in a container: docker run --shm-size 8g"
                     : "remove what dead programs left: ls -lt /dev/shm";
  return check;
}

}  // namespace

Checks check_memory(const Host& host) {
  return {memory(host), huge_pages(host), shared_memory(host), dev_shm(host)};
}

}  // namespace hyperframes::tools::doctor
