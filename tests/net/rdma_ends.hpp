// Two ends of a queue pair, and two nodes whose links go through some.
//
//   FakeVerbs verbs;
//   QueueEnds ends(verbs);                                       // two queues that reach each other
//   Node server(1, with(&verbs)), client(1, with(&verbs));  // two nodes that do
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <cstring>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/net/rdma/queue.hpp>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "support.hpp"

namespace net_test {

using net::detail::RdmaDevice;
using net::detail::RdmaQueue;

inline bool has(const std::string& text, const std::string& words) {
  return text.find(words) != text.npos;
}

inline net::RdmaOptions options_of(FakeVerbs& verbs) {
  net::RdmaOptions options;
  options.piece_bytes = 1024;
  options.pieces = 16;
  options.shared_pieces = 0;
  options.verbs = &verbs;
  return options;
}

/// Two ends that reach each other.
struct QueueEnds {
  explicit QueueEnds(FakeVerbs& verbs) : QueueEnds(RdmaDevice::open(options_of(verbs))) {}
  explicit QueueEnds(const std::shared_ptr<RdmaDevice>& device)
      : near(RdmaQueue::create(device)), far(RdmaQueue::create(device)) {
    near->name_peer("far");
    far->name_peer("near");
    near->connect(far->offer());
    far->connect(near->offer());
  }
  std::unique_ptr<RdmaQueue> near, far;
};

/// As much of a text as there is room for now.
inline std::size_t send_some(RdmaQueue& from, std::string_view text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const auto room = from.room(text.size() - sent);
    if (room.empty()) break;
    std::memcpy(room.data(), text.data() + sent, room.size());
    from.publish(room.size());
    sent += room.size();
  }
  return sent;
}

inline void receive_into(std::string& text, RdmaQueue& at) {
  while (const auto arrival = at.next()) {
    text.append(reinterpret_cast<const char*>(arrival->bytes.data()), arrival->bytes.size());
    at.release(*arrival);
  }
  at.give_back();
}

// ---- Nodes

inline hf::Task<std::multiset<std::string>> transports_here(net::Network* network) {
  std::multiset<std::string> names;
  for (const auto& session : network->sessions()) names.insert(session->stats().transport);
  co_return names;
}

inline std::multiset<std::string> transports_of(Node& node) {
  std::multiset<std::string> all;
  for (unsigned shard = 0; shard < node.runtime.shard_count(); ++shard)
    all.merge(node.run([&] { return transports_here(&node.network); }, shard));
  return all;
}

/// Which is "rdma" also where the host's device is emulated.
inline bool all_are(Node& node, std::string name) {
  if (name == "rdma" && !Over::verbs()) name = std::getenv("HYPERFRAMES_TEST_VERBS");
  const auto names = transports_of(node);
  return names.size() == node.runtime.shard_count() && names.count(name) == names.size();
}

inline net::Network::Options with(FakeVerbs* verbs) {
  net::Network::Options options;
  options.rdma.verbs = verbs;
  return options;
}

/// With little memory, which is registered soon.
inline net::Network::Options slim(FakeVerbs* verbs) {
  net::Network::Options options = with(verbs);
  options.rdma.piece_bytes = 4096;
  options.rdma.pieces = 16;
  options.rdma.pool_bytes = 1 << 20;
  return options;
}

/// Both ways, small and large.
inline void exchange(Node& server, Node& client) {
  const int there = server.handler.count, back = client.handler.count;
  const std::string large(300'000, 'z');
  client.send(server.network.node_id(), "there");
  client.send(server.network.node_id(), large, net::Lane::bulk);
  server.send(client.network.node_id(), "back");
  server.send(client.network.node_id(), large, net::Lane::bulk);
  CHECK(eventually(
      [&] { return server.handler.count == there + 2 && client.handler.count == back + 2; }));
}

}  // namespace net_test
