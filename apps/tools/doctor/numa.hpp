// NUMA nodes: which cores lie on which, and which of them this process may use.
//
//   for (const NumaNode& node : numa_nodes(files)) fmt::print("{}", list_text(node.cores));
//   std::vector<unsigned> mine = usable_cores(files);
//   place_text(files, 1);                                  // "node 1"
//
// Nodes without cores (memory of a device or of an expander) are left out.
#pragma once

#include <hyperframes/apps/tools/doctor/check.hpp>
#include <hyperframes/apps/tools/doctor/host_files.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools::doctor {

struct NumaNode {
  unsigned number = 0;
  std::vector<unsigned> cores = {};
};

std::vector<NumaNode> numa_nodes(const HostFiles& files);
std::vector<unsigned> usable_cores(const HostFiles& files);
/// The nodes with cores that this process may use, and of these cores those alone.
std::vector<NumaNode> usable_nodes(const HostFiles& files);
/// Whether a device on `node` (empty: unknown) is near the cores of this process: a line.
Check check_place(const HostFiles& files, std::string group, std::string subject,
                  std::optional<unsigned> node);

}  // namespace hyperframes::tools::doctor
