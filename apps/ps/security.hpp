// By what the processes of a cluster see who they talk to, as their command lines say it.
//
//   SecurityOptions security;
//   add_security_options(app, security);                   // --key_file, --certificate, ...
//   net::Network::Options network = security.network();    // reads the key file
//
// The same options in every program, so that a cluster's processes are given the same words.
#pragma once

#include <hyperframes/net/encryption.hpp>
#include <hyperframes/net/network.hpp>
#include <string>

namespace CLI {
class App;
}

namespace hyperframes::ps {

struct SecurityOptions {
  std::string key_file{};
  net::Encryption encryption{};
  bool insecure = false;

  /// Everything else of it is as by default. Throws what Key::from_file does; blocks.
  net::Network::Options network() const;
};

void add_security_options(CLI::App& app, SecurityOptions& options);

}  // namespace hyperframes::ps
