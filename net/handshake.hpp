// What two nodes say to each other before a link carries messages.
//
//   hf::Buffer frame = hf::net::encode(hello);            // header and payload, ready to be sent
//   hf::net::Hello peer = hf::net::decode_hello(payload).value();   // verified, and copied out
//   if (auto failed = hf::net::check(peer, own)) throw hf::net::rejection_error(*failed, "me");
//
// Network does all of this; it is public for tools and tests that speak the protocol themselves.
//
// The connecting node sends a Hello; the accepting one answers with a Challenge, which proves that
// it has the shared key; a Proof does the same for the connecting node, and a Welcome ends it.
// Either may send a Reject, which names the check that failed, and close.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <hyperframes/net/frame.hpp>
#include <hyperframes/net/key.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::net {

/// The versions of the wire protocol that this build speaks.
inline constexpr std::uint16_t protocol_min = 1, protocol_max = 1;
using Nonce = std::array<std::byte, 32>;
using ProofBytes = std::array<std::byte, 32>;
using MemoryKey = std::array<std::byte, 32>;

enum class Authentication : std::uint8_t { none = 0, shared_key = 1 };

/// The check that a peer failed. Numbers are part of the wire protocol.
enum class Check : std::uint8_t {
  unknown = 0,            ///< One that a newer peer makes.
  protocol_version = 1,   ///< The ranges of versions do not overlap.
  authentication = 2,     ///< Only one has a key, or it is another one.
  incarnation = 3,        ///< A newer process with that node id is known.
  identity = 4,           ///< It connected to itself.
  already_connected = 5,  ///< There is a session, or one in the making.
  link = 6,               ///< Of no session that is known, or one that is there already.
  limits = 7,             ///< No memory for its windows, or too many links.
  shutting_down = 8,
  malformed = 9,  ///< Its frames break the protocol.
};
std::string_view name(Check check) noexcept;

/// Bits of `NodeDescription::capabilities`. What a node does not know of another, it does not use.
namespace capability {
inline constexpr std::uint64_t resume = 1;         ///< Takes up a link whose connection broke.
inline constexpr std::uint64_t channels = 2;       ///< Takes messages on channels.
inline constexpr std::uint64_t shared_memory = 4;  ///< Knows `Challenge::shm_name`.
/// In a Hello: would move this link to a queue pair. In a Challenge: has a device for that.
inline constexpr std::uint64_t rdma = 8;
}  // namespace capability

/// What a node says of itself, in a Hello and in a Challenge.
struct NodeDescription {
  std::uint64_t node_id = 0;
  std::uint64_t incarnation = 0;  ///< Grows with each start of its process.
  std::string boot_id;            ///< Of its host; at most 64 characters.
  std::uint64_t capabilities = 0;
  std::uint32_t shard_count = 1;
  std::uint64_t max_message_bytes = 0;   ///< That it takes.
  std::uint32_t max_fragment_bytes = 0;  ///< Of one data frame that it takes.
  Authentication authentication = Authentication::none;
  friend bool operator==(const NodeDescription&, const NodeDescription&) = default;
};

struct Hello {
  std::uint16_t protocol_lowest = protocol_min, protocol_highest = protocol_max;
  NodeDescription node;
  std::uint64_t session = 0;  ///< The connecting node's number of it.
  std::uint32_t link_index = 0;
  Nonce nonce{};
  /// Only to take up a link whose connection broke: the last frame of it that this node has.
  std::optional<std::uint64_t> delivered = std::nullopt;
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct Challenge {
  std::uint16_t protocol = protocol_max;  ///< The version that both go on with.
  NodeDescription node;
  Nonce nonce{};
  std::optional<ProofBytes> proof;
  /// Where processes of its host reach it through memory; empty: nowhere. Only for a peer with the
  /// capability.
  std::string shm_name = {};
  /// Over TLS with certificates, for that peer: what proofs through memory are made with.
  std::optional<MemoryKey> shm_key = std::nullopt;
  /// Of one that was decoded, the payload as it came, but for its proof, which is zeros: what the
  /// proofs cover, fields of later releases among it. Empty: what `encode` makes of this one.
  std::vector<std::byte> received = {};
  friend bool operator==(const Challenge& a, const Challenge& b) {
    return a.protocol == b.protocol && a.node == b.node && a.nonce == b.nonce &&
           a.proof == b.proof && a.shm_name == b.shm_name && a.shm_key == b.shm_key;
  }
};

struct Proof {
  std::optional<ProofBytes> proof;
  friend bool operator==(const Proof&, const Proof&) = default;
};

/// The link begins; it repeats what the Hello asked for.
struct Welcome {
  std::uint64_t session = 0;
  std::uint32_t link_index = 0;
  std::optional<std::uint64_t> delivered =
      std::nullopt;   ///< As in the Hello, for a link that is taken up.
  bool rdma = false;  ///< A queue pair is tried next. Only if the Hello asked for it.
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

struct Reject {
  Check check = Check::unknown;
  std::string text;  ///< For people, addressed to the peer.
  friend bool operator==(const Reject&, const Reject&) = default;
};

/// A whole frame each, in one heap buffer: the header, then the payload.
Buffer encode(const Hello& hello);
Buffer encode(const Challenge& challenge);
Buffer encode(const Proof& proof);
Buffer encode(const Welcome& welcome);
Buffer encode(const Reject& reject);

/// From a frame's payload, which may be anything: Errc::corrupt if it does not verify or a field is
/// out of range. The result owns all it holds.
Result<Hello> decode_hello(std::span<const std::byte> payload);
Result<Challenge> decode_challenge(std::span<const std::byte> payload);
Result<Proof> decode_proof(std::span<const std::byte> payload);
Result<Welcome> decode_welcome(std::span<const std::byte> payload);
Result<Reject> decode_reject(std::span<const std::byte> payload);

/// The proofs of both ends. `hello_payload` is the Hello's payload as it travelled.
ProofBytes prove_accepting(const Key& key, std::span<const std::byte> hello_payload,
                           const Challenge& challenge);
ProofBytes prove_connecting(const Key& key, std::span<const std::byte> hello_payload,
                            const Challenge& challenge);
/// The `Challenge::shm_key` for that peer, of a process with that secret: none can be made from
/// others.
MemoryKey memory_key_for(const NodeDescription& peer, const Key& secret);
/// What both prove to have through memory: what the one was told and, if they have a key, that too.
Key memory_proof_key(const MemoryKey& told, const std::optional<Key>& key);
/// In a time that does not depend on where they differ.
bool same_proof(const ProofBytes& a, const ProofBytes& b) noexcept;

/// What the accepting node finds wrong with a Hello, apart from proofs.
std::optional<Reject> check(const Hello& hello, const NodeDescription& own);

/// The error that a peer's Reject becomes on this side: Errc::version_mismatch, unauthenticated or
/// rejected.
Error rejection_error(const Reject& reject, const std::string& peer);

}  // namespace hyperframes::net
