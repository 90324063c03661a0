// A host that a test makes up: a folder with what its kernel would say, and probes that answer what
// the test likes. Without anything else it is a good one, with one node, no card and no GPU.
//
//   HostTree tree;
//   tree.write("proc/sys/kernel/osrelease", "5.10.0");
//   Check check = find(check_kernel(tree.host()), "kernel");
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <string>
#include <utility>

#include "tool.hpp"

namespace tools_test {

namespace doctor = hyperframes::tools::doctor;

class HostTree {
 public:
  HostTree() {
    write("proc/sys/kernel/osrelease", "6.1.0-28-amd64\n");
    write("proc/self/status",
          "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\nSeccomp:\t0\n");
    set_limits("unlimited", "1024", "1048576");
    write("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
    write("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t8388608\n");
    write("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    write("sys/devices/system/cpu/online", "0-3\n");
    write("sys/devices/system/node/node0/cpulist", "0-3\n");
    const std::string clock = "sys/devices/system/clocksource/clocksource0/";
    write(clock + "current_clocksource", "tsc\n");
    write(clock + "available_clocksource", "tsc hpet acpi_pm \n");
    probes_ = {.try_io_uring = [] { return std::nullopt; },
               .try_shared_memory = [] { return std::nullopt; },
               .space_of = [](auto) { return doctor::Space{8u << 30, 8u << 30}; },
               .rings_of = [](auto) { return std::nullopt; },
               .queues_of = [](auto) { return std::nullopt; },
               .pause_of = [](auto) { return std::nullopt; },
               .priorities_of = [](auto) { return std::nullopt; },
               .clock_state = [] { return doctor::ClockState{true, 500}; },
               .clock_read_ns = [] { return 20.0; },
               .refuses_opening = [](auto) { return std::nullopt; }};
  }

  void write(const std::string& path, const std::string& text) const { folder_.write(path, text); }
  void remove(const std::string& path) const { fs::remove_all(folder_.path() / path); }
  /// A link at `path` to another path of the tree, which need not be there yet.
  void link(const std::string& path, const std::string& to) const {
    const fs::path at = folder_.path() / path;
    fs::create_directories(at.parent_path());
    fs::create_symlink(folder_.path() / to, at);
  }
  void set_limits(const std::string& locked, const std::string& soft,
                  const std::string& hard) const {
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units\n"
          "Max open files            " +
              soft + "                 " + hard +
              "              files\n"
              "Max locked memory         " +
              locked + "              " + locked + "           bytes\n");
  }

  /// A PCI device at `place`, below sys/devices, such as "pci0000:00/0000:01:00.0".
  std::string add_pci(const std::string& place, const std::string& vendor, const std::string& kind,
                      int node = -1) const {
    const std::string folder = "sys/devices/" + place;
    const std::string address = place.substr(place.rfind('/') + 1);
    write(folder + "/vendor", vendor + "\n");
    write(folder + "/class", kind + "\n");
    write(folder + "/numa_node", std::to_string(node) + "\n");
    set_link(folder, 16, 16);
    link("sys/bus/pci/devices/" + address, folder);
    return folder;
  }
  void set_link(const std::string& folder, int width, int most,
                const std::string& speed = "16.0") const {
    write(folder + "/current_link_width", std::to_string(width) + "\n");
    write(folder + "/max_link_width", std::to_string(most) + "\n");
    write(folder + "/current_link_speed", speed + " GT/s PCIe\n");
    write(folder + "/max_link_speed", "16.0 GT/s PCIe\n");
  }
  /// A card that is up, on a PCI device at `place`.
  std::string add_card(const std::string& name, const std::string& place, int mtu, int speed_mbit,
                       int node = -1) const {
    const std::string device = add_pci(place, "0x15b3", "0x020000", node);
    const std::string folder = "sys/class/net/" + name;
    write(folder + "/mtu", std::to_string(mtu) + "\n");
    write(folder + "/speed", std::to_string(speed_mbit) + "\n");
    write(folder + "/operstate", "up\n");
    link(folder + "/device", device);
    return device;
  }

  doctor::Probes& probes() { return probes_; }
  doctor::Host host() const { return {doctor::HostFiles(folder_.path()), probes_}; }
  doctor::HostFiles files() const { return doctor::HostFiles(folder_.path()); }

 private:
  WorkFolder folder_;
  doctor::Probes probes_;
};

/// The check of that name and subject. Whatever the checks are, those that complain say what is
/// needed and what helps.
inline doctor::Check find(const doctor::Checks& checks, const std::string& name,
                          const std::string& subject = "") {
  std::string names;
  for (const doctor::Check& check : checks) {
    names += check.name + ", " + check.subject + "\n";
    INFO(check.name << " " << check.subject << ": " << check.measured);
    CHECK(!check.measured.empty());
    if (check.status != doctor::Status::warn && check.status != doctor::Status::fail) continue;
    CHECK(!check.needed.empty());
    CHECK(!check.remedy.empty());
  }
  INFO(names);
  for (const doctor::Check& check : checks)
    if (check.name == name && check.subject == subject) return check;
  FAIL("there is no check " << name << " of '" << subject << "'");
  return {};
}

}  // namespace tools_test
