// Two simulated machines, joined by the network's own code.
#pragma once

#include <hyperframes/actors/node.hpp>
#include <span>
#include <string>
#include <utility>

#include "support.hpp"

namespace actor_test {

inline hf::net::Network::Options network(hf::SimNode& machine, hf::SimWorld& world) {
  hf::net::Network::Options options;
  options.node_id = 100 + machine.index();
  options.incarnation = machine.incarnation();
  options.boot_id = "simulated";
  options.insecure = true;
  auto* random = &world.random();
  options.random = [random](std::span<std::byte> bytes) {
    for (auto& byte : bytes) byte = static_cast<std::byte>(random->next());
  };
  return options;
}

/// A node that says nothing of its own accord.
struct Silent final : hf::net::MessageHandler {
  void on_message(hf::net::Session&, hf::net::Lane, hf::net::Message) noexcept override {}
};

/// A server with a counter under that name on its last shard, and a client.
struct Cluster {
  explicit Cluster(unsigned server_shards = 1, unsigned client_shards = 1, std::uint64_t seed = 1,
                   std::size_t receive_budget_bytes = 128u << 20)
      : receive_budget_bytes(receive_budget_bytes),
        sim(hf::SimWorld::Options{.seed = seed}),
        server_machine(sim.add_node({.shards = server_shards, .name = "server"})),
        client_machine(sim.add_node({.shards = client_shards, .name = "client"})),
        server_shards(server_shards) {
    start_server();
    client = &client_machine.emplace<hf::Node>(
        client_machine.runtime(),
        hf::Node::Options{.name = "client", .network = network_of(client_machine)});
  }
  hf::net::Network::Options network_of(hf::SimNode& machine) {
    auto options = network(machine, sim);
    options.receive_budget_bytes = receive_budget_bytes;
    return options;
  }

  void start_server() {
    server = &server_machine.emplace<hf::Node>(
        server_machine.runtime(),
        hf::Node::Options{.name = "server",
                          .network = network_of(server_machine),
                          .on_dead_letter = dead.options().on_dead_letter});
    sim.run(server_machine, 0, [this](hf::Runtime&) { return serve(); });
  }
  hf::Task<void> serve() {
    co_await server->spawn<Counter>(
        {.name = "counter", .shard = server_shards - 1, .mailbox = {.messages = 64}}, &journal);
    co_await server->listen(endpoint());
  }
  hf::net::Endpoint endpoint() const {
    return hf::net::Endpoint::parse("tcp://" + server_machine.address().host() + ":6000");
  }
  hf::Task<demo::CounterRef> find() {
    hf::RemoteNode remote = co_await client->connect(endpoint());
    co_return co_await remote.find<demo::Counter>("counter");
  }
  template <class Function>
  auto run(Function function, unsigned shard = 0) {
    return sim.run(client_machine, shard,
                   [function = std::move(function)](hf::Runtime&) mutable { return function(); });
  }
  std::uint64_t metric(hf::SimNode& machine, std::string_view name) {
    for (const auto& sample : machine.runtime().collect_metrics())
      if (sample.name == name) return sample.value;
    return 0;
  }

  const std::size_t receive_budget_bytes;  ///< Of each shard.
  Journal journal;
  DeadLetters dead;  ///< Of the server.
  hf::SimWorld sim;
  hf::SimNode &server_machine, &client_machine;
  unsigned server_shards;
  hf::Node *server = nullptr, *client = nullptr;
};

}  // namespace actor_test
