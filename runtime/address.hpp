// A network address as the drivers take it: IPv4 or IPv6, and a port.
//
//   auto address = hf::Address::parse("127.0.0.1", 6000);   // numbers only; names: hf::resolve
//   address.to_string();                                     // "127.0.0.1:6000"
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
  Address() noexcept = default;
  static std::optional<Address> parse(std::string_view host, std::uint16_t port);
  static Address v4(std::array<std::uint8_t, 4> bytes, std::uint16_t port) noexcept;
  static Address v6(std::array<std::uint8_t, 16> bytes, std::uint16_t port) noexcept;

  bool is_v6() const noexcept { return v6_; }
  bool is_loopback() const noexcept;
  bool is_unspecified() const noexcept;
  std::uint16_t port() const noexcept { return port_; }
  void set_port(std::uint16_t port) noexcept { port_ = port; }
  /// Network order; the first four bytes for IPv4.
  const std::array<std::uint8_t, 16>& bytes() const noexcept { return bytes_; }
  std::string host() const;
  std::string to_string() const;
  auto operator<=>(const Address&) const noexcept = default;

 private:
  std::array<std::uint8_t, 16> bytes_{};
  std::uint16_t port_ = 0;
  bool v6_ = false;
};

}  // namespace hyperframes
