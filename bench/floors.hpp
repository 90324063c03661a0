// What the hardware allows, as far as more than one file compares with it.
#pragma once

#include <cstddef>

namespace hyperframes::bench {

/// Nanoseconds for one cache line to go from a thread on the first core to one on the second and
/// back.
double bare_cache_line_round_trip();

inline constexpr std::size_t raw_message_bytes = 64;
/// A connected pair of loopback TCP sockets without Nagle's delay: returns one end, sets the other.
int connected_pair(int& accepted);
/// Microseconds for a message there and back, between two threads with an io_uring each that does
/// nothing else; they poll, or sleep in the kernel.
double raw_round_trip_us(bool poll, int count);
/// The same with both ends on one ring, polling.
double raw_round_trip_one_ring_us(int count);

}  // namespace hyperframes::bench
