// Another host, or a program on it, as it is seen from here.
//
//   const Peer peer = parse_peer("node7:6000");             // the port may be left out
//   const PeerFindings found = measure_peer(peer);          // seconds at most
//   append(checks, check_peer(peer, found));                // reads `found` and no more
//
// Connections are opened and closed again; nothing is sent over them.
#pragma once

#include <cstdint>
#include <hyperframes/apps/tools/doctor/check.hpp>
#include <hyperframes/apps/tools/doctor/path.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools::doctor {

struct Peer {
  std::string host = {};
  std::optional<std::uint16_t> port = {};

  std::string text() const;
};

/// Throws invalid_argument for what is neither HOST nor HOST:PORT.
Peer parse_peer(const std::string& text);

struct PeerFindings {
  std::vector<std::string> addresses = {};  ///< The one that was measured comes first.
  std::string unknown_name = {};            ///< Why there are none.
  std::string own_address = {};             ///< From which packets go there.
  std::vector<double> connect_ms = {};      ///< One for each connection that was accepted.
  int connect_error = 0;                    ///< Of the first address, if none accepts.
  std::string refusals = {};                ///< Each address and its reason, if none accepts.
  PathFindings path = {};
};

PeerFindings measure_peer(const Peer& peer);
Checks check_peer(const Peer& peer, const PeerFindings& found);

}  // namespace hyperframes::tools::doctor
