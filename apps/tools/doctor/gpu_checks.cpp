#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/doctor/interfaces.hpp>
#include <hyperframes/apps/tools/doctor/kernel_version.hpp>
#include <hyperframes/apps/tools/doctor/numa.hpp>
#include <hyperframes/apps/tools/doctor/pci.hpp>
#include <optional>

namespace hyperframes::tools::doctor {
namespace {

const std::string nvidia_version = "proc/driver/nvidia/version";

std::string vendor_of(const HostFiles& files, const PciDevice& gpu) {
  return files.read(gpu.folder + "/vendor") == "0x1002" ? "AMD" : "NVIDIA";
}

Check line(const PciDevice& gpu, const char* name) {
  return {.group = "gpu", .name = name, .subject = gpu.address};
}

// ---- Driver
// --------------------------------------------------------------------------------------

Check driver(const HostFiles& files, const PciDevice& gpu) {
  Check check = line(gpu, "driver");
  const std::string vendor = vendor_of(files, gpu);
  const auto link = files.resolve(gpu.folder + "/driver");
  const auto model =
      files.field("proc/driver/nvidia/gpus/" + gpu.address + "/information", "Model");
  const std::string loaded = link ? link->substr(link->rfind('/') + 1) : "none";
  check.measured = fmt::format("{}, of {}", loaded, model.value_or("a GPU by " + vendor));
  const std::string wanted = vendor == "AMD" ? "amdgpu" : "nvidia";
  check.needed = wanted;
  if (loaded == wanted) return check;
  check.status = Status::warn;
  check.remedy = vendor == "AMD"
                     ? "modprobe amdgpu"
                     : "apt-get install nvidia-driver (from non-free), then modprobe nvidia";
  return check;
}

// ---- BAR: how much of the GPU's memory others can address
// ----------------------------------------

struct Bar {
  unsigned number = 0;
  std::uint64_t size = 0;
};

/// The largest one: that is where the memory shows.
Bar largest_bar(const HostFiles& files, const PciDevice& gpu) {
  constexpr unsigned bars = 6;
  const auto lines = files.lines(gpu.folder + "/resource");
  const auto hexadecimal = [](std::string_view word) {
    std::uint64_t number = 0;
    if (word.starts_with("0x")) word.remove_prefix(2);
    std::from_chars(word.data(), word.data() + word.size(), number, 16);
    return number;
  };
  Bar largest;
  for (unsigned i = 0; i < std::min<std::size_t>(bars, lines.size()); ++i) {
    const auto words = words_of(lines[i]);
    if (words.size() < 2) continue;
    const auto begin = hexadecimal(words[0]), end = hexadecimal(words[1]);
    if (end > begin && end - begin >= largest.size) largest = {i, end - begin + 1};
  }
  return largest;
}

/// What the device could show: its memory, or the largest size that it offers for the BAR.
std::uint64_t most_of_bar(const HostFiles& files, const PciDevice& gpu, const Bar& bar) {
  if (const auto memory = files.number(gpu.folder + "/mem_info_vram_total"); memory && *memory > 0)
    return static_cast<std::uint64_t>(*memory);
  const std::string sizes =
      files.read(fmt::format("{}/resource{}_resize", gpu.folder, bar.number)).value_or("");
  std::uint64_t mask = 0;  // bit n: 2^n MiB
  std::from_chars(sizes.data(), sizes.data() + sizes.size(), mask, 16);
  std::uint64_t most = 0;
  for (unsigned bit = 0; bit < 43; ++bit)
    if ((mask >> bit & 1) != 0) most = std::uint64_t{1} << (bit + 20);
  return most;
}

Check bar_size(const HostFiles& files, const PciDevice& gpu) {
  constexpr std::uint64_t small = 256u << 20;
  Check check = line(gpu, "BAR");
  const Bar bar = largest_bar(files, gpu);
  if (bar.size == 0) {
    check.status = Status::none;
    check.measured = "this user can't see its addresses";
    return check;
  }
  const std::uint64_t most = most_of_bar(files, gpu, bar);
  check.measured = binary_text(bar.size);
  check.needed = most != 0 ? binary_text(most) + ", for cards to reach all of its memory"
                           : "more than 256 MiB, for cards to reach its memory";
  if (most != 0 ? bar.size >= most : bar.size > small) return check;
  check.status = Status::warn;
  check.remedy = "switch on 'Above 4G decoding' and 'Resizable BAR' in the firmware's setup";
  return check;
}

// ---- The way to the nearest card
// -----------------------------------------------------------------

/// Cards with RDMA come first: only they reach the GPU's memory by themselves.
std::vector<Interface> candidates(const HostFiles& files) {
  auto cards = interfaces(files);
  std::erase_if(cards, [](const Interface& card) { return !card.device; });
  if (std::ranges::any_of(cards, [](const Interface& card) { return !card.rdma.empty(); }))
    std::erase_if(cards, [](const Interface& card) { return card.rdma.empty(); });
  return cards;
}

Check way(const HostFiles& files, const PciDevice& gpu) {
  Check check = line(gpu, "way to a card");
  const auto cards = candidates(files);
  if (cards.empty()) {
    check.status = Status::none;
    check.measured = "there is no PCI card that is up";
    return check;
  }
  const auto nearest = std::ranges::min_element(
      cards, {}, [&](const Interface& card) { return way_between(gpu, *card.device); });
  const Way found = way_between(gpu, *nearest->device);
  check.measured =
      fmt::format("{}, to {} ({})", text_of(found), nearest->name, nearest->device->address);
  check.needed = "through one PCIe switch or host bridge";
  if (found <= Way::host_bridge) return check;
  check.status = Status::warn;
  check.remedy =
      "move the card or the GPU to a slot of the same switch or host bridge: 'lspci -tv' "
      "shows the tree";
  return check;
}

// ---- How cards reach its memory
// ------------------------------------------------------------------

// Either a module that knows both drivers, or the kernel's own way, which NVIDIA's open modules
// take.
Check peer_memory(const HostFiles& files, const std::vector<PciDevice>& all) {
  Check check{.group = "gpu", .name = "peer memory"};
  const bool module =
      files.exists("sys/module/nvidia_peermem") || files.exists("sys/module/nv_peer_mem");
  const bool kernel = kernel_version(files).value_or(KernelVersion{}) >= KernelVersion{5, 12};
  const bool open =
      files.read(nvidia_version).value_or("").find("Open Kernel Module") != std::string::npos;
  const bool amd = std::ranges::all_of(
      all, [&](const PciDevice& gpu) { return vendor_of(files, gpu) == "AMD"; });
  const bool dma_buf = kernel && (open || (amd && files.exists("sys/module/amdgpu")));
  check.needed = "dma-buf (Linux 5.12, open driver) or nvidia_peermem, for RDMA from its memory";
  if (files.list("sys/class/infiniband").empty()) {
    check.status = Status::none;
    check.measured = "no RDMA card is here that could use it";
    return check;
  }
  check.measured = dma_buf && module ? "dma-buf, and nvidia_peermem"
                   : dma_buf         ? "dma-buf"
                   : module          ? "nvidia_peermem"
                                     : "neither dma-buf nor nvidia_peermem";
  if (dma_buf || module) return check;
  check.status = Status::warn;
  check.remedy = amd ? "modprobe amdgpu, on Linux 5.12 or newer"
                     : "modprobe nvidia_peermem; or install NVIDIA's open kernel modules";
  return check;
}

}  // namespace

Checks check_gpus(const Host& host) {
  const auto all = gpus(host.files);
  if (all.empty())
    return {{.group = "gpu",
             .name = "devices",
             .status = Status::none,
             .measured = "no GPU by NVIDIA or AMD is on the PCI bus"}};
  Checks checks;
  for (const PciDevice& gpu : all) {
    checks.push_back(driver(host.files, gpu));
    checks.push_back(check_place(host.files, "gpu", gpu.address, gpu.node));
    checks.push_back(check_link(host.files, gpu, "gpu", gpu.address, false));
    checks.push_back(bar_size(host.files, gpu));
    checks.push_back(way(host.files, gpu));
  }
  checks.push_back(peer_memory(host.files, all));
  return checks;
}

}  // namespace hyperframes::tools::doctor
