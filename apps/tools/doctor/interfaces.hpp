// The network interfaces that matter: cards that are up, or in a container the one with the default
// route.
//
//   for (const Interface& card : interfaces(files)) fmt::print("{} {}", card.name, card.mtu);
//   card.device->address;                    // of a PCI card
//   card.speed_mbit;                         // 0: unknown
#pragma once

#include <cstdint>
#include <hyperframes/apps/tools/doctor/pci.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools::doctor {

struct Interface {
  std::string name = {};
  bool physical = false;  ///< A card, also one that is made up by a virtual machine.
  std::optional<PciDevice> device = {};
  std::uint64_t mtu = 0;
  std::uint64_t speed_mbit = 0;
  std::vector<std::string> rdma = {};  ///< RDMA devices on the same card.
};

std::vector<Interface> interfaces(const HostFiles& files);
/// The one behind the default route; empty: there is none.
std::string default_interface(const HostFiles& files);

}  // namespace hyperframes::tools::doctor
