// Letters between processes: how they leave, arrive, and are answered.
#pragma once

#include <cstdint>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/letter.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/detail/list.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::detail {

class NodeCore;
class NodeShard;
class PeerShard;
class RemotePeer;

/// A message that waits until its session has credit for it.
struct Outgoing : ListNode {
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  net::Message message;
  net::Lane lane = net::Lane::normal;
  Time deadline = no_deadline;
  SendWaiter* waiter = nullptr;  ///< Null: an answer, or its sender gave up.
};
/// Its sender gave up: it is dropped, unless it is being sent already.
void forget_outgoing(Outgoing& outgoing) noexcept;

/// Where the answer to an ask from another process goes. Belongs to the shard the ask came in on.
struct RemoteRoute {
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  net::SessionRef session;
  PeerShard* peer = nullptr;
  net::Envelope ask;
  net::Lane lane = net::Lane::normal;
  Buffer credit;  ///< The actor's shard's, while the letter holds it.
};
/// Sends a remote ask's letter, which has come back to the shard of its route, as an answer.
void answer_peer(Letter* letter) noexcept;

/// One shard's part of a peer.
class PeerShard {
 public:
  PeerShard(NodeShard& home, RemotePeer& peer) noexcept : home(home), peer(peer) {}
  PeerShard(const PeerShard&) = delete;
  ~PeerShard();

  /// Sends what `waiter` holds. Returns whether its coroutine suspends.
  bool send(SendWaiter& waiter, PromiseBase& promise) noexcept;
  bool tell_now(Letter* letter, std::uint64_t target) noexcept;
  void answer(net::Message message, net::Lane lane) noexcept;
  void went_down(const Error& reason) noexcept;

  NodeShard& home;
  RemotePeer& peer;
  net::SessionRef session;

 private:
  net::Message encode(Letter& letter, std::uint64_t target, Time deadline);
  void enqueue(std::unique_ptr<Outgoing> outgoing) noexcept;
  Task<void> pump();
  Task<void> send_one(std::unique_ptr<Outgoing> outgoing);
  Task<void> ensure_session(Time deadline);

  List<Outgoing> queue_;
  bool pumping_ = false;
};

/// Another process, in one incarnation. Kept as long as the node, since references point to it.
class RemotePeer {
 public:
  RemotePeer(NodeCore& core, const net::PeerInfo& info);
  RemotePeer(const RemotePeer&) = delete;
  ~RemotePeer();

  PeerShard& on(unsigned shard) noexcept { return *shards_[shard]; }
  /// Ends a shard's part, on that shard.
  void release(unsigned shard) noexcept { shards_[shard].reset(); }

  NodeCore& core;
  const std::uint64_t node_id, incarnation;
  const std::string address;

  /// Where it listens; set once, by whoever connects to it. Empty if it connected to us.
  std::optional<net::Endpoint> endpoint() const;
  void set_endpoint(const net::Endpoint& endpoint);

 private:
  std::vector<std::unique_ptr<PeerShard>> shards_;
  mutable std::mutex mutex_;
  std::optional<net::Endpoint> endpoint_;
};

bool tell_peer_now(RemotePeer& peer, Letter* letter, std::uint64_t target, Shard& shard) noexcept;

/// A message from a peer, on its way to the shard that it is for.
void receive(NodeShard& here, PeerShard& from, net::Session& session, net::Lane lane,
             net::Message message) noexcept;

}  // namespace hyperframes::detail
