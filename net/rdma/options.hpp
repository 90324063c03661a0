// How a node uses RDMA: which device, how much memory, how patient.
//
//   hf::net::Network::Options options;
//   options.rdma = {.device = "mlx5_0:1", .pool_bytes = 1u << 30};
//   log::info(to_string(hf::net::retry_time(options.rdma)));   // until a silent peer's link breaks
//
// A Network looks for a device when it is first asked for an rdma:// or auto:// endpoint. Where it
// finds none that works, it says why and goes on over TCP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/runtime/time.hpp>
#include <string>

namespace hyperframes::net {

namespace detail {
class VerbsLibrary;
}

struct RdmaOptions {
  bool enabled = true;
  /// As ibv_devices calls it, with ":PORT" behind it for another one than the first that is up; or
  /// an IP address, for the port that has it. Empty: the port with the address that is listened on,
  /// else the first device with a port that is up.
  std::string device = {};
  /// Index in the port's table of addresses (GIDs). -1: RoCE version 2 before version 1, and an
  /// IPv4 address before others.
  int address_index = -1;
  /// Memory that may be registered with the device: it is taken in large regions, as links need it,
  /// and is never swapped out. At least what one link takes.
  std::size_t pool_bytes = 256u << 20;
  /// How much of it a peer is let write into itself, once it has something of 16 KiB or more to
  /// send; below 4 GiB. Segments that fit in there arrive without being moved (see
  /// Network::Options::take_loans). Less where less is left of three quarters of the pool, which
  /// all links share for this; what finds no place is sent in pieces. 0: all is.
  std::size_t landing_bytes = 64u << 20;
  /// What travels at once, and how many of them each direction of a link has, which takes
  /// (pieces + 4) * piece_bytes at each end. From 1 KiB to 1 MiB; from 8 to 4,096.
  std::uint32_t piece_bytes = 16u << 10;
  std::uint32_t pieces = 64;
  /// Receives of `piece_bytes` that the links of a core shard have in common, at most, where the
  /// device can share them: each link adds its own until there are so many, so that memory does not
  /// grow with links that mostly wait. 0: each link has its own, and pays for both halves.
  std::uint32_t shared_pieces = 1024;
  /// The device sends again what was not acknowledged for 4.096 µs * 2^timeout (from 1 to 31), so
  /// often (from 0 to 7). Then the link is broken. See `retry_time`.
  unsigned timeout = 14, retries = 7;
  /// Also where what nodes say over TCP is encrypted. RDMA carries no encryption: what then travels
  /// through queue pairs can be read, and changed, by whoever has the network.
  bool beside_encryption = false;
  /// The calls of libibverbs. Null: the system's. Tests give others, which outlive the network.
  detail::VerbsLibrary* verbs = nullptr;
};

/// What `timeout` and `retries` amount to; devices may take up to four times as long.
Duration retry_time(const RdmaOptions& options) noexcept;

}  // namespace hyperframes::net
