// What the tests of networks run over, each in turn.
//
//   TEST_CASE("...") {
//     const Over over(GENERATE(transports()));
//     const auto endpoint = node.listen();
#pragma once

#include <catch2/generators/catch_generators.hpp>
#include <hyperframes/net/endpoint.hpp>

#include "support.hpp"

namespace net_test {

inline auto transports() {
  return Catch::Generators::values({hf::net::Scheme::tcp, hf::net::Scheme::shm});
}

}  // namespace net_test
