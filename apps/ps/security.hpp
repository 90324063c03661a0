// By what the processes of a cluster see who they talk to.
//
//   ps::SecurityOptions security{.key_file = "cluster.key"};
//   net::Network::Options network = security.network();    // reads the key file
//
// Programs fill it from their command lines: the same options in each, so that a cluster's
// processes are given the same words (apps/ps/command_line.hpp).
#pragma once

#include <hyperframes/net/encryption.hpp>
#include <hyperframes/net/network.hpp>
#include <string>

namespace hyperframes::ps {

struct SecurityOptions {
  std::string key_file{};
  net::Encryption encryption{};
  bool insecure = false;

  /// Everything else of it is as by default. Throws what Key::from_file does; blocks.
  net::Network::Options network() const;
};

}  // namespace hyperframes::ps
