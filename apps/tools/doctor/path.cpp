#include <hyperframes/apps/tools/doctor/path.hpp>

#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hyperframes::tools::doctor {
namespace {

using Steady = std::chrono::steady_clock;

constexpr auto patience = std::chrono::milliseconds(400);
constexpr int most_hops = 30, silent_hops = 3;
constexpr unsigned small_packet = 64;
/// Rarely does somebody listen on these, and hardly on all of them.
constexpr std::array<std::uint16_t, 3> ports = {33'434, 44'447, 61'003};

/// The two versions of IP have the same options under other names.
struct Family {
  int level, discover, probe, report, hops;
  unsigned head;  ///< Of a packet: IP's and UDP's.
  unsigned most;  ///< Of a packet, head and all.
  unsigned char expired_type;
};
constexpr Family ipv4 = {.level = IPPROTO_IP,
                         .discover = IP_MTU_DISCOVER,
                         .probe = IP_PMTUDISC_PROBE,
                         .report = IP_RECVERR,
                         .hops = IP_TTL,
                         .head = 28,
                         .most = 65'535,
                         .expired_type = 11};
constexpr Family ipv6 = {.level = IPPROTO_IPV6,
                         .discover = IPV6_MTU_DISCOVER,
                         .probe = IPV6_PMTUDISC_PROBE,
                         .report = IPV6_RECVERR,
                         .hops = IPV6_UNICAST_HOPS,
                         .head = 48,
                         .most = 65'575,
                         .expired_type = 3};

const Family& family_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? ipv6 : ipv4;
}

bool same_address(const sockaddr& one, const sockaddr_storage& other) {
  if (one.sa_family != other.ss_family) return false;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&one);
  const auto* const others = reinterpret_cast<const std::byte*>(&other);
  const bool sixth = one.sa_family == AF_INET6;
  const std::size_t at =
      sixth ? offsetof(sockaddr_in6, sin6_addr) : offsetof(sockaddr_in, sin_addr);
  return std::memcmp(bytes + at, others + at, sixth ? sizeof(in6_addr) : sizeof(in_addr)) == 0;
}

enum class Answer : std::uint8_t { reached, expired, too_large, other, silent };
struct Outcome {
  Answer answer = Answer::silent;
  unsigned mtu = 0;  ///< Of too_large: what would get through.
};

/// A socket for one packet, so that no late answer is taken for another one's.
class Probe {
 public:
  Probe(const sockaddr_storage& address, std::uint16_t port, int hops)
      : family_(family_of(address)),
        file_(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_storage target = address;  // the port stands at the same place in both versions
    reinterpret_cast<sockaddr_in*>(&target)->sin_port = htons(port);
    const int on = 1;
    usable_ =
        file_ >= 0 && set(family_.discover, family_.probe) && set(family_.report, on) &&
        (hops == 0 || set(family_.hops, hops)) &&
        ::connect(file_, reinterpret_cast<const sockaddr*>(&target),
                  address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) == 0;
  }
  ~Probe() {
    if (file_ >= 0) ::close(file_);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Through which its packets leave: the one with the address that they are from.
  std::string interface() const {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    ifaddrs* first = nullptr;
    if (!usable_ || ::getsockname(file_, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
        ::getifaddrs(&first) != 0)
      return {};
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, ::freeifaddrs);
    for (const ifaddrs* one = first; one; one = one->ifa_next)
      if (one->ifa_addr && same_address(*one->ifa_addr, own)) return one->ifa_name;
    return {};
  }
  /// Not the route's, in which the kernel keeps what it learnt of the way.
  unsigned mtu_of(const std::string& interface) const {
    ifreq request{};
    if (interface.empty() || interface.size() >= sizeof request.ifr_name) return 0;
    std::memcpy(request.ifr_name, interface.data(), interface.size());
    if (::ioctl(file_, SIOCGIFMTU, &request) != 0) return 0;
    return static_cast<unsigned>(std::max(request.ifr_mtu, 0));
  }

  Outcome send(unsigned packet) const {
    if (!usable_) return {Answer::other};
    const unsigned size = std::min(packet, family_.most) - family_.head;
    const std::vector<std::byte> bytes(size);
    const bool sent = ::send(file_, bytes.data(), bytes.size(), 0) >= 0;
    if (!sent && errno == ENOBUFS) return {};  // lost on this host already
    if (!sent && errno != EMSGSIZE) return {Answer::other};
    const auto limit = Steady::now() + patience;
    for (auto left = patience; left.count() > 0;
         left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Steady::now())) {
      pollfd waited{file_, 0, 0};  // errors are always told
      if (::poll(&waited, 1, static_cast<int>(left.count())) > 0) return read_answer();
    }
    return {};
  }

 private:
  bool set(int option, int value) const {
    return ::setsockopt(file_, family_.level, option, &value, sizeof value) == 0;
  }

  Outcome read_answer() const {
    std::array<std::byte, 512> content;
    alignas(cmsghdr) std::array<std::byte, 512> control;
    iovec vector{content.data(), content.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(file_, &message, MSG_ERRQUEUE) < 0) return {Answer::other};
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head))
      if (head->cmsg_level == family_.level && head->cmsg_type == family_.report)
        return read_error(head);
    return {Answer::other};
  }

  Outcome read_error(const cmsghdr* head) const {
    sock_extended_err error{};
    std::memcpy(&error, CMSG_DATA(head), sizeof error);
    if (error.ee_errno == EMSGSIZE) return {Answer::too_large, error.ee_info};
    if (error.ee_errno == ECONNREFUSED) return {Answer::reached};
    if (error.ee_errno == EHOSTUNREACH && error.ee_type == family_.expired_type)
      return {Answer::expired};
    return {Answer::other};
  }

  const Family& family_;
  int file_;
  bool usable_ = false;
};

/// A packet that nobody answers may have been lost, or have met a program: another try or two.
Outcome send_with_patience(const sockaddr_storage& address, unsigned packet, int hops) {
  Outcome outcome;
  for (const std::uint16_t port : ports) {
    outcome = Probe(address, port, hops).send(packet);
    if (outcome.answer != Answer::silent) break;
  }
  return outcome;
}

/// Hosts answer once a second or so when asked often: that must not look like a loss.
Outcome send_once_more(const sockaddr_storage& address, unsigned packet) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  return Probe(address, ports[0], 0).send(packet);
}

std::optional<unsigned> count_hops(const sockaddr_storage& address) {
  int silent = 0;
  for (int hops = 1; hops <= most_hops && silent < silent_hops; ++hops) {
    const Outcome outcome = Probe(address, ports[0], hops).send(small_packet);
    if (outcome.answer == Answer::reached) return static_cast<unsigned>(hops);
    if (outcome.answer == Answer::other) return std::nullopt;
    silent = outcome.answer == Answer::silent ? silent + 1 : 0;
  }
  return std::nullopt;
}

/// Sends packets as large as they may be, smaller ones when somebody on the way says so.
void find_mtu(const sockaddr_storage& address, PathFindings& found) {
  constexpr int most_tries = 8;
  for (int i = 0; i < most_tries; ++i) {
    Outcome outcome = send_with_patience(address, found.mtu, 0);
    if (outcome.answer == Answer::silent && found.answers)
      outcome = send_once_more(address, found.mtu);
    if (outcome.answer == Answer::too_large && outcome.mtu > small_packet &&
        outcome.mtu < found.mtu) {
      found.mtu = outcome.mtu;
      continue;
    }
    found.proven = outcome.answer == Answer::reached;
    found.black_hole = outcome.answer == Answer::silent && found.answers &&
                       send_once_more(address, small_packet).answer == Answer::reached;
    return;
  }
}

}  // namespace

PathFindings probe_path(const sockaddr_storage& address) {
  PathFindings found;
  const Probe first(address, ports[0], 0);
  found.interface = first.interface();
  found.link_mtu = std::min(first.mtu_of(found.interface), family_of(address).most);
  found.mtu = found.link_mtu;
  if (found.mtu <= small_packet) return found;
  found.answers = send_with_patience(address, small_packet, 0).answer == Answer::reached;
  if (found.answers) found.hops = count_hops(address);
  find_mtu(address, found);
  return found;
}

}  // namespace hyperframes::tools::doctor
