#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/doctor/interfaces.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <optional>
#include <system_error>

namespace hyperframes::tools::doctor {
namespace {

const std::string devices_folder = "sys/class/infiniband/";

struct Port {
  std::string device, number, folder;
  bool ethernet = false;       ///< RoCE; otherwise InfiniBand.
  std::string interface = {};  ///< Its network interface, if a GID names one.

  std::string subject() const { return device + "/" + number; }
};

struct Gid {
  std::string index, address, type, interface;
};

constexpr std::string_view empty_gid = "0000:0000:0000:0000:0000:0000:0000:0000";
constexpr std::string_view ipv4_prefix = "0000:0000:0000:0000:0000:ffff:";
constexpr std::string_view link_local_prefix = "fe80:";

std::vector<Gid> gids_of(const HostFiles& files, const Port& port) {
  std::vector<Gid> gids;
  for (const std::string& index : files.list(port.folder + "/gids")) {
    const auto address = files.read(port.folder + "/gids/" + index);
    if (!address || address->empty() || *address == empty_gid) continue;
    gids.push_back({index, *address,
                    files.read(port.folder + "/gid_attrs/types/" + index).value_or(""),
                    files.read(port.folder + "/gid_attrs/ndevs/" + index).value_or("")});
  }
  return gids;
}

std::vector<Port> ports(const HostFiles& files) {
  std::vector<Port> found;
  for (const std::string& device : files.list(devices_folder))
    for (const std::string& number : files.list(devices_folder + device + "/ports")) {
      Port port{device, number, devices_folder + device + "/ports/" + number};
      port.ethernet = files.read(port.folder + "/link_layer") == "Ethernet";
      for (const Gid& gid : gids_of(files, port))
        if (port.interface.empty()) port.interface = gid.interface;
      found.push_back(port);
    }
  return found;
}

Check line(const Port& port, const char* name) {
  return {.group = "rdma", .name = name, .subject = port.subject()};
}

/// "4: ACTIVE" as "ACTIVE".
std::string state_word(const std::string& text) {
  const auto words = words_of(text);
  return words.empty() ? "unknown" : words.back();
}

Check state(const HostFiles& files, const Port& port) {
  Check check = line(port, "port");
  const std::string word = state_word(files.read(port.folder + "/state").value_or(""));
  check.measured = fmt::format("{}, {}", word, port.ethernet ? "RoCE" : "InfiniBand");
  if (const auto rate = files.read(port.folder + "/rate")) check.measured += ", " + *rate;
  if (!port.interface.empty()) check.measured += ", " + port.interface;
  check.needed = "ACTIVE";
  if (word == "ACTIVE") return check;
  check.status = Status::warn;
  check.remedy = port.ethernet
                     ? fmt::format("ip link set {} up; then look at cable and switch",
                                   port.interface.empty() ? "IFACE" : port.interface)
                     : "start a subnet manager (apt-get install opensm), look at the cable";
  return check;
}

/// 10.0.0.7 rather than its place in 128 bits.
std::string address_text(const Gid& gid) {
  unsigned high = 0, low = 0;
  if (gid.address.starts_with(ipv4_prefix) &&
      std::sscanf(gid.address.c_str() + ipv4_prefix.size(), "%4x:%4x", &high, &low) == 2)
    return fmt::format("{}.{}.{}.{}", high >> 8, high & 255, low >> 8, low & 255);
  return gid.address;
}

// RoCE v2 is what routers pass; the address of one that others can reach is none of the link alone.
Check address(const HostFiles& files, const Port& port) {
  Check check = line(port, "GID");
  const auto gids = gids_of(files, port);
  const auto usable = std::ranges::find_if(gids, [&](const Gid& gid) {
    return !port.ethernet || (gid.type == "RoCE v2" && !gid.address.starts_with(link_local_prefix));
  });
  check.needed = port.ethernet ? "one of RoCE v2, for an address that other hosts reach" : "one";
  if (usable != gids.end()) {
    check.measured = fmt::format("number {}: {}{}", usable->index, address_text(*usable),
                                 usable->type.empty() ? "" : ", " + usable->type);
    return check;
  }
  check.status = Status::warn;
  check.measured = gids.empty() ? "none"
                                : fmt::format("{}, none of RoCE v2 beyond the link",
                                              counted(gids.size(), "GID"));
  check.remedy = port.ethernet ? fmt::format("ip address add ADDRESS/24 dev {}",
                                             port.interface.empty() ? "IFACE" : port.interface)
                               : "start a subnet manager (apt-get install opensm)";
  return check;
}

// ---- Flow control
// --------------------------------------------------------------------------------

/// Priorities for which the card answers marks (notification point) and slows down for them
/// (reaction point). Empty: its driver does not show it.
std::optional<std::vector<unsigned>> congestion_priorities(const HostFiles& files,
                                                           const std::string& interface) {
  const std::string folder = "sys/class/net/" + interface + "/ecn/";
  if (!files.exists(folder + "roce_np/enable")) return std::nullopt;
  std::vector<unsigned> priorities;
  for (unsigned priority = 0; priority < 8; ++priority)
    if (files.number(fmt::format("{}roce_np/enable/{}", folder, priority)) == 1 &&
        files.number(fmt::format("{}roce_rp/enable/{}", folder, priority)) == 1)
      priorities.push_back(priority);
  return priorities;
}

std::string priorities_text(const std::vector<unsigned>& priorities) {
  return priorities.empty() ? "off" : "priority " + list_text(priorities);
}

// RoCE takes a lost packet badly: the network holds senders back before its buffers overflow.
Check lossless(const Host& host, const Port& port) {
  Check check = line(port, "flow control");
  const auto priorities = host.probes.priorities_of(port.interface);
  const auto pause = host.probes.pause_of(port.interface);
  check.needed = "PFC for RDMA's priority, here and on each switch";
  if (!priorities && !pause) {
    check.status = Status::none;
    check.measured = "its driver does not say; 'dcb pfc show dev " + port.interface + "' may";
    return check;
  }
  const bool both = pause && pause->receive && pause->transmit;
  check.measured = fmt::format("PFC {}, pause frames {}",
                               priorities ? priorities_text(*priorities) : "not known",
                               !pause ? "not known"
                               : both ? "on"
                                      : "off");
  if (both || (priorities && !priorities->empty())) return check;
  check.status = Status::warn;
  check.remedy =
      fmt::format("dcb pfc set dev {} prio-pfc 3:on, and the same on the switch", port.interface);
  return check;
}

Check congestion(const HostFiles& files, const Port& port) {
  Check check = line(port, "congestion control");
  const auto priorities = congestion_priorities(files, port.interface);
  check.needed = "DCQCN for RDMA's priority, and ECN on each switch";
  if (!priorities) {
    check.status = Status::none;
    check.measured = "DCQCN can't be read: its driver shows none";
    return check;
  }
  check.measured = "DCQCN " + priorities_text(*priorities);
  if (!priorities->empty()) return check;
  check.status = Status::warn;
  check.remedy = fmt::format(
      "echo 1 > /sys/class/net/{0}/ecn/roce_np/enable/3 && echo 1 > "
      "/sys/class/net/{0}/ecn/roce_rp/enable/3",
      port.interface);
  return check;
}

// ---- Who may use them
// ----------------------------------------------------------------------------

Check access(const Host& host, const std::string& device) {
  Check check{.group = "rdma", .name = "device file", .subject = device};
  const std::string folder = "sys/class/infiniband_verbs/";
  std::string name;
  for (const std::string& candidate : host.files.list(folder))
    if (host.files.read(folder + candidate + "/ibdev") == device) name = candidate;
  check.needed = "a device file that this user may read and write";
  check.status = Status::warn;
  if (name.empty()) {
    check.measured = "none: the kernel's verbs are not loaded";
    check.remedy = "modprobe -a ib_uverbs rdma_ucm";
    return check;
  }
  const std::string path = "/dev/infiniband/" + name;
  const auto refusal = host.probes.refuses_opening(path);
  check.measured = path;
  if (!refusal) {
    check.status = Status::pass;
    return check;
  }
  check.measured += ": " + std::generic_category().message(*refusal);
  check.remedy =
      *refusal == ENOENT
          ? "apt-get install rdma-core; in a container: docker run --device /dev/infiniband"
          : fmt::format(
                "apt-get install rdma-core, whose rules allow it to all; until "
                "then: chmod a+rw {}",
                path);
  return check;
}

}  // namespace

Checks check_rdma(const Host& host) {
  const auto devices = host.files.list(devices_folder);
  if (devices.empty())
    return {{.group = "rdma",
             .name = "devices",
             .status = Status::none,
             .measured = "none: programs use TCP"}};
  Checks checks;
  for (const std::string& device : devices) checks.push_back(access(host, device));
  for (const Port& port : ports(host.files)) {
    checks.push_back(state(host.files, port));
    checks.push_back(address(host.files, port));
    if (!port.ethernet || port.interface.empty()) continue;
    checks.push_back(lossless(host, port));
    checks.push_back(congestion(host.files, port));
  }
  return checks;
}

}  // namespace hyperframes::tools::doctor
