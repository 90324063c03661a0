// Links over TCP.
//
//   auto provider = hf::net::make_tcp_provider();
//   auto addresses = co_await provider->resolve(endpoint);
//   auto transport = co_await provider->connect(addresses[0], hf::after(1s));
//
// Small things arrive through the driver's stream of chunks; once the link wants a large block, the
// stream is ended and the kernel fills that block directly. On every driver, the simulator too.
#pragma once

#include <hyperframes/net/transport.hpp>
#include <memory>

namespace hyperframes::net {

/// It keeps no state; what it makes belongs to the shard on which it was made.
std::unique_ptr<TransportProvider> make_tcp_provider();

}  // namespace hyperframes::net
