#include <hyperframes/apps/ps/security.hpp>

#include <CLI/CLI.hpp>
#include <hyperframes/net/key.hpp>

namespace hyperframes::ps {

net::Network::Options SecurityOptions::network() const {
  net::Network::Options network;
  network.insecure = insecure;
  network.encryption = encryption;
  if (!key_file.empty()) network.key = net::Key::from_file(key_file);
  return network;
}

void add_security_options(CLI::App& app, SecurityOptions& options) {
  net::Encryption& encryption = options.encryption;
  app.add_option("--key_file", options.key_file,
                 "Secret that all processes share: they show each other that they have it, and "
                 "encrypt. Any address but loopback needs this or certificates");
  app.add_option("--certificate", encryption.certificate_file,
                 "This process's certificate (PEM; 'hyperframes cert' makes it)");
  app.add_option("--certificate_key", encryption.certificate_key_file,
                 "The private key of --certificate");
  app.add_option("--authority", encryption.authority_file,
                 "Certificate of the authority whose processes are let in");
  app.add_option("--peer_name", encryption.peer_name,
                 "Name that the certificates of those have that this process connects to "
                 "(default: the host that it calls)");
  app.add_flag("--plaintext", encryption.plaintext, "With --key_file: do not encrypt");
  app.add_flag("--insecure", options.insecure,
               "Listen on any address without a key or certificates");
}

}  // namespace hyperframes::ps
