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
#include <hyperframes/runtime/scope.hpp>
#include <map>
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
struct StreamFrame;

/// A message that waits until its session has credit for it.
struct Outgoing : ListNode {
  Outgoing(net::Message message, net::Lane lane, Time deadline) noexcept
      : message(std::move(message)), lane(lane), deadline(deadline) {}
  ~Outgoing() {
    if (waiter) waiter->outgoing_ended();
  }
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  net::Message message;
  net::Lane lane;
  Time deadline;
  SendWaiter* waiter = nullptr;  ///< Null: an answer, or its sender gave up.
  net::SessionRef answers;       ///< Of an answer: the session that asked.
  net::SessionRef posted;        ///< Of what was posted: the session that it is for.
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
  /// Answers on the session that asked, or, once that is down, nobody. What can't be sent is
  /// answered with the reason: an asker keeps room for its answer until one comes.
  void answer(const net::SessionRef& to, net::Message message, net::Lane lane) noexcept;
  /// Sends what nobody waits for, in order within its lane, however long it takes; on the session
  /// that there is, or on none: peer_lost. Errc::too_large if that can never take it.
  Result<void> post(net::Message message, net::Lane lane) noexcept;
  Result<void> send(StreamFrame& frame, net::Lane lane) noexcept;
  void went_down(const Error& reason) noexcept;
  bool connected() const noexcept { return session && session->up(); }

  // Actors of this shard that the peer monitors, by its numbers.
  void begin_watch(std::uint64_t number, ActorCell* target, std::uint64_t target_id) noexcept;
  void end_watch(std::uint64_t number) noexcept;
  /// A watched actor has ended, or never was.
  void report_end(std::uint64_t number, const Down& down) noexcept;

  NodeShard& home;
  RemotePeer& peer;
  net::SessionRef session;

 private:
  /// What waits, in order. A lane's answers wait apart from its requests: they make room at the
  /// peer, which may hold back what would make room here.
  struct Queue {
    bool empty() const noexcept { return waiting.empty() && !pumping; }
    List<Outgoing> waiting;
    bool pumping = false;
  };
  Queue& requests(net::Lane lane) noexcept { return requests_[static_cast<std::size_t>(lane)]; }
  Queue& answers(net::Lane lane) noexcept { return answers_[static_cast<std::size_t>(lane)]; }

  net::Message encode(Letter& letter, std::uint64_t target, Time deadline);
  void set_deadline(net::Envelope& envelope, Time deadline) const noexcept;
  void enqueue(Queue& queue, std::unique_ptr<Outgoing> outgoing) noexcept;
  Task<void> pump(Queue* queue);
  Task<void> send_request(std::unique_ptr<Outgoing> outgoing);
  Task<void> send_answer(std::unique_ptr<Outgoing> outgoing);
  Task<void> send_posted(std::unique_ptr<Outgoing> outgoing);
  Task<void> ensure_session(Time deadline);

  static constexpr std::size_t most_watchers = 65'536;
  /// Of what the peer has asked for and does not take: ends, credit, wishes to stop.
  static constexpr std::size_t most_news = most_watchers + 16'384;
  std::map<std::uint64_t, Watch*> watchers_;
  std::size_t news_ = 0;  ///< That wait, in the control lane.
  Queue requests_[net::lane_count], answers_[net::lane_count];
  Scope pumps_;  ///< Ends first, since its tasks use the rest.
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
