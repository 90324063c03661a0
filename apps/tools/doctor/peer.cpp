#include <hyperframes/apps/tools/doctor/peer.hpp>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace hyperframes::tools::doctor {
namespace {

using Steady = std::chrono::steady_clock;
using Infos = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

constexpr int connections = 5;
constexpr auto patience = std::chrono::milliseconds(2000);

struct Target {
  sockaddr_storage address = {};
  socklen_t size = 0;
  std::string text = {};
};

std::string text_of(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return host;
}

std::vector<Target> look_up(const Peer& peer, std::string& failure) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const std::string port = std::to_string(peer.port.value_or(0));
  const int answer = ::getaddrinfo(peer.host.c_str(), port.c_str(), &wanted, &first);
  const Infos infos(first, ::freeaddrinfo);
  if (answer != 0) failure = answer == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(answer);
  std::vector<Target> targets;
  for (const addrinfo* info = infos.get(); info && answer == 0; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    Target target{.size = info->ai_addrlen, .text = text_of(info->ai_addr, info->ai_addrlen)};
    std::memcpy(&target.address, info->ai_addr, info->ai_addrlen);
    targets.push_back(std::move(target));
  }
  return targets;
}

/// 0, or why it is not accepted.
int wait_for_connection(int file) {
  pollfd waited{file, POLLOUT, 0};
  const auto limit = Steady::now() + patience;
  int ready = 0;
  for (auto left = patience; ready <= 0 && left.count() > 0;
       left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Steady::now()))
    ready = ::poll(&waited, 1, static_cast<int>(left.count()));
  if (ready <= 0) return ETIMEDOUT;
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(file, SOL_SOCKET, SO_ERROR, &failure, &size);
  return failure;
}

/// The errno; 0 if it was accepted, after `ms`.
int connect_once(const Target& target, double& ms) {
  const int file =
      ::socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return errno;
  const auto begin = Steady::now();
  int failure = 0;
  if (::connect(file, reinterpret_cast<const sockaddr*>(&target.address), target.size) != 0)
    failure = errno == EINPROGRESS ? wait_for_connection(file) : errno;
  ms = std::chrono::duration<double, std::milli>(Steady::now() - begin).count();
  ::close(file);
  return failure;
}

/// The targets in turn; the first that accepts is moved to the front, and measured.
void measure_connections(std::vector<Target>& targets, PeerFindings& found) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    double ms = 0;
    if (const int failure = connect_once(targets[i], ms)) {
      if (found.connect_error == 0) found.connect_error = failure;
      found.refusals += fmt::format("{}{}: {}", found.refusals.empty() ? "" : "; ", targets[i].text,
                                    std::generic_category().message(failure));
      continue;
    }
    std::swap(targets[0], targets[i]);
    do found.connect_ms.push_back(ms);
    while (found.connect_ms.size() < connections && connect_once(targets[0], ms) == 0);
    found.connect_error = 0;
    found.refusals.clear();
    return;
  }
}

std::string own_address(const Target& target) {
  const int file = ::socket(target.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{}, there = target.address;
  reinterpret_cast<sockaddr_in*>(&there)->sin_port = htons(9);  // nothing is sent
  socklen_t size = sizeof own;
  std::string text;
  if (file >= 0 && ::connect(file, reinterpret_cast<sockaddr*>(&there), target.size) == 0 &&
      ::getsockname(file, reinterpret_cast<sockaddr*>(&own), &size) == 0)
    text = text_of(reinterpret_cast<sockaddr*>(&own), size);
  if (file >= 0) ::close(file);
  return text;
}

}  // namespace

std::string Peer::text() const {
  const bool brackets = host.find(':') != host.npos && port;
  const std::string name = brackets ? "[" + host + "]" : host;
  return port ? fmt::format("{}:{}", name, *port) : name;
}

Peer parse_peer(const std::string& text) {
  constexpr std::string_view scheme = "tcp://";
  const std::string bare = text.starts_with(scheme) ? text.substr(scheme.size()) : text;
  const auto bracket = bare.rfind(']');
  const auto colon = bare.rfind(':');
  const bool number = bracket == bare.npos && bare.find(':') != colon;  // ::1 without brackets
  auto endpoint =
      net::Endpoint::try_parse(std::string(scheme) + (number ? "[" + bare + "]" : bare));
  if (!endpoint || endpoint.value().host.empty() || bare.find("://") != bare.npos)
    throw Error(Errc::invalid_argument, "examine the peer '" + text + "'",
                endpoint ? "it is neither HOST nor HOST:PORT" : endpoint.error().found(),
                "give a name or a number, such as node7, node7:6000 or [fd00::7]:6000");
  Peer peer{.host = endpoint.value().host};
  const bool has_port = !number && colon != bare.npos && (bracket == bare.npos || colon > bracket);
  if (has_port) peer.port = endpoint.value().port;
  if (peer.port == 0)
    throw Error(Errc::invalid_argument, "examine the peer '" + text + "'", "nobody has port 0",
                "give the port that it listens on, or none");
  return peer;
}

PeerFindings measure_peer(const Peer& peer) {
  PeerFindings found;
  auto targets = look_up(peer, found.unknown_name);
  if (targets.empty()) {
    if (found.unknown_name.empty()) found.unknown_name = "it has no IP address";
    return found;
  }
  if (peer.port) measure_connections(targets, found);
  for (const Target& target : targets) found.addresses.push_back(target.text);
  found.own_address = own_address(targets[0]);
  found.path = probe_path(targets[0].address);
  return found;
}

}  // namespace hyperframes::tools::doctor
