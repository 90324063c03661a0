// A network on each of some simulated nodes, as the program that runs there.
#pragma once

#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <memory>
#include <random>

#include "support.hpp"

namespace net_test {

/// A process on a simulated node.
struct Program {
  Program(hf::SimNode& node, Handler& handler, net::Network::Options options)
      : network(node.runtime(), completed(node, std::move(options)), handler) {}
  static net::Network::Options completed(hf::SimNode& node, net::Network::Options options) {
    options.node_id = node.index() + 1;
    options.incarnation = node.incarnation();
    options.boot_id = node.name();
    options.insecure = true;
    if (options.random) return options;
    auto random = std::make_shared<std::mt19937_64>(options.node_id * 1000 + options.incarnation);
    options.random = [random](std::span<std::byte> into) {
      for (auto& byte : into) byte = static_cast<std::byte>((*random)());
    };
    return options;
  }
  net::Network network;
};

inline net::Endpoint endpoint_of(hf::SimNode& node) {
  return {net::Scheme::tcp, node.address().host(), 6000};
}

inline Program& start_program(hf::SimWorld& world, hf::SimNode& node, Handler& handler,
                              net::Network::Options options = {}) {
  Program& program = node.emplace<Program>(node, handler, std::move(options));
  const auto endpoint = endpoint_of(node);
  world.run(node, 0, [&program, endpoint](hf::Runtime&) -> hf::Task<net::Endpoint> {
    return program.network.listen(endpoint);
  });
  return program;
}

}  // namespace net_test
