#include <hyperframes/apps/tools/doctor/cgroup.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools::doctor {
namespace {

/// What version 1 says where there is no limit is a little below 2^63.
constexpr std::int64_t no_limit = std::int64_t{1} << 60;

/// The folders of the process's group and of those around it, the innermost first. In version 2 the
/// controller has no name. A path that was made in another namespace does not exist: the root does.
std::vector<std::string> folders_of(const HostFiles& files, std::string_view controller) {
  const bool second = controller.empty();
  std::string base = "sys/fs/cgroup";
  if (!second) base += "/" + std::string(controller);
  if (second && !files.exists(base + "/cgroup.controllers")) base += "/unified";
  std::vector<std::string> folders;
  for (const std::string& line : files.lines("proc/self/cgroup")) {
    const auto first = line.find(':'), last = line.find(':', first + 1);
    if (first == line.npos || last == line.npos) continue;
    const std::string names = "," + line.substr(first + 1, last - first - 1) + ",";
    if (names.find("," + std::string(controller) + ",") == names.npos) continue;
    for (std::string path = line.substr(last + 1); path.size() > 1; path.resize(path.rfind('/')))
      folders.push_back(base + path);
    folders.push_back(base);
  }
  return folders;
}

void narrow_memory(const HostFiles& files, const std::string& folder, const char* limit_name,
                   const char* used_name, Cgroup& group) {
  const auto limit = files.number(folder + "/" + limit_name);
  if (!limit || *limit < 0 || *limit >= no_limit) return;
  const auto bytes = static_cast<std::uint64_t>(*limit);
  if (group.memory && *group.memory <= bytes) return;
  group.memory = bytes;
  group.memory_used =
      static_cast<std::uint64_t>(files.number(folder + "/" + used_name).value_or(0));
}

void narrow_cores(const HostFiles& files, const std::string& folder, std::optional<double> quota,
                  std::optional<double> period, Cgroup& group) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  const double cores = *quota / *period;
  if (group.cores && *group.cores <= cores) return;
  group.cores = cores;
  group.throttled = 0;
  for (const std::string& line : files.lines(folder + "/cpu.stat"))
    if (const auto words = words_of(line); words.size() == 2 && words[0] == "nr_throttled")
      group.throttled = static_cast<std::uint64_t>(read_whole(words[1]).value_or(0));
}

std::optional<double> as_double(std::optional<std::int64_t> number) {
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

}  // namespace

Cgroup read_cgroup(const HostFiles& files) {
  Cgroup group;
  for (const std::string& folder : folders_of(files, "")) {
    narrow_memory(files, folder, "memory.max", "memory.current", group);
    const auto words = words_of(files.read(folder + "/cpu.max").value_or(""));
    if (words.size() == 2)
      narrow_cores(files, folder, as_double(read_whole(words[0])), as_double(read_whole(words[1])),
                   group);
  }
  for (const std::string& folder : folders_of(files, "memory"))
    narrow_memory(files, folder, "memory.limit_in_bytes", "memory.usage_in_bytes", group);
  for (const std::string& folder : folders_of(files, "cpu"))
    narrow_cores(files, folder, as_double(files.number(folder + "/cpu.cfs_quota_us")),
                 as_double(files.number(folder + "/cpu.cfs_period_us")), group);
  return group;
}

}  // namespace hyperframes::tools::doctor
