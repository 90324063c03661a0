// What a link does with a peer that keeps the rules, and with one that does not.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/link.hpp>

#include "wire.hpp"

using namespace net_test;
using net::FrameKind;
using net::Lane;
using net::Message;
using net::MessageKind;

namespace {

constexpr std::uint64_t window = 256 << 10;

std::vector<WireFrame> of_kind(const std::vector<WireFrame>& frames, FrameKind kind) {
  std::vector<WireFrame> found;
  for (const WireFrame& frame : frames)
    if (frame.header.kind == kind) found.push_back(frame);
  return found;
}

Message ask(std::uint32_t reply_room) {
  Message message;
  message.envelope.kind = MessageKind::ask;
  message.envelope.reply_room = reply_room;
  return message;
}

}  // namespace

TEST_CASE("a large message is announced once the granted one before it has begun to leave") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] {
    wire.lend(window);
    wire.stop_reading();
    for (int i = 0; i < 3; ++i) node.start_send(window, Lane::bulk);
  });
  // Its frames wait for the peer to read. The first announcement stands among them.
  node.step([&] { wire.read_again(); });
  std::uint64_t granted = 0, announced = 0, begun = 0;
  for (int round = 0; round < 20; ++round) {
    node.step([&] {
      for (const WireFrame& frame : wire.hear()) {
        if (frame.header.kind == FrameKind::announce) {
          ++announced;
          CHECK(begun == granted);  // the one before is on its way
          wire.say(FrameKind::grant, frame.header.lane, frame.header.message);
          ++granted;
        }
        if (frame.header.kind == FrameKind::data && frame.header.offset == 0) ++begun;
      }
    });
  }
  CHECK(announced == 3);
  CHECK(begun == 3);
}

TEST_CASE("a link that ends with one grant given and one waiting leaves nothing behind") {
  net::Network::Options options;
  options.receive_budget_bytes = 4u << 20;
  WireNode node(options);
  Wire& wire = node.add_wire();
  Wire& other = node.add_wire();
  node.step([&] {
    wire.say(FrameKind::announce, Lane::normal, 1, 2u << 20);
    wire.say(FrameKind::announce, Lane::bulk, 1, 2u << 20);
  });
  node.step([&] { CHECK(wire.hear(FrameKind::grant).size() == 1); });
  SECTION("its transport ends first") {
    node.step([&] { wire.hang_up(); });
    node.step([&] { node.end_session(); });
  }
  SECTION("its session is ended") {
    node.step([&] { node.end_session(); });
  }
  // All of it is there again for another.
  node.step([&] { other.say(FrameKind::announce, Lane::bulk, 1, 2u << 20); });
  node.step([&] { CHECK(other.hear(FrameKind::grant).size() == 1); });
}

TEST_CASE("an answer passes a large message that waits for its grant, and both arrive") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] { wire.lend(window); });
  node.step([&] {
    Message question = ask(4096);
    REQUIRE(node.session()->try_send(question));
  });
  const std::uint64_t size = 1u << 20;
  node.step([&] {
    REQUIRE(wire.hear(FrameKind::data).size() == 1);
    wire.say(FrameKind::announce, Lane::normal, 1, size);
  });
  node.step([&] {
    REQUIRE(wire.hear(FrameKind::grant).size() == 1);
    Message answer;
    answer.envelope = net::answer_to(ask(4096).envelope);
    answer.body = hf::Buffer::copy_of("answer");
    wire.say_message(Lane::normal, 2, answer, net::frame_flag::prepaid);
    Message large;
    large.body = hf::Buffer::heap(size - 64);
    wire.say_message(Lane::normal, 1, large);
    // And the lane goes on behind both.
    wire.say_message(Lane::normal, 3, Message());
  });
  CHECK(node.handler.count == 3);
  CHECK(node.handler.down_count == 0);
  // Neither number can be used again.
  node.step([&] { wire.say_message(Lane::normal, 2, Message()); });
  CHECK(!wire.alive());
}

TEST_CASE("senders that give up while the peer does not read leave no requests behind") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] {
    wire.lend(window);
    wire.stop_reading();
  });
  std::error_code code;
  for (int i = 0; i < 1200; ++i) {
    node.step([&] { node.start_send(window, Lane::bulk, 1us, &code); });
    if (i % 200 == 0) node.pass(1ms);
  }
  CHECK(code == hf::Errc::deadline_exceeded);
  REQUIRE(wire.alive());
  node.step([&] { wire.read_again(); });
  std::vector<WireFrame> frames;
  node.step([&] { frames = wire.hear(); });
  CHECK(of_kind(frames, FrameKind::announce).size() <= 1);
  CHECK(of_kind(frames, FrameKind::withdraw).size() <= 1);
  // The lane works.
  node.step([&] { node.start_send(10, Lane::bulk, 1s, &code); });
  node.step([&] { CHECK(wire.hear(FrameKind::data).size() == 1); });
}

TEST_CASE("a peer that never acknowledges gets a bounded share, and keeps nothing from others") {
  hf::SimNodeOptions small;
  small.shard.send_quota_bytes = 8u << 20;  // a share of it is 1 MiB
  WireNode node({}, small);
  Wire& wire = node.add_wire();
  Wire& other = node.add_wire();
  wire.acknowledging = false;
  node.step([&] {
    wire.lend(1u << 20);
    other.lend(1u << 20);
  });
  std::uint64_t sent = 0;
  const auto flood = [&](MessageKind kind, std::size_t size) {
    Message message;
    message.envelope.kind = kind;
    message.body = hf::Buffer::heap(size);
    while (node.session(0)->try_send(message)) {
      sent += size;
      message.envelope.kind = kind;
      message.body = hf::Buffer::heap(size);
    }
  };
  for (int round = 0; round < 200; ++round) {
    node.step([&] { flood(MessageKind::tell, round % 2 ? 3000 : 60'000); });
    node.step([&] {
      std::uint64_t cost = 0;
      for (const WireFrame& frame : wire.hear(FrameKind::data))
        if (frame.header.offset == 0) cost += net::credit_cost(frame.header.total);
      if (cost) wire.say(FrameKind::credit, Lane::normal, 0, cost);
    });
  }
  node.step([&] {
    CHECK(node.session(0)->stats().unacknowledged_bytes < (1u << 20) + (512u << 10));
    CHECK(sent > (1u << 20));
    CHECK(sent < (3u << 20));  // its share, its window, and a batch
  });
  REQUIRE(wire.alive());
  // The other one is served as ever.
  std::error_code code = hf::Errc::internal;
  node.step([&] { node.start_send(3000, Lane::normal, 1s, &code, 1); });
  node.step([&] { CHECK(other.hear(FrameKind::data).size() == 1); });
  CHECK(!code);
  SECTION("what waited goes on when it acknowledges") {
    wire.acknowledging = true;
    node.step([&] { node.start_send(3000, Lane::normal, 5s, &code); });
    node.step([&] { wire.say(FrameKind::acknowledge); });
    CHECK(!code);
    node.step([&] { CHECK(wire.hear(FrameKind::data).size() >= 1); });
  }
  SECTION("one that never does has to go") {
    node.pass(35s);
    CHECK(!wire.alive());
    CHECK(other.alive());
  }
}

TEST_CASE("a peer that answers a heartbeat without acknowledging what came before it is corrupt") {
  WireNode node;
  Wire& wire = node.add_wire();
  const auto answer_heartbeat = [&] {
    for (const WireFrame& frame : wire.hear())
      if (frame.header.kind == FrameKind::heartbeat)
        wire.say(FrameKind::heartbeat_reply, Lane::control, frame.header.message);
  };
  node.step([&] { wire.lend(window); });
  for (int i = 0; i < 20; ++i) {
    node.pass(500ms);
    node.step(answer_heartbeat);
  }
  REQUIRE(wire.alive());
  wire.acknowledging = false;
  for (int i = 0; i < 4 && wire.alive(); ++i) {
    node.step([&] { node.start_send(10, Lane::normal); });
    node.pass(1s);
    node.step(answer_heartbeat);
  }
  CHECK(!wire.alive());
}

TEST_CASE("a peer that lends more than any node has is corrupt") {
  WireNode node;
  Wire& wire = node.add_wire();
  SECTION("on a lane") {
    node.step([&] {
      wire.say(FrameKind::credit, Lane::bulk, 0, std::uint64_t{1} << 39, net::frame_flag::window);
    });
  }
  SECTION("by and by") {
    node.step([&] {
      for (int i = 0; i < 100; ++i)
        wire.say(FrameKind::credit, Lane::bulk, 0, 1u << 20, net::frame_flag::window);
    });
  }
  SECTION("for answers") {
    node.step([&] {
      wire.say(FrameKind::credit, Lane::control, ~std::uint64_t{0}, 1u << 20,
               net::frame_flag::window);
    });
  }
  CHECK(!wire.alive());
}

TEST_CASE("asks keep no more room for answers than their peer has") {
  WireNode node;
  Wire& wire = node.add_wire();
  std::vector<net::Envelope> asks;
  node.handler.react = [&](net::Session&, Lane, Message message) {
    asks.push_back(message.envelope);
  };
  std::uint64_t number = 0;
  const auto say_ask = [&] { wire.say_message(Lane::normal, ++number, ask(15'000)); };
  node.step([&] {
    wire.lend(window);
    for (int i = 0; i < 4; ++i) say_ask();
  });
  REQUIRE(asks.size() == 4);
  // Room that an answer has set free can be used again, and only that.
  node.step([&] {
    Message answer;
    answer.envelope = net::answer_to(asks[0]);
    REQUIRE(node.session()->try_send(answer));
  });
  node.step([&] { CHECK(wire.hear(FrameKind::data).size() == 1); });
  node.step(say_ask);
  REQUIRE(asks.size() == 5);
  REQUIRE(wire.alive());
  node.step(say_ask);
  CHECK(asks.size() == 5);
  CHECK(!wire.alive());
}

TEST_CASE("room for answers is not free again before the answer has left") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.handler.react = [&](net::Session& session, Lane lane, Message message) {
    Message answer;
    answer.envelope = net::answer_to(message.envelope);
    answer.body = hf::Buffer::heap(14'000);
    CHECK(session.try_send(answer, lane));
  };
  node.step([&] {
    wire.lend(window);
    wire.stop_reading();
  });
  for (std::uint64_t number = 1; number < 100 && wire.alive(); ++number)
    node.step([&] { wire.say_message(Lane::normal, number, ask(15'000)); });
  CHECK(!wire.alive());
  CHECK(node.handler.count <= 10);
}

TEST_CASE("what is granted and not sent is taken back, once others wait for it") {
  net::Network::Options options;
  options.receive_budget_bytes = 4u << 20;
  WireNode node(options);
  Wire& idle = node.add_wire();
  Wire& other = node.add_wire();
  const std::uint64_t size = 2u << 20;
  node.step([&] { idle.say(FrameKind::announce, Lane::bulk, 1, size); });
  node.step([&] { REQUIRE(idle.hear(FrameKind::grant).size() == 1); });
  bool drips = false;
  SECTION("none of it comes") {}
  SECTION("it comes byte by byte") { drips = true; }
  std::uint64_t offset = 0;
  const auto drip = [&] {
    if (!drips || !idle.alive()) return;
    net::FrameHeader header;
    header.lane = Lane::bulk;
    header.message = 1;
    header.offset = offset;
    header.total = size;
    idle.say(header, std::vector<std::byte>(1));
    ++offset;
  };
  // Nobody is harmed yet.
  for (int i = 0; i < 20; ++i) {
    node.step(drip);
    node.pass(500ms);
  }
  REQUIRE(idle.alive());
  node.step([&] { other.say(FrameKind::announce, Lane::bulk, 1, size); });
  node.step([&] { CHECK(other.hear(FrameKind::grant).empty()); });
  for (int i = 0; i < 12; ++i) {
    node.step(drip);
    node.pass(500ms);
  }
  CHECK(!idle.alive());
  CHECK(other.alive());
  node.step([&] { CHECK(other.hear(FrameKind::grant).size() == 1); });
}

TEST_CASE("a granted message that comes slowly, but comes, may take its time") {
  net::Network::Options options;
  options.receive_budget_bytes = 4u << 20;
  WireNode node(options);
  Wire& slow = node.add_wire();
  Wire& other = node.add_wire();
  const std::uint64_t size = 2u << 20;
  node.step([&] {
    slow.say(FrameKind::announce, Lane::bulk, 1, size);
    other.say(FrameKind::announce, Lane::bulk, 1, size);
  });
  Message message;
  message.body = hf::Buffer::heap(size - 64);
  const auto bytes = Wire::encoded(message);
  const std::size_t part = 32 << 10;
  std::size_t grants = 0;
  for (std::uint64_t offset = 0; offset < size; offset += part) {
    node.step([&] {
      slow.hear();
      grants += other.hear(FrameKind::grant).size();
      net::FrameHeader header;
      header.lane = Lane::bulk;
      header.message = 1;
      header.offset = offset;
      header.total = size;
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
      slow.say(header, std::vector<std::byte>(begin, begin + part));
    });
    node.pass(1s);
  }
  CHECK(node.handler.count == 1);
  CHECK(slow.alive());
  node.step([&] { grants += other.hear(FrameKind::grant).size(); });
  CHECK(grants == 1);
}

TEST_CASE("credit comes back however little it is") {
  WireNode node;
  Wire& wire = node.add_wire();
  std::uint64_t lent = 0;
  node.step([&] {
    for (const WireFrame& frame : wire.hear(FrameKind::credit))
      if (frame.header.lane == Lane::bulk) lent = frame.header.total;
  });
  REQUIRE(lent > 0);
  // A fifth of the window, which is destroyed at once: too little to be worth a frame of its own.
  Message message;
  node.step([&] {
    message.body = hf::Buffer::heap(lent / 5);
    wire.say_message(Lane::bulk, 1, message);
  });
  CHECK(node.handler.count == 1);
  node.pass(2s);
  std::uint64_t returned = 0;
  node.step([&] {
    for (const WireFrame& frame : wire.hear(FrameKind::credit)) returned += frame.header.total;
  });
  CHECK(returned == net::credit_cost(lent / 5 + 64));
}

TEST_CASE("only acknowledgements and heartbeats follow a link's close") {
  WireNode node;
  Wire& wire = node.add_wire();
  std::vector<Message> kept;
  node.handler.react = [&](net::Session&, Lane, Message message) {
    kept.push_back(std::move(message));
  };
  node.step([&] {
    Message message;
    message.body = hf::Buffer::heap(500'000);
    wire.say_message(Lane::bulk, 1, message);
    wire.hear();
  });
  REQUIRE(kept.size() == 1);
  node.step([&] { node.begin_close(); });
  node.step([&] { CHECK(wire.hear(FrameKind::close).size() == 1); });
  node.step([&] {
    kept.clear();
    wire.say(FrameKind::announce, Lane::bulk, 2, 10u << 20);
  });
  node.pass(1500ms);
  std::vector<WireFrame> frames;
  node.step([&] { frames = wire.hear(); });
  CHECK(of_kind(frames, FrameKind::credit).empty());
  CHECK(of_kind(frames, FrameKind::grant).empty());
  CHECK(!of_kind(frames, FrameKind::heartbeat).empty());
}

TEST_CASE("a session ends before another with the same node begins, whichever word comes first") {
  WireNode node;
  Wire& old = node.add_wire(77);
  std::vector<Message> kept;
  node.handler.react = [&](net::Session&, Lane, Message message) {
    kept.push_back(std::move(message));
  };
  node.step([&] { old.say_message(Lane::normal, 1, Message()); });
  REQUIRE(node.handler.ups == 1);
  Wire& young = node.add_wire(77);
  CHECK(node.handler.ups == 2);
  CHECK(node.handler.down_count == 1);
  CHECK(!old.alive());
  REQUIRE(young.alive());
  // The word that the old one has ended comes late, and does not mean this one.
  node.step([&] { node.end_session(0); });
  CHECK(node.handler.down_count == 1);
  REQUIRE(young.alive());
  node.step([&] {
    young.say_message(Lane::normal, 1, Message());
    kept.clear();
  });
  CHECK(node.handler.count == 2);
}
