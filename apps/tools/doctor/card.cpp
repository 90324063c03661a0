#include <hyperframes/apps/tools/doctor/card.hpp>

#include <linux/dcbnl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace hyperframes::tools::doctor {
namespace {

/// Asks the driver to fill in `question`.
template <class Question>
bool ask_driver(const std::string& interface, Question& question) {
  ifreq request{};
  if (interface.size() >= sizeof request.ifr_name) return false;
  std::memcpy(request.ifr_name, interface.data(), interface.size());
  request.ifr_data = reinterpret_cast<char*>(&question);
  const int file = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (file < 0) return false;
  const bool answered = ::ioctl(file, SIOCETHTOOL, &request) == 0;
  ::close(file);
  return answered;
}

/// The content of the attribute of that type, among those that `attributes` begins with.
std::optional<std::span<const std::byte>> find_attribute(std::span<const std::byte> attributes,
                                                         unsigned type) {
  while (attributes.size() >= sizeof(nlattr)) {
    nlattr head;
    std::memcpy(&head, attributes.data(), sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > attributes.size()) return std::nullopt;
    if ((head.nla_type & NLA_TYPE_MASK) == type)
      return attributes.subspan(sizeof head, head.nla_len - sizeof head);
    attributes =
        attributes.subspan(std::min<std::size_t>(NLA_ALIGN(head.nla_len), attributes.size()));
  }
  return std::nullopt;
}

std::vector<std::byte> exchange(std::span<const std::byte> question) {
  std::vector<std::byte> answer(16 << 10);
  const int file = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (file < 0) return {};
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ssize_t got = -1;
  if (::send(file, question.data(), question.size(), 0) >= 0)
    got = ::recv(file, answer.data(), answer.size(), 0);
  ::close(file);
  answer.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return answer;
}

}  // namespace

std::optional<Rings> rings_of(const std::string& interface) {
  ethtool_ringparam rings{};
  rings.cmd = ETHTOOL_GRINGPARAM;
  if (!ask_driver(interface, rings)) return std::nullopt;
  return Rings{rings.rx_pending, rings.rx_max_pending, rings.tx_pending, rings.tx_max_pending};
}

// A driver has pairs of queues, or apart those that receive and those that send.
std::optional<Queues> queues_of(const std::string& interface) {
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  if (!ask_driver(interface, channels)) return std::nullopt;
  const Queues queues{channels.combined_count + channels.rx_count,
                      std::max(channels.max_combined, channels.max_rx)};
  if (queues.now == 0) return std::nullopt;
  return queues;
}

std::optional<Pause> pause_of(const std::string& interface) {
  ethtool_pauseparam pause{};
  pause.cmd = ETHTOOL_GPAUSEPARAM;
  if (!ask_driver(interface, pause)) return std::nullopt;
  return Pause{pause.rx_pause != 0, pause.tx_pause != 0};
}

std::vector<std::byte> ask_for_priorities(const std::string& interface) {
  constexpr std::size_t heads = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(dcbmsg));
  const std::size_t name_size = interface.size() + 1;
  std::vector<std::byte> question(heads + NLA_ALIGN(NLA_HDRLEN + name_size));
  nlmsghdr head{};
  head.nlmsg_len = static_cast<std::uint32_t>(question.size());
  head.nlmsg_type = RTM_GETDCB;
  head.nlmsg_flags = NLM_F_REQUEST;
  const dcbmsg what{.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET, .dcb_pad = 0};
  const nlattr name{.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + name_size),
                    .nla_type = DCB_ATTR_IFNAME};
  std::memcpy(question.data(), &head, sizeof head);
  std::memcpy(question.data() + NLMSG_HDRLEN, &what, sizeof what);
  std::memcpy(question.data() + heads, &name, sizeof name);
  std::memcpy(question.data() + heads + NLA_HDRLEN, interface.data(), interface.size());
  return question;
}

std::optional<std::vector<unsigned>> read_priorities(std::span<const std::byte> answer) {
  constexpr std::size_t heads = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(dcbmsg));
  nlmsghdr head{};
  if (answer.size() < heads) return std::nullopt;
  std::memcpy(&head, answer.data(), sizeof head);
  if (head.nlmsg_type != RTM_GETDCB || head.nlmsg_len < heads || head.nlmsg_len > answer.size())
    return std::nullopt;
  const auto ieee = find_attribute(answer.subspan(heads, head.nlmsg_len - heads), DCB_ATTR_IEEE);
  const auto found = ieee ? find_attribute(*ieee, DCB_ATTR_IEEE_PFC) : std::nullopt;
  ieee_pfc pfc{};
  if (!found || found->size() < offsetof(ieee_pfc, pfc_en) + sizeof pfc.pfc_en) return std::nullopt;
  std::memcpy(&pfc, found->data(), std::min(found->size(), sizeof pfc));
  std::vector<unsigned> priorities;
  for (unsigned priority = 0; priority < 8; ++priority)
    if ((pfc.pfc_en >> priority & 1) != 0) priorities.push_back(priority);
  return priorities;
}

std::optional<std::vector<unsigned>> priorities_of(const std::string& interface) {
  if (interface.size() >= IFNAMSIZ) return std::nullopt;
  return read_priorities(exchange(ask_for_priorities(interface)));
}

}  // namespace hyperframes::tools::doctor
