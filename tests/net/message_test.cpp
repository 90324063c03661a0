#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <hyperframes/net/message.hpp>
#include <random>
#include <string>

using namespace hf::net;

namespace {

hf::Buffer filled(std::size_t size, std::uint8_t with) {
  hf::Buffer buffer = hf::Buffer::heap(size);
  std::memset(buffer.data(), with, size);
  return buffer;
}

/// The bytes of a message as one buffer, laid out as the header's comment says.
hf::Buffer serialised(const Message& message) {
  hf::Buffer memory = hf::Buffer::heap(wire::size_of(message));
  std::memset(memory.data(), 0, memory.size());
  wire::encode_head(message, std::span<std::byte, wire::envelope_size>(memory.data(), 64));
  std::uint64_t end = 64;
  for (const hf::Buffer& segment : message.segments) {
    const std::uint64_t size = segment.size();
    std::memcpy(memory.data() + end, &size, 8);
    end += 8;
  }
  const auto put = [&](const hf::Buffer& part) {
    if (part.empty()) return;
    end = wire::align_part(end);
    std::memcpy(memory.data() + end, part.data(), part.size());
    end += part.size();
  };
  put(message.metadata);
  put(message.body);
  for (const hf::Buffer& segment : message.segments) put(segment);
  return memory;
}

Message a_message() {
  Message message;
  message.envelope.type_id = 0x1122334455667788;
  message.envelope.target = 1;
  message.envelope.source = 2;
  message.envelope.correlation = 3;
  message.envelope.deadline_ns = 4;
  message.envelope.context = 5;
  message.envelope.reply_room = 6;
  message.envelope.kind = MessageKind::ask;
  message.envelope.flags = 7;
  message.metadata = filled(100, 1);
  message.body = filled(33, 2);
  message.segments.push_back(filled(1, 3));
  message.segments.push_back({});
  message.segments.push_back(filled(1000, 4));
  return message;
}

}  // namespace

TEST_CASE("a message is the same after a trip through its wire form") {
  const Message sent = a_message();
  auto result = wire::decode(serialised(sent));
  REQUIRE(result);
  const Message& got = *result;
  CHECK(got.envelope.type_id == 0x1122334455667788);
  CHECK(got.envelope.target == 1);
  CHECK(got.envelope.source == 2);
  CHECK(got.envelope.correlation == 3);
  CHECK(got.envelope.deadline_ns == 4);
  CHECK(got.envelope.context == 5);
  CHECK(got.envelope.reply_room == 6);
  CHECK(got.envelope.kind == MessageKind::ask);
  CHECK(got.envelope.flags == 7);
  CHECK(got.metadata.text() == sent.metadata.text());
  CHECK(got.body.text() == sent.body.text());
  REQUIRE(got.segments.count() == 3);
  CHECK(got.segments[0].text() == sent.segments[0].text());
  CHECK(got.segments[1].empty());
  CHECK(got.segments[2].text() == sent.segments[2].text());
}

TEST_CASE("every part of a received message begins on a 64-byte boundary") {
  auto message = wire::decode(serialised(a_message())).value();
  const auto aligned = [](const hf::Buffer& buffer) {
    return reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0;
  };
  CHECK(aligned(message.metadata));
  CHECK(aligned(message.body));
  CHECK(aligned(message.segments[0]));
  CHECK(aligned(message.segments[2]));
}

TEST_CASE("a message without metadata and segments is its envelope and its body") {
  Message message;
  message.body = filled(64, 1);
  CHECK(wire::size_of(message) == 128);
  message.body = {};
  CHECK(wire::size_of(message) == 64);
}

TEST_CASE("a message over a limit is refused with the limit") {
  Message message;
  message.metadata = filled((64 << 10) + 1, 0);
  try {
    wire::size_of(message);
    FAIL("it was taken");
  } catch (const hf::Error& error) {
    CHECK(error.is(hf::Errc::too_large));
    CHECK(error.found().find("65536") != std::string::npos);
  }
  message.metadata = {};
  for (int i = 0; i < 1025; ++i) message.segments.push_back({});
  CHECK_THROWS_AS(wire::size_of(message), hf::Error);
}

TEST_CASE("a message kind that is not known is refused") {
  hf::Buffer bytes = serialised(a_message());
  bytes.data()[62] = static_cast<std::byte>(static_cast<int>(last_message_kind) + 1);
  const auto result = wire::decode(bytes);
  REQUIRE_FALSE(result);
  CHECK(result.error().is(hf::Errc::corrupt));
  CHECK(result.error().found().find("kind") != std::string::npos);
}

TEST_CASE("a message whose parts do not add up is refused") {
  const Message sent = a_message();
  hf::Buffer whole = serialised(sent);
  for (std::size_t size = 0; size < whole.size(); size += 7)
    CHECK_FALSE(wire::decode(hf::Buffer::copy_of(whole.bytes().first(size))));
  hf::Buffer longer = hf::Buffer::heap(whole.size() + 1);
  std::memcpy(longer.data(), whole.data(), whole.size());
  CHECK_FALSE(wire::decode(longer));
  // A segment length that reaches around the address space.
  const std::uint64_t huge = ~std::uint64_t{0} - 10;
  std::memcpy(whole.data() + 64, &huge, 8);
  CHECK_FALSE(wire::decode(whole));
}

TEST_CASE("a message of random bytes is decoded or refused, never read past its end") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const hf::Buffer good = serialised(a_message());
  for (int round = 0; round < 20'000; ++round) {
    hf::Buffer bytes = hf::Buffer::copy_of(good.bytes().first(random() % (good.size() + 1)));
    for (int change = 0; change < 4 && !bytes.empty(); ++change)
      bytes.data()[random() % std::min<std::size_t>(bytes.size(), 96)] =
          static_cast<std::byte>(random());
    auto result = wire::decode(bytes);
    if (!result) continue;
    std::size_t sum = result->metadata.size() + result->body.size();
    for (const hf::Buffer& segment : result->segments) sum += segment.size();
    REQUIRE(sum <= bytes.size());
  }
}

TEST_CASE("an answer goes to the asker under its correlation and in the room it reserved") {
  const Envelope ask = a_message().envelope;
  const Envelope answer = answer_to(ask, MessageKind::failure);
  CHECK(answer.target == ask.source);
  CHECK(answer.source == ask.target);
  CHECK(answer.correlation == ask.correlation);
  CHECK(answer.reply_room == ask.reply_room);
  CHECK(answer.kind == MessageKind::failure);
}

TEST_CASE("an envelope whose deadline has passed still travels") {
  Message message;
  message.envelope.deadline_ns = -5;
  CHECK(wire::decode(serialised(message)).value().envelope.deadline_ns == 1);
}
