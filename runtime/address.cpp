#include <arpa/inet.h>

#include <algorithm>
#include <hyperframes/runtime/address.hpp>

namespace hyperframes {

Address Address::v4(std::array<std::uint8_t, 4> bytes, std::uint16_t port) noexcept {
  Address address;
  std::ranges::copy(bytes, address.bytes_.begin());
  address.port_ = port;
  return address;
}

Address Address::v6(std::array<std::uint8_t, 16> bytes, std::uint16_t port) noexcept {
  Address address;
  address.bytes_ = bytes;
  address.port_ = port;
  address.v6_ = true;
  return address;
}

std::optional<Address> Address::parse(std::string_view host, std::uint16_t port) {
  const std::string text(host);
  Address address;
  address.port_ = port;
  if (::inet_pton(AF_INET, text.c_str(), address.bytes_.data()) == 1) return address;
  address.v6_ = true;
  if (::inet_pton(AF_INET6, text.c_str(), address.bytes_.data()) == 1) return address;
  return std::nullopt;
}

bool Address::is_loopback() const noexcept {
  if (!v6_) return bytes_[0] == 127;
  return std::all_of(bytes_.begin(), bytes_.end() - 1, [](auto byte) { return byte == 0; }) &&
         bytes_.back() == 1;
}

bool Address::is_unspecified() const noexcept {
  return std::ranges::all_of(bytes_, [](auto byte) { return byte == 0; });
}

std::string Address::host() const {
  char text[INET6_ADDRSTRLEN];
  ::inet_ntop(v6_ ? AF_INET6 : AF_INET, bytes_.data(), text, sizeof text);
  return text;
}

std::string Address::to_string() const {
  const std::string name = v6_ ? "[" + host() + "]" : host();
  return name + ":" + std::to_string(port_);
}

}  // namespace hyperframes
