// Sessions whose connections break, on real TCP: through a proxy that resets or freezes them, and
// with peers that are not what they say.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "proxy.hpp"
#include "storm.hpp"
#include "transports.hpp"

using namespace net_test;
using net::FrameKind;
using net::Lane;
using net::Message;

namespace {

net::Hello resuming_hello(std::uint64_t node) {
  auto hello = RawPeer::hello(node);
  hello.node.capabilities = net::capability::resume;
  return hello;
}

/// The node at the other end of a connection that this test accepts.
net::Challenge a_challenge(std::uint64_t node, std::uint64_t incarnation = 1) {
  net::Challenge challenge;
  challenge.node = resuming_hello(node).node;
  challenge.node.incarnation = incarnation;
  return challenge;
}

}  // namespace

TEST_CASE("through a proxy that resets connections at any byte each message comes once, in order") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const Over over(GENERATE(over_tcp()));
  INFO(Over::name());
  Record record;
  Node server(2), client(2);
  Talker in_server(server.handler, record, seed), in_client(client.handler, record, seed + 1000);
  Proxy proxy(server.listen());
  client.connect(proxy.endpoint());
  REQUIRE(eventually([&] { return server.handler.ups == 2; }));
  std::atomic<int> talking{4};
  std::vector<std::thread> talkers;
  const auto talk = [&](Node& from, Talker& talker, Node& to, unsigned shard, std::uint64_t name) {
    talkers.emplace_back([&, shard, name, target = to.network.node_id()] {
      const auto run = [&] { return talker.talk(&from.network, target, name, 400, 800'000); };
      try {
        from.run(run, shard);
      } catch (const hf::Error&) {
        talker.right = false;
      }
      --talking;
    });
  };
  for (unsigned shard = 0; shard < 2; ++shard) {
    talk(server, in_server, client, shard, 10 + shard);
    talk(client, in_client, server, shard, 20 + shard);
  }
  const auto calm = [&] {
    return standing_of(server).resuming == 0 && standing_of(client).resuming == 0;
  };
  bool recovered = true;
  while (talking > 0 && recovered) {
    // Several in a row break what takes the link up, too.
    for (std::uint64_t cuts = 1 + random() % 4; cuts > 0; --cuts) {
      const std::uint64_t most = std::uint64_t{1} << (random() % 20);
      proxy.cut_after(static_cast<std::int64_t>(1 + random() % most));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    }
    proxy.cut_after(0);
    if (random() % 8 == 0) proxy.reset_all();
    recovered = eventually(calm);
  }
  CHECK(recovered);
  for (auto& talker : talkers) talker.join();
  for (Node* node : {&server, &client})
    for (const auto& down : node->handler.downs()) UNSCOPED_INFO(down.text);
  CHECK(eventually([&] {
    return in_server.told + in_client.told == record.tells + record.asks &&
           in_server.answered + in_client.answered == record.asks;
  }));
  CHECK(in_server.right);
  CHECK(in_client.right);
  CHECK(server.handler.down_count == 0);
  CHECK(client.handler.down_count == 0);
  CHECK(proxy.resets() > 5);
  CHECK(eventually([&] {
    const Standing a = standing_of(server), b = standing_of(client);
    return a.unacknowledged + b.unacknowledged + a.held + b.held == 0;
  }));
  CHECK(standing_of(server).resumes > 5);
}

TEST_CASE("a connection that breaks while it takes a link up is followed by another one") {
  const Over over(GENERATE(over_tcp()));
  INFO(Over::name());
  Node server, client;
  Proxy proxy(server.listen());
  const auto node = client.connect(proxy.endpoint());
  REQUIRE(eventually([&] { return server.handler.ups == 1; }));
  int sent = 0;
  // Through all of the handshake, from either side.
  const std::int64_t all = Over::is_tls() ? 3500 : 900;
  for (std::int64_t cut = 1; cut < all; cut += Over::is_tls() ? 131 : cut < 70 ? 21 : 47) {
    INFO("it breaks after " << cut << " bytes");
    proxy.reset_all();
    proxy.cut_after(cut);
    client.send(node, "to the server");
    server.send(client.network.node_id(), "to the client");
    ++sent;
    REQUIRE(
        eventually([&] { return server.handler.count == sent && client.handler.count == sent; }));
  }
  CHECK(server.handler.down_count == 0);
  CHECK(client.handler.down_count == 0);
  CHECK(proxy.resets() > sent);
}

TEST_CASE("a connection that freezes is given up, and what was under way arrives over the next") {
  const Over over(GENERATE(Way::tcp, Way::tls_certificates));
  Node server, client;
  Proxy proxy(server.listen());
  const auto node = client.connect(proxy.endpoint());
  client.send(node, "before");
  REQUIRE(eventually([&] { return server.handler.count == 1; }));
  proxy.freeze();
  for (int i = 0; i < 5; ++i) {
    client.send(node, "to the server " + std::to_string(i));
    server.send(client.network.node_id(), "to the client " + std::to_string(i));
  }
  REQUIRE(eventually([&] { return server.handler.count == 6 && client.handler.count == 5; }));
  CHECK(server.handler.bodies().at(5) == "to the server 4");
  CHECK(client.handler.bodies().at(4) == "to the client 4");
  CHECK(standing_of(client).resumes >= 1);
  CHECK(client.handler.down_count == 0);
  CHECK(server.handler.down_count == 0);
}

TEST_CASE("who wants to take up another's link is refused with the reason, and harms nobody") {
  Node server;
  const auto endpoint = server.listen();
  RawPeer peer(endpoint);
  const auto hello = resuming_hello(4);
  CHECK(!peer.enter(hello).delivered);
  REQUIRE(eventually([&] { return server.handler.ups == 1; }));
  bool broken = false;
  SECTION("while its connection works") {}
  SECTION("while it is broken") {
    broken = true;
    peer.reset();
    REQUIRE(eventually([&] { return standing_of(server).resuming == 1; }));
  }
  const auto refusal = [&](auto change) {
    auto forged = hello;
    forged.delivered = 0;
    change(forged);
    RawPeer stranger(endpoint);
    const auto reject = stranger.refused(forged);
    CHECK(reject.check == net::Check::link);
    CHECK(stranger.is_closed());
    return reject.text;
  };
  CHECK(refusal([](net::Hello& hello) { hello.session = 2; }).find("no session 2") !=
        std::string::npos);
  CHECK(refusal([](net::Hello& hello) { hello.node.node_id = 5; }).find("no session") !=
        std::string::npos);
  CHECK(refusal([](net::Hello& hello) { hello.node.incarnation = 2; }).find("no session") !=
        std::string::npos);
  CHECK(refusal([](net::Hello& hello) { hello.link_index = 1; }).find("link 1") !=
        std::string::npos);
  CHECK(refusal([](net::Hello& hello) {
          hello.delivered = 1000;
        }).find("can't be the last frame") != std::string::npos);
  CHECK(standing_of(server).resuming == (broken ? 1 : 0));
  CHECK(server.handler.down_count == 0);
  // The right one goes on.
  auto right = hello;
  right.delivered = 0;
  RawPeer again(endpoint);
  const auto welcome = again.enter(right);
  CHECK(welcome.delivered == 0);
  net::FrameHeader header;
  header.lane = Lane::normal;
  header.message = header.sequence = 1;
  header.length = header.total = 64;
  Message message;
  std::vector<std::byte> bytes(64);
  net::wire::encode_head(message, std::span<std::byte, 64>(bytes.data(), 64));
  again.send(encoded(header));
  again.send(bytes);
  CHECK(eventually([&] { return server.handler.count == 1; }));
  CHECK(standing_of(server).resumes == 1);
  CHECK(server.handler.down_count == 0);
}

TEST_CASE("a link is taken up only by who has the key") {
  const std::string secret = "the key of this test";
  net::Network::Options options;
  options.key = net::Key(std::as_bytes(std::span(secret)));
  options.encryption.plaintext = true;
  Node server(1, options), client(1, options);
  Proxy proxy(server.listen());
  const auto node = client.connect(proxy.endpoint());
  // All that a stranger would have to know, but the key.
  auto hello = resuming_hello(client.network.node_id());
  hello.node.incarnation = client.network.incarnation();
  hello.node.authentication = net::Authentication::shared_key;
  hello.delivered = 0;
  {
    RawPeer stranger(proxy.endpoint());
    CHECK(stranger.refused(hello).check == net::Check::authentication);
  }
  CHECK(standing_of(server).resuming == 0);
  proxy.reset_all();
  client.send(node, "with the key");
  CHECK(eventually([&] { return server.handler.count == 1; }));
  CHECK(standing_of(server).resumes == 1);
  CHECK(client.handler.down_count == 0);
}

TEST_CASE("whoever answers instead of the peer, the link is not taken up with it") {
  RawListener listener;
  struct Case {
    const char* what;
    net::Challenge challenge;
    std::optional<std::uint64_t> delivered;
    const char* text;
  };
  const Case cases[] = {
      {"another incarnation", a_challenge(6, 2), 0, "incarnation 2"},
      {"another node", a_challenge(7), 0, "node 7"},
      {"more than was sent", a_challenge(6), 1000, "frame 1000"},
      {"one that takes it as a new link", a_challenge(6), std::nullopt, "does not know"},
  };
  for (const auto& [what, challenge, delivered, text] : cases) {
    INFO(what);
    Node client;
    std::thread server([&, challenge = &challenge, delivered = &delivered] {
      RawPeer first = listener.accept();
      first.let_in(a_challenge(6));
      first.receive_frame();
      first.reset();
      RawPeer second = listener.accept();
      try {
        second.let_in(*challenge, *delivered);
        second.is_closed();
      } catch (const std::exception&) {
        return;  // it hung up when it saw who answers
      }
    });
    client.connect(listener.endpoint());
    const bool over = eventually([&] { return client.handler.down_count == 1; });
    server.join();
    REQUIRE(over);
    CHECK(client.handler.downs()[0].code == hf::Errc::peer_lost);
    CHECK(client.handler.downs()[0].text.find(text) != std::string::npos);
  }
}

TEST_CASE("with a peer that does not know how, a connection that breaks is the session's end") {
  {
    Node server;
    RawPeer peer(server.listen());
    peer.enter(4);
    REQUIRE(eventually([&] { return server.handler.ups == 1; }));
    peer.reset();
    REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
    CHECK(server.handler.downs()[0].code == hf::Errc::peer_lost);
  }
  RawListener listener;
  Node client;
  std::atomic<bool> connected = false;
  std::jthread server([&] {
    RawPeer peer = listener.accept();
    auto challenge = a_challenge(6);
    challenge.node.capabilities = 0;
    peer.let_in(challenge);
    peer.receive_frame();
    // Who is connecting and sees the session end already connects anew.
    eventually([&] { return connected.load(); });
    peer.reset();
  });
  client.connect(listener.endpoint());
  connected = true;
  server.join();
  REQUIRE(eventually([&] { return client.handler.down_count == 1; }));
  CHECK(client.handler.downs()[0].code == hf::Errc::peer_lost);
}
