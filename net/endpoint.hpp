// Where a node can be reached, as a URI.
//
//   auto endpoint = hf::net::Endpoint::parse("tcp://[::1]:6000");
//   endpoint.host;                                          // "::1"
//   endpoint.to_string();                                   // "tcp://[::1]:6000"
//
// `tcp://host[:port]` is TCP; `rdma://host[:port]` meets over TCP and uses queue pairs of RDMA
// devices if both have some, else TCP; `auto://host[:port]` tries memory that both share before
// that; `shm://name` names a host-local meeting point (a name of at most 64 letters, digits, '-',
// '_' and '.'). Reading one says nothing about what this host can do.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/error.hpp>
#include <string>
#include <string_view>

namespace hyperframes::net {

enum class Scheme : std::uint8_t { tcp, shm, rdma, automatic };
/// As it stands before "://"; "auto" for `automatic`.
std::string_view name(Scheme scheme) noexcept;

struct Endpoint {
  static constexpr std::uint16_t default_port = 6000;

  Scheme scheme = Scheme::tcp;
  std::string host;                   ///< A name or a number, without brackets; for shm the name.
  std::uint16_t port = default_port;  ///< 0 lets a listener pick one. Unused by shm.
  /// Of an address: the host that it was looked up for, which a certificate has to be for. Not a
  /// part of the URI.
  std::string looked_up_as = {};

  /// Throws Errc::invalid_argument that says which part is wrong. Without a scheme it is `tcp://`.
  [[nodiscard]] static Endpoint parse(std::string_view uri);
  /// The same, with the error for a result.
  static Result<Endpoint> try_parse(std::string_view uri);
  /// With scheme and port, so that `parse` reads it again.
  std::string to_string() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace hyperframes::net
