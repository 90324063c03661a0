// Peers that die, freeze, or fall silent: real processes and real sockets.
#include <sched.h>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdlib>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/combinators.hpp>

#include "process.hpp"
#include "raw_peer.hpp"
#include "storm.hpp"
#include "transports.hpp"

using namespace net_test;
using net::FrameHeader;
using net::FrameKind;
using net::Lane;
using net::Message;

namespace {

/// Sends until it fails, and says how that ended.
hf::Task<std::error_code> send_until_failure(net::Network* network, std::uint64_t node,
                                             hf::Duration deadline) {
  auto session = session_with(*network, node);
  try {
    while (true) {
      Message message;
      message.body = hf::Buffer::heap(60'000);
      co_await session->send(std::move(message), Lane::normal, hf::after(deadline));
    }
  } catch (const hf::Error& error) {
    co_return error.code();
  }
}

}  // namespace

TEST_CASE("peer process: keeps what it gets", "[.][peer]") {
  if (report_descriptor() < 0) return;
  std::vector<Message> kept;
  std::optional<Node> node(std::in_place);
  node->handler.react = [&](net::Session&, Lane, Message message) {
    kept.push_back(std::move(message));
  };
  const char* const uri = std::getenv("HYPERFRAMES_TEST_URI");
  report(node->listen(uri ? uri : Over::uri()).to_string());
  while (true) ::pause();
}

TEST_CASE("a peer killed by SIGKILL fails what waits for it, and no other session") {
  const Over over(GENERATE(schemes()));
  Process victim("peer process: keeps what it gets", {{"HYPERFRAMES_TEST_URI", Over::uri()}});
  Node healthy, client;
  const auto victim_id = client.connect(victim.endpoint());
  const auto healthy_id = client.connect(healthy.listen());
  std::error_code code;
  std::thread sender([&] {
    code = client.run(
        [&] { return send_until_failure(&client.network, victim_id, hf::Duration(60s)); });
  });
  // Wait until it is out of credit, and so waits.
  CHECK(eventually([&] {
    return client.run([&] {
      return hf::co_invoke(
          [](net::Network* network, std::uint64_t node) -> hf::Task<bool> {
            co_return session_with(*network, node)->stats().lanes[1].waiting_senders == 1;
          },
          &client.network, victim_id);
    });
  }));
  victim.signal(SIGKILL);
  sender.join();
  CHECK(code == hf::Errc::peer_lost);
  REQUIRE(eventually([&] { return client.handler.down_count == 1; }));
  CHECK(client.handler.downs()[0].node == victim_id);
  CHECK(client.handler.downs()[0].code == hf::Errc::peer_lost);
  client.send(healthy_id, "unharmed");
  CHECK(eventually([&] { return healthy.handler.count == 1; }));
}

TEST_CASE(
    "a frozen peer is declared down by its silence; what waits ends by its own deadline before") {
  const Over over(GENERATE(kinds_of_transports()));
  Process victim("peer process: keeps what it gets", {{"HYPERFRAMES_TEST_URI", Over::uri()}});
  Node client;
  const auto endpoint = victim.endpoint();
  const auto node = client.connect(endpoint);
  victim.signal(SIGSTOP);
  const auto impatient =
      client.run([&] { return send_until_failure(&client.network, node, hf::Duration(50ms)); });
  CHECK(impatient == hf::Errc::deadline_exceeded);
  const auto patient =
      client.run([&] { return send_until_failure(&client.network, node, hf::Duration(60s)); });
  CHECK(patient == hf::Errc::peer_lost);
  REQUIRE(eventually([&] { return client.handler.down_count == 1; }));
  CHECK(client.handler.downs()[0].text.find("3 heartbeats") != std::string::npos);
  // Thawed, it is reached again, under the same identity.
  victim.signal(SIGCONT);
  const auto again = client.run([&] {
    return hf::co_invoke(
        [](Node* client, net::Endpoint endpoint) -> hf::Task<std::uint64_t> {
          co_return co_await client->connect_task(endpoint, 20s);
        },
        &client, endpoint);
  });
  CHECK(again == node);
  client.send(node, "welcome back");
}

TEST_CASE("a peer that thaws in time goes on where it froze, and takes what was sent meanwhile") {
  const Over over(GENERATE(kinds_of_transports()));
  Process victim("peer process: keeps what it gets", {{"HYPERFRAMES_TEST_URI", Over::uri()}});
  Node client;
  const auto node = client.connect(victim.endpoint());
  client.send(node, "before");
  REQUIRE(eventually([&] { return standing_of(client).unacknowledged == 0; }));
  victim.signal(SIGSTOP);
  for (int i = 0; i < 5; ++i) client.send(node, "meanwhile");
  REQUIRE(eventually([&] { return standing_of(client).resuming == 1; }));
  victim.signal(SIGCONT);
  CHECK(eventually([&] {
    const Standing now = standing_of(client);
    return now.resuming == 0 && now.resumes >= 1 && now.unacknowledged == 0;
  }));
  CHECK(client.handler.down_count == 0);
}

TEST_CASE("peer process: connects to another", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node;
  node.connect(net::Endpoint::parse(std::getenv("HYPERFRAMES_TEST_ARGUMENT")));
  report("connected");
  while (true) ::pause();
}

// The system resets its connection then, as a network might that loses one: nobody connects again.
TEST_CASE("a peer that had connected and is killed with unread bytes is lost within the window") {
  Node server;
  Process client("peer process: connects to another",
                 {{"HYPERFRAMES_TEST_ARGUMENT", server.listen().to_string()}});
  REQUIRE(client.line() == "connected");
  const auto node_with_credit = [&] {
    return server.run([&] {
      return hf::co_invoke(
          [](net::Network* network) -> hf::Task<std::uint64_t> {
            for (const auto& session : network->sessions())
              if (session->stats().lanes[1].credit_bytes > 0) co_return session->peer().node_id;
            co_return 0;
          },
          &server.network);
    });
  };
  REQUIRE(eventually([&] { return node_with_credit() != 0; }));
  const auto node = node_with_credit();
  client.signal(SIGSTOP);
  server.send(node, std::string(50'000, 'x'));
  client.signal(SIGKILL);
  REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
  CHECK(server.handler.downs()[0].code == hf::Errc::peer_lost);
  CHECK(server.handler.downs()[0].text.find("it has acknowledged") != std::string::npos);
}

TEST_CASE("peer process: drops all packets", "[.][peer]") {
  if (report_descriptor() < 0) return;
  if (::unshare(CLONE_NEWNET) != 0 || std::system("ip link set lo up") != 0)
    return report("skip: needs the right to make a network namespace, and ip");
  Node server, client;
  const auto node = client.connect(server.listen());
  client.send(node, "before");
  CHECK(eventually([&] { return server.handler.count == 1; }));
  if (std::system("tc qdisc replace dev lo root blackhole") != 0)
    return report("skip: needs tc, and a kernel with the blackhole qdisc");
  client.send(node, "into the void");
  const bool noticed =
      eventually([&] { return server.handler.down_count == 1 && client.handler.down_count == 1; });
  if (!noticed) return report("not noticed");
  const auto code = client.handler.downs()[0].code;
  report(code == hf::Errc::peer_lost ? "noticed" : code.message());
}

TEST_CASE("a network that silently drops packets is noticed by heartbeats, long before TCP does") {
  Process world("peer process: drops all packets");
  const std::string outcome = world.line();
  if (outcome.starts_with("skip: ")) SKIP(outcome.substr(6));
  CHECK(outcome == "noticed");
}

TEST_CASE("a connection reset or ended in mid-frame delivers nothing of that frame") {
  for (const bool reset : {true, false}) {
    Node server;
    const auto endpoint = server.listen();
    {
      RawPeer peer(endpoint);
      peer.enter(4);
      FrameHeader header;
      header.kind = FrameKind::data;
      header.lane = Lane::normal;
      header.message = header.sequence = 1;
      header.length = header.total = 100'000;
      peer.send(encoded(header));
      peer.send(std::vector<std::byte>(50'000));
      REQUIRE(eventually([&] { return server.handler.ups == 1; }));
      if (reset) {
        const linger now{1, 0};
        ::setsockopt(peer.descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
      }
    }
    REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
    CHECK(server.handler.downs()[0].code == hf::Errc::peer_lost);
    CHECK(server.handler.count == 0);
    const auto used = server.run([] {
      return hf::co_invoke([]() -> hf::Task<std::size_t> {
        co_return hf::Shard::current()->receive_pool().usage().used_bytes;
      });
    });
    CHECK(used == 0);
  }
}

TEST_CASE("a peer killed again and again is reached again after each restart") {
  const Over over(GENERATE(schemes()));
  Node client;
  for (int round = 0; round < 5; ++round) {
    Process victim("peer process: keeps what it gets", {{"HYPERFRAMES_TEST_URI", Over::uri()}});
    client.send(client.connect(victim.endpoint()), "first message");
    victim.signal(SIGKILL);
    REQUIRE(eventually([&] { return client.handler.down_count == round + 1; }));
  }
}
