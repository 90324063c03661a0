// What the parts of a node share: names, peers, the network.
#pragma once

#include <atomic>
#include <hyperframes/actors/detail/event_ring.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/witness.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::detail {

class Page;
class RemotePeer;

/// The actors' names. Off the path of messages, and asked from every shard: so one lock guards it.
class Registry {
 public:
  struct Entry {
    Address address;
    const ServiceInfo* service = nullptr;
  };
  /// Errc::already_exists if the name is taken.
  void add(const std::string& name, Address address);
  /// From then on it is found.
  void set_service(const std::string& name, const ServiceInfo& service);
  void remove(const std::string& name, Address address) noexcept;
  /// An entry without service: no such name.
  Entry find(const std::string& name) const;
  std::vector<std::string> names() const;
  /// The name of the actor in that slot of that shard; empty if it has none.
  std::string name_in(unsigned shard, std::uint32_t slot) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

class NodeCore final : public net::MessageHandler, public Witness {
 public:
  NodeCore(Node& node, Runtime& runtime, Node::Options options);
  ~NodeCore();

  /// The current shard's part. Throws if the caller is on no shard of the runtime.
  NodeShard& here();
  NodeShard& at(unsigned shard) noexcept { return *shards_[shard]; }
  unsigned shard_count() const noexcept { return static_cast<unsigned>(shards_.size()); }
  net::Network& network();
  /// The peer of that identity; made when it is first seen, and kept.
  RemotePeer& peer(const net::PeerInfo& info);
  Task<RemotePeer*> connect(net::Endpoint endpoint, Time deadline);

  void on_message(net::Session& session, net::Lane lane, net::Message message) noexcept override;
  void on_session_up(net::Session& session) noexcept override;
  void on_session_down(net::Session& session, const Error& reason) noexcept override;

  std::string owner_name(unsigned shard, std::uint32_t owner) const override;
  void dump(Shard& shard, std::string& text) const override;
  std::uint32_t first_owner() const noexcept { return first_owner_; }
  /// Null if the node serves none.
  const Page* page() const noexcept { return page_.get(); }
  /// Keeps and logs what a supervisor has decided. From any shard.
  void record(SupervisionEvent event) noexcept;
  /// After that number. On any thread.
  SupervisionEvents events_since(std::uint64_t after) const;
  std::atomic<int> inspections{0};  ///< That still look at a shard's part.

  Node& node;
  Runtime& runtime;
  const Node::Options options;
  Registry registry;
  EventRing events;

 private:
  void start_directory();
  void drain() noexcept;
  void await_inspections() noexcept;
  void end() noexcept;

  std::uint32_t first_owner_ = 0;
  std::vector<std::unique_ptr<NodeShard>> shards_;
  std::mutex peers_mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::unique_ptr<RemotePeer>> peers_;
  std::unique_ptr<net::Network> network_;
  std::unique_ptr<Page> page_;
};

}  // namespace hyperframes::detail
