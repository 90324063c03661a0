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
