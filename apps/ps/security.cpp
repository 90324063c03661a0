#include <hyperframes/apps/ps/security.hpp>

#include <hyperframes/net/key.hpp>

namespace hyperframes::ps {

net::Network::Options SecurityOptions::network() const {
  net::Network::Options network;
  network.insecure = insecure;
  network.encryption = encryption;
  if (!key_file.empty()) network.key = net::Key::from_file(key_file);
  return network;
}

}  // namespace hyperframes::ps
