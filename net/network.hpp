// One node's networking, over all shards of a runtime.
//
//   hf::net::Network network(runtime, {}, handler);
//   auto bound = co_await network.listen(hf::net::Endpoint::parse("tcp://127.0.0.1:0"));
//   auto session = co_await network.connect(endpoint, hf::after(5s));
//
// Two nodes have one session, however often and from whichever side they connect. Between a node of
// N shards and one of M there are max(N, M) links; link i joins shard i mod N to shard i mod M, and
// shard i sends through link i. The functions are called on a shard of the runtime; the network is
// made and destroyed off the shards, while the runtime exists. Actors have it through their Node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hyperframes/net/encryption.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/net/key.hpp>
#include <hyperframes/net/rdma/options.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hyperframes {
class Runtime;
}

namespace hyperframes::net {

namespace detail {
class NetworkCore;
}

class Network {
 public:
  struct Options {
    /// 0: random. A restarted node that keeps its id replaces its old self.
    std::uint64_t node_id = 0;
    std::uint64_t incarnation = 0;  ///< 0: from the clock, so that a restart has a higher one.
    std::string boot_id = {};       ///< Empty: the system's.
    /// Both ends prove that they have it, on whatever transport.
    std::optional<Key> key = {};
    /// With certificates or a key what travels over TCP is encrypted.
    Encryption encryption = {};
    bool insecure = false;  ///< Allow other addresses than loopback with neither of them.
    /// Of endpoints rdma:// and auto://.
    RdmaOptions rdma = {};

    /// Memory that each shard lends to its peers' messages in flight, in bytes; at least 1 MiB.
    /// Three quarters of it bound the largest message that peers may send here.
    std::size_t receive_budget_bytes = 128u << 20;
    std::size_t max_handshakes = 256;  ///< Unauthenticated sockets; above it the oldest is dropped.
    std::uint32_t reply_room_bytes = 4096;  ///< What an ask reserves unless it says otherwise.
    /// Of one frame of a large message, which small ones overtake; from 4 KiB to 16 MiB.
    std::size_t fragment_bytes = 256u << 10;
    std::size_t unsent_backlog_bytes = 256u << 10;  ///< What the kernel may hold unsent.
    /// Memory for `loan`, in bytes, in equal shares for all shards; allocated at once, on huge
    /// pages if there are any. Each link through memory maps it at the other end as well. A shard's
    /// share has to exceed what the receivers that it lends to may hold together: a slow one keeps
    /// as much as its windows let in (on a channel `window_bytes`), and takes it from all others.
    std::size_t loan_bytes = 0;
    /// Segments that peers lend are left in their memory. The peer can change them at any time:
    /// false, and they are copied, for who checks a segment and then relies on it.
    bool take_loans = true;

    /// Source of nonces and of a random node id: fills the bytes it is given, in the constructor
    /// and on shard 0. Empty: the system's. Tests under the simulator give a seeded one.
    std::function<void(std::span<std::byte>)> random = {};
  };

  /// Starts nothing yet. Throws Errc::invalid_argument for options out of range, what keeps it from
  /// reading the certificates, and what refused `loan_bytes`. `handler` outlives the network.
  Network(Runtime& runtime, Options options, MessageHandler& handler);
  /// Ends what `close` did not, without draining.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::uint64_t node_id() const noexcept;
  std::uint64_t incarnation() const noexcept;

  /// Binds exactly the given address, or name (shm://), and accepts peers there until `close`.
  /// Returns it with the port that was picked. Without certificates or a key any address but
  /// loopback is refused (Errc::unauthenticated) unless the options say `insecure`. A name is
  /// resolved; all its addresses are bound. On auto:// it also accepts processes of this host
  /// through memory, under a name that it tells them. On rdma:// and auto:// links go through queue
  /// pairs with who asks for that; where this host has no RDMA, a line in the log says why, and
  /// they stay on TCP.
  Task<Endpoint> listen(Endpoint endpoint);

  /// The session with the node at `endpoint`, as the calling shard sees it; connects if there is
  /// none. Tries every address; Errc::unreachable lists each with its reason. By auto:// it is made
  /// through memory where both can, else by auto:// and rdma:// through queue pairs where both can,
  /// and goes on over TCP if that breaks. Errc::rejected,
  /// unauthenticated or version_mismatch: the peer's reason. Errc::deadline_exceeded;
  /// Errc::shutting_down after `close`.
  Task<SessionRef> connect(Endpoint endpoint, Time deadline);

  /// Memory that peers on this host read where it is: put into a message's segments, from a
  /// multiple of 64 bytes on and in parts of 4 KiB and more, it goes through shm:// (and auto://
  /// that shares memory) without one byte being copied; over TCP it is sent as any buffer. Contents
  /// are indeterminate. Every process that is let in through memory can read all of `loan_bytes`:
  /// who has proved to have the key or a certificate, or without them any of this user.
  ///
  /// It comes back by itself when its last Buffer here and the receivers' of it have ended, or
  /// their processes have; until then nothing may write into it. Waits for that: Errc::exhausted
  /// after `deadline`, with who has how much (`Time{}`: 5 s from now). Errc::too_large beyond the
  /// shard's share; Errc::unsupported without `loan_bytes`; Errc::shutting_down if the network ends
  /// meanwhile; Errc::cancelled. A child that is forked does not have it.
  Task<Buffer> loan(std::size_t size, Time deadline = Time{});

  /// The calling shard's session with that node, if it is up; else an empty reference.
  SessionRef session(std::uint64_t node_id) const noexcept;
  /// The calling shard's sessions that are up, by node id.
  std::vector<SessionRef> sessions() const;

  /// Takes no new messages and peers, waits up to `drain` until the peers have acknowledged what
  /// was handed over, then closes all. Returns how many messages were not acknowledged, of all that
  /// were ever handed over: those that were lost with a session which ended before count too,
  /// whether or not somebody was told. 0: the peers have, or had, all of them in their memory. A
  /// second time it returns the same. It does not open again.
  Task<std::uint64_t> close(Duration drain);

 private:
  std::shared_ptr<detail::NetworkCore> core_;
};

}  // namespace hyperframes::net
