// Makes certificates: an authority of one's own, and nodes' certificates by it.
//
//   const hf::net::Issued authority = hf::net::make_authority({.name = "my cluster"});
//   const hf::net::Issued node = hf::net::issue(authority, {.name = "a", .hosts = {"10.0.0.7"}});
//   write(node.certificate, node.key, authority.certificate);      // what Encryption wants as files
//
// For tests, and for systems small enough to have no authority of their own; it is what
// `hyperframes cert` does. Keys are of the curve P-256. There is no list of revoked certificates:
// give them few days. On any thread; some tenths of a millisecond each.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hyperframes::net {

/// In PEM form. The key is a secret: keep it where only its owner can read it.
struct Issued {
  std::string certificate, key;
};

using CalendarTime = std::chrono::sys_seconds;

struct CertificateRequest {
  /// 1 to 64 letters, digits, spaces, '-', '_' and '.'.
  std::string name = {};
  /// Names and numbers by which others connect to the node; unused by an authority.
  std::vector<std::string> hosts = {};
  /// From a few minutes ago, since clocks differ.
  CalendarTime from = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()) -
                      std::chrono::minutes(5);
  std::chrono::seconds lifetime = std::chrono::days(30);
  bool may_accept = true, may_connect = true;  ///< The ends of a connection that it is good for.
};

/// Errc::invalid_argument for a name or a host that can't be in a certificate.
Issued make_authority(const CertificateRequest& request);
/// The same; also if `authority` is none, or ends before the certificate would.
Issued issue(const Issued& authority, const CertificateRequest& request);

/// "'CN=a' (for localhost, 127.0.0.1; from ... to ...)". Errc::invalid_argument if it is none.
std::string describe_certificate(const std::string& certificate);

}  // namespace hyperframes::net
