// How the bytes of a cluster's processes travel, as their command lines say it.
//
//   TransportOptions transport{.rdma = true};
//   node.listen(transport.endpoint("10.0.0.7:6000"));       // rdma:// or tcp://
//
// The same options in every program. Where a host or its peer has no RDMA device TCP is used, and
// the log says so.
#pragma once

#include <cstdint>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/net/network.hpp>
#include <string>

namespace hyperframes::ps {

struct TransportOptions {
  bool rdma = false;
  net::RdmaOptions options{};

  /// That HOST:PORT, by what was chosen. Throws as Endpoint::parse does.
  net::Endpoint endpoint(const std::string& address) const;
  void apply(net::Network::Options& network) const;
};

/// A line about the size of the pool, from the largest batch that was moved, in bytes: what would
/// have been enough, and what was given. Empty without RDMA, or if nothing was moved.
std::string pool_advice(const TransportOptions& transport, std::uint64_t largest_batch_bytes);

}  // namespace hyperframes::ps
