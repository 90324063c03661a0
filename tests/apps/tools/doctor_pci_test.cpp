// Where devices hang, and how far they are from each other.
#include <hyperframes/apps/tools/doctor/pci.hpp>

#include "host_tree.hpp"

using namespace hyperframes::tools::doctor;
using tools_test::contains;
using tools_test::HostTree;

TEST_CASE("the way between two devices is told by the bridges that they share") {
  const HostTree tree;
  const auto at = [&](const std::string& place, int node) {
    return *pci_device(tree.files(), tree.add_pci(place, "0x15b3", "0x020000", node));
  };
  const std::string below = "pci0000:00/0000:00:01.0/0000:01:00.0/";
  const auto card = at(below + "0000:02:00.0/0000:03:00.0", 0);
  const auto gpu = at(below + "0000:02:01.0/0000:04:00.0", 0);
  const auto bridge = at("pci0000:00/0000:00:02.0/0000:05:00.0", 0);
  const auto processor = at("pci0000:40/0000:40:01.0/0000:41:00.0", 0);
  const auto other = at("pci0000:80/0000:80:01.0/0000:81:00.0", 1);
  CHECK(way_between(card, gpu) == Way::one_switch);
  CHECK(way_between(card, bridge) == Way::host_bridge);
  CHECK(way_between(card, processor) == Way::processor);
  CHECK(way_between(card, other) == Way::between);
}

TEST_CASE("an interface of virtio belongs to the PCI device that it hangs on") {
  const HostTree tree;
  const std::string device = tree.add_pci("pci0000:00/0000:00:03.0", "0x1af4", "0x020000");
  tree.write(device + "/virtio2/vendor", "0x1af4\n");
  const auto found = pci_device(tree.files(), device + "/virtio2");
  REQUIRE(found);
  CHECK(found->address == "0000:00:03.0");
  CHECK(!found->node);
  CHECK(!pci_device(tree.files(), "sys/devices"));
}

TEST_CASE("graphics of a board's own controller are no GPU") {
  const HostTree tree;
  tree.add_pci("pci0000:00/0000:00:05.0", "0x1a03", "0x030000");
  tree.add_pci("pci0000:00/0000:00:06.0", "0x10de", "0x040300");  // its sound
  CHECK(gpus(tree.files()).empty());
  tree.add_pci("pci0000:00/0000:00:07.0", "0x10de", "0x030200");
  tree.add_pci("pci0000:00/0000:00:08.0", "0x1002", "0x120000");
  REQUIRE(gpus(tree.files()).size() == 2);
  CHECK(gpus(tree.files())[0].address == "0000:00:07.0");
}

TEST_CASE("a link with fewer lanes than the device has is named, a slow one where it matters") {
  const HostTree tree;
  const std::string folder = tree.add_pci("pci0000:00/0000:01:00.0", "0x15b3", "0x020000");
  const auto device = *pci_device(tree.files(), folder);
  const auto check = [&](bool speed_matters) {
    return check_link(tree.files(), device, "network", "eth0", speed_matters);
  };
  CHECK(check(true).status == Status::pass);
  CHECK(check(true).measured == "x16 at 16 GT/s");
  tree.set_link(folder, 16, 16, "2.5");
  CHECK(check(true).status == Status::warn);
  CHECK(check(false).status == Status::pass);
  tree.set_link(folder, 8, 16);
  CHECK(check(false).status == Status::warn);
  CHECK(contains(check(false).remedy, "lspci -vv -s 0000:01:00.0"));
  tree.set_link(folder, 0, 255);
  CHECK(check(true).status == Status::none);
}
