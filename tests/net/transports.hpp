// What the tests of networks run over, each in turn.
//
//   TEST_CASE("...") {
//     const Over over(GENERATE(transports()));
//     const auto endpoint = node.listen();
#pragma once

#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_adapters.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstdlib>
#include <vector>

#include "support.hpp"

namespace net_test {

/// These, or only the one that the environment names: where a host is there for one of them.
inline auto ways(std::vector<Way> usual) {
  const char* const only = std::getenv("HYPERFRAMES_TEST_ONLY_WAY");
  if (only) usual = {static_cast<Way>(std::atoi(only))};
  return Catch::Generators::from_range(std::move(usual));
}

inline auto transports() { return ways({Way::tcp, Way::shm, Way::tls_key, Way::tls_certificates}); }
/// With that of a device which is not there: for what one process has both ends of.
inline auto movers() {
  return ways({Way::tcp, Way::shm, Way::tls_key, Way::tls_certificates, Way::rdma});
}
/// One of each kind, for what takes heartbeats of real time and comes after the handshake.
inline auto kinds_of_transports() { return ways({Way::tcp, Way::shm, Way::tls_certificates}); }
/// Those over which nodes show nothing unless a test says so.
inline auto bare_transports() { return ways({Way::tcp, Way::shm}); }
/// Those that a proxy can stand between.
inline auto over_tcp() {
  return Catch::Generators::values({Way::tcp, Way::tls_key, Way::tls_certificates});
}
/// With the scheme that chooses from them, for what is about meeting.
inline auto schemes() {
  return Catch::Generators::values(
      {Way::tcp, Way::shm, Way::tls_key, Way::tls_certificates, Way::automatic});
}

}  // namespace net_test
