// Connections that break under a link, byte by byte: what it keeps, what it sends again, and what
// it takes from a peer that claims to go on.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/link.hpp>
#include <map>
#include <random>

#include "wire.hpp"

using namespace net_test;
using net::FrameHeader;
using net::FrameKind;
using net::Lane;
using net::Message;
using net::MessageKind;

namespace {

constexpr std::uint64_t window = 4u << 20;
constexpr Lane lanes[] = {Lane::control, Lane::normal, Lane::bulk};

/// Bytes that tell which message they are of, and where in it.
Message message_of(std::uint64_t number, std::size_t size) {
  Message message;
  message.envelope.type_id = number;
  if (size) message.body = hf::Buffer::heap(size);
  for (std::size_t i = 0; i < size; ++i)
    message.body.data()[i] = static_cast<std::byte>(number * 131 + i * 7 + (i >> 8));
  return message;
}
bool is_intact(const Message& message, std::size_t size) {
  const Message expected = message_of(message.envelope.type_id, size);
  return message.body.size() == size && message.body.text() == expected.body.text();
}

/// What the near end was given, checked against what the far end said.
class Taken {
 public:
  Taken(WireNode& node, const std::vector<std::size_t>& sizes) : sizes_(sizes) {
    node.handler.react = [this](net::Session&, Lane lane, Message message) {
      const std::uint64_t number = message.envelope.type_id;
      whole &= number < sizes_.size() && is_intact(message, sizes_[number]);
      in_order &= last_[static_cast<std::size_t>(lane)] < number + 1;
      last_[static_cast<std::size_t>(lane)] = number + 1;
      ++count;
    };
  }
  std::size_t count = 0;
  bool whole = true, in_order = true;

 private:
  const std::vector<std::size_t>& sizes_;
  std::uint64_t last_[3] = {};
};

/// The frames that a far end may say: small and large messages, one that is granted and asks.
struct Script {
  std::vector<std::size_t> sizes;  ///< By number.
  std::vector<std::pair<FrameHeader, std::vector<std::byte>>> frames;

  void add(Lane lane, std::size_t size, std::size_t fragment, std::uint64_t number = 0,
           MessageKind kind = MessageKind::tell) {
    Message message = message_of(sizes.size(), size);
    message.envelope.kind = kind;
    if (kind == MessageKind::ask) message.envelope.reply_room = 256;
    sizes.push_back(size);
    const auto bytes = Wire::encoded(message);
    FrameHeader header;
    header.lane = lane;
    header.message = number ? number : ++last_[static_cast<std::size_t>(lane)];
    header.total = bytes.size();
    for (std::size_t at = 0; at < bytes.size(); at += fragment) {
      header.offset = at;
      const std::size_t end = std::min(bytes.size(), at + fragment);
      frames.emplace_back(header,
                          std::vector<std::byte>(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                                 bytes.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }
  /// Numbers of messages that `add` gets and the script announces.
  std::uint64_t reserve(Lane lane) { return ++last_[static_cast<std::size_t>(lane)]; }
  /// Puts the last `count` frames between those before, as fragments of bulk are.
  void mix_in(std::size_t count) {
    std::vector<std::pair<FrameHeader, std::vector<std::byte>>> last(
        frames.end() - static_cast<std::ptrdiff_t>(count), frames.end());
    frames.resize(frames.size() - count);
    for (std::size_t i = 0; i < count; ++i)
      frames.insert(frames.begin() + static_cast<std::ptrdiff_t>(2 * i + 1), last[i]);
  }

 private:
  std::uint64_t last_[3] = {};
};

/// Says the script, breaks after so many bytes of it, and goes on until all has come.
void say_with_break(WireNode& node, Wire& wire, const Script& script, std::size_t cut) {
  std::size_t sent = 0;
  for (std::size_t i = 0; i < script.frames.size(); ++i) {
    const auto& [header, payload] = script.frames[i];
    const std::size_t size = FrameHeader::size + payload.size();
    const bool breaks_here = cut >= sent && cut < sent + size;
    node.step([&] {
      if (breaks_here) wire.arriving = cut - sent;
      wire.say(header, payload);
      if (breaks_here) wire.break_off();
    });
    if (breaks_here) {
      node.step([&] { REQUIRE(wire.connect_again()); });
      node.step([&] { wire.welcomed(); });
    }
    sent += size;
  }
}

std::size_t size_of(const Script& script) {
  std::size_t size = 0;
  for (const auto& [header, payload] : script.frames) size += FrameHeader::size + payload.size();
  return size;
}

std::size_t received_bytes(WireNode& node) {
  std::size_t used = 0;
  node.step([&] { used = node.shard().receive_pool().usage().used_bytes; });
  return used;
}

net::Session::Stats stats_of(WireNode& node, std::size_t index = 0) {
  net::Session::Stats stats;
  node.step([&] { stats = node.session(index)->stats(); });
  return stats;
}

}  // namespace

TEST_CASE("small frames come once and in order, at whatever byte their connection breaks") {
  Script script;
  script.add(Lane::normal, 0, 4096);
  script.add(Lane::control, 5, 4096);
  script.add(Lane::normal, 70, 4096, 0, MessageKind::ask);
  script.add(Lane::bulk, 300, 100);  // in fragments
  script.add(Lane::control, 1, 4096);
  std::swap(script.frames.back(), script.frames[script.frames.size() - 2]);
  for (std::size_t cut = 0; cut < size_of(script); ++cut) {
    INFO("the connection breaks after " << cut << " bytes");
    WireNode node;
    Wire& wire = node.add_wire();
    wire.remembers = true;
    Taken taken(node, script.sizes);
    node.step([&] { wire.lend(window); });
    say_with_break(node, wire, script, cut);
    REQUIRE(wire.alive());
    REQUIRE(taken.count == script.sizes.size());
    REQUIRE(taken.whole);
    REQUIRE(taken.in_order);
  }
}

TEST_CASE("large and granted messages, received in place, go on at the frame where it broke") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Script script;
  const std::uint64_t granted = script.reserve(Lane::bulk);
  script.add(Lane::bulk, 600'000, 80 << 10, granted);
  const std::size_t fragments = script.frames.size();
  for (int i = 0; i < 4; ++i) script.add(Lane::normal, 40'000 + i, 16 << 10);
  for (int i = 0; i < 4; ++i) script.add(Lane::control, 100, 4096);
  std::rotate(script.frames.begin(), script.frames.begin() + static_cast<std::ptrdiff_t>(fragments),
              script.frames.end());
  script.mix_in(fragments);
  std::vector<std::size_t> cuts;
  std::size_t sent = 0;
  for (const auto& [header, payload] : script.frames) {
    // Around the ends of header and payload, and anywhere.
    const std::size_t ends[] = {0, 1, 63, 64, 65, 64 + payload.size() / 2, 63 + payload.size()};
    for (const std::size_t at : ends) cuts.push_back(sent + at);
    cuts.push_back(sent + random() % (64 + payload.size()));
    sent += 64 + payload.size();
  }
  for (const std::size_t cut : cuts) {
    INFO("the connection breaks after " << cut << " bytes");
    WireNode node;
    Wire& wire = node.add_wire();
    wire.remembers = true;
    Taken taken(node, script.sizes);
    const std::size_t piece = 1 + random() % (std::size_t{1} << (10 + random() % 9));
    node.step([&] {
      wire.cut = [piece] { return piece; };
      wire.say(FrameKind::announce, Lane::bulk, granted, 64 + 600'000);
    });
    node.step([&] { REQUIRE(wire.hear(FrameKind::grant).size() == 1); });
    say_with_break(node, wire, script, cut);
    REQUIRE(wire.alive());
    REQUIRE(taken.count == script.sizes.size());
    REQUIRE(taken.whole);
    REQUIRE(taken.in_order);
    REQUIRE(received_bytes(node) == 0);
    REQUIRE(stats_of(node).resumes == 1);
  }
}

namespace {

/// Puts the frames that a link sends together again.
class Assembler {
 public:
  void take(const std::vector<WireFrame>& frames) {
    for (const WireFrame& frame : frames) take(frame);
  }
  void take(const WireFrame& frame) {
    const FrameHeader& header = frame.header;
    if (header.sequence) {
      in_sequence &= header.sequence == last_ + 1;
      last_ = header.sequence;
    }
    if (header.kind == FrameKind::close) ++closes;
    if (header.kind == FrameKind::announce) announced.push_back(header);
    if (header.kind != FrameKind::data) return;
    const auto lane = static_cast<std::size_t>(header.lane);
    auto& bytes = parts_[lane];
    whole &= bytes.size() == header.offset;
    bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
    if (bytes.size() < header.total) return;
    auto head =
        net::wire::decode_head(std::span<const std::byte, 64>(bytes.data(), 64), header.total);
    const auto number = head.value().envelope.type_id;
    const Message expected = message_of(number, bytes.size() - 64);
    whole &= std::ranges::equal(std::span(bytes).subspan(64), expected.body.bytes());
    order[lane].push_back(number);
    bytes.clear();
  }
  std::vector<std::uint64_t> order[3];
  std::vector<FrameHeader> announced;
  int closes = 0;
  bool in_sequence = true, whole = true;

 private:
  std::uint64_t last_ = 0;
  std::vector<std::byte> parts_[3];
};

/// A far end that takes everything, and whose connection breaks now and then.
class BreakingPeer {
 public:
  BreakingPeer(WireNode& node, Wire& wire, std::uint64_t seed)
      : node_(node), wire_(wire), random_(seed) {}

  void step() {
    node_.step([&] {
      if (wire_.alive()) serve();
    });
    if (random_() % 4) return;
    node_.step([&] {
      if (random_() % 4 == 0) wire_.stop_reading();
      // What it had sent and this end has not looked at comes only in part.
      wire_.lose_all_but(random_() % (std::size_t{1} << (random_() % 19)));
      assembler.take(wire_.hear());
      if (random_() % 2) wire_.break_off(0);  // else only this end notices
    });
    if (random_() % 2) node_.pass(1ms);
    node_.step([&] { REQUIRE(wire_.connect_again()); });
    node_.step([&] { take(wire_.welcomed()); });
    ++breaks;
  }
  void settle() {
    for (int round = 0; round < 60; ++round)
      node_.step([&] {
        wire_.read_again();
        serve();
      });
  }
  Assembler assembler;
  int breaks = 0;

 private:
  void serve() {
    take(wire_.hear());
    wire_.say(FrameKind::acknowledge);
  }
  void take(const std::vector<WireFrame>& frames) {
    assembler.take(frames);
    for (; granted_ < assembler.announced.size(); ++granted_) {
      const FrameHeader& header = assembler.announced[granted_];
      wire_.say(FrameKind::grant, header.lane, header.message);
    }
  }
  WireNode& node_;
  Wire& wire_;
  std::mt19937_64 random_;
  std::size_t granted_ = 0;
};

hf::Task<void> send_numbered(net::SessionRef session, Lane lane, std::uint64_t number,
                             std::size_t size, std::vector<std::uint64_t>* sent) {
  co_await session->send(message_of(number, size), lane, hf::after(1h));
  sent->push_back(number);
}

void break_while_it_sends(int seeds) {
  const std::uint64_t first = std::random_device()();
  int breaks = 0;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(seeds); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    hf::SimNodeOptions options;
    options.shard.send_quota_bytes = 64u << 20;
    WireNode node({}, options);
    Wire& wire = node.add_wire();
    wire.remembers = true;
    BreakingPeer peer(node, wire, seed);
    std::vector<std::uint64_t> sent[3];
    node.step([&] { wire.lend(2u << 20); });
    for (std::uint64_t number = 1; number <= 60; ++number) {
      const std::size_t lane = random() % 3;
      std::size_t size = random() % (std::size_t{1} << (random() % 15));
      // Together less than what the peer lends, since it returns nothing.
      if (random() % 12 == 0) size = random() % 300'000;
      if (random() % 12 == 0) size = (1u << 20) + random() % 1000;  // granted
      node.step([&] {
        hf::Shard::current()->spawn(
            send_numbered(node.session(), lanes[lane], number, size, &sent[lane]));
      });
      peer.step();
    }
    peer.settle();
    REQUIRE(wire.alive());
    CHECK(peer.assembler.in_sequence);
    CHECK(peer.assembler.whole);
    for (std::size_t lane = 0; lane < 3; ++lane) {
      CHECK(peer.assembler.order[lane] == sent[lane]);
      CHECK(std::ranges::is_sorted(sent[lane]));
    }
    CHECK(sent[0].size() + sent[1].size() + sent[2].size() == 60);
    // All of it was let go of, once the peer had it.
    const auto stats = stats_of(node);
    CHECK(stats.unacknowledged_bytes == 0);
    CHECK(stats.resumes == static_cast<std::uint64_t>(peer.breaks));
    CHECK(stats.resuming_links == 0);
    breaks += peer.breaks;
  }
  CHECK(breaks > 5 * seeds);
}

}  // namespace

TEST_CASE("what a link had sent leaves again from where the peer has it, under the same numbers") {
  break_while_it_sends(4);
}

TEST_CASE("what a link had sent leaves again, by many seeds", "[long]") {
  break_while_it_sends(200);
}

TEST_CASE("senders wait while a connection is broken, within what they may leave waiting") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] {
    wire.lend(256 << 10);
    wire.break_off();
  });
  auto stats = stats_of(node);
  CHECK(stats.resuming_links == 1);
  CHECK(stats.resumes == 0);
  std::error_code patient = hf::Errc::internal, impatient = hf::Errc::internal, no;
  node.step([&] {
    for (int i = 0; i < 100 && !no; ++i) {
      Message message = message_of(1, 10'000);
      const auto sent = node.session()->try_send(message);
      if (!sent) no = sent.error().code();
    }
    node.start_send(100'000, Lane::normal, 50ms, &impatient);
    node.start_send(100'000, Lane::normal, 2s, &patient);
  });
  CHECK(no == hf::Errc::exhausted);
  node.pass(100ms);
  CHECK(impatient == hf::Errc::deadline_exceeded);
  CHECK(patient == hf::Errc::internal);
  stats = stats_of(node);
  CHECK(stats.queued_bytes <= 256 << 10);
  CHECK(stats.lanes[1].waiting_senders == 1);
  // What waited goes, in order, once it goes on.
  node.step([&] { REQUIRE(wire.connect_again()); });
  for (int round = 0; round < 10; ++round)
    node.step([&] {
      for (const WireFrame& frame : wire.hear(FrameKind::data))
        if (frame.header.offset + frame.header.length == frame.header.total)
          wire.say(FrameKind::credit, frame.header.lane, 0, net::credit_cost(frame.header.total));
    });
  CHECK(!patient);
  stats = stats_of(node);
  CHECK(stats.resumes == 1);
  CHECK(stats.resuming_links == 0);
}

TEST_CASE("a link that nobody takes up again ends as peer_lost, with what the peer has") {
  WireNode node;
  Wire& wire = node.add_wire();
  std::error_code waiting;
  node.step([&] {
    wire.lend(256 << 10);
    for (int i = 0; i < 4; ++i) {
      Message message = message_of(1, 100);
      REQUIRE(node.session()->try_send(message));
    }
  });
  node.step([&] {
    REQUIRE(wire.hear(FrameKind::data).size() == 4);
    wire.say(FrameKind::acknowledge);
    Message message = message_of(1, 100);
    REQUIRE(node.session()->try_send(message));
    node.start_send(500'000, Lane::normal, 1h, &waiting);
  });
  node.step([&] { wire.break_off(); });
  node.pass(hf::timing().down_after() - 100ms);
  CHECK(node.handler.down_count == 0);
  CHECK(!waiting);
  node.pass(200ms);
  CHECK(waiting == hf::Errc::peer_lost);
}

TEST_CASE("a link whose connections all break before anything gets through ends in its window") {
  WireNode node;
  Wire& wire = node.add_wire();
  std::error_code waiting;
  node.step([&] { wire.lend(256 << 10); });
  node.step([&] {
    Message message = message_of(1, 100);
    REQUIRE(node.session()->try_send(message));
    node.start_send(500'000, Lane::normal, 1h, &waiting);
  });
  const std::uint64_t has = wire.heard();
  node.step([&] { wire.break_off(0); });
  int attempts = 0;
  for (int i = 0; i < 1000 && !waiting; ++i) {
    node.step([&] {
      if (wire.connect_again(has)) ++attempts;
    });
    node.step([&] { wire.break_off(0); });
  }
  CHECK(waiting == hf::Errc::peer_lost);
  CHECK(attempts >= 8);
  CHECK(attempts <= 24);
}

TEST_CASE("a peer that claims what can't be is refused with the reason, and the link goes on") {
  WireNode node;
  Wire& wire = node.add_wire();
  Wire& other = node.add_wire();
  bool broken = false;
  SECTION("while the connection works") {}
  SECTION("while it is broken") { broken = true; }
  node.step([&] { wire.lend(256 << 10); });
  const auto send = [&] {
    Message message = message_of(1, 100);
    REQUIRE(node.session()->try_send(message));
  };
  node.step([&] {
    for (int i = 0; i < 4; ++i) send();
  });
  node.step([&] {
    REQUIRE(wire.hear(FrameKind::data).size() == 4);
    wire.say(FrameKind::acknowledge);
    send();
  });
  const std::uint64_t has = wire.heard();
  node.step([&] {
    if (broken) wire.break_off(0);
    const auto less = wire.connect_again(has - 1);
    REQUIRE(!less);
    CHECK(less.error().is(hf::Errc::corrupt));
    CHECK(less.error().found().find("frame " + std::to_string(has - 1)) != std::string::npos);
    CHECK(less.error().found().find("acknowledged " + std::to_string(has)) != std::string::npos);
    const auto more = wire.connect_again(has + 2);
    REQUIRE(!more);
    CHECK(more.error().found().find("1 to " + std::to_string(has + 1)) != std::string::npos);
    CHECK(!wire.connect_again(~std::uint64_t{0}));
  });
  CHECK(stats_of(node).resuming_links == (broken ? 1 : 0));
  if (broken) {
    node.step([&] { REQUIRE(wire.connect_again()); });
    node.step([&] { CHECK(of_kind(wire.welcomed(), FrameKind::data).size() == 1); });
  } else {
    node.step([&] { CHECK(wire.hear(FrameKind::data).size() == 1); });
  }
  node.step([&] { wire.say(FrameKind::acknowledge); });
  CHECK(stats_of(node).lanes[1].messages_acknowledged == 5);
  CHECK(other.alive());
}

TEST_CASE("a peer that connects again replaces a connection that this side believes in") {
  WireNode node;
  Wire& wire = node.add_wire();
  wire.remembers = true;
  node.step([&] {
    wire.lend(256 << 10);
    for (int i = 0; i < 3; ++i) {
      Message message = message_of(1, 100);
      REQUIRE(node.session()->try_send(message));
    }
  });
  node.step([&] {
    wire.lose_all_but(0);
    REQUIRE(wire.connect_again());
  });
  std::vector<WireFrame> again;
  node.step([&] { again = wire.welcomed(); });
  CHECK(of_kind(again, FrameKind::data).size() == 3);
  // And once more before the first of them was taken up.
  node.step([&] {
    wire.hold_target();
    REQUIRE(wire.connect_again());
    REQUIRE(wire.connect_again());
    wire.let_go();
  });
  node.step([&] { CHECK(wire.welcomed().empty()); });
  CHECK(stats_of(node).resumes == 2);
  CHECK(wire.alive());
}

TEST_CASE("a link does not go on before the system has let go of where it may still write") {
  WireNode node;
  Wire& wire = node.add_wire();
  wire.remembers = true;
  std::vector<std::size_t> sizes{200'000};
  Taken taken(node, sizes);
  Script script;
  script.add(Lane::bulk, 200'000, 50'000);
  hf::Buffer target;
  node.step([&] {
    for (std::size_t i = 0; i < 2; ++i) wire.say(script.frames[i].first, script.frames[i].second);
    // Half of the third frame has come, and the system waits for the rest.
    wire.arriving = 64 + 20'000;
    wire.say(script.frames[2].first, script.frames[2].second);
    target = wire.hold_target();
    REQUIRE(target.size() >= 30'000);
    wire.break_off();
    REQUIRE(wire.connect_again());
  });
  node.pass(100ms);
  node.step([&] {
    CHECK(wire.hear().empty());
    // Late bytes of the connection that is no more.
    std::memset(target.data(), 0xee, target.size());
    target.reset();
    wire.let_go();
  });
  node.step([&] {
    wire.welcomed();
    for (std::size_t i = 3; i < script.frames.size(); ++i)
      wire.say(script.frames[i].first, script.frames[i].second);
  });
  CHECK(taken.count == 1);
  CHECK(taken.whole);
}

TEST_CASE("heartbeats and credit hold after a break: nothing is owed twice, and nothing is lost") {
  WireNode node;
  Wire& wire = node.add_wire();
  wire.remembers = true;
  std::uint64_t lent = 0, returned = 0;
  const auto count = [&](const std::vector<WireFrame>& frames) {
    for (const WireFrame& frame : frames) {
      if (frame.header.kind == FrameKind::heartbeat)
        wire.say(FrameKind::heartbeat_reply, Lane::control, frame.header.message);
      if (frame.header.kind != FrameKind::credit || frame.header.lane != Lane::normal) continue;
      (frame.header.flags ? lent : returned) += frame.header.total;
    }
  };
  node.step([&] {
    wire.lend(window);
    count(wire.hear());
  });
  REQUIRE(lent > 0);
  std::uint64_t spent = 0, number = 0;
  for (int round = 0; round < 12; ++round) {
    // Each time so much that credit comes back, and is lost with the connection half of the time.
    for (int i = 0; i < 3; ++i)
      node.step([&] {
        const Message message = message_of(1, lent / 5);
        wire.say_message(Lane::normal, ++number, message);
        spent += net::credit_cost(64 + lent / 5);
      });
    if (round % 3 == 0) node.pass(hf::timing().heartbeat());
    node.step([&] {
      if (round % 2) {
        wire.break_off(0);
      } else {
        count(wire.hear());
        wire.break_off(0);
      }
    });
    node.step([&] { REQUIRE(wire.connect_again()); });
    node.step([&] { count(wire.welcomed()); });
    node.step([&] { count(wire.hear()); });
    REQUIRE(wire.alive());
  }
  for (int i = 0; i < 3; ++i) {
    node.pass(hf::timing().heartbeat());
    node.step([&] { count(wire.hear()); });
  }
  CHECK(returned == spent);
  CHECK(wire.alive());
}

TEST_CASE("a link that closes while its connection is broken closes in order once it goes on") {
  WireNode node;
  Wire& wire = node.add_wire();
  wire.remembers = true;
  Assembler assembler;
  node.step([&] {
    wire.lend(256 << 10);
    for (int i = 0; i < 3; ++i) {
      Message message = message_of(1, 100);
      REQUIRE(node.session()->try_send(message));
    }
  });
  SECTION("it had not begun to close") {}
  SECTION("its close was lost with the connection") {
    node.step([&] { node.begin_close(); });
  }
  node.step([&] {
    wire.lose_half();
    assembler.take(wire.hear());
    wire.break_off(0);
    node.begin_close();
  });
  node.step([&] { REQUIRE(wire.connect_again()); });
  node.step([&] { assembler.take(wire.welcomed()); });
  for (int i = 0; i < 3; ++i) node.step([&] { assembler.take(wire.hear()); });
  CHECK(assembler.closes == 1);
  CHECK(assembler.in_sequence);
  CHECK(assembler.order[1].size() == 3);
  node.step([&] { wire.say(FrameKind::close); });
  node.step([&] { wire.say(FrameKind::acknowledge); });
  CHECK(!wire.alive());
}

TEST_CASE("an end in order is an end: a process that ends is not waited for") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] { wire.hang_up(); });
  CHECK(!wire.alive());
  node.step([&] {
    CHECK(node.session()->stats().resuming_links == 0);
    CHECK(!wire.connect_again());
  });
}

TEST_CASE("a transport that finds its peer lying ends the link: nobody takes that up") {
  WireNode node;
  Wire& wire = node.add_wire();
  std::error_code waiting;
  node.step([&] {
    wire.lend(256 << 10);
    node.start_send(500'000, Lane::normal, 1h, &waiting);
  });
  node.step([&] {
    wire.end_with(hf::Error(hf::Errc::corrupt, "use the memory of the far end", "it lies"));
  });
  CHECK(waiting == hf::Errc::corrupt);
  node.step([&] {
    CHECK(node.session()->stats().resuming_links == 0);
    CHECK(!wire.connect_again());
  });
}

TEST_CASE("a connection that ends before it brought anything was given up, and is no end") {
  WireNode node;
  Wire& wire = node.add_wire();
  wire.remembers = true;
  node.step([&] { wire.break_off(); });
  node.step([&] { REQUIRE(wire.connect_again()); });
  node.step([&] { wire.hang_up(); });
  CHECK(stats_of(node).resuming_links == 1);
  node.step([&] { REQUIRE(wire.connect_again()); });
  node.step([&] {
    wire.welcomed();
    wire.say(FrameKind::heartbeat);
  });
  CHECK(stats_of(node).resuming_links == 0);
  node.step([&] { wire.hang_up(); });
  CHECK(stats_of(node).resuming_links == 0);
  CHECK(!wire.alive());
}

TEST_CASE("a connection that is silent for 2 heartbeats is given up, and its link waits") {
  WireNode node;
  Wire& wire = node.add_wire();
  wire.remembers = true;
  node.step([&] { wire.lend(256 << 10); });
  node.world.run_for(hf::timing().heartbeat() * 21 / 10);
  CHECK(!wire.alive());
  CHECK(stats_of(node).resuming_links == 1);
  node.step([&] { REQUIRE(wire.connect_again()); });
  node.step([&] { wire.welcomed(); });
  CHECK(stats_of(node).resuming_links == 0);
  std::error_code code = hf::Errc::internal;
  node.step([&] { node.start_send(10, Lane::normal, 1s, &code); });
  CHECK(!code);
}
