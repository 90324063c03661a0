#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/combinators.hpp>

#include "support.hpp"
#include "transports.hpp"

using namespace net_test;
using net::Lane;
using net::Message;
using net::MessageKind;

TEST_CASE(
    "a message sent through a session arrives with its envelope, metadata, body and segments") {
  const Over over(GENERATE(transports()));
  Node server, client;
  std::mutex mutex;
  std::vector<std::string> parts;
  net::Envelope envelope;
  server.handler.react = [&](net::Session&, Lane lane, Message message) {
    std::scoped_lock lock(mutex);
    envelope = message.envelope;
    parts = {std::string(net::name(lane)), std::string(message.metadata.text()),
             std::string(message.body.text())};
    for (const auto& segment : message.segments) parts.emplace_back(segment.text());
  };
  const auto node = client.connect(server.listen());
  client.run([&]() -> hf::Task<void> {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node) -> hf::Task<void> {
          Message message;
          message.envelope.type_id = 42;
          message.envelope.target = 7;
          message.envelope.correlation = 9;
          message.metadata = hf::Buffer::copy_of("meta");
          message.body = hf::Buffer::copy_of("body");
          message.segments.push_back(hf::Buffer::copy_of("one"));
          message.segments.push_back(hf::Buffer::copy_of(std::string(100'000, 'x')));
          auto session = session_with(*network, node);
          co_await session->send(std::move(message), Lane::bulk);
        },
        &client.network, node);
  });
  REQUIRE(eventually([&] { return server.handler.count == 1; }));
  std::scoped_lock lock(mutex);
  CHECK(envelope.type_id == 42);
  CHECK(envelope.target == 7);
  CHECK(envelope.correlation == 9);
  CHECK(envelope.kind == MessageKind::tell);
  REQUIRE(parts.size() == 5);
  CHECK(parts[0] == "bulk");
  CHECK(parts[1] == "meta");
  CHECK(parts[2] == "body");
  CHECK(parts[3] == "one");
  CHECK(parts[4] == std::string(100'000, 'x'));
}

TEST_CASE("a sender that never looks back does not queue its whole window before it sends") {
  const Over over(GENERATE(transports()));
  Node server, client;
  const auto node = client.connect(server.listen());
  const int count = 20'000;
  std::uint64_t most = 0;
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node, int count,
           std::uint64_t* most) -> hf::Task<void> {
          auto session = session_with(*network, node);
          for (int i = 0; i < count; ++i) {
            Message message;
            message.body = hf::Buffer::copy_of(std::string(64, 'x'));
            co_await session->send(std::move(message), Lane::normal);
            *most = std::max(*most, session->stats().queued_bytes);
          }
        },
        &client.network, node, count, &most);
  });
  REQUIRE(eventually([&] { return server.handler.count == count; }));
  CHECK(most <= 64 << 10);
}

TEST_CASE("messages of one lane arrive in the order in which they were sent, whatever their size") {
  const Over over(GENERATE(transports()));
  Node server, client;
  const auto node = client.connect(server.listen());
  const int count = 2000;
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node, int count) -> hf::Task<void> {
          auto session = session_with(*network, node);
          for (int i = 0; i < count; ++i) {
            Message message;
            std::string text = std::to_string(i) + " ";
            if (i % 7 == 0) text.resize(20'000, 'b');
            if (i % 301 == 0) text.resize(700'000, 'c');  // over half the window: granted alone
            message.body = hf::Buffer::copy_of(text);
            co_await session->send(std::move(message), Lane::normal);
          }
        },
        &client.network, node, count);
  });
  REQUIRE(eventually([&] { return server.handler.count == count; }));
  const auto bodies = server.handler.bodies();
  for (int i = 0; i < count; ++i) {
    REQUIRE(bodies[i].substr(0, bodies[i].find(' ')) == std::to_string(i));
    if (i % 301 == 0) REQUIRE(bodies[i].size() == 700'000);
  }
}

TEST_CASE("both sides of a session send at the same time") {
  const Over over(GENERATE(transports()));
  Node server, client;
  const auto endpoint = server.listen();
  const auto server_id = client.connect(endpoint);
  const auto client_id = client.network.node_id();
  REQUIRE(eventually([&] { return server.handler.ups == 1; }));
  const auto burst = [](net::Network* network, std::uint64_t node) -> hf::Task<void> {
    auto session = session_with(*network, node);
    for (int i = 0; i < 5000; ++i) {
      Message message;
      message.body = hf::Buffer::copy_of(std::string(i % 300, 'm'));
      co_await session->send(std::move(message));
    }
  };
  std::thread other([&] { server.run([&] { return burst(&server.network, client_id); }); });
  client.run([&] { return burst(&client.network, server_id); });
  other.join();
  CHECK(eventually([&] { return server.handler.count == 5000 && client.handler.count == 5000; }));
}

TEST_CASE("a large message crosses in fragments, and is intact") {
  const Over over(GENERATE(transports()));
  Node server, client;
  std::atomic<bool> intact{false};
  const std::size_t size = 40u << 20;
  server.handler.react = [&](net::Session&, Lane, Message message) {
    bool right = message.segments.count() == 1 && message.segments[0].size() == size;
    for (std::size_t i = 0; right && i < size; i += 4099)
      right = message.segments[0].data()[i] == static_cast<std::byte>(i * 31);
    intact = right;
  };
  const auto node = client.connect(server.listen());
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node, std::size_t size) -> hf::Task<void> {
          hf::Buffer data = hf::Buffer::heap(size);
          for (std::size_t i = 0; i < size; i += 4099)
            data.data()[i] = static_cast<std::byte>(i * 31);
          Message message;
          message.segments.push_back(std::move(data));
          auto session = session_with(*network, node);
          co_await session->send(std::move(message), Lane::bulk);
        },
        &client.network, node, size);
  });
  REQUIRE(eventually([&] { return server.handler.count == 1; }));
  CHECK(intact);
}

TEST_CASE("small messages overtake a bulk transfer") {
  const Over over(GENERATE(transports()));
  Node server, client;
  std::atomic<int> small{0}, small_before_bulk{-1};
  server.handler.react = [&](net::Session&, Lane lane, Message) {
    if (lane == Lane::bulk) {
      small_before_bulk = small.load();
    } else {
      ++small;
    }
  };
  const auto node = client.connect(server.listen());
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node) -> hf::Task<void> {
          auto session = session_with(*network, node);
          Message bulk;
          bulk.segments.push_back(hf::Buffer::heap(64u << 20));
          co_await session->send(std::move(bulk), Lane::bulk);
          for (int i = 0; i < 10; ++i) {
            Message message;
            message.body = hf::Buffer::copy_of("small");
            co_await session->send(std::move(message), Lane::normal);
          }
        },
        &client.network, node);
  });
  REQUIRE(eventually([&] { return server.handler.count == 11; }));
  CHECK(small_before_bulk == 10);
}

TEST_CASE("a session between nodes of several shards has a link for each shard") {
  const Over over(GENERATE(transports()));
  Node server(3), client(2);
  std::mutex mutex;
  std::set<unsigned> shards_seen;
  server.handler.react = [&](net::Session&, Lane, Message) {
    std::scoped_lock lock(mutex);
    shards_seen.insert(hf::Shard::current()->index());
  };
  const auto node = client.connect(server.listen());
  CHECK(client.handler.ups == 2);
  REQUIRE(eventually([&] { return server.handler.ups == 3; }));
  client.send(node, "from 0", Lane::normal, hf::timing().scaled(5s), 0);
  client.send(node, "from 1", Lane::normal, hf::timing().scaled(5s), 1);
  REQUIRE(eventually([&] { return server.handler.count == 2; }));
  {
    std::scoped_lock lock(mutex);
    CHECK(shards_seen == std::set<unsigned>{0, 1});
  }
  // The server's third shard has a link as well, to the client's shard 0.
  for (unsigned shard = 0; shard < 3; ++shard)
    server.send(client.network.node_id(), "back", Lane::normal, hf::timing().scaled(5s), shard);
  CHECK(eventually([&] { return client.handler.count == 3; }));
}

TEST_CASE("a send without a deadline of its own ends after the default one") {
  const Over over(GENERATE(transports()));
  // A peer that keeps what it gets: credit runs out and does not come back.
  Node server, client;
  std::mutex mutex;
  std::vector<Message> kept;
  server.handler.react = [&](net::Session&, Lane, Message message) {
    std::scoped_lock lock(mutex);
    kept.push_back(std::move(message));
  };
  const auto node = client.connect(server.listen());
  std::uint64_t sent = 0;
  std::error_code code;
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node, std::uint64_t* sent,
           std::error_code* code) -> hf::Task<void> {
          auto session = session_with(*network, node);
          try {
            while (true) {
              Message message;
              message.body = hf::Buffer::heap(60'000);
              co_await session->send(std::move(message), Lane::normal,
                                     hf::after(hf::timing().scaled(300ms)));
              ++*sent;
            }
          } catch (const hf::Error& error) {
            *code = error.code();
          }
        },
        &client.network, node, &sent, &code);
  });
  CHECK(code == hf::Errc::deadline_exceeded);
  CHECK(sent > 0);
  // A stalled receiver keeps memory flat: one window, no more.
  CHECK(sent * 60'000 <= (1u << 20));
  // Destroying what is kept gives the credit back; handing it over did not.
  server.run([&] {
    return hf::co_invoke(
        [](std::vector<Message>* kept, std::mutex* mutex) -> hf::Task<void> {
          std::scoped_lock lock(*mutex);
          kept->clear();
          co_return;
        },
        &kept, &mutex);
  });
  client.send(node, "again");
  CHECK(eventually([&] { return server.handler.count == static_cast<int>(sent) + 1; }));
  server.run([&] {
    return hf::co_invoke(
        [](std::vector<Message>* kept) -> hf::Task<void> {
          kept->clear();
          co_return;
        },
        &kept);
  });
}

TEST_CASE("try_send never waits: without credit it says exhausted and leaves the message alone") {
  const Over over(GENERATE(transports()));
  Node server, client;
  std::vector<Message> kept;
  server.handler.react = [&](net::Session&, Lane, Message message) {
    kept.push_back(std::move(message));
  };
  const auto node = client.connect(server.listen());
  std::size_t left = 0;
  std::error_code code;
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node, std::size_t* left,
           std::error_code* code) -> hf::Task<void> {
          auto session = session_with(*network, node);
          for (int i = 0; i < 1000; ++i) {
            Message message;
            message.body = hf::Buffer::heap(50'000);
            auto result = session->try_send(message);
            if (result) continue;
            *left = message.body.size();
            *code = result.error().code();
            co_return;
          }
        },
        &client.network, node, &left, &code);
  });
  CHECK(code == hf::Errc::exhausted);
  CHECK(left == 50'000);
  client.run([&] { return client.network.close(1s); });
  server.run([&] {
    return hf::co_invoke(
        [](std::vector<Message>* kept) -> hf::Task<void> {
          kept->clear();
          co_return;
        },
        &kept);
  });
}

TEST_CASE("an answer needs no credit: it comes although the asker has sent all that it may") {
  const Over over(GENERATE(transports()));
  Node server, client;
  // The server answers asks and keeps tells; both directions run out of credit for tells.
  std::vector<Message> kept_by_server, kept_by_client;
  std::atomic<int> replies{0};
  server.handler.react = [&](net::Session& session, Lane lane, Message message) {
    if (message.envelope.kind == MessageKind::ask) {
      Message answer;
      answer.envelope = net::answer_to(message.envelope);
      answer.body = hf::Buffer::copy_of(std::string(2000, 'r'));
      session.try_send(answer, lane).value();
      return;
    }
    // A flood towards the client, which keeps it.
    Message echo;
    echo.body = hf::Buffer::heap(60'000);
    (void)session.try_send(echo);
    kept_by_server.push_back(std::move(message));
  };
  client.handler.react = [&](net::Session&, Lane, Message message) {
    if (message.envelope.kind == MessageKind::reply) {
      ++replies;
      return;
    }
    kept_by_client.push_back(std::move(message));
  };
  const auto node = client.connect(server.listen());
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node) -> hf::Task<void> {
          auto session = session_with(*network, node);
          for (int i = 0; i < 15; ++i) {
            Message tell;
            tell.body = hf::Buffer::heap(60'000);
            co_await session->send(std::move(tell));
          }
          for (int i = 0; i < 100; ++i) {
            Message ask;
            ask.envelope.kind = MessageKind::ask;
            ask.envelope.correlation = i + 1;
            co_await session->send(std::move(ask));
          }
        },
        &client.network, node);
  });
  CHECK(eventually([&] { return replies == 100; }));
  const auto clear = [](std::vector<Message>* kept) -> hf::Task<void> {
    kept->clear();
    co_return;
  };
  server.run([&] { return clear(&kept_by_server); });
  client.run([&] { return clear(&kept_by_client); });
}

TEST_CASE("an ask waits until there is room for its answer") {
  const Over over(GENERATE(transports()));
  // Before the nodes, whose threads use them to the end.
  std::vector<net::Envelope> asks;
  std::atomic<int> replies{0};
  Node server, client;
  server.handler.react = [&](net::Session&, Lane, Message message) {
    asks.push_back(message.envelope);
  };
  client.handler.react = [&](net::Session&, Lane, Message) { ++replies; };
  const auto node = client.connect(server.listen());
  std::uint64_t sent = 0;
  std::error_code code;
  const auto ask_all = [](net::Network* network, std::uint64_t node, std::uint64_t* sent,
                          std::error_code* code) -> hf::Task<void> {
    auto session = session_with(*network, node);
    try {
      while (true) {
        Message ask;
        ask.envelope.kind = MessageKind::ask;
        ask.envelope.reply_room = 100'000;
        co_await session->send(std::move(ask), Lane::normal, hf::after(hf::timing().scaled(200ms)));
        ++*sent;
      }
    } catch (const hf::Error& error) {
      *code = error.code();
    }
  };
  client.run([&] { return ask_all(&client.network, node, &sent, &code); });
  CHECK(code == hf::Errc::deadline_exceeded);
  CHECK(sent > 0);
  CHECK(sent < 100);  // not for lack of credit: 100 empty asks are nothing
  const auto first = sent;
  REQUIRE(eventually([&] { return server.handler.count == static_cast<int>(first); }));
  // Answers free the room, in it or over the lane's credit.
  const auto answer_all = [](net::Network* network, std::uint64_t node,
                             std::vector<net::Envelope>* asks) -> hf::Task<void> {
    auto session = session_with(*network, node);
    bool large = false;
    for (const net::Envelope& ask : *asks) {
      Message answer;
      answer.envelope = net::answer_to(ask);
      answer.body = hf::Buffer::heap((large = !large) ? 150'000 : 10);
      co_await session->send(std::move(answer));
    }
    asks->clear();
  };
  server.run([&] { return answer_all(&server.network, client.network.node_id(), &asks); });
  REQUIRE(eventually([&] { return replies == static_cast<int>(first); }));
  sent = 0;
  client.run([&] { return ask_all(&client.network, node, &sent, &code); });
  CHECK(sent == first);
}

TEST_CASE("a message that the receiver could never hold is refused with its limit") {
  const Over over(GENERATE(transports()));
  net::Network::Options small;
  small.receive_budget_bytes = 4u << 20;
  Node server(1, small), client;
  const auto node = client.connect(server.listen());
  std::error_code code;
  std::string text;
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node, std::error_code* code,
           std::string* text) -> hf::Task<void> {
          auto session = session_with(*network, node);
          Message message;
          message.segments.push_back(hf::Buffer::heap(5u << 20));
          try {
            co_await session->send(std::move(message), Lane::bulk);
          } catch (const hf::Error& error) {
            *code = error.code();
            *text = error.what();
          }
        },
        &client.network, node, &code, &text);
  });
  CHECK(code == hf::Errc::too_large);
  CHECK(text.find("at most") != std::string::npos);
  client.send(node, "still usable");
  CHECK(eventually([&] { return server.handler.count == 1; }));
}

TEST_CASE("grants together never exceed the receiver's budget, and every message arrives") {
  const Over over(GENERATE(transports()));
  net::Network::Options small;
  small.receive_budget_bytes = 8u << 20;
  Node server(1, small);
  std::atomic<std::uint64_t> received{0};
  server.handler.react = [&](net::Session&, Lane, Message message) {
    received += message.segments.size_bytes();
  };
  const auto endpoint = server.listen();
  std::vector<std::unique_ptr<Node>> clients;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<Node>());
  const auto pour = [](net::Network* network, net::Endpoint endpoint) -> hf::Task<void> {
    auto session = co_await network->connect(endpoint, hf::after(5s));
    for (int i = 0; i < 10; ++i) {
      Message message;
      message.segments.push_back(hf::Buffer::heap(4u << 20));
      co_await session->send(std::move(message), Lane::bulk, hf::after(60s));
    }
  };
  for (auto& client : clients)
    threads.emplace_back(
        [&, node = client.get()] { node->run([&] { return pour(&node->network, endpoint); }); });
  for (auto& thread : threads) thread.join();
  CHECK(eventually([&] { return received == 30ull * (4u << 20); }));
}

TEST_CASE("a cancelled send of a large message gives its grant back") {
  const Over over(GENERATE(transports()));
  net::Network::Options small;
  small.receive_budget_bytes = 8u << 20;
  Node server(1, small), client;
  std::vector<Message> kept;
  server.handler.react = [&](net::Session&, Lane, Message message) {
    kept.push_back(std::move(message));
  };
  const auto node = client.connect(server.listen());
  // The first takes most of the budget; the second waits for a grant, gives up, and must not block.
  const auto send = [](net::Network* network, std::uint64_t node, std::size_t size,
                       std::error_code* code) -> hf::Task<void> {
    auto session = session_with(*network, node);
    Message message;
    message.segments.push_back(hf::Buffer::heap(size));
    try {
      co_await session->send(std::move(message), Lane::bulk, hf::after(500ms));
      *code = {};
    } catch (const hf::Error& error) {
      *code = error.code();
    }
  };
  std::error_code code;
  client.run([&] { return send(&client.network, node, 5u << 20, &code); });
  CHECK(!code);
  client.run([&] { return send(&client.network, node, 5u << 20, &code); });
  CHECK(code == hf::Errc::deadline_exceeded);
  client.run([&] { return send(&client.network, node, 100, &code); });
  CHECK(!code);
  REQUIRE(eventually([&] { return server.handler.count == 2; }));
  const auto clear = [](std::vector<Message>* kept) -> hf::Task<void> {
    kept->clear();
    co_return;
  };
  server.run([&] { return clear(&kept); });
  client.run([&] { return send(&client.network, node, 5u << 20, &code); });
  CHECK(!code);
  CHECK(eventually([&] { return server.handler.count == 3; }));
  server.run([&] { return clear(&kept); });
}

TEST_CASE(
    "closing a network delivers what was handed over, and tells both sides that it was closed") {
  const Over over(GENERATE(transports()));
  Node server;
  auto client = std::make_unique<Node>();
  const auto endpoint = server.listen();
  const auto node = client->connect(endpoint);
  const auto burst = [](net::Network* network, std::uint64_t node) -> hf::Task<std::uint64_t> {
    auto session = session_with(*network, node);
    for (int i = 0; i < 3000; ++i) {
      Message message;
      message.body = hf::Buffer::heap(i % 50 == 0 ? 30'000 : 100);
      co_await session->send(std::move(message));
    }
    co_return co_await network->close(10s);
  };
  const auto left = client->run([&] { return burst(&client->network, node); });
  CHECK(left == 0);
  CHECK(eventually([&] { return server.handler.count == 3000; }));
  REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
  CHECK(server.handler.downs()[0].code == hf::Errc::closed);
  CHECK(client->handler.downs().at(0).code == hf::Errc::closed);
}

TEST_CASE("a session that was closed refuses to send, and says that it was closed") {
  const Over over(GENERATE(transports()));
  Node server, client;
  const auto node = client.connect(server.listen());
  std::error_code code;
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t node, std::error_code* code) -> hf::Task<void> {
          auto session = session_with(*network, node);
          session->close("done");
          while (session->up()) co_await hf::sleep_for(1ms);
          try {
            co_await session->send(Message());
          } catch (const hf::Error& error) {
            *code = error.code();
          }
        },
        &client.network, node, &code);
  });
  CHECK(code == hf::Errc::closed);
  CHECK(eventually([&] { return server.handler.down_count == 1; }));
}

TEST_CASE("a session tells how its lanes, bytes and round trips stand") {
  const Over over(GENERATE(transports()));
  Node server, client;
  const auto node = client.connect(server.listen());
  client.send(node, "hello");
  REQUIRE(eventually([&] { return server.handler.count == 1; }));
  net::Session::Stats stats;
  REQUIRE(eventually([&] {
    client.run([&] {
      return hf::co_invoke(
          [](net::Network* network, std::uint64_t node,
             net::Session::Stats* stats) -> hf::Task<void> {
            *stats = session_with(*network, node)->stats();
            co_return;
          },
          &client.network, node, &stats);
    });
    return stats.round_trip.count() > 0;
  }));
  CHECK(stats.transport == Over::transport());
  CHECK(stats.lanes[1].messages_sent == 1);
  CHECK(stats.bytes_sent > 0);
  CHECK(stats.acknowledged_frames > 0);
  CHECK(stats.unacknowledged_bytes == 0);
}

TEST_CASE("credit comes back from buffers that end on another shard") {
  const Over over(GENERATE(transports()));
  Node server(2), client;
  std::mutex mutex;
  std::vector<Message> kept;
  server.handler.react = [&](net::Session&, Lane, Message message) {
    net::make_movable(message);
    std::scoped_lock lock(mutex);
    kept.push_back(std::move(message));
  };
  const auto node = client.connect(server.listen());
  const auto fill = [](net::Network* network, std::uint64_t node, int* sent) -> hf::Task<void> {
    auto session = session_with(*network, node);
    try {
      while (true) {
        Message message;
        message.body = hf::Buffer::heap(30'000);
        message.segments.push_back(hf::Buffer::heap(30'000));
        co_await session->send(std::move(message), Lane::normal, hf::after(100ms));
        ++*sent;
      }
    } catch (const hf::Error&) {
    }
  };
  int sent = 0;
  client.run([&] { return fill(&client.network, node, &sent); });
  REQUIRE(eventually([&] { return server.handler.count == sent; }));
  // All of them are released on shard 1; the memory is shard 0's.
  server.run(
      [&] {
        return hf::co_invoke(
            [](std::vector<Message>* kept, std::mutex* mutex) -> hf::Task<void> {
              std::scoped_lock lock(*mutex);
              kept->clear();
              co_return;
            },
            &kept, &mutex);
      },
      1);
  client.send(node, "goes out");
  CHECK(eventually([&] { return server.handler.count == sent + 1; }));
  server.run([&] {
    return hf::co_invoke(
        [](std::vector<Message>* kept) -> hf::Task<void> {
          kept->clear();
          co_return;
        },
        &kept);
  });
}
