// What the tests of networks run over, each in turn.
//
//   TEST_CASE("...") {
//     const Over over(GENERATE(transports()));
//     const auto endpoint = node.listen();
#pragma once

#include <catch2/generators/catch_generators.hpp>

#include "support.hpp"

namespace net_test {

inline auto transports() {
  return Catch::Generators::values({Way::tcp, Way::shm, Way::tls_key, Way::tls_certificates});
}
/// One of each kind, for what takes heartbeats of real time and comes after the handshake.
inline auto kinds_of_transports() {
  return Catch::Generators::values({Way::tcp, Way::shm, Way::tls_certificates});
}
/// Those over which nodes show nothing unless a test says so.
inline auto bare_transports() { return Catch::Generators::values({Way::tcp, Way::shm}); }
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
