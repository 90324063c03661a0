#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/apps/tools/doctor/cgroup.hpp>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/doctor/interfaces.hpp>
#include <hyperframes/apps/tools/doctor/numa.hpp>
#include <hyperframes/apps/tools/doctor/pci.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <set>

namespace hyperframes::tools::doctor {
namespace {

/// Of two threads that share a core the second one adds little.
std::size_t physical_cores(const HostFiles& files, const std::vector<unsigned>& cores) {
  std::set<std::string> distinct;
  for (const unsigned core : cores)
    distinct.insert(
        files.read(fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", core))
            .value_or(std::to_string(core)));
  return distinct.size();
}

Check usable(const Host& host) {
  const auto cores = usable_cores(host.files);
  Check check{.group = "cores", .name = "cores"};
  if (cores.empty()) {
    check.status = Status::none;
    check.measured = "/proc/self/status does not say";
    return check;
  }
  const std::size_t physical = physical_cores(host.files, cores);
  check.measured = fmt::format("{} ({})", cores.size(), list_text(cores));
  if (physical < cores.size())
    check.measured += fmt::format(", which are threads of {}", counted(physical, "core"));
  const auto there = read_list(host.files.read("sys/devices/system/cpu/online").value_or(""));
  if (there.size() > cores.size())
    check.measured += fmt::format(", of {} that the host has", there.size());
  check.needed = "1 for each shard (--threads); --cores binds them";
  return check;
}

// A group that has used up its time stands still until the next period, and its shards with it.
Check quota(const Host& host) {
  const Cgroup group = read_cgroup(host.files);
  const std::size_t cores = std::max<std::size_t>(usable_cores(host.files).size(), 1);
  Check check{.group = "cores", .name = "CPU quota"};
  if (!group.cores || *group.cores >= double(cores)) {
    check.measured = "none that is less than the cores";
    return check;
  }
  check.status = Status::warn;
  check.measured =
      fmt::format("the time of {:.3g} cores, on {}", *group.cores, counted(cores, "core"));
  if (group.throttled != 0)
    check.measured += fmt::format("; held up {} times so far", with_separators(group.throttled));
  check.needed = "no quota, or one of all cores that may be used";
  const auto whole = static_cast<std::size_t>(*group.cores);
  check.remedy = "give it cores rather than a quota: docker run --cpuset-cpus 0-3 without --cpus";
  if (whole >= 1) check.remedy += fmt::format("; or start no more than --threads {}", whole);
  return check;
}

/// Where a GPU or a card is, rather than where the numbers begin.
const NumaNode& best_node(const HostFiles& files, const std::vector<NumaNode>& nodes) {
  std::vector<PciDevice> devices = gpus(files);
  for (const Interface& card : interfaces(files))
    if (card.device) devices.push_back(*card.device);
  for (const PciDevice& device : devices)
    for (const NumaNode& node : nodes)
      if (node.number == device.node) return node;
  return nodes.front();
}

Check nodes(const Host& host) {
  const auto all = numa_nodes(host.files), mine = usable_nodes(host.files);
  Check check{.group = "cores", .name = "NUMA"};
  if (all.empty()) {
    check.status = Status::none;
    check.measured = "this kernel knows of no nodes";
    return check;
  }
  for (const NumaNode& node : all)
    check.measured += fmt::format("{}node {}: cores {}", check.measured.empty() ? "" : "; ",
                                  node.number, list_text(node.cores));
  check.needed = "the cores of a process lie on one node";
  if (mine.size() <= 1) return check;
  check.status = Status::warn;
  check.measured += fmt::format("; this process may use {} of them", mine.size());
  const NumaNode& best = best_node(host.files, mine);
  check.remedy =
      fmt::format("a process for each node: hyperframes_server --cores {} --threads {} ...",
                  list_text(best.cores), best.cores.size());
  return check;
}

}  // namespace

Checks check_cores(const Host& host) { return {usable(host), quota(host), nodes(host)}; }

}  // namespace hyperframes::tools::doctor
