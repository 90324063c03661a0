// The C++ Actor Framework, as a peer. Each function runs one round.
#pragma once

#include <string>

namespace hyperframes::bench::caf_peer {

std::string version();
/// Nanoseconds a message: `size` bytes of payload (8: an integer; more: a string), from one
/// event-based actor to another, with `threads` workers.
double one_way_ns(unsigned threads, unsigned size);
/// Nanoseconds from a request to its response.
double round_trip_ns(unsigned threads, unsigned size);
/// Nanoseconds to spawn an actor that ends at once, and to learn of its end.
double spawn_join_ns(unsigned threads);
/// Resident bytes of an idle actor, over `count` of them.
double idle_actor_bytes(unsigned count);

}  // namespace hyperframes::bench::caf_peer
