// How a node encrypts what it says over TCP, and by what its peers see who it is.
//
//   hf::net::Network::Options options;
//   options.encryption.certificate_file = "node-a.crt";        // hyperframes cert makes all three
//   options.encryption.certificate_key_file = "node-a.key";
//   options.encryption.authority_file = "ca.crt";
//
// With certificates, or with a Key (Network::Options::key), TCP connections are TLS 1.3, and both
// ends have shown who they are before anything is said: by a certificate of that authority, or by
// having the key. With neither, bytes travel as they are, which only loopback is served without
// being asked. Shared memory is not encrypted: no byte of it leaves the host.
// docs/design/encryption.md has the reasons. A plain value; the files are read once, when the
// Network is made.
#pragma once

#include <string>

namespace hyperframes::net {

struct Encryption {
  /// PEM: this node's certificate, then those between it and the authority. It must be good for
  /// both ends of a connection (serverAuth and clientAuth).
  std::string certificate_file = {};
  /// PEM: the private key that belongs to it, without a passphrase.
  std::string certificate_key_file = {};
  /// PEM: the authorities; whoever has a certificate of one of them may come in.
  std::string authority_file = {};
  /// The name that a peer's certificate must have when this node connects. Empty: the host of the
  /// endpoint, a name or a number. For nodes that move from host to host.
  std::string peer_name = {};
  /// Without certificates: prove to have the key, and send the rest as it is.
  bool plaintext = false;

  bool has_certificates() const noexcept { return !certificate_file.empty(); }
  friend bool operator==(const Encryption&, const Encryption&) = default;
};

}  // namespace hyperframes::net
