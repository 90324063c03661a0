// What the hardware allows, as far as more than one file compares with it.
#pragma once

#include <cstddef>
#include <vector>

namespace hyperframes::bench {

/// Nanoseconds for one cache line to go from a thread on the first core to one on the second and
/// back.
double bare_cache_line_round_trip();
/// Messages of 64 bytes a second through a ring of cache lines, from a thread on the first core to
/// one on the second, which adds them up.
double bare_ring_messages_per_second(int count);
/// One thread's copies of a block to another that is not its own, again and again.
double memcpy_bytes_per_second(std::size_t block_bytes, int count);
/// One thread's AES-128-GCM over blocks, with a nonce and a tag each, as `openssl speed -evp
/// aes-128-gcm` does.
double aes_gcm_bytes_per_second(std::size_t block_bytes, int count);

inline constexpr std::size_t raw_message_bytes = 64;
/// A connected pair of loopback TCP sockets without Nagle's delay: returns one end, sets the other.
int connected_pair(int& accepted);
/// Microseconds for a message there and back, between two threads with an io_uring each that does
/// nothing else; they poll, or sleep in the kernel.
double raw_round_trip_us(bool poll, int count);
/// The same with both ends on one ring, polling.
double raw_round_trip_one_ring_us(int count);

/// Of the calling thread.
double thread_cpu_seconds();
/// An io_uring loop that answers each 64-byte message on `sockets` with itself, until all have
/// ended.
void serve_echo_raw(const std::vector<int>& sockets);
/// Microseconds of processor time that `serve` (as serve_echo_raw), in a thread of its own, takes a
/// message, while another thread keeps one message in flight on each of `connections`.
double echo_server_cpu_us(int connections, int count,
                          void (*serve)(const std::vector<int>& sockets));
/// Bytes a second through a pair of sockets, between two threads that call send and recv.
double raw_blocks_bytes_per_second(std::size_t block_bytes, int count);

}  // namespace hyperframes::bench
