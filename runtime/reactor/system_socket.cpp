#include <hyperframes/runtime/reactor/system_socket.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <hyperframes/runtime/error.hpp>
#include <string>

namespace hyperframes::detail {

socklen_t to_system(const Address& address, sockaddr_storage& storage) noexcept {
  std::memset(&storage, 0, sizeof storage);
  if (address.is_v6()) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port());
    std::memcpy(&v6.sin6_addr, address.bytes().data(), 16);
    return sizeof v6;
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port());
  std::memcpy(&v4.sin_addr, address.bytes().data(), 4);
  return sizeof v4;
}

Address from_system(const sockaddr_storage& storage) noexcept {
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    std::array<std::uint8_t, 16> bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, 16);
    return Address::v6(bytes, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
  std::array<std::uint8_t, 4> bytes;
  std::memcpy(bytes.data(), &v4.sin_addr, 4);
  return Address::v4(bytes, ntohs(v4.sin_port));
}

int listen_on(const Address& address, int backlog, int flags) {
  const std::string tried = "listen on " + address.to_string();
  const int family = address.is_v6() ? AF_INET6 : AF_INET;
  const int descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (descriptor < 0) throw Error::system(errno, tried);
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.is_v6()) ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  sockaddr_storage storage;
  const socklen_t length = to_system(address, storage);
  if (::bind(descriptor, reinterpret_cast<sockaddr*>(&storage), length) < 0 ||
      ::listen(descriptor, backlog) < 0) {
    const int failure = errno;
    ::close(descriptor);
    throw Error::system(
        failure, tried, {},
        failure == EADDRINUSE      ? "another process listens there; stop it or choose another port"
        : failure == EADDRNOTAVAIL ? "use an address of this host"
        : failure == EACCES        ? "choose a port above 1023: lower ones need a privilege"
                                   : "");
  }
  return descriptor;
}

Address local_address_of(int descriptor) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&storage), &length) < 0)
    throw Error::system(errno, "read the address of a socket");
  return from_system(storage);
}

void tune(int descriptor, std::size_t unsent_backlog_bytes) noexcept {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (unsent_backlog_bytes) {
    const int bytes = static_cast<int>(unsent_backlog_bytes);
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
  }
}

void reset_on_close(int descriptor) noexcept {
  const linger at_once{1, 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace hyperframes::detail
