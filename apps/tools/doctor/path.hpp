// The way of packets to an address: hops, and the largest packet that gets through. By UDP to ports
// that nobody listens on, whose peers and routers answer by ICMP; no privilege is needed.
//
//   PathFindings found = probe_path(address);
//   found.hops;                              // 1: no router between; empty: nothing answers
//   found.mtu, found.proven;                 // 1500, true
//
// Takes some seconds at most. Nothing throws: what does not work is not known.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

namespace hyperframes::tools::doctor {

struct PathFindings {
  std::optional<unsigned> hops = {};
  bool answers = false;        ///< The peer answers small packets.
  std::string interface = {};  ///< Through which packets leave this host; empty: unknown.
  unsigned link_mtu = 0;       ///< Of that interface; 0: unknown.
  unsigned mtu = 0;            ///< The smallest that anybody on the way asked for.
  bool proven = false;         ///< A packet of `mtu` bytes was answered by the peer.
  bool black_hole = false;     ///< Small ones are answered, those of `mtu` bytes are not.
};

PathFindings probe_path(const sockaddr_storage& address);

}  // namespace hyperframes::tools::doctor
