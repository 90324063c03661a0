// ZeroMQ between two processes, as a peer.
//
//   auto messenger = zmq_peer::make("tcp");
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../messenger.hpp"

namespace hyperframes::bench::zmq_peer {

std::string version();
/// DEALER to DEALER over "tcp" or "ipc". Messages from 1 KiB on are sent without a copy of the
/// library's.
std::unique_ptr<Messenger> make(const std::string& transport);
/// Messages of `size` bytes a second, PUSH to PULL over TCP, between two threads of this process.
double messages_per_second(unsigned size, int count);
void serve(Starter& starter, const std::vector<std::string>& arguments);

}  // namespace hyperframes::bench::zmq_peer
