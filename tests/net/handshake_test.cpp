#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/handshake.hpp>
#include <random>
#include <string>

using namespace hf::net;

namespace {

NodeDescription a_node(std::uint64_t id) {
  NodeDescription node;
  node.node_id = id;
  node.incarnation = 5;
  node.boot_id = "8fe1c9f4-1b0c-4c0e-9f6b-2d6f5f6a7b8c";
  node.shard_count = 3;
  node.max_message_bytes = 64 << 20;
  node.max_fragment_bytes = 256 << 10;
  return node;
}

Hello a_hello() {
  Hello hello;
  hello.node = a_node(11);
  hello.session = 4;
  hello.link_index = 2;
  hello.nonce.fill(std::byte{0xaa});
  return hello;
}

Challenge a_challenge() {
  Challenge challenge;
  challenge.node = a_node(12);
  challenge.nonce.fill(std::byte{0xbb});
  return challenge;
}

std::span<const std::byte> payload_of(const hf::Buffer& frame) {
  return std::span<const std::byte>(frame.bytes()).subspan(FrameHeader::size);
}

Key a_key(char with) {
  const std::string text(32, with);
  return Key(std::as_bytes(std::span(text)));
}

}  // namespace

TEST_CASE("each handshake message is the same after a trip through its frame") {
  const Hello hello = a_hello();
  CHECK(decode_hello(payload_of(encode(hello))).value() == hello);
  Challenge challenge = a_challenge();
  CHECK(decode_challenge(payload_of(encode(challenge))).value() == challenge);
  challenge.proof.emplace().fill(std::byte{1});
  CHECK(decode_challenge(payload_of(encode(challenge))).value() == challenge);
  challenge.shm_name = "auto-0f.x";
  CHECK(decode_challenge(payload_of(encode(challenge))).value() == challenge);
  challenge.shm_key.emplace().fill(std::byte{3});
  CHECK(decode_challenge(payload_of(encode(challenge))).value() == challenge);
  Proof proof;
  CHECK(decode_proof(payload_of(encode(proof))).value() == proof);
  proof.proof.emplace().fill(std::byte{2});
  CHECK(decode_proof(payload_of(encode(proof))).value() == proof);
  Hello again = hello;
  again.node.capabilities = capability::resume;
  again.delivered = 0;
  CHECK(decode_hello(payload_of(encode(again))).value() == again);
  Welcome welcome{6, 7, std::nullopt};
  CHECK(decode_welcome(payload_of(encode(welcome))).value() == welcome);
  welcome.delivered = ~std::uint64_t{0};
  CHECK(decode_welcome(payload_of(encode(welcome))).value() == welcome);
  const Reject reject{Check::limits, "no room"};
  CHECK(decode_reject(payload_of(encode(reject))).value() == reject);
}

TEST_CASE("a handshake frame has a header that announces its payload") {
  const hf::Buffer frame = encode(a_hello());
  FrameHeader header;
  REQUIRE(decode(std::span<const std::byte, 64>(frame.data(), 64), FrameLimits(), header) ==
          FrameFault::none);
  CHECK(header.kind == FrameKind::hello);
  CHECK(header.length == frame.size() - FrameHeader::size);
}

TEST_CASE("a proof needs the same key, hello and challenge") {
  const Hello hello = a_hello();
  const hf::Buffer frame = encode(hello);
  Challenge challenge = a_challenge();
  const Key key = a_key('k');
  const ProofBytes proof = prove_accepting(key, payload_of(frame), challenge);
  CHECK(same_proof(proof, prove_accepting(key, payload_of(frame), challenge)));
  CHECK_FALSE(same_proof(proof, prove_accepting(a_key('l'), payload_of(frame), challenge)));
  // The two ends prove different things: one's proof can't be played back as the other's.
  CHECK_FALSE(same_proof(proof, prove_connecting(key, payload_of(frame), challenge)));

  Hello other = hello;
  other.nonce[0] ^= std::byte{1};
  CHECK_FALSE(same_proof(proof, prove_accepting(key, payload_of(encode(other)), challenge)));
  Challenge changed = challenge;
  changed.nonce[31] ^= std::byte{1};
  CHECK_FALSE(same_proof(proof, prove_accepting(key, payload_of(frame), changed)));
  changed = challenge;
  changed.node.node_id = 99;
  CHECK_FALSE(same_proof(proof, prove_accepting(key, payload_of(frame), changed)));
  // What a challenge carries as its proof does not go into the proof.
  challenge.proof = proof;
  CHECK(same_proof(proof, prove_accepting(key, payload_of(frame), challenge)));
}

TEST_CASE("a proof covers the challenge as it came, whoever wrote it and whatever it adds") {
  const hf::Buffer hello = encode(a_hello());
  const Key key = a_key('k');
  Challenge challenge = a_challenge();
  challenge.proof = prove_accepting(key, payload_of(hello), challenge);
  const hf::Buffer frame = encode(challenge);
  const auto payload = payload_of(frame);
  const Challenge heard = decode_challenge(payload).value();
  CHECK(same_proof(*challenge.proof, prove_accepting(key, payload_of(hello), heard)));
  // Such as a field that a later release has behind the others.
  std::vector<std::byte> longer(payload.begin(), payload.end());
  longer.resize(payload.size() + 8);
  const Challenge other = decode_challenge(longer).value();
  CHECK(other == heard);
  CHECK_FALSE(same_proof(*challenge.proof, prove_accepting(key, payload_of(hello), other)));
  CHECK_FALSE(same_proof(prove_connecting(key, payload_of(hello), heard),
                         prove_connecting(key, payload_of(hello), other)));
}

TEST_CASE("a hello that fails a check is rejected by the name of that check") {
  const NodeDescription own = a_node(12);
  CHECK_FALSE(check(a_hello(), own));

  Hello future = a_hello();
  future.protocol_lowest = 8;
  future.protocol_highest = 9;
  REQUIRE(check(future, own));
  CHECK(check(future, own)->check == Check::protocol_version);
  CHECK(check(future, own)->text.find("8 to 9") != std::string::npos);
  CHECK(check(future, own)->text.find("1 to 1") != std::string::npos);

  NodeDescription guarded = own;
  guarded.authentication = Authentication::shared_key;
  REQUIRE(check(a_hello(), guarded));
  CHECK(check(a_hello(), guarded)->check == Check::authentication);
  CHECK(check(a_hello(), guarded)->text.find("key file") != std::string::npos);

  Hello keyed = a_hello();
  keyed.node.authentication = Authentication::shared_key;
  CHECK(check(keyed, own)->check == Check::authentication);

  Hello self = a_hello();
  self.node = own;
  CHECK(check(self, own)->check == Check::identity);
}

TEST_CASE("a rejection becomes an error that names the check and the peer's text") {
  const hf::Error version = rejection_error({Check::protocol_version, "you speak 8"}, "tcp://h:1");
  CHECK(version.is(hf::Errc::version_mismatch));
  CHECK(version.found().find("protocol_version") != std::string::npos);
  CHECK(version.found().find("you speak 8") != std::string::npos);
  CHECK(version.tried().find("tcp://h:1") != std::string::npos);
  CHECK(rejection_error({Check::authentication, ""}, "p").is(hf::Errc::unauthenticated));
  CHECK(rejection_error({Check::limits, ""}, "p").is(hf::Errc::rejected));
  // Whoever asks again finds its successor: no reason to give up.
  CHECK(rejection_error({Check::shutting_down, ""}, "p").is(hf::Errc::peer_lost));
}

TEST_CASE("a rejection's text holds nothing that would steer a terminal") {
  const Reject reject{Check::unknown, "a\x1b[31mred\nline"};
  CHECK(decode_reject(payload_of(encode(reject))).value().text == "a [31mred line");
}

TEST_CASE("a handshake with a missing or wild field is refused by the field's name") {
  Hello hello = a_hello();
  hello.node.node_id = 0;
  auto result = decode_hello(payload_of(encode(hello)));
  REQUIRE_FALSE(result);
  CHECK(result.error().is(hf::Errc::corrupt));
  CHECK(result.error().found().find("node_id") != std::string::npos);
  hello = a_hello();
  hello.node.boot_id.assign(65, 'x');
  CHECK_FALSE(decode_hello(payload_of(encode(hello))));
  hello = a_hello();
  hello.node.shard_count = 5000;
  CHECK_FALSE(decode_hello(payload_of(encode(hello))));
  hello = a_hello();
  hello.protocol_lowest = 2;
  CHECK_FALSE(decode_hello(payload_of(encode(hello))));
}

TEST_CASE("a handshake of another length is refused before the verifier sees it") {
  CHECK_FALSE(decode_hello({}));
  const std::vector<std::byte> tiny(7), large(FrameLimits::largest_handshake + 1);
  CHECK_FALSE(decode_hello(tiny));
  CHECK_FALSE(decode_hello(large));
}

TEST_CASE("a handshake of damaged bytes is decoded or refused, never more") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const hf::Buffer good = encode(a_hello());
  const auto payload = payload_of(good);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes(payload.begin(), payload.end());
    bytes.resize(random() % (bytes.size() + 1));
    for (int change = 0; change < 3 && !bytes.empty(); ++change)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    (void)decode_hello(bytes);
    (void)decode_challenge(bytes);
    (void)decode_proof(bytes);
    (void)decode_welcome(bytes);
    (void)decode_reject(bytes);
  }
}
