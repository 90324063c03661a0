// nng between two processes, as a peer.
//
//   auto messenger = nng_peer::make("tcp");
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../messenger.hpp"

namespace hyperframes::bench::nng_peer {

std::string version();
/// Pair version 0 over "tcp", or "ipc" (an abstract Unix socket), with messages of the library's
/// own memory, one allocated for each.
std::unique_ptr<Messenger> make(const std::string& transport);
void serve(Starter& starter, const std::vector<std::string>& arguments);

}  // namespace hyperframes::bench::nng_peer
