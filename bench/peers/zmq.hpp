// ZeroMQ over loopback TCP, as a peer. Each function runs one round.
#pragma once

#include <string>

namespace hyperframes::bench::zmq_peer {

std::string version();
/// Messages of `size` bytes a second, PUSH to PULL, between two threads of this process.
double messages_per_second(unsigned size, int count);
/// Microseconds for a message of `size` bytes there and back, REQ to REP.
double round_trip_us(unsigned size, int count);

}  // namespace hyperframes::bench::zmq_peer
