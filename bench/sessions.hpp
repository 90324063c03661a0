// The project's own sessions, between two processes, with a core shard each.
//
//   auto messenger = make_sessions(Carrier::tcp, false);
//   double p99_us = make_sessions(Carrier::tls, false)->p99_of_pings_us(1u << 30);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messenger.hpp"

namespace hyperframes::bench {

/// What carries the bytes.
enum class Carrier : std::uint8_t { tcp, shm, tls };
const char* name(Carrier carrier);

class SessionMessenger : public Messenger {
 public:
  /// The 99th percentile of 64-byte round trips on the normal lane, one under way: while
  /// `bulk_bytes` move in 4 MiB messages on the bulk lane of the same session, or alone, for 0.
  virtual double p99_of_pings_us(std::uint64_t bulk_bytes) = 0;
  /// Of an ask with a segment of `size` bytes of lent memory, which is borrowed, sent, received,
  /// given back and answered; nobody writes or reads the bytes. Of a messenger that lends.
  virtual double lent_round_trip_us(std::size_t size, int count) = 0;
  /// Of messages with a segment of `size` bytes, which the sender copies from its own memory into
  /// memory that it lends, and nobody copies again. Of a messenger that lends.
  virtual double copied_once_gb_per_s(std::size_t size, int count) = 0;

 protected:
  using Messenger::Messenger;
};

/// `polling`: the shards never sleep. `loan_bytes`: what this end has to lend.
std::unique_ptr<SessionMessenger> make_sessions(Carrier carrier, bool polling,
                                                std::size_t loan_bytes = 0);
void serve_sessions(Starter& starter, const std::vector<std::string>& arguments);

}  // namespace hyperframes::bench
