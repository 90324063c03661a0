// PCI devices: where they hang, how wide they are connected, and how far two are from each other.
//
//   if (auto device = pci_device(files, "sys/class/net/eth0/device")) device->address;
//   way_between(files, card, gpu);                        // Way::one_switch
//   check_link(*device, "network", "eth0", true);         // a line
//
// An interface of virtio or of a function's part belongs to the PCI device that it hangs on.
#pragma once

#include <cstdint>
#include <hyperframes/apps/tools/doctor/check.hpp>
#include <hyperframes/apps/tools/doctor/host_files.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools::doctor {

struct PciDevice {
  std::string address = {};             ///< "0000:3b:00.0".
  std::string folder = {};              ///< Below the root: "sys/devices/pci0000:3a/...".
  std::vector<std::string> chain = {};  ///< From the host bridge ("pci0000:3a") to the device.
  std::optional<unsigned> node = {};
};

/// The device that the path leads to, or the nearest one above it.
std::optional<PciDevice> pci_device(const HostFiles& files, const std::string& path);
/// Of graphics and accelerators by NVIDIA and AMD, in the order of their addresses.
std::vector<PciDevice> gpus(const HostFiles& files);

enum class Way : std::uint8_t {
  one_switch,   ///< Below one switch or port: data needs not enter the processor.
  host_bridge,  ///< Through one host bridge of the processor.
  processor,    ///< Through two host bridges of one processor.
  between,      ///< From one processor to another, or unknown.
};
Way way_between(const PciDevice& one, const PciDevice& other);
std::string_view text_of(Way way) noexcept;

/// Width and speed of the link, beside what the device could do. Where `speed_matters` is false the
/// speed is shown only: idle devices lower theirs.
Check check_link(const HostFiles& files, const PciDevice& device, std::string group,
                 std::string subject, bool speed_matters);

}  // namespace hyperframes::tools::doctor
