// Links through TLS 1.3, over what another transport carries.
//
//   hf::net::Encryption encryption{.certificate_file = "a.crt", .certificate_key_file = "a.key",
//                                  .authority_file = "ca.crt"};
//   auto provider = hf::net::make_tls_provider(hf::net::make_tcp_provider(), encryption, {});
//
// A Network does that itself, by its options. What the owner sends is encrypted once, record by
// record, into pooled buffers; what arrives is decrypted into where the owner wants it. Before the
// first byte both ends have shown who they are; whoever has not is told why, and so is the log. A
// connection that ends without TLS's own word for it was cut, and is an error (Errc::peer_lost),
// never an end in order; bytes that were changed on their way are one too (Errc::corrupt), and none
// of them is delivered.
#pragma once

#include <hyperframes/net/encryption.hpp>
#include <hyperframes/net/key.hpp>
#include <hyperframes/net/transport.hpp>
#include <memory>
#include <optional>

namespace hyperframes::net {

/// With the certificates, or else with the key. Reads the files, and blocks for it: for start-up.
/// Throws the system's error, or Errc::invalid_argument with what is wrong with options or files.
/// What it makes belongs to the shard on which it was made. Not in the simulator
/// (Errc::unsupported), whose runs a seed alone decides.
std::unique_ptr<TransportProvider> make_tls_provider(std::unique_ptr<TransportProvider> below,
                                                     const Encryption& encryption,
                                                     const std::optional<Key>& key);

}  // namespace hyperframes::net
