#include <hyperframes/apps/tools/doctor/numa.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace hyperframes::tools::doctor {

std::vector<NumaNode> numa_nodes(const HostFiles& files) {
  const std::string folder = "sys/devices/system/node/";
  std::vector<NumaNode> nodes;
  for (const std::string& name : files.list(folder)) {
    if (!name.starts_with("node")) continue;
    const auto number = read_whole(std::string_view(name).substr(4));
    auto cores = read_list(files.read(folder + name + "/cpulist").value_or(""));
    if (number && *number >= 0 && !cores.empty())
      nodes.push_back({static_cast<unsigned>(*number), std::move(cores)});
  }
  return nodes;
}

std::vector<unsigned> usable_cores(const HostFiles& files) {
  return read_list(files.field("proc/self/status", "Cpus_allowed_list").value_or(""));
}

std::vector<NumaNode> usable_nodes(const HostFiles& files) {
  const auto usable = usable_cores(files);
  auto nodes = numa_nodes(files);
  for (NumaNode& node : nodes)
    std::erase_if(node.cores,
                  [&](unsigned core) { return std::ranges::find(usable, core) == usable.end(); });
  std::erase_if(nodes, [](const NumaNode& node) { return node.cores.empty(); });
  return nodes;
}

Check check_place(const HostFiles& files, std::string group, std::string subject,
                  std::optional<unsigned> node) {
  Check check{.group = std::move(group), .name = "NUMA node", .subject = std::move(subject)};
  const auto all = numa_nodes(files);
  if (all.size() < 2) {
    check.measured = "the host has one node";
    return check;
  }
  check.needed = "the node of the cores that use it";
  if (!node) {
    check.status = Status::none;
    check.measured = "the firmware does not say which";
    return check;
  }
  const auto usable = usable_nodes(files);
  const bool near = std::ranges::find(usable, *node, &NumaNode::number) != usable.end();
  const auto own = std::ranges::find(all, *node, &NumaNode::number);
  const std::string cores = own != all.end() ? list_text(own->cores) : "";
  check.measured = fmt::format("node {}{}", *node, cores.empty() ? "" : ", cores " + cores);
  if (near || cores.empty()) return check;
  check.status = Status::warn;
  check.measured += "; this process may use none of them";
  check.remedy = fmt::format(
      "taskset -c {} hyperframes_server ..., or numactl --cpunodebind={} "
      "--membind={} hyperframes_server ...",
      cores, *node, *node);
  return check;
}

}  // namespace hyperframes::tools::doctor
