#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <hyperframes/apps/tools/doctor/peer.hpp>
#include <hyperframes/apps/tools/progress.hpp>

namespace hyperframes::tools::doctor {
namespace {

Check line(const Peer& peer, const char* name) {
  return {.group = "peer", .name = name, .subject = peer.text()};
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

Check address(const Peer& peer, const PeerFindings& found) {
  Check check = line(peer, "address");
  if (found.addresses.empty()) {
    check.status = Status::fail;
    check.measured = found.unknown_name;
    check.needed = "a name that this host can look up, or a number";
    check.remedy = fmt::format(
        "'getent ahosts {}' asks as programs do: mend /etc/hosts or "
        "/etc/resolv.conf, or give a number",
        peer.host);
    return check;
  }
  check.measured = joined(found.addresses);
  if (!found.own_address.empty()) check.measured += ", reached from " + found.own_address;
  return check;
}

std::string remedy_of(int failure, std::uint16_t port) {
  switch (failure) {
    case ECONNREFUSED:
      return fmt::format(
          "start the program there, on an address that others reach (--listen "
          "0.0.0.0:{}): 'ss -ltn' there shows who listens on what",
          port);
    case ENETUNREACH:
    case EHOSTUNREACH: return "'ip route get ADDRESS' shows the way that packets take: mend it";
    case ETIMEDOUT:
      return fmt::format(
          "let TCP port {} through each firewall between: 'nft list ruleset' there "
          "shows one",
          port);
    default: return "see connect(2)";
  }
}

// A pull waits for a round trip at least, and a step of training for a pull.
Check connection(const Peer& peer, const PeerFindings& found) {
  constexpr double slow_ms = 10;
  Check check = line(peer, "connection");
  if (!peer.port) {
    check.status = Status::none;
    check.measured = "no port was given";
    return check;
  }
  check.needed = fmt::format("accepted within {:g} ms", slow_ms);
  if (found.connect_ms.empty()) {
    check.status = Status::fail;
    check.measured = found.refusals;
    check.remedy = remedy_of(found.connect_error, *peer.port);
    return check;
  }
  std::vector<double> times = found.connect_ms;
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  check.measured =
      fmt::format("accepted within {:.3g} ms (the median of {})", median, times.size());
  if (median < slow_ms) return check;
  check.status = Status::warn;
  check.remedy =
      "put what talks to each other into one place: 'tracepath HOST' shows where time goes";
  return check;
}

Check mtu(const Peer& peer, const PathFindings& path) {
  Check check = line(peer, "path MTU");
  check.needed = "packets as large as this host's link takes arrive";
  const std::string interface = path.interface.empty() ? "IFACE" : path.interface;
  if (path.link_mtu == 0) {
    check.status = Status::none;
    check.measured = "there is no way to it that could be measured";
  } else if (path.black_hole) {
    check.status = Status::fail;
    check.measured = fmt::format("packets of {} B vanish, and small ones don't", path.mtu);
    check.remedy = fmt::format(
        "give both hosts and each switch between the same MTU, and let ICMP through firewalls; or "
        "lower it here: ip link set {} mtu 1400; until then: sysctl -w net.ipv4.tcp_mtu_probing=1",
        interface);
  } else if (path.mtu < path.link_mtu) {
    check.status = Status::warn;
    check.measured = fmt::format("{} B, and {} B on this host's link", path.mtu, path.link_mtu);
    check.remedy = fmt::format("raise the MTU on the way, or lower it here: ip link set {} mtu {}",
                               interface, path.mtu);
  } else if (!path.proven) {
    check.status = Status::none;
    check.measured = fmt::format("{} B on this host's link; {}", path.mtu,
                                 path.answers ? "how far such packets get is not known"
                                              : "it answers no probe (a firewall?)");
  } else {
    check.measured = fmt::format("{} B, answered", path.mtu);
  }
  return check;
}

Check hops(const Peer& peer, const PathFindings& path) {
  Check check = line(peer, "hops");
  if (!path.hops) {
    check.status = Status::none;
    check.measured = path.answers ? "not known: routers on the way don't say"
                                  : "not known: it answers no probe (a firewall?)";
    return check;
  }
  check.measured = *path.hops == 1 ? "1: no router is between"
                                   : fmt::format("{}: {} between", *path.hops,
                                                 counted(*path.hops - 1, "router"));
  return check;
}

}  // namespace

Checks check_peer(const Peer& peer, const PeerFindings& found) {
  Checks checks = {address(peer, found)};
  if (found.addresses.empty()) return checks;
  checks.push_back(connection(peer, found));
  checks.push_back(mtu(peer, found.path));
  checks.push_back(hops(peer, found.path));
  return checks;
}

}  // namespace hyperframes::tools::doctor
