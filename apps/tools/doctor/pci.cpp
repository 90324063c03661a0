#include <hyperframes/apps/tools/doctor/pci.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>
#include <utility>

namespace hyperframes::tools::doctor {
namespace {

/// "0000:3b:00.0".
bool is_address(std::string_view text) {
  constexpr std::string_view form = "xxxx:xx:xx.x";
  return text.size() == form.size() && std::ranges::equal(text, form, [](char c, char wanted) {
           return wanted == 'x' ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c == wanted;
         });
}

std::uint32_t read_hexadecimal(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return number;
}

bool is_gpu(const HostFiles& files, const std::string& folder) {
  constexpr std::uint32_t nvidia = 0x10de, amd = 0x1002;
  constexpr std::uint32_t vga = 0x0300, three_d = 0x0302, display = 0x0380, accelerator = 0x1200;
  const auto vendor = read_hexadecimal(files.read(folder + "/vendor").value_or(""));
  const auto kind = read_hexadecimal(files.read(folder + "/class").value_or("")) >> 8;
  return (vendor == nvidia || vendor == amd) &&
         (kind == vga || kind == three_d || kind == display || kind == accelerator);
}

/// "16.0 GT/s PCIe" as 16.
double transfers_of(const std::optional<std::string>& text) {
  double speed = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), speed);
  return speed;
}

}  // namespace

std::optional<PciDevice> pci_device(const HostFiles& files, const std::string& path) {
  const auto real = files.resolve(path);
  if (!real) return std::nullopt;
  PciDevice device;
  std::string folder;
  std::istringstream parts(*real);
  for (std::string part; std::getline(parts, part, '/');) {
    folder += (folder.empty() ? "" : "/") + part;
    if (is_address(part)) {
      device.address = part;
      device.folder = folder;
    }
    if (is_address(part) || (part.starts_with("pci") && device.chain.empty()))
      device.chain.push_back(part);
  }
  if (device.address.empty()) return std::nullopt;
  if (const auto node = files.number(device.folder + "/numa_node"); node && *node >= 0)
    device.node = static_cast<unsigned>(*node);
  return device;
}

std::vector<PciDevice> gpus(const HostFiles& files) {
  const std::string folder = "sys/bus/pci/devices/";
  std::vector<PciDevice> found;
  auto names = files.list(folder);
  std::ranges::sort(names);
  for (const std::string& name : names)
    if (is_gpu(files, folder + name))
      if (auto device = pci_device(files, folder + name)) found.push_back(std::move(*device));
  return found;
}

Way way_between(const PciDevice& one, const PciDevice& other) {
  const auto [end, _] = std::ranges::mismatch(one.chain, other.chain);
  const auto common = end - one.chain.begin();
  if (common >= 2) return Way::one_switch;  // a bridge below the host bridge
  if (common == 1) return Way::host_bridge;
  // A host without nodes has one processor.
  return one.node == other.node ? Way::processor : Way::between;
}

std::string_view text_of(Way way) noexcept {
  switch (way) {
    case Way::one_switch: return "through one PCIe switch";
    case Way::host_bridge: return "through one host bridge";
    case Way::processor: return "through the processor";
    case Way::between: return "from one processor to another";
  }
  return "";
}

Check check_link(const HostFiles& files, const PciDevice& device, std::string group,
                 std::string subject, bool speed_matters) {
  Check check{.group = std::move(group), .name = "PCIe link", .subject = std::move(subject)};
  const auto width = files.number(device.folder + "/current_link_width");
  const auto most = files.number(device.folder + "/max_link_width");
  const double speed = transfers_of(files.read(device.folder + "/current_link_speed"));
  const double fastest = transfers_of(files.read(device.folder + "/max_link_speed"));
  if (!width || !most || *width <= 0 || *most <= 0 || *most > 32 || speed <= 0) {
    check.status = Status::none;
    check.measured =
        fmt::format("{} has none that can be seen (a virtual device?)", device.address);
    return check;
  }
  check.measured = fmt::format("x{} at {:g} GT/s", *width, speed);
  check.needed = fmt::format("x{} at {:g} GT/s, which the device can", *most, fastest);
  if (*width >= *most && (!speed_matters || speed >= fastest)) return check;
  check.status = Status::warn;
  check.remedy = fmt::format(
      "put it into a slot of x{}, seat it anew, and look for the slot's speed in the firmware's "
      "setup: 'lspci -vv -s {}' shows LnkCap and LnkSta",
      *most, device.address);
  return check;
}

}  // namespace hyperframes::tools::doctor
