// docs/reference/wire.md says what the code does: each of its examples is what the encoder writes,
// and its tables have the numbers that the code has.
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <hyperframes/net/channel/state.hpp>
#include <hyperframes/net/flow_control.hpp>
#include <hyperframes/net/handshake.hpp>
#include <hyperframes/net/key.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/net/shm/setup.hpp>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using namespace hf::net;
namespace shm = hf::net::detail;

namespace {

using Bytes = std::vector<std::byte>;

std::string page() {
  std::ifstream file(std::filesystem::path(HYPERFRAMES_SOURCE_DIR) / "docs/reference/wire.md");
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// ---- Dumps, as the page has them

/// Lines of an offset and 16 bytes; "*" stands for lines that are as the one before.
std::string dump_of(const Bytes& bytes) {
  std::string text;
  const auto line_at = [&](std::size_t at) {
    return Bytes(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(std::min(at + 16, bytes.size())));
  };
  bool repeats = false;
  for (std::size_t at = 0; at < bytes.size(); at += 16) {
    const Bytes line = line_at(at);
    const bool same = at && at + 16 < bytes.size() && line == line_at(at - 16);
    if (same && !std::exchange(repeats, true)) text += "*\n";
    if (same) continue;
    repeats = false;
    char part[24];
    std::snprintf(part, sizeof part, "%04zx ", at);
    text += part;
    for (std::size_t i = 0; i < line.size(); ++i) {
      std::snprintf(part, sizeof part, "%s%02x", i % 4 ? " " : "  ",
                    static_cast<unsigned>(line[i]));
      text += part;
    }
    text += '\n';
  }
  return text;
}

/// Comments behind ';' are for people.
Bytes read_dump(const std::string& text) {
  Bytes bytes;
  bool repeats = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find(';')));
    std::string word;
    words >> word;
    if (word == "*") {
      repeats = true;
      continue;
    }
    const std::size_t at = std::stoul(word, nullptr, 16);
    while (repeats && bytes.size() < at) bytes.push_back(bytes.at(bytes.size() - 16));
    repeats = false;
    if (bytes.size() != at) return {};
    while (words >> word) bytes.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
  }
  return bytes;
}

/// The page's blocks "```hex NAME".
std::map<std::string, std::string> blocks_of(const std::string& text) {
  std::map<std::string, std::string> blocks;
  std::istringstream lines(text);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      name = line.starts_with("```hex ") ? line.substr(7) : "";
      if (!name.empty()) blocks[name];
    } else if (!name.empty()) {
      blocks[name] += line + "\n";
    }
  }
  return blocks;
}

// ---- What the examples are of

NodeDescription a_node(std::uint64_t id, Authentication authentication) {
  NodeDescription node;
  node.node_id = id;
  node.incarnation = id + 1;
  node.boot_id = "boot";
  node.capabilities = capability::resume;
  node.shard_count = 2;
  node.max_message_bytes = 96u << 20;
  node.max_fragment_bytes = 256u << 10;
  node.authentication = authentication;
  return node;
}

Hello a_hello(Authentication authentication = Authentication::none) {
  Hello hello;
  hello.node = a_node(0xa1, authentication);
  hello.session = 3;
  hello.nonce.fill(std::byte{0x11});
  return hello;
}

Challenge a_challenge(Authentication authentication = Authentication::none) {
  Challenge challenge;
  challenge.node = a_node(0xb2, authentication);
  challenge.nonce.fill(std::byte{0x22});
  return challenge;
}

Key the_key() {
  const std::string text = "0123456789abcdef";
  return Key(std::as_bytes(std::span(text)));
}

std::span<const std::byte> payload_of(const hf::Buffer& frame) {
  return std::span<const std::byte>(frame.bytes()).subspan(FrameHeader::size);
}

Bytes bytes_of(const hf::Buffer& buffer) { return {buffer.data(), buffer.data() + buffer.size()}; }

Bytes frame(FrameHeader header, const Bytes& payload = {}) {
  header.length = payload.size();
  Bytes bytes(FrameHeader::size);
  header.encode(bytes.data());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

/// A message as it travels, by the rule that the page gives for its parts.
Bytes message_bytes(const Message& message) {
  Bytes bytes(wire::envelope_size);
  wire::encode_head(message, std::span<std::byte, wire::envelope_size>(bytes.data(), 64));
  for (const hf::Buffer& segment : message.segments)
    for (std::size_t size = segment.size(), i = 0; i < 8; ++i, size >>= 8)
      bytes.push_back(static_cast<std::byte>(size & 0xff));
  const auto put = [&](const hf::Buffer& part) {
    if (part.empty()) return;
    bytes.resize(wire::align_part(bytes.size()));
    bytes.insert(bytes.end(), part.data(), part.data() + part.size());
  };
  put(message.metadata);
  put(message.body);
  for (const hf::Buffer& segment : message.segments) put(segment);
  REQUIRE(bytes.size() == wire::size_of(message));
  return bytes;
}

Bytes data_frame(const Message& message, std::uint64_t number, std::uint64_t sequence,
                 std::uint8_t flags = 0) {
  const Bytes bytes = message_bytes(message);
  FrameHeader header;
  header.lane = Lane::normal;
  header.flags = flags;
  header.message = number;
  header.total = bytes.size();
  header.sequence = sequence;
  header.acknowledgement = 3;
  return frame(header, bytes);
}

Message a_tell() {
  Message message;
  message.envelope.type_id = 0x51;
  message.envelope.target = 5;
  message.body = hf::Buffer::copy_of(std::string_view("hello"));
  return message;
}

Message an_ask_of_parts() {
  Message message;
  message.envelope.type_id = 0x51;
  message.envelope.target = 5;
  message.envelope.source = 4;
  message.envelope.correlation = 99;
  message.envelope.deadline_ns = 1'000'000'000;
  message.envelope.reply_room = 4096;
  message.envelope.kind = MessageKind::ask;
  message.metadata = hf::Buffer::copy_of(std::string_view("meta"));
  message.body = hf::Buffer::copy_of(std::string_view("body"));
  message.segments.push_back(hf::Buffer::copy_of(std::string_view("one")));
  message.segments.push_back(hf::Buffer::copy_of(std::string_view("two")));
  return message;
}

FrameHeader header_of(FrameKind kind, Lane lane, std::uint64_t message, std::uint64_t total,
                      std::uint64_t sequence) {
  FrameHeader header;
  header.kind = kind;
  header.lane = lane;
  header.message = message;
  header.total = total;
  header.sequence = sequence;
  header.acknowledgement = 3;
  return header;
}

Bytes windows() {
  Bytes bytes;
  const auto add = [&](Lane lane, std::uint64_t message, std::uint64_t total,
                       std::uint64_t sequence) {
    FrameHeader header = header_of(FrameKind::credit, lane, message, total, sequence);
    header.flags = frame_flag::window;
    header.acknowledgement = 0;
    const Bytes one = frame(header);
    bytes.insert(bytes.end(), one.begin(), one.end());
  };
  add(Lane::control, 1u << 20, 128u << 10, 1);
  add(Lane::normal, 0, 1u << 20, 2);
  add(Lane::bulk, 0, 8u << 20, 3);
  return bytes;
}

Bytes fragment() {
  FrameHeader header = header_of(FrameKind::data, Lane::bulk, 1, 20'000'000, 6);
  header.offset = 262'144;
  header.length = 262'144;
  Bytes bytes(FrameHeader::size);
  header.encode(bytes.data());
  return bytes;
}

Bytes an_offer() {
  shm::ShmOffer offer;
  offer.boot_id = "boot";
  const auto bytes = offer.encode();
  return {bytes.begin(), bytes.end()};
}

struct Keyed {
  hf::Buffer hello, challenge, proof;
};
Keyed with_key() {
  Keyed keyed;
  keyed.hello = encode(a_hello(Authentication::shared_key));
  Challenge challenge = a_challenge(Authentication::shared_key);
  challenge.proof = prove_accepting(the_key(), payload_of(keyed.hello), challenge);
  keyed.challenge = encode(challenge);
  keyed.proof = encode(Proof{prove_connecting(the_key(), payload_of(keyed.hello), challenge)});
  return keyed;
}

Hello a_resuming_hello() {
  Hello hello = a_hello();
  hello.delivered = 41;
  return hello;
}

std::map<std::string, Bytes> examples() {
  const Keyed keyed = with_key();
  FrameHeader heartbeat = header_of(FrameKind::heartbeat, Lane::control, 1'000'000'007, 0, 0);
  FrameHeader answer = heartbeat;
  answer.kind = FrameKind::heartbeat_reply;
  return {
      {"hello", bytes_of(encode(a_hello()))},
      {"challenge", bytes_of(encode(a_challenge()))},
      {"proof", bytes_of(encode(Proof{}))},
      {"welcome", bytes_of(encode(Welcome{3, 0, std::nullopt}))},
      {"reject", bytes_of(encode(Reject{Check::shutting_down, "closing"}))},
      {"hello-key", bytes_of(keyed.hello)},
      {"challenge-key", bytes_of(keyed.challenge)},
      {"proof-key", bytes_of(keyed.proof)},
      {"hello-again", bytes_of(encode(a_resuming_hello()))},
      {"welcome-again", bytes_of(encode(Welcome{3, 0, 17}))},
      {"windows", windows()},
      {"tell", data_frame(a_tell(), 1, 4)},
      {"parts", data_frame(an_ask_of_parts(), 2, 5)},
      {"announce", frame(header_of(FrameKind::announce, Lane::bulk, 1, 20'000'000, 4))},
      {"grant", frame(header_of(FrameKind::grant, Lane::bulk, 1, 0, 4))},
      {"fragment", fragment()},
      {"acknowledge", frame(header_of(FrameKind::acknowledge, Lane::control, 0, 0, 0))},
      {"heartbeat", frame(heartbeat)},
      {"heartbeat-reply", frame(answer)},
      {"close", frame(header_of(FrameKind::close, Lane::control, 0, 0, 7))},
      {"offer", an_offer()},
  };
}

std::string with_commas(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace

TEST_CASE("each example of the wire's reference is what the encoder writes") {
  const auto blocks = blocks_of(page());
  const auto expected = examples();
  for (const auto& [name, bytes] : expected) {
    INFO("the page's example '" << name << "' should be:\n```hex " << name << "\n"
                                << dump_of(bytes) << "```");
    REQUIRE(read_dump(dump_of(bytes)) == bytes);
    const auto found = blocks.find(name);
    CHECK((found != blocks.end() && read_dump(found->second) == bytes));
  }
  for (const auto& [name, text] : blocks) {
    INFO("the page has an example '" << name << "' that no test makes");
    CHECK(expected.contains(name));
  }
}

TEST_CASE("the examples of the wire's reference are what a receiver takes") {
  for (const auto& [name, bytes] : examples()) {
    INFO(name);
    if (name == "offer") {
      CHECK(shm::decode_offer(bytes, "it").has_value());
      continue;
    }
    for (std::size_t at = 0; at < bytes.size();) {
      FrameHeader header;
      REQUIRE(decode(std::span<const std::byte, 64>(bytes.data() + at, 64), FrameLimits(),
                     header) == FrameFault::none);
      at += FrameHeader::size + header.length;
    }
  }
}

TEST_CASE("the tables of the wire's reference have the numbers that the code has") {
  const std::string text = page();
  const auto has_row = [&](std::uint64_t number, const std::string& name) {
    const std::string row = "| " + std::to_string(number) + " | `" + name + "` |";
    INFO(row);
    CHECK(text.find(row) != std::string::npos);
  };
  for (unsigned kind = 1; kind <= 36; ++kind)
    if (name(static_cast<FrameKind>(kind)) != "unknown")
      has_row(kind, std::string(name(static_cast<FrameKind>(kind))));
  for (unsigned lane = 0; lane < lane_count; ++lane)
    has_row(lane, std::string(name(static_cast<Lane>(lane))));
  for (unsigned check = 0; check <= static_cast<unsigned>(Check::malformed); ++check)
    has_row(check, std::string(name(static_cast<Check>(check))));
  has_row(frame_flag::prepaid, "prepaid");
  has_row(frame_flag::window, "window");
  has_row(capability::resume, "resume");
  has_row(capability::channels, "channels");
  has_row(capability::shared_memory, "shared_memory");
  has_row(capability::rdma, "rdma");
  const char* const channel_ops[] = {"open", "accepted", "refused", "data", "credit", "close"};
  for (std::size_t op = 0; op < std::size(channel_ops); ++op) has_row(op + 1, channel_ops[op]);
  static_assert(static_cast<std::size_t>(detail::ChannelOp::close) == std::size(channel_ops));
  static_assert(static_cast<int>(hf::Errc::exhausted) == 4);  // what a refusal of a channel says
  const char* const message_kinds[] = {"tell",    "ask",       "reply", "failure", "down",  "exit",
                                       "monitor", "demonitor", "link",  "unlink",  "stream"};
  static_assert(std::size(message_kinds) == static_cast<std::size_t>(last_message_kind) + 1);
  for (std::size_t kind = 0; kind < std::size(message_kinds); ++kind)
    has_row(kind, message_kinds[kind]);

  const auto has_limit = [&](const std::string& what, std::uint64_t limit) {
    const std::string row = "| " + what + " | " + with_commas(limit) + " |";
    INFO(row);
    CHECK(text.find(row) != std::string::npos);
  };
  has_limit("payload of a data frame", FrameLimits().payload_bytes);
  has_limit("message", FrameLimits().message_bytes);
  has_limit("payload of a handshake frame", FrameLimits::largest_handshake);
  has_limit("text of a refuse or close", FrameLimits::largest_text);
  has_limit("metadata of a message", wire::max_metadata);
  has_limit("body of a message", wire::max_body);
  has_limit("segments of a message", wire::max_segments);
  has_limit("shortest key", Key::least_size);
  has_limit("longest key", Key::largest_size);
  CHECK(text.find(with_commas(shm::ShmLayout().data_bytes)) != std::string::npos);
  CHECK(text.find(with_commas(shm::ShmLayout::most_loan)) != std::string::npos);
  static_assert(offsetof(shm::ShmWords, returned) == 64);
  static_assert(offsetof(shm::ShmWords, data_armed) == 128);
  static_assert(shm::ShmLayout{16, 4096}.returns_at() == 256 + 16 * 16);
  static_assert(shm::ShmLayout{1u << 16, 4096}.data_at() ==
                (256 + 18 * (1u << 16) + 4095) / 4096 * 4096);
}

TEST_CASE("the schema in the wire's reference is the one that the code is made of") {
  const std::string text = page();
  const std::regex field(R"(^  (\w+:[\w\[\]]+( = \w+| \(required\))?;))");
  int fields = 0;
  for (const char* const file : {"net/handshake.fbs", "net/channel/channel.fbs"}) {
    std::ifstream schema(std::filesystem::path(HYPERFRAMES_SOURCE_DIR) / file);
    std::smatch match;
    for (std::string line; std::getline(schema, line);) {
      if (!std::regex_search(line, match, field)) continue;
      INFO(match.str(1));
      CHECK(text.find(match.str(1)) != std::string::npos);
      ++fields;
    }
  }
  CHECK(fields == 14 + 13 + 1 + 4 + 2 + 2 + 2 + 1);
}

TEST_CASE("what a message costs is what the wire's reference says") {
  CHECK(credit_cost(64) == 128);
  CHECK(credit_cost(69) == 192);
  CHECK(page().find("69 bytes cost 192") != std::string::npos);
}
