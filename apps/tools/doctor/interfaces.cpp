#include <hyperframes/apps/tools/doctor/interfaces.hpp>

#include <algorithm>
#include <utility>

namespace hyperframes::tools::doctor {
namespace {

std::uint64_t positive(std::optional<std::int64_t> number) {
  return number && *number > 0 ? static_cast<std::uint64_t>(*number) : 0;
}

Interface describe(const HostFiles& files, const std::string& name) {
  const std::string folder = "sys/class/net/" + name;
  Interface card{.name = name, .physical = files.exists(folder + "/device")};
  card.device = pci_device(files, folder + "/device");
  card.mtu = positive(files.number(folder + "/mtu"));
  card.speed_mbit = positive(files.number(folder + "/speed"));
  card.rdma = files.list(folder + "/device/infiniband");
  return card;
}

}  // namespace

std::string default_interface(const HostFiles& files) {
  constexpr std::size_t columns = 8, destination = 1, mask = 7;
  for (const std::string& line : files.lines("proc/net/route"))
    if (const auto words = words_of(line);
        words.size() >= columns && words[destination] == "00000000" && words[mask] == "00000000")
      return words[0];
  return {};
}

std::vector<Interface> interfaces(const HostFiles& files) {
  std::vector<Interface> found;
  for (const std::string& name : files.list("sys/class/net")) {
    Interface card = describe(files, name);
    if (card.physical && files.read("sys/class/net/" + name + "/operstate") == "up")
      found.push_back(std::move(card));
  }
  const std::string by_default = default_interface(files);
  if (found.empty() && !by_default.empty()) found.push_back(describe(files, by_default));
  return found;
}

}  // namespace hyperframes::tools::doctor
