// Standalone asio, as a peer.
#pragma once

#include <string>
#include <vector>

namespace hyperframes::bench::asio_peer {

std::string version();
/// One io_context that answers each 64-byte message on `sockets` with itself, until all have ended.
void serve_echo(const std::vector<int>& sockets);

}  // namespace hyperframes::bench::asio_peer
