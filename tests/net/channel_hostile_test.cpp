// Peers that speak the link's protocol, and break the one of channels.
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/channel/codec.hpp>
#include <hyperframes/net/channel/peer.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <random>
#include <string>
#include <vector>

#include "messengers.hpp"
#include "transports.hpp"

using namespace net_test;
using net::Lane;
using net::Message;
using net::detail::ChannelOp;

namespace {

/// Keeps what comes.
class Recorder final : public net::MessageHandler {
 public:
  void on_message(net::Session&, Lane lane, Message message) noexcept override {
    if (!keeps) return;
    lanes.push_back(lane);
    messages.push_back(std::move(message));
  }
  void on_session_down(net::Session&, const hf::Error& reason) noexcept override {
    down = true;
    why = reason.what();
  }
  bool takes_channels() const noexcept override { return true; }
  std::vector<Message> messages;
  std::vector<Lane> lanes;
  bool keeps = true;
  bool down = false;
  std::string why;
};

/// On the shard of the messenger that it troubles.
struct Hostile {
  explicit Hostile(Messengers& both) : network(both.runtime, options(), recorder) {}
  /// Even numbers are its own: its id is the higher one.
  static net::Network::Options options() {
    net::Network::Options options;
    options.node_id = ~std::uint64_t{0};
    return options;
  }
  hf::Task<void> connect(std::string uri) {
    session = co_await network.connect(net::Endpoint::parse(uri), soon());
  }
  /// On its shard, and the last thing: messages may share memory, which ends where it was used, and
  /// more of them come until the network ends.
  void leave() {
    recorder.keeps = false;
    recorder.messages.clear();
    session = {};
  }
  Message word(ChannelOp op, std::uint32_t channel) const {
    Message message;
    message.envelope.flags = static_cast<std::uint8_t>(op);
    message.envelope.channel = channel;
    message.envelope.link = session->link();
    return message;
  }
  hf::Task<void> send(Message message, Lane lane = Lane::normal) {
    co_await session->send(std::move(message), lane, soon());
  }
  hf::Task<void> open(std::uint32_t channel, std::vector<std::string> keys = {}) {
    Message message = word(ChannelOp::open, channel);
    message.envelope.context = 1 << 20;
    message.body = net::detail::encode_opening(keys);
    co_await send(std::move(message), Lane::control);
  }
  Message data(std::uint64_t number, const MessageType* named, net::Metadata metadata = {}) const {
    Message message = word(ChannelOp::data, 2);
    message.envelope.correlation = number;
    message.envelope.type_id = MessageType("test.bad.one").id();
    message.metadata = net::detail::encode_metadata(named, metadata);
    return message;
  }

  Recorder recorder;
  net::Network network;
  net::SessionRef session;
};

using Trouble = std::function<hf::Task<void>(Hostile*)>;

/// What a messenger says of a peer that does this after it has opened channel 2.
std::string said_of(Trouble trouble, Messenger::Options options = {}) {
  const LogLines log;
  Messengers both(options);
  Hostile hostile(both);
  both.run([&]() -> hf::Task<void> {
    Ends good = co_await both.connect();
    co_await hostile.connect(both.uri);
    co_await hostile.open(2);
    Channel bad = co_await both.server->accept(soon());
    try {
      co_await trouble(&hostile);
    } catch (const hf::Error&) {
      // the session may have ended in the middle of it
    }
    const hf::Time limit = soon();
    while (!hostile.recorder.down && hf::Clock::now() < limit) co_await hf::sleep_for(1ms);
    CHECK(hostile.recorder.down);
    const hf::Error end = co_await failure_of(bad.recv("test.never.comes", soon()));
    CHECK(end.is(hf::Errc::corrupt));
    // Nobody else has noticed.
    co_await good.here.send(typed("test.good.one", "x"), soon());
    TypedMessage got = co_await good.there.recv({}, soon());
    CHECK(got.body.text() == "x");
    hostile.leave();
  });
  return log.text();
}

bool has(const std::string& text, const std::string& words) {
  INFO(text);
  CHECK(text.find(words) != std::string::npos);
  return text.find(words) != std::string::npos;
}

const MessageType bad_type("test.bad.one");

}  // namespace

TEST_CASE("a peer that breaks the protocol of channels loses its session, and nobody else's") {
  has(said_of([](Hostile* peer) { return peer->send(peer->word(ChannelOp::credit, 4)); }),
      "on channel 4, which is not open");
  has(said_of([](Hostile* peer) { return peer->send(peer->word(ChannelOp::data, 2)); }),
      "without a number");
  has(said_of([](Hostile* peer) { return peer->send(peer->data(1, nullptr)); }),
      "which it has not named");
  has(said_of([](Hostile* peer) {
        const MessageType other("test.other.one");
        return peer->send(peer->data(1, &other));
      }),
      "by the id of another one");
  has(said_of(
          [](Hostile* peer) { return peer->send(peer->data(1, &bad_type, {{"secret", "x"}})); }),
      "the key 'secret', which is not declared here");
  has(said_of([](Hostile* peer) {
        Message message = peer->data(1, nullptr);
        message.metadata = hf::Buffer::copy_of("garbage that is long enough");
        return peer->send(std::move(message));
      }),
      "does not verify");
  has(said_of([](Hostile* peer) { return peer->open(2); }), "channel 2 twice");
  has(said_of([](Hostile* peer) { return peer->open(3); }), "a number of this side's");
  has(said_of([](Hostile* peer) { return peer->open(4, {"other"}); }),
      "other metadata keys than before");
  has(said_of([](Hostile* peer) { return peer->open(4, {"No"}); }), "small letters");
  has(said_of([](Hostile* peer) {
        Message message = peer->word(ChannelOp::open, 4);
        message.body = net::detail::encode_opening({});
        return peer->send(std::move(message));
      }),
      "window is out of range");
  has(said_of([](Hostile* peer) { return peer->send(peer->word(ChannelOp::accepted, 2)); }),
      "was not asked for");
  has(said_of([](Hostile* peer) { return peer->send(peer->word(ChannelOp::refused, 2)); }),
      "was not asked for");
  has(said_of([](Hostile* peer) {
        Message message = peer->word(ChannelOp::credit, 2);
        message.envelope.context = 1;
        return peer->send(std::move(message));
      }),
      "more credit than it had lent");
  has(said_of([](Hostile* peer) { return peer->send(peer->word(ChannelOp(99), 2)); }),
      "does not know: 99");
  const std::string call =
      said_of([](Hostile* peer) { return peer->send(peer->word(ChannelOp::data, 0)); });
  has(call, "for an actor");
  has(call, "let it connect to the address of a Node");
  has(said_of([](Hostile* peer) {
        Message message = peer->data(1, &bad_type);
        message.envelope.kind = net::MessageKind::ask;
        return peer->send(std::move(message));
      }),
      "asks or answers");
}

TEST_CASE("a peer that sends a message twice, or after its last one, loses its session") {
  const auto twice = [](Hostile* peer, std::uint64_t number) -> hf::Task<void> {
    co_await peer->send(peer->data(number, &bad_type));
    co_await peer->send(peer->data(number, &bad_type));
  };
  has(said_of([&](Hostile* peer) { return twice(peer, 1); }), "message 1 of a channel twice");
  has(said_of([&](Hostile* peer) { return twice(peer, 7); }), "message 7 of a channel twice");
  const auto late = [](Hostile* peer) -> hf::Task<void> {
    co_await peer->send(peer->data(1, &bad_type));
    Message close = peer->word(ChannelOp::close, 2);
    close.envelope.correlation = 2;
    co_await peer->send(std::move(close));
    co_await peer->send(peer->data(3, &bad_type));
  };
  has(said_of(late), "after it had closed the channel");
  const auto less = [](Hostile* peer) -> hf::Task<void> {
    co_await peer->send(peer->data(2, &bad_type));
    Message close = peer->word(ChannelOp::close, 2);
    close.envelope.correlation = 1;
    co_await peer->send(std::move(close));
  };
  has(said_of(less), "after fewer messages than came");
  const auto by_both_lanes = [](Hostile* peer) -> hf::Task<void> {
    co_await peer->send(peer->data(2, &bad_type));
    co_await peer->send(peer->data(1, &bad_type), Lane::bulk);
    co_await peer->send(peer->data(2, &bad_type), Lane::bulk);
  };
  has(said_of(by_both_lanes), "message 2 of a channel twice");
}

TEST_CASE("a peer whose messages do not come in the order of a lane loses its session") {
  const auto downward = [](Hostile* peer) -> hf::Task<void> {
    co_await peer->send(peer->data(7, &bad_type));
    co_await peer->send(peer->data(6, &bad_type));
  };
  has(said_of(downward), "message 6 of a channel after message 7 by one lane");
  has(said_of([](Hostile* peer) { return peer->send(peer->data(1, &bad_type), Lane::control); }),
      "by the lane control");
}

TEST_CASE("a peer that does not keep to a channel's window loses its session") {
  Messenger::Options options;
  options.window_bytes = 64 << 10;
  const auto flood = [](Hostile* peer) -> hf::Task<void> {
    for (std::uint64_t i = 1; i < 100'000 && !peer->recorder.down; ++i) {
      Message message = peer->data(i, i == 1 ? &bad_type : nullptr);
      message.body = hf::Buffer::copy_of(std::string(1000, 'x'));
      co_await peer->send(std::move(message));
    }
  };
  has(said_of(flood, options), "more on a channel than it had credit for");
  // Not even by messages that can't be delivered yet.
  const auto gap = [](Hostile* peer) -> hf::Task<void> {
    for (std::uint64_t i = 2; i < 100'000 && !peer->recorder.down; ++i) {
      Message message = peer->data(i, &bad_type);
      message.body = hf::Buffer::copy_of(std::string(1000, 'x'));
      co_await peer->send(std::move(message));
    }
  };
  has(said_of(gap, options), "more on a channel than it had credit for");
}

TEST_CASE("a peer that names types without end loses its session") {
  const auto names = [](Hostile* peer) -> hf::Task<void> {
    for (std::uint64_t i = 1; i < 10'000 && !peer->recorder.down; ++i) {
      const MessageType type("test.bad.n" + std::to_string(i));
      Message message = peer->data(i, &type);
      message.envelope.type_id = type.id();
      co_await peer->send(std::move(message));
    }
  };
  Messenger::Options options;
  options.window_bytes = 16u << 20;
  has(said_of(names, options), "more than 4096 types");
}

namespace {

/// Mostly what makes sense, in any order.
Message random_word(const Hostile& peer, std::mt19937_64& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  Message word = peer.word(static_cast<ChannelOp>(below(8)), static_cast<std::uint32_t>(below(8)));
  if (below(2)) word.envelope.channel = 2;
  word.envelope.correlation = below(6);
  word.envelope.context = below(3) ? below(100'000) : random();
  word.envelope.type_id = below(4) ? bad_type.id() : random();
  if (below(30) == 0) word.envelope.kind = net::MessageKind::failure;
  switch (below(4)) {
    case 0: word.metadata = net::detail::encode_metadata(&bad_type, {}); break;
    case 1: word.metadata = net::detail::encode_metadata(nullptr, {{"key", "text"}}); break;
    case 2: word.body = net::detail::encode_opening({}); break;
    default: word.body = hf::Buffer::copy_of(std::string(below(3) ? below(100) : 100'000, 'x'));
  }
  if (!word.metadata.empty() && below(8) == 0)
    word.metadata.data()[below(word.metadata.size())] ^= static_cast<std::byte>(1 + below(255));
  return word;
}

/// Takes what peers have opened, uses it a little, and lets it go.
hf::Task<void> use_what_came(Messenger* messenger, std::mt19937_64* random) {
  while (true) {
    try {
      Channel channel = co_await messenger->accept(hf::after(hf::Duration(1)));
      TypedMessage message = typed("test.good.one", "x");
      (void)channel.try_send(message);
      while (channel.try_recv()) {
      }
      if ((*random)() % 2) channel.close("seen enough");
    } catch (const hf::Error&) {
      co_return;
    }
  }
}

}  // namespace

TEST_CASE("whatever a peer says on channels, only its own session is at stake") {
  const LogLines log;  // there is much to say
  const std::uint64_t seed = Catch::getSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Messengers both;
  both.run([&]() -> hf::Task<void> { (void)co_await both.listen(); });
  int broken = 0;
  for (int round = 0; round < 60; ++round) {
    Hostile peer(both);
    both.run([&]() -> hf::Task<void> {
      co_await peer.connect(both.uri);
      try {
        for (int i = 0; i < 40 && !peer.recorder.down; ++i) {
          if (i % 8 == 0) co_await peer.open(static_cast<std::uint32_t>(2 + i / 4));
          const bool bulk = random() % 4 == 0;
          co_await peer.send(random_word(peer, random), bulk ? Lane::bulk : Lane::normal);
          if (random() % 8 == 0) co_await use_what_came(both.server.get(), &random);
        }
      } catch (const hf::Error&) {
        ++broken;
      }
      co_await use_what_came(both.server.get(), &random);
      peer.leave();
    });
  }
  CHECK(broken > 0);
  both.run([&]() -> hf::Task<void> {
    co_await use_what_came(both.server.get(), &random);
    Ends good = co_await both.connect();
    co_await good.here.send(typed("test.good.one", "x"), soon());
    TypedMessage got = co_await good.there.recv({}, soon());
    CHECK(got.body.text() == "x");
  });
}

TEST_CASE("a node that has no channels ends the session of a peer that sends on one") {
  const Over over(GENERATE(bare_transports()));
  Node node;
  const std::string uri = node.listen().to_string();
  Messengers both;
  Hostile hostile(both);
  both.run([&]() -> hf::Task<void> {
    co_await hostile.connect(uri);
    CHECK(!hostile.session->peer().takes_channels);
    co_await hostile.open(2);
    const hf::Time limit = soon();
    while (!hostile.recorder.down && hf::Clock::now() < limit) co_await hf::sleep_for(1ms);
    CHECK(hostile.recorder.down);
    hostile.leave();
  });
  REQUIRE(eventually([&] { return node.handler.down_count == 1; }));
  CHECK(node.handler.count == 0);
  CHECK(node.handler.downs()[0].code == hf::make_error_code(hf::Errc::corrupt));
  CHECK(node.handler.downs()[0].text.find("channel 2") != std::string::npos);
}

TEST_CASE("the name of a type goes along once on each lane") {
  Messengers both;
  Hostile peer(both);  // only looks on
  both.run([&]() -> hf::Task<void> {
    co_await both.listen();
    co_await peer.connect(both.uri);
    co_await peer.open(2);
    Channel channel = co_await both.server->accept(soon());
    co_await channel.send(typed("test.good.one", "x"), soon());
    co_await channel.send(typed("test.good.one", "y"), soon());
    co_await channel.send(typed("test.good.one", std::string(100'000, 'z')), soon());
    co_await channel.send(typed("test.good.one", std::string(100'000, 'z')), soon());
    const hf::Time limit = soon();
    while (peer.recorder.messages.size() < 5 && hf::Clock::now() < limit)
      co_await hf::sleep_for(1ms);
    REQUIRE(peer.recorder.messages.size() == 5);
    std::vector<bool> named[net::lane_count];
    for (std::size_t i = 0; i < 5; ++i) {
      const Message& message = peer.recorder.messages[i];
      CHECK(message.envelope.channel == 2);
      if (message.envelope.flags != static_cast<std::uint8_t>(ChannelOp::data)) continue;
      CHECK(message.envelope.type_id == MessageType("test.good.one").id());
      named[static_cast<std::size_t>(peer.recorder.lanes[i])].push_back(!message.metadata.empty());
    }
    CHECK(named[static_cast<std::size_t>(Lane::normal)] == std::vector<bool>{true, false});
    CHECK(named[static_cast<std::size_t>(Lane::bulk)] == std::vector<bool>{true, false});
    peer.leave();
  });
}
