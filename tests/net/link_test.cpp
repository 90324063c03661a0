// What a link does with a peer that keeps the rules, and with one that does not.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/link.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <map>
#include <random>
#include <set>

#include "wire.hpp"

using namespace net_test;
using net::FrameKind;
using net::Lane;
using net::Message;
using net::MessageKind;

namespace {

constexpr std::uint64_t window = 256 << 10;

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
    node.pass(hf::timing().scaled(35s));
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

TEST_CASE("a large ask that is refused as it gives up keeps no room for its answer") {
  net::Network::Options options;
  options.receive_budget_bytes = 1u << 20;  // there is room for 15 answers
  WireNode node(options);
  Wire& wire = node.add_wire();
  node.step([&] { wire.lend(window); });
  const auto send = [](net::SessionRef session, std::size_t body) -> hf::Task<void> {
    Message message = ask(4096);
    if (body) message.body = hf::Buffer::heap(body);
    co_await session->send(std::move(message), Lane::normal, hf::after(1h));
  };
  for (int i = 0; i < 40; ++i) {
    auto scope = std::make_unique<hf::Scope>();
    node.step([&] { scope->spawn(send(node.session(), window)); });
    node.step([&] {
      const auto announced = wire.hear(FrameKind::announce);
      REQUIRE(announced.size() == 1);
      scope->cancel();
      wire.say(FrameKind::refuse, Lane::normal, announced[0].header.message);
    });
    node.step([&] { scope.reset(); });
  }
  node.step([&] { hf::Shard::current()->spawn(send(node.session(), 0)); });
  node.step([&] { CHECK(wire.hear(FrameKind::data).size() == 1); });
}

TEST_CASE("a peer that refuses what was not announced gets no room that was not promised to it") {
  for (const FrameKind kind : {FrameKind::refuse, FrameKind::grant, FrameKind::withdraw}) {
    INFO(name(kind));
    WireNode node;
    Wire& wire = node.add_wire();
    std::error_code code;
    // It waits for credit, and nothing is announced.
    node.step([&] {
      const auto ask_and_wait = [](net::SessionRef session,
                                   std::error_code* code) -> hf::Task<void> {
        try {
          co_await session->send(ask(4096), Lane::normal, hf::after(1h));
        } catch (const hf::Error& error) {
          *code = error.code();
        }
      };
      hf::Shard::current()->spawn(ask_and_wait(node.session(), &code));
    });
    node.step([&] { wire.say(kind, Lane::normal, 0); });
    // An answer that nobody asked for, and in room that nobody kept.
    Message answer;
    answer.envelope.kind = MessageKind::reply;
    answer.envelope.reply_room = 4096;
    if (wire.alive())
      node.step([&] { wire.say_message(Lane::normal, 1, answer, net::frame_flag::prepaid); });
    CHECK(!wire.alive());
    CHECK(node.handler.count == 0);
    node.step([&] { node.end_session(); });
    CHECK(code == hf::Errc::corrupt);
  }
}

namespace {

hf::Task<void> send_and_note(net::SessionRef session, std::size_t size, std::string* text) {
  try {
    Message message;
    message.body = hf::Buffer::heap(size);
    co_await session->send(std::move(message), Lane::bulk, hf::after(5s));
  } catch (const hf::Error& error) {
    *text = error.what();
  }
}

}  // namespace

TEST_CASE("what a peer says for people reaches no log or terminal but as plain letters") {
  const std::string words = "no\x1b[2Jway\n\xff";
  const auto* const bytes = reinterpret_cast<const std::byte*>(words.data());
  const std::vector<std::byte> payload(bytes, bytes + words.size());
  WireNode node;
  Wire& wire = node.add_wire();
  std::string refused;
  node.step([&] {
    wire.lend(window);
    hf::Shard::current()->spawn(send_and_note(node.session(), window, &refused));
  });
  node.step([&] {
    const auto announced = wire.hear(FrameKind::announce);
    REQUIRE(announced.size() == 1);
    net::FrameHeader header;
    header.kind = FrameKind::refuse;
    header.lane = Lane::bulk;
    header.message = announced[0].header.message;
    wire.say(header, payload);
  });
  CHECK(refused.find("the peer refused it: no?[2Jway??") != std::string::npos);
  std::string closed;
  node.step([&] {
    net::FrameHeader header;
    header.kind = FrameKind::close;
    wire.say(header, payload);
    closed = node.session()->check(Message()).error().what();
  });
  CHECK(closed.find("the peer closed it: no?[2Jway??") != std::string::npos);
}

TEST_CASE("messages of all sizes arrive whole and in order, however their bytes are cut") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    WireNode node;
    Wire& wire = node.add_wire();
    std::vector<std::size_t> sizes, came;
    node.handler.react = [&](net::Session&, Lane, Message message) {
      came.push_back(message.body.size());
      bool same = true;
      for (const std::byte byte : message.body.bytes())
        same &= byte == static_cast<std::byte>(came.size());
      CHECK(same);
    };
    node.step([&] { wire.cut = [&] { return 1 + random() % (1 << (random() % 18)); }; });
    for (std::uint64_t number = 1; number <= 30; ++number) {
      const std::size_t size = random() % (std::size_t{1} << (random() % 18));
      sizes.push_back(size);
      Message message;
      if (size) message.body = hf::Buffer::heap(size);
      for (std::byte& byte : message.body.bytes()) byte = static_cast<std::byte>(number);
      node.step([&] { wire.say_message(Lane::normal, number, message); });
    }
    CHECK(wire.alive());
    CHECK(came == sizes);
  }
}

TEST_CASE("once bytes arrive where they shall lie, those of large messages go on to, tails too") {
  constexpr std::size_t first = 16 << 10;
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] {
    wire.cut = [] { return first; };
    for (std::uint64_t number = 1; number <= 5; ++number) {
      Message message;
      message.body = hf::Buffer::heap(100'000);
      std::memset(message.body.data(), static_cast<int>(number), message.body.size());
      wire.say_message(Lane::normal, number, message);
    }
  });
  CHECK(node.handler.count == 5);
  CHECK(wire.fed_in_chunks == first);  // before the link knew
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
  node.pass(hf::timing().scaled(2s));
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
  node.pass(hf::timing().scaled(1500ms));
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

TEST_CASE("each lane says which of its messages the peer has") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] { wire.lend(1u << 20); });
  const auto send = [&](Lane lane, std::size_t size) {
    Message message;
    message.body = hf::Buffer::heap(size);
    REQUIRE(node.session()->try_send(message, lane));
  };
  node.step([&] {
    for (int i = 0; i < 5; ++i) send(Lane::normal, 100);
    send(Lane::bulk, 400'000);  // two fragments
    send(Lane::bulk, 100);
    for (int i = 0; i < 3; ++i) send(Lane::control, 100);
  });
  const auto acknowledged = [&] {
    net::Session::Stats stats;
    node.step([&] { stats = node.session()->stats(); });
    return std::vector<std::uint64_t>{stats.lanes[0].messages_acknowledged,
                                      stats.lanes[1].messages_acknowledged,
                                      stats.lanes[2].messages_acknowledged};
  };
  CHECK(acknowledged() == std::vector<std::uint64_t>{0, 0, 0});
  std::vector<WireFrame> data;
  node.step([&] { data = wire.hear(FrameKind::data); });
  REQUIRE(data.size() == 11);  // control, then normal, then bulk
  wire.acknowledging = false;
  const auto acknowledge = [&](std::size_t frame) {
    node.step([&] {
      net::FrameHeader header;
      header.kind = FrameKind::acknowledge;
      header.acknowledgement = data[frame].header.sequence;
      wire.say(header);
    });
  };
  acknowledge(0);
  CHECK(acknowledged() == std::vector<std::uint64_t>{1, 0, 0});
  acknowledge(4);
  CHECK(acknowledged() == std::vector<std::uint64_t>{3, 2, 0});
  acknowledge(8);  // the first half of the large one
  CHECK(acknowledged() == std::vector<std::uint64_t>{3, 5, 0});
  acknowledge(9);
  CHECK(acknowledged() == std::vector<std::uint64_t>{3, 5, 1});
  // What was so when it ended is still said afterwards.
  node.step([&] {
    const net::SessionRef session = node.session();
    node.end_session();
    CHECK(session->stats().lanes[2].messages_acknowledged == 1);
    CHECK(session->stats().lanes[2].messages_sent == 2);
  });
}

TEST_CASE("what is on lane control goes ahead of all that waits on the others") {
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] {
    wire.lend(8u << 20);
    wire.stop_reading();
  });
  const auto send = [&](Lane lane, std::size_t size) {
    Message message;
    message.body = hf::Buffer::heap(size);
    REQUIRE(node.session()->try_send(message, lane));
  };
  node.step([&] {
    for (int i = 0; i < 100; ++i) send(Lane::normal, 50'000);
    for (int i = 0; i < 10; ++i) send(Lane::bulk, 500'000);
  });
  // One batch is on its way; what comes now waits for that one only.
  node.step([&] {
    for (int i = 0; i < 20; ++i) send(Lane::control, 1000);
  });
  node.step([&] { wire.read_again(); });
  std::uint64_t before = 0;
  int controls = 0, others_between = 0;
  for (int round = 0; round < 200; ++round) {
    node.step([&] {
      for (const WireFrame& frame : wire.hear(FrameKind::data)) {
        if (frame.header.lane == Lane::control) {
          ++controls;
        } else if (controls == 0) {
          before += frame.header.length;
        } else if (controls < 20) {
          ++others_between;
        }
      }
      wire.say(FrameKind::acknowledge);
    });
  }
  CHECK(controls == 20);
  CHECK(others_between == 0);
  CHECK(before <= (512u << 10));
}

TEST_CASE("a heartbeat is answered in the midst of a bulk message, behind one batch at most") {
  constexpr std::size_t bulk = 8 << 20;
  WireNode node;
  Wire& wire = node.add_wire();
  node.step([&] { wire.lend(window); });
  node.step([&] { node.start_send(bulk, Lane::bulk); });
  node.step([&] {
    wire.stop_reading();
    for (const WireFrame& frame : wire.hear(FrameKind::announce))
      wire.say(FrameKind::grant, Lane::bulk, frame.header.message);
  });
  node.step([&] { wire.say(FrameKind::heartbeat, Lane::control, 77); });
  node.step([&] { wire.read_again(); });
  std::uint64_t before = 0, all = 0;
  bool answered = false;
  node.step([&] {
    for (const WireFrame& frame : wire.hear()) {
      if (frame.header.kind == FrameKind::heartbeat_reply)
        answered = frame.header.message == 77;
      else if (frame.header.kind == FrameKind::data)
        all += frame.header.length;
      if (!answered) before = all;
    }
  });
  CHECK(answered);
  CHECK(all > bulk);
  CHECK(before <= (512u << 10));
}

namespace {

/// What keeps a send waiting.
enum class Wait { credit, grant, turn_to_announce, reply_room, acknowledgement };
/// What ends the wait.
enum class Ending { goes_on, cancelled, timed_out, destroyed, session_ended, cancelled_meanwhile };

/// A link whose lane normal is stuck, and a far end that can do all that gets it going.
class StuckLane {
 public:
  explicit StuckLane(Wait wait) : node({}, small()), wire(node.add_wire()) {
    node.step([&] { wire.lend(window); });
    node.step([&] { get_stuck(wait); });
    if (wait == Wait::turn_to_announce)
      node.step([&] { wire.say(FrameKind::grant, Lane::normal, 2); });
    // Until what is not acknowledged is all that it may be.
    for (int i = 0; wait == Wait::acknowledgement && i < 30; ++i)
      node.step([&] { (void)try_send(message_for(Wait::credit)); });
  }

  /// The one that waits.
  static Message message_for(Wait wait) {
    if (wait == Wait::reply_room) return ask(30'000);
    Message message;
    const bool large = wait == Wait::grant || wait == Wait::turn_to_announce;
    message.body = hf::Buffer::heap(large ? window : 60'000);
    return message;
  }

  std::uint64_t waiting() {
    std::uint64_t count = 0;
    node.step([&] { count = node.session()->stats().lanes[1].waiting_senders; });
    return count;
  }

  /// The far end reads, acknowledges, grants, answers, and gives all credit back. Each message that
  /// came as a whole adds to `arrived`, by its size.
  void serve() {
    node.step([&] { begin_serving(); });
    for (int round = 0; round < 30; ++round) node.step([&] { serve_once(); });
  }
  void begin_serving() {
    wire.acknowledging = true;
    wire.read_again();
    wire.say(FrameKind::acknowledge);
  }
  void serve_once() {
    for (const WireFrame& frame : wire.hear()) take(frame);
    wire.say(FrameKind::acknowledge);
  }
  std::map<std::uint64_t, int> arrived;

  WireNode node;
  Wire& wire;

 private:
  static hf::SimNodeOptions small() {
    hf::SimNodeOptions options;
    options.shard.send_quota_bytes = 8u << 20;  // 1 MiB may be unacknowledged
    return options;
  }

  bool try_send(Message message) {
    return node.session()->try_send(message, Lane::normal).has_value();
  }

  void get_stuck(Wait wait) {
    switch (wait) {
      case Wait::credit:
        while (try_send(message_for(wait))) {
        }
        break;
      case Wait::grant: break;
      case Wait::turn_to_announce:
        // One that is granted stands behind a batch that the far end does not take.
        wire.stop_reading();
        REQUIRE(try_send(Message()));
        node.start_send(window, Lane::normal);
        granted_.insert(2);
        break;
      case Wait::reply_room:
        while (try_send(message_for(wait))) {
        }
        break;
      case Wait::acknowledgement: {
        wire.acknowledging = false;
        wire.say(FrameKind::credit, Lane::normal, 0, 4u << 20, net::frame_flag::window);
        break;
      }
    }
  }

  void take(const WireFrame& frame) {
    const net::FrameHeader& header = frame.header;
    if (header.kind == FrameKind::announce) {
      granted_.insert(header.message);
      wire.say(FrameKind::grant, header.lane, header.message);
    }
    if (header.kind != FrameKind::data) return;
    if (header.offset + header.length == header.total) {
      ++arrived[header.total];
      if (!granted_.contains(header.message))
        wire.say(FrameKind::credit, Lane::normal, 0, net::credit_cost(header.total));
    }
    if (header.offset) return;
    auto head = net::wire::decode_head(std::span<const std::byte, 64>(frame.payload.data(), 64),
                                       header.total);
    REQUIRE(head);
    if (head->envelope.kind != MessageKind::ask) return;
    Message answer;
    answer.envelope = net::answer_to(head->envelope);
    wire.say_message(Lane::normal, ++answers_, answer, net::frame_flag::prepaid);
  }

  std::set<std::uint64_t> granted_;
  std::uint64_t answers_ = 0;
};

hf::Task<void> send_and_note(net::SessionRef session, Message message, hf::Duration within,
                             std::error_code* code) {
  try {
    co_await session->send(std::move(message), Lane::normal, hf::after(within));
    *code = {};
  } catch (const hf::Error& error) {
    *code = error.code();
  }
}

std::error_code expected(Ending ending) {
  switch (ending) {
    case Ending::cancelled: return hf::Errc::cancelled;
    case Ending::timed_out: return hf::Errc::deadline_exceeded;
    case Ending::session_ended: return hf::Errc::peer_lost;
    case Ending::destroyed: return hf::Errc::internal;  // never noted
    default: return {};
  }
}

}  // namespace

TEST_CASE("a send that waits ends cleanly, whatever it waits for and whatever ends it") {
  for (const Wait wait : {Wait::credit, Wait::grant, Wait::turn_to_announce, Wait::reply_room,
                          Wait::acknowledgement}) {
    for (const Ending ending :
         {Ending::goes_on, Ending::cancelled, Ending::timed_out, Ending::destroyed,
          Ending::session_ended, Ending::cancelled_meanwhile}) {
      INFO("wait " << static_cast<int>(wait) << ", ending " << static_cast<int>(ending));
      StuckLane lane(wait);
      std::error_code code = hf::Errc::internal;
      hf::CancelSource source;
      std::unique_ptr<hf::Scope> scope;
      lane.node.step([&] {
        scope = std::make_unique<hf::Scope>(&source);
        const auto within = ending == Ending::timed_out ? 10ms : 5s;
        scope->spawn(
            send_and_note(lane.node.session(), StuckLane::message_for(wait), within, &code));
      });
      REQUIRE(lane.waiting() == 1);
      switch (ending) {
        case Ending::goes_on: break;
        case Ending::cancelled: lane.node.step([&] { source.cancel(); }); break;
        case Ending::timed_out: lane.node.pass(20ms); break;
        case Ending::destroyed: lane.node.step([&] { scope.reset(); }); break;
        case Ending::session_ended: lane.node.step([&] { lane.node.end_session(); }); break;
        case Ending::cancelled_meanwhile:
          // In the turn in which it may go as well.
          lane.node.step([&] {
            lane.begin_serving();
            lane.serve_once();
            source.cancel();
          });
          break;
      }
      if (ending == Ending::session_ended) {
        CHECK(code == hf::Errc::peer_lost);
      } else {
        lane.serve();
        CHECK(lane.waiting() == 0);
        if (ending == Ending::cancelled_meanwhile) {
          CHECK((!code || code == hf::Errc::cancelled));
        } else {
          CHECK(code == expected(ending));
        }
        // The next one goes, small or large, and nothing is left behind that would be in its way.
        std::error_code small = hf::Errc::internal, large = hf::Errc::internal;
        lane.node.step([&] { lane.node.start_send(200, Lane::normal, 5s, &small); });
        lane.serve();
        lane.node.step([&] { lane.node.start_send(300'000, Lane::normal, 5s, &large); });
        lane.serve();
        CHECK(!small);
        CHECK(!large);
        CHECK(lane.arrived[264] == 1);
        CHECK(lane.arrived[300'064] == 1);
        CHECK(lane.wire.alive());
      }
      lane.node.step([&] { scope.reset(); });
    }
  }
}

namespace {

/// Peers that announce, send, withdraw and vanish as chance has it, and what each was granted.
class Announcers {
 public:
  Announcers(WireNode& node, std::uint64_t seed, std::uint64_t most)
      : node_(node), random_(seed), most_(most) {}

  void step() {
    if (peers_.size() < 4 && random_() % 4 == 0) {
      Peer& peer = peers_.emplace_back();
      peer.wire = &node_.add_wire();
      peer.index = next_index_++;
    }
    if (peers_.empty()) return;
    node_.step([&] {
      Peer& peer = peers_[random_() % peers_.size()];
      hear();
      Lane lane = static_cast<Lane>(random_() % 3);
      Announced& at = peer.lanes[static_cast<std::size_t>(lane)];
      switch (random_() % 8) {
        case 0:
        case 1:
        case 2: announce(peer, lane, at); break;
        case 3:
        case 4:
        case 5: send(peer, lane, at); break;
        case 6:
          if (at.total && !at.begun) {
            peer.wire->say(FrameKind::withdraw, lane, at.message);
            at.total = 0;
          }
          break;
        default:
          if (random_() % 8 == 0) {
            node_.end_session(peer.index);
            peers_.erase(peers_.begin() + (&peer - peers_.data()));
          } else if (!kept_.empty()) {
            kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(random_() % kept_.size()));
          }
      }
    });
    node_.step([&] { hear(); });
    highest_ = std::max(highest_, granted());
  }

  /// Destroys and sends everything that there is, until nobody waits for a grant.
  bool settle() {
    for (int round = 0; round < 200; ++round) {
      node_.step([&] {
        kept_.clear();
        hear();
        for (Peer& peer : peers_)
          for (std::size_t i = 0; i < 3; ++i) send(peer, static_cast<Lane>(i), peer.lanes[i]);
      });
    }
    return std::ranges::all_of(peers_, [](const Peer& peer) {
      return std::ranges::all_of(peer.lanes, [](const Announced& at) { return at.total == 0; });
    });
  }

  /// Bytes that are granted, or were and are still held.
  std::uint64_t granted() const {
    std::uint64_t sum = 0;
    for (const Peer& peer : peers_)
      for (const Announced& at : peer.lanes)
        if (at.total && at.granted) sum += net::credit_cost(at.total);
    for (const Message& message : kept_) sum += net::credit_cost(64 + message.body.size());
    return sum;
  }
  void keep(Message message) { kept_.push_back(std::move(message)); }
  std::uint64_t highest() const { return highest_; }
  int refusals = 0, grants = 0;

 private:
  struct Announced {
    std::uint64_t message = 0, total = 0;
    bool granted = false, begun = false;
  };
  struct Peer {
    Wire* wire = nullptr;
    std::size_t index = 0;
    Announced lanes[3];
    std::uint64_t last[3] = {};
  };

  void announce(Peer& peer, Lane lane, Announced& at) {
    if (at.total) return;
    const std::uint64_t size = random_() % 4 ? random_() % (1u << 20) : random_() % most_;
    at = {++peer.last[static_cast<std::size_t>(lane)], 64 + 1 + size, false, false};
    peer.wire->say(FrameKind::announce, lane, at.message, at.total);
  }
  void send(Peer& peer, Lane lane, Announced& at) {
    if (!at.total || !at.granted) return;
    Message message;
    message.body = hf::Buffer::heap(at.total - 64);
    const std::uint64_t number = at.message;
    at = {};  // from here on it counts where it is kept
    peer.wire->say_message(lane, number, message);
  }
  void hear() {
    for (Peer& peer : peers_) {
      for (const WireFrame& frame : peer.wire->hear()) {
        Announced& at = peer.lanes[static_cast<std::size_t>(frame.header.lane)];
        if (at.message != frame.header.message || !at.total) continue;
        if (frame.header.kind == FrameKind::grant) {
          at.granted = true;
          ++grants;
        }
        if (frame.header.kind == FrameKind::refuse) {
          at = {};
          ++refusals;
        }
      }
    }
  }

  WireNode& node_;
  std::mt19937_64 random_;
  std::uint64_t most_;
  std::vector<Peer> peers_;
  std::size_t next_index_ = 0;
  std::vector<Message> kept_;
  std::uint64_t highest_ = 0;
};

}  // namespace

TEST_CASE("what is granted at any time, to however many, is never more than the budget") {
  int refusals = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    net::Network::Options options;
    options.receive_budget_bytes = 8u << 20;
    WireNode node(options);
    Announcers announcers(node, seed, 7u << 20);
    node.handler.react = [&](net::Session&, Lane, Message message) {
      announcers.keep(std::move(message));
    };
    for (int i = 0; i < 600; ++i) {
      announcers.step();
      REQUIRE(announcers.granted() <= options.receive_budget_bytes);
    }
    CHECK(announcers.highest() > (4u << 20));
    CHECK(announcers.grants > 50);
    refusals += announcers.refusals;
    CHECK(announcers.settle());
    node.step([&] { CHECK(node.shard().receive_pool().usage().used_bytes == 0); });
  }
  CHECK(refusals > 0);
}

TEST_CASE("an answer too large for its asker's room passes asks that wait for room here") {
  WireNode node;
  Wire& wire = node.add_wire();
  net::Envelope asked;
  node.handler.react = [&](net::Session&, Lane, Message message) { asked = message.envelope; };
  node.step([&] {
    wire.lend(1u << 20);
    wire.say_message(Lane::normal, 1, ask(4096));
  });
  REQUIRE(node.handler.count == 1);
  // Both ends wait for room for answers. The peer's answers stand behind its own asks, as ours do.
  node.step([&] {
    Message message = ask(100'000);
    while (node.session()->try_send(message, Lane::normal)) message = ask(100'000);
  });
  std::error_code of_ask = hf::Errc::internal, of_tell = of_ask, of_small = of_ask,
                  of_large = of_ask;
  const auto send = [&](Message message, std::error_code* code) {
    hf::Shard::current()->spawn(send_and_note(node.session(), std::move(message), 5s, code));
  };
  const auto answer_of = [&](std::size_t size) {
    Message answer;
    answer.envelope = net::answer_to(asked);
    answer.body = hf::Buffer::heap(size);
    return answer;
  };
  node.step([&] {
    wire.hear();
    send(ask(100'000), &of_ask);
    send(Message(), &of_tell);
    SECTION("within the credit") { send(answer_of(50'000), &of_small); }
    SECTION("granted") { send(answer_of(700'000), &of_large); }
  });
  std::vector<std::uint64_t> totals;
  for (int round = 0; round < 5; ++round) {
    node.step([&] {
      for (const WireFrame& frame : wire.hear()) {
        if (frame.header.kind == FrameKind::announce)
          wire.say(FrameKind::grant, frame.header.lane, frame.header.message);
        if (frame.header.kind == FrameKind::data && frame.header.offset == 0)
          totals.push_back(frame.header.total);
      }
    });
  }
  REQUIRE(totals.size() == 1);
  CHECK(totals[0] > 50'000);
  CHECK((!of_small || !of_large));
  // The others still wait, in their order.
  CHECK(of_ask == hf::Errc::internal);
  CHECK(of_tell == hf::Errc::internal);
  node.step([&] {
    Message answer;
    answer.envelope = net::answer_to(ask(100'000).envelope);
    wire.say_message(Lane::normal, 2, answer, net::frame_flag::prepaid);
  });
  CHECK(!of_ask);
  CHECK(!of_tell);
}
