// UCX between two processes, as a peer.
//
//   auto messenger = ucx_peer::make("shm");
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../messenger.hpp"

namespace hyperframes::bench::ucx_peer {

std::string version();
/// Tagged messages of its protocol layer over "tcp" or "shm" (its name for all ways between the
/// processes of one host); both ends poll.
std::unique_ptr<Messenger> make(const std::string& transport);
void serve(Starter& starter, const std::vector<std::string>& arguments);

}  // namespace hyperframes::bench::ucx_peer
