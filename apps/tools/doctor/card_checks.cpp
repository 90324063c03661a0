#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/doctor/interfaces.hpp>
#include <hyperframes/apps/tools/doctor/numa.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <optional>

namespace hyperframes::tools::doctor {
namespace {

constexpr std::uint64_t fast_mbit = 25'000;

Check line(const Interface& card, const char* name) {
  return {.group = "network", .name = name, .subject = card.name};
}

std::string speed_text(std::uint64_t mbit) {
  return mbit >= 1000 ? fmt::format("{:g} Gb/s", static_cast<double>(mbit) / 1000)
                      : fmt::format("{} Mb/s", mbit);
}

// RoCE's largest packets carry 4096 bytes and some 100 of heads.
Check mtu(const Interface& card) {
  const bool rdma = !card.rdma.empty(), fast = card.speed_mbit >= fast_mbit;
  const std::uint64_t least = rdma ? 4200 : fast ? 9000 : 1280;
  Check check = line(card, "MTU");
  check.measured = fmt::format("{} B", card.mtu);
  if (card.speed_mbit != 0) check.measured += ", at " + speed_text(card.speed_mbit);
  check.needed = rdma   ? "4200 B or more, for RDMA's packets of 4096"
                 : fast ? fmt::format("9000 B, at {} Gb/s and more", fast_mbit / 1000)
                        : "1280 B or more";
  if (card.mtu >= least) return check;
  check.status = Status::warn;
  check.remedy = fmt::format(
      "ip link set {} mtu {}, on both hosts and on each switch between; then 'hyperframes doctor "
      "--peer HOST' shows what gets through",
      card.name, rdma || fast ? 9000 : 1500);
  return check;
}

// A core for each queue takes what the card receives; more than the cores are of no use.
Check queues(const Host& host, const Interface& card) {
  Check check = line(card, "queues");
  const auto queues = host.probes.queues_of(card.name);
  if (!queues) {
    check.status = Status::none;
    check.measured = "its driver does not say";
    return check;
  }
  const auto cores = static_cast<unsigned>(usable_cores(host.files).size());
  const unsigned wanted = std::min({std::max(cores, 1u), std::max(queues->most, 1u), 16u});
  check.measured = fmt::format("{} of {} that it has", queues->now, queues->most);
  check.needed = fmt::format("{} or more: one for each core, 16 at most", wanted);
  if (queues->now >= wanted) return check;
  check.status = Status::warn;
  check.remedy = fmt::format("ethtool -L {} combined {}", card.name, wanted);
  return check;
}

// What comes in a burst must fit until a core takes it.
Check rings(const Host& host, const Interface& card) {
  constexpr unsigned enough = 1024;
  Check check = line(card, "ring depth");
  const auto rings = host.probes.rings_of(card.name);
  if (!rings || rings->receive_most == 0) {
    check.status = Status::none;
    check.measured = "its driver does not say";
    return check;
  }
  const unsigned receive = std::min(enough, rings->receive_most);
  const unsigned transmit = std::min(enough, rings->transmit_most);
  check.measured = fmt::format("receive {} of {}, send {} of {}", rings->receive,
                               rings->receive_most, rings->transmit, rings->transmit_most);
  check.needed = fmt::format("receive {}, send {} or more", receive, transmit);
  if (rings->receive >= receive && rings->transmit >= transmit) return check;
  check.status = Status::warn;
  check.remedy =
      fmt::format("ethtool -G {} rx {} tx {}", card.name, std::max(receive, rings->receive),
                  std::max(transmit, rings->transmit));
  return check;
}

Check no_card() {
  return {.group = "network",
          .name = "card",
          .status = Status::none,
          .measured = "no card is up, and there is no default route"};
}

/// The largest of "4096 131072 6291456".
std::optional<std::uint64_t> largest_buffer(const Host& host, const std::string& name) {
  const auto words = words_of(host.files.read("proc/sys/net/ipv4/" + name).value_or(""));
  const auto number = words.size() == 3 ? read_whole(words[2]) : std::nullopt;
  if (!number || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

// One connection keeps at most this much under way: speed times round trip of it fills the line.
Check buffers(const Host& host, const char* name, const char* setting, std::uint64_t speed_mbit) {
  constexpr double round_trip_s = .001;
  constexpr std::uint64_t least = 4u << 20;
  Check check{.group = "network", .name = name};
  const auto found = largest_buffer(host, setting);
  if (!found) {
    check.status = Status::none;
    check.measured = fmt::format("net.ipv4.{} can't be read", setting);
    return check;
  }
  const auto under_way =
      static_cast<std::uint64_t>(static_cast<double>(speed_mbit) * 1e6 / 8 * round_trip_s);
  std::uint64_t needed = least;  // twice what is under way, as half is the kernel's own
  while (needed < 2 * under_way) needed *= 2;
  check.measured = "up to " + binary_text(*found);
  check.needed = fmt::format(
      "{} or more{}", binary_text(needed),
      needed > least ? fmt::format(": {} at round trips of 1 ms", speed_text(speed_mbit))
                     : std::string());
  if (*found >= needed) return check;
  check.status = Status::warn;
  check.remedy = fmt::format(
      "sysctl -w net.ipv4.{}='4096 131072 {}'; for good: a file in /etc/sysctl.d", setting, needed);
  return check;
}

Checks check_card(const Host& host, const Interface& card) {
  Checks checks = {mtu(card)};
  if (!card.physical) return checks;
  checks.push_back(queues(host, card));
  checks.push_back(rings(host, card));
  if (!card.device) return checks;
  checks.push_back(check_place(host.files, "network", card.name, card.device->node));
  checks.push_back(check_link(host.files, *card.device, "network", card.name, true));
  return checks;
}

}  // namespace

Checks check_cards(const Host& host) {
  Checks checks;
  std::uint64_t fastest = 0;
  for (const Interface& card : interfaces(host.files)) {
    append(checks, check_card(host, card));
    fastest = std::max(fastest, card.speed_mbit);
  }
  if (checks.empty()) checks.push_back(no_card());
  checks.push_back(buffers(host, "TCP receive buffer", "tcp_rmem", fastest));
  checks.push_back(buffers(host, "TCP send buffer", "tcp_wmem", fastest));
  return checks;
}

}  // namespace hyperframes::tools::doctor
