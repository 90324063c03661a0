// A network address as the drivers take it: IPv4 or IPv6, and a port.
//
//   std::optional<hf::Address> address = hf::Address::parse("127.0.0.1", 6000);
//   if (!address) return;                 // only numbers are read here; names: hf::resolve
//   address->to_string();                 // "127.0.0.1:6000"
//
// A plain value, for any thread. The scope of a link-local IPv6 address (fe80::1%eth0) has no place
// in it.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hyperframes {

class Address {
 public:
  /// 0.0.0.0, port 0.
  Address() noexcept = default;
  /// `host`: "10.0.0.7" or "::1", without brackets. Nothing if it is anything else.
  [[nodiscard]] static std::optional<Address> parse(std::string_view host, std::uint16_t port);
  /// `bytes` in the order in which they are written and sent; `port` as a plain number.
  static Address v4(std::array<std::uint8_t, 4> bytes, std::uint16_t port) noexcept;
  static Address v6(std::array<std::uint8_t, 16> bytes, std::uint16_t port) noexcept;

  bool is_v6() const noexcept { return v6_; }
  /// 127.0.0.0/8 or ::1.
  bool is_loopback() const noexcept;
  /// 0.0.0.0 or ::, which stand for all addresses of the host that listens there.
  bool is_unspecified() const noexcept;
  std::uint16_t port() const noexcept { return port_; }
  void set_port(std::uint16_t port) noexcept { port_ = port; }
  /// Network order; the first four bytes for IPv4.
  const std::array<std::uint8_t, 16>& bytes() const noexcept { return bytes_; }
  /// Without brackets and port.
  std::string host() const;
  /// With the port; IPv6 in brackets.
  std::string to_string() const;
  auto operator<=>(const Address&) const noexcept = default;

 private:
  std::array<std::uint8_t, 16> bytes_{};
  std::uint16_t port_ = 0;
  bool v6_ = false;
};

}  // namespace hyperframes
