#include <flatbuffers/flatbuffers.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/net/handshake.hpp>

#include "handshake_generated.h"

namespace hyperframes::net {
namespace {

static_assert(static_cast<int>(fb::Check::MAX) == static_cast<int>(Check::malformed));
static_assert(static_cast<int>(fb::Authentication::MAX) ==
              static_cast<int>(Authentication::shared_key));

constexpr std::size_t longest_boot_id = 64, longest_text = 4096;

Error malformed(std::string_view what, std::string found) {
  return Error(Errc::corrupt, "read a peer's " + std::string(what), std::move(found),
               "check that the port is a Hyperframes port and that both ends run the same release");
}

Buffer frame_of(FrameKind kind, flatbuffers::FlatBufferBuilder& builder) {
  Buffer frame = Buffer::heap(FrameHeader::size + builder.GetSize());
  FrameHeader header;
  header.kind = kind;
  header.length = builder.GetSize();
  header.encode(frame.data());
  std::memcpy(frame.data() + FrameHeader::size, builder.GetBufferPointer(), builder.GetSize());
  return frame;
}

template <std::size_t N>
flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes_of(
    flatbuffers::FlatBufferBuilder& builder, const std::array<std::byte, N>& bytes) {
  return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(bytes.data()), N);
}

/// The root table of a payload, verified where it lies in `memory`: a copy, on a boundary that
/// suits FlatBuffers. Null if it does not verify. The length is looked at before the verifier is.
template <class Table>
const Table* verified(std::span<const std::byte> payload,
                      std::array<std::uint64_t, FrameLimits::largest_handshake / 8>& memory) {
  if (payload.size() < 8 || payload.size() > FrameLimits::largest_handshake) return nullptr;
  auto* bytes = reinterpret_cast<std::uint8_t*>(memory.data());
  std::memcpy(bytes, payload.data(), payload.size());
  // One table of scalars and vectors: anything deeper or wider is no handshake.
  flatbuffers::Verifier verifier(bytes, payload.size(), 4, 8);
  if (!verifier.VerifyBuffer<Table>(nullptr)) return nullptr;
  return flatbuffers::GetRoot<Table>(bytes);
}

template <std::size_t N>
bool read_bytes(const flatbuffers::Vector<std::uint8_t>* from, std::array<std::byte, N>& into) {
  if (!from || from->size() != N) return false;
  std::memcpy(into.data(), from->data(), N);
  return true;
}

/// True as well for none.
template <std::size_t N>
bool read_optional(const flatbuffers::Vector<std::uint8_t>* from,
                   std::optional<std::array<std::byte, N>>& into) {
  if (!from) return true;
  return read_bytes(from, into.emplace());
}

bool read_name(const flatbuffers::String* from, std::string& into) {
  if (!from) return true;
  into = from->str();
  return bool(Endpoint::try_parse("shm://" + into));
}

/// The fields that Hello and Challenge share; the name of the wrong one, or null.
template <class Table>
const char* read_node(const Table& table, NodeDescription& node) {
  node.node_id = table.node_id();
  node.incarnation = table.incarnation();
  node.capabilities = table.capabilities();
  node.shard_count = table.shard_count();
  node.max_message_bytes = table.max_message_bytes();
  node.max_fragment_bytes = table.max_fragment_bytes();
  if (table.authentication() > fb::Authentication::MAX) return "authentication";
  node.authentication = static_cast<Authentication>(table.authentication());
  if (table.boot_id()) {
    if (table.boot_id()->size() > longest_boot_id) return "boot_id";
    node.boot_id = table.boot_id()->str();
  }
  if (node.node_id == 0) return "node_id";
  if (node.shard_count == 0 || node.shard_count > 4096) return "shard_count";
  if (node.max_fragment_bytes < 1024) return "max_fragment_bytes";
  return nullptr;
}

Error wrong_field(std::string_view what, const char* field) {
  return malformed(what, "its field '" + std::string(field) + "' is missing or out of range");
}

Error not_verified(std::string_view what) { return malformed(what, "it does not verify"); }

flatbuffers::Optional<std::uint64_t> as_field(const std::optional<std::uint64_t>& value) {
  return value ? flatbuffers::Optional<std::uint64_t>(*value) : flatbuffers::nullopt;
}

std::optional<std::uint64_t> from_field(const flatbuffers::Optional<std::uint64_t>& field) {
  return field ? std::optional<std::uint64_t>(*field) : std::nullopt;
}

/// The payload of a Challenge with 32 zeros as its proof.
std::vector<std::byte> blank_payload_of(const Challenge& challenge) {
  if (!challenge.received.empty()) return challenge.received;
  Challenge blank = challenge;
  blank.proof.emplace().fill(std::byte{0});
  const Buffer frame = encode(blank);
  return {frame.data() + FrameHeader::size, frame.data() + frame.size()};
}

void append_number(std::vector<std::byte>& text, std::uint64_t number) {
  for (int i = 0; i < 8; ++i, number >>= 8) text.push_back(static_cast<std::byte>(number & 0xff));
}

std::array<std::byte, 32> hmac(const Key& key, std::span<const std::byte> text) {
  std::array<std::byte, 32> result;
  unsigned size = 0;
  const auto* done = ::HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(result.data()), &size);
  if (!done || size != result.size())
    throw Error(Errc::internal, "compute HMAC-SHA-256", "libcrypto refused",
                "check that OpenSSL's default provider is available");
  return result;
}

ProofBytes prove(std::string_view label, const Key& key, std::span<const std::byte> hello_payload,
                 const Challenge& challenge) {
  const std::vector<std::byte> blank_payload = blank_payload_of(challenge);
  std::vector<std::byte> text;
  const auto append = [&text](std::span<const std::byte> bytes) {
    // With its length first, so that no two different transcripts have the same bytes.
    append_number(text, bytes.size());
    text.insert(text.end(), bytes.begin(), bytes.end());
  };
  append(std::as_bytes(std::span(label)));
  append(hello_payload);
  append(blank_payload);
  return hmac(key, text);
}

}  // namespace

std::string_view name(Check check) noexcept {
  switch (check) {
    case Check::unknown: return "unknown";
    case Check::protocol_version: return "protocol_version";
    case Check::authentication: return "authentication";
    case Check::incarnation: return "incarnation";
    case Check::identity: return "identity";
    case Check::already_connected: return "already_connected";
    case Check::link: return "link";
    case Check::limits: return "limits";
    case Check::shutting_down: return "shutting_down";
    case Check::malformed: return "malformed";
  }
  return "unknown";
}

Buffer encode(const Hello& hello) {
  flatbuffers::FlatBufferBuilder builder(512);
  const NodeDescription& node = hello.node;
  const auto boot_id = builder.CreateString(node.boot_id);
  const auto nonce = bytes_of(builder, hello.nonce);
  builder.Finish(fb::CreateHello(
      builder, hello.protocol_lowest, hello.protocol_highest, node.node_id, node.incarnation,
      boot_id, node.capabilities, node.shard_count, hello.session, hello.link_index,
      node.max_message_bytes, node.max_fragment_bytes,
      static_cast<fb::Authentication>(node.authentication), nonce, as_field(hello.delivered)));
  return frame_of(FrameKind::hello, builder);
}

Buffer encode(const Challenge& challenge) {
  flatbuffers::FlatBufferBuilder builder(512);
  const NodeDescription& node = challenge.node;
  const auto boot_id = builder.CreateString(node.boot_id);
  const auto nonce = bytes_of(builder, challenge.nonce);
  flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> proof;
  if (challenge.proof) proof = bytes_of(builder, *challenge.proof);
  flatbuffers::Offset<flatbuffers::String> shm_name;
  if (!challenge.shm_name.empty()) shm_name = builder.CreateString(challenge.shm_name);
  flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> shm_key;
  if (challenge.shm_key) shm_key = bytes_of(builder, *challenge.shm_key);
  builder.Finish(fb::CreateChallenge(
      builder, challenge.protocol, node.node_id, node.incarnation, boot_id, node.capabilities,
      node.shard_count, node.max_message_bytes, node.max_fragment_bytes,
      static_cast<fb::Authentication>(node.authentication), nonce, proof, shm_name, shm_key));
  return frame_of(FrameKind::challenge, builder);
}

Buffer encode(const Proof& proof) {
  flatbuffers::FlatBufferBuilder builder(128);
  flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes;
  if (proof.proof) bytes = bytes_of(builder, *proof.proof);
  builder.Finish(fb::CreateProof(builder, bytes));
  return frame_of(FrameKind::proof, builder);
}

Buffer encode(const Welcome& welcome) {
  flatbuffers::FlatBufferBuilder builder(64);
  builder.Finish(fb::CreateWelcome(builder, welcome.session, welcome.link_index,
                                   as_field(welcome.delivered), welcome.rdma));
  return frame_of(FrameKind::welcome, builder);
}

Buffer encode(const Reject& reject) {
  flatbuffers::FlatBufferBuilder builder(512);
  const auto text = builder.CreateString(reject.text.substr(0, longest_text));
  builder.Finish(fb::CreateReject(builder, static_cast<fb::Check>(reject.check), text));
  return frame_of(FrameKind::reject, builder);
}

Result<Hello> decode_hello(std::span<const std::byte> payload) {
  std::array<std::uint64_t, FrameLimits::largest_handshake / 8> memory;
  const auto* table = verified<fb::Hello>(payload, memory);
  if (!table) return not_verified("hello");
  Hello hello;
  if (const char* field = read_node(*table, hello.node)) return wrong_field("hello", field);
  hello.protocol_lowest = table->protocol_min();
  hello.protocol_highest = table->protocol_max();
  hello.session = table->session();
  hello.link_index = table->link_index();
  hello.delivered = from_field(table->delivered());
  if (!read_bytes(table->nonce(), hello.nonce)) return wrong_field("hello", "nonce");
  if (hello.protocol_lowest > hello.protocol_highest) return wrong_field("hello", "protocol_min");
  if (hello.session == 0) return wrong_field("hello", "session");
  return hello;
}

Result<Challenge> decode_challenge(std::span<const std::byte> payload) {
  std::array<std::uint64_t, FrameLimits::largest_handshake / 8> memory;
  const auto* table = verified<fb::Challenge>(payload, memory);
  if (!table) return not_verified("challenge");
  Challenge challenge;
  challenge.protocol = table->protocol();
  if (const char* field = read_node(*table, challenge.node)) return wrong_field("challenge", field);
  if (!read_bytes(table->nonce(), challenge.nonce)) return wrong_field("challenge", "nonce");
  if (!read_optional(table->proof(), challenge.proof)) return wrong_field("challenge", "proof");
  if (!read_name(table->shm_name(), challenge.shm_name))
    return wrong_field("challenge", "shm_name");
  if (!read_optional(table->shm_key(), challenge.shm_key))
    return wrong_field("challenge", "shm_key");
  if (challenge.proof) {
    challenge.received.assign(payload.begin(), payload.end());
    const auto at = table->proof()->data() - reinterpret_cast<const std::uint8_t*>(memory.data());
    std::fill_n(challenge.received.begin() + at, challenge.proof->size(), std::byte{0});
  }
  return challenge;
}

Result<Proof> decode_proof(std::span<const std::byte> payload) {
  std::array<std::uint64_t, FrameLimits::largest_handshake / 8> memory;
  const auto* table = verified<fb::Proof>(payload, memory);
  if (!table) return not_verified("proof");
  Proof proof;
  if (!read_optional(table->proof(), proof.proof)) return wrong_field("proof", "proof");
  return proof;
}

Result<Welcome> decode_welcome(std::span<const std::byte> payload) {
  std::array<std::uint64_t, FrameLimits::largest_handshake / 8> memory;
  const auto* table = verified<fb::Welcome>(payload, memory);
  if (!table) return not_verified("welcome");
  return Welcome{table->session(), table->link_index(), from_field(table->delivered()),
                 table->rdma()};
}

Result<Reject> decode_reject(std::span<const std::byte> payload) {
  std::array<std::uint64_t, FrameLimits::largest_handshake / 8> memory;
  const auto* table = verified<fb::Reject>(payload, memory);
  if (!table) return not_verified("reject");
  Reject reject;
  // A later release may know more checks: its text still says what is wrong.
  if (table->check() <= fb::Check::MAX) reject.check = static_cast<Check>(table->check());
  if (table->text()) reject.text = table->text()->str().substr(0, longest_text);
  // It ends up in logs and on terminals.
  for (char& c : reject.text)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  return reject;
}

ProofBytes prove_accepting(const Key& key, std::span<const std::byte> hello_payload,
                           const Challenge& challenge) {
  return prove("hyperframes accept", key, hello_payload, challenge);
}

ProofBytes prove_connecting(const Key& key, std::span<const std::byte> hello_payload,
                            const Challenge& challenge) {
  return prove("hyperframes connect", key, hello_payload, challenge);
}

MemoryKey memory_key_for(const NodeDescription& peer, const Key& secret) {
  std::vector<std::byte> text;
  append_number(text, peer.node_id);
  append_number(text, peer.incarnation);
  return hmac(secret, text);
}

Key memory_proof_key(const MemoryKey& told, const std::optional<Key>& key) {
  return Key(key ? hmac(*key, told) : told);
}

bool same_proof(const ProofBytes& a, const ProofBytes& b) noexcept {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::optional<Reject> check(const Hello& hello, const NodeDescription& own) {
  const auto range = [](unsigned low, unsigned high) {
    return std::to_string(low) + " to " + std::to_string(high);
  };
  if (hello.protocol_highest < protocol_min || hello.protocol_lowest > protocol_max)
    return Reject{Check::protocol_version,
                  "you speak protocol " + range(hello.protocol_lowest, hello.protocol_highest) +
                      ", this node " + range(protocol_min, protocol_max) +
                      ": run releases whose ranges overlap"};
  if (own.authentication == Authentication::shared_key &&
      hello.node.authentication == Authentication::none)
    return Reject{Check::authentication,
                  "this node asks for a shared key and you have none: give both the same key file"};
  if (own.authentication == Authentication::none &&
      hello.node.authentication == Authentication::shared_key)
    return Reject{Check::authentication,
                  "you ask for a shared key and this node has none: give both the same key file"};
  if (hello.node.node_id == own.node_id && hello.node.incarnation == own.incarnation)
    return Reject{Check::identity, "you connected to yourself: node id and incarnation are mine"};
  return std::nullopt;
}

Error rejection_error(const Reject& reject, const std::string& peer) {
  const Errc code = reject.check == Check::protocol_version ? Errc::version_mismatch
                    : reject.check == Check::authentication ? Errc::unauthenticated
                    // As good as gone: another process may soon be there, and it is not this one's
                    // fault.
                    : reject.check == Check::shutting_down ? Errc::peer_lost
                                                           : Errc::rejected;
  return Error(
      code, "connect to " + peer,
      "it refused: the check '" + std::string(name(reject.check)) + "' failed: " + reject.text);
}

}  // namespace hyperframes::net
