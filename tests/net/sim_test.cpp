// The shipped session code on the simulated network: virtual time, seeded order, injected faults.
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <map>
#include <random>

#include "sim_program.hpp"

using namespace net_test;
using net::Lane;
using net::Message;

namespace {

hf::Task<void> send_text(net::Network* network, net::Endpoint to, std::string text, Lane lane) {
  auto session = co_await network->connect(to, hf::after(20s));
  Message message;
  message.body = hf::Buffer::copy_of(text);
  co_await session->send(std::move(message), lane, hf::after(60s));
}

/// Numbered messages of random sizes on random lanes, until `stop` or a failure.
hf::Task<void> pour(net::Network* network, net::Endpoint to, std::uint64_t seed, int count,
                    std::map<int, int>* sent) {
  std::mt19937_64 random(seed);
  auto session = co_await network->connect(to, hf::after(60s));
  for (int i = 0; i < count; ++i) {
    const int lane = static_cast<int>(random() % 3);
    std::size_t size = 8 + random() % 200;
    if (random() % 20 == 0) size = random() % 50'000;
    if (lane == 2 && random() % 10 == 0) size = random() % 3'000'000;
    if (lane == 0) size = 8 + random() % 2000;
    Message message;
    message.envelope.type_id = static_cast<std::uint64_t>((*sent)[lane]++);
    message.body = hf::Buffer::heap(size);
    std::memset(message.body.data(), static_cast<int>(message.envelope.type_id), size);
    co_await session->send(std::move(message), static_cast<Lane>(lane), hf::after(300s));
  }
}

/// Checks order and contents of what `pour` sent, for each session.
struct Checker {
  void operator()(net::Session& session, Lane lane, const Message& message) {
    const auto key = std::tuple(session.peer().node_id, session.peer().incarnation, session_count,
                                static_cast<int>(lane));
    const auto expected = next[key]++;
    right &= message.envelope.type_id == expected;
    for (std::size_t i = 0; i < message.body.size(); i += 997)
      right &= message.body.data()[i] == static_cast<std::byte>(expected);
    ++total;
  }
  std::map<std::tuple<std::uint64_t, std::uint64_t, int, int>, std::uint64_t> next;
  int session_count = 0;
  int total = 0;
  bool right = true;
};

std::uint64_t run_once(std::uint64_t seed) {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = seed});
  hf::SimNode& a = world.add_node({.shards = 2});
  hf::SimNode& b = world.add_node({.shards = 3});
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  std::map<int, int> sent;
  world.run(b, 0,
            [&](hf::Runtime&) { return pour(&from.network, endpoint_of(a), seed, 300, &sent); });
  REQUIRE(world.run_until([&] { return to_a.count == 300; }, 60s));
  return world.trace_hash();
}

}  // namespace

TEST_CASE("a session runs in the simulator unchanged: the same seed gives the same trace") {
  CHECK(run_once(5) == run_once(5));
  CHECK(run_once(5) != run_once(6));
}

namespace {

/// Links of that node which wait to be taken up.
std::uint64_t broken_links(hf::SimWorld& world, hf::SimNode& node, Program& program) {
  return world.run(node, 0, [&](hf::Runtime&) {
    return hf::co_invoke(
        [](net::Network* network) -> hf::Task<std::uint64_t> {
          std::uint64_t count = 0;
          for (const auto& session : network->sessions()) count += session->stats().resuming_links;
          co_return count;
        },
        &program.network);
  });
}

}  // namespace

TEST_CASE("a partition is noticed on both sides within 2 heartbeats, and ends what outlasts 3") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    hf::SimWorld world({.seed = seed});
    hf::SimNode &a = world.add_node(), &b = world.add_node();
    Program& at_a = start_program(world, a, to_a);
    Program& from = start_program(world, b, to_b);
    world.run(b, 0, [&](hf::Runtime&) {
      return send_text(&from.network, endpoint_of(a), "hello", Lane::normal);
    });
    // At any point between two heartbeats; however long the session was idle.
    world.run_for(10s + std::chrono::milliseconds(seed * 97));
    CHECK(to_a.down_count == 0);
    CHECK(to_b.down_count == 0);
    world.network().partition(a, b);
    // A tenth for what was on its way, and for turns.
    const hf::Time begun = world.now(), limit = begun + hf::timing().heartbeat() * 21 / 10;
    const auto noticed = [&] {
      return broken_links(world, a, at_a) == 1 && broken_links(world, b, from) == 1;
    };
    while (!noticed() && world.now() < limit) world.run_for(20ms);
    CHECK(noticed());
    CHECK(to_a.down_count == 0);
    CHECK(to_b.down_count == 0);
    const auto ended = [&] { return to_a.down_count == 1 && to_b.down_count == 1; };
    CHECK(world.run_until(ended, begun + hf::timing().heartbeat() * 31 / 10 - world.now()));
    CHECK(to_a.downs()[0].code == hf::Errc::peer_lost);
    // Healed, they reach each other again, as the same two nodes.
    world.network().heal();
    world.run(b, 0, [&](hf::Runtime&) {
      return send_text(&from.network, endpoint_of(a), "again", Lane::normal);
    });
    CHECK(world.run_until([&] { return to_a.count == 2; }, 10s));
  }
}

TEST_CASE("a link heard in one direction only is noticed, and ended, as well") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 3});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  world.run(b, 0, [&](hf::Runtime&) {
    return send_text(&from.network, endpoint_of(a), "hello", Lane::normal);
  });
  world.network().cut(a, b);
  world.run_for(hf::timing().heartbeat() * 21 / 10);
  CHECK(broken_links(world, b, from) == 1);
  CHECK(world.run_until([&] { return to_b.down_count == 1; }, hf::timing().heartbeat()));
}

namespace {

void pour_through_losses(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    Checker check_a, check_b;
    hf::SimWorld world({.seed = seed});
    world.network().faults().loss = 0.002;
    world.network().faults().spike = 0.01;
    world.network().faults().spike_max = 300ms;
    world.network().default_link() = {200us, 2ms, 100'000'000};
    hf::SimNode& a = world.add_node({.shards = 2});
    hf::SimNode& b = world.add_node({.shards = 2});
    to_a.react = [&](net::Session& s, Lane lane, Message message) { check_a(s, lane, message); };
    to_b.react = [&](net::Session& s, Lane lane, Message message) { check_b(s, lane, message); };
    Program& at_a = start_program(world, a, to_a);
    Program& at_b = start_program(world, b, to_b);
    std::map<int, int> sent_a, sent_b;
    // Both connect, and both send.
    auto one = world.start(a, 0, [&](hf::Runtime&) {
      return pour(&at_a.network, endpoint_of(b), seed, 600, &sent_a);
    });
    auto two = world.start(b, 0, [&](hf::Runtime&) {
      return pour(&at_b.network, endpoint_of(a), seed + 100, 600, &sent_b);
    });
    world.wait(one);
    world.wait(two);
    CHECK(world.run_until([&] { return check_a.total == 600 && check_b.total == 600; }, 120s));
    CHECK(check_a.right);
    CHECK(check_b.right);
    CHECK(to_a.down_count == 0);
    CHECK(to_a.ups == 2);
    CHECK(to_b.ups == 2);
  }
}

}  // namespace

TEST_CASE("messages arrive once and in order over a slow and lossy network") {
  pour_through_losses(1);
}

TEST_CASE("messages arrive once and in order over a lossy network, by many seeds", "[long]") {
  pour_through_losses(40);
}

namespace {

void lose_a_sender(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    Checker check;
    hf::SimWorld world({.seed = seed});
    hf::SimNode &a = world.add_node(), &b = world.add_node();
    to_a.react = [&](net::Session& s, Lane lane, Message message) { check(s, lane, message); };
    start_program(world, a, to_a);
    Program& from = start_program(world, b, to_b);
    std::map<int, int> sent;
    auto pouring = world.start(b, 0, [&](hf::Runtime&) {
      return pour(&from.network, endpoint_of(a), seed, 100'000, &sent);
    });
    world.run_for(std::chrono::milliseconds(1 + seed % 9 * 7));
    switch (seed % 3) {
      case 0: b.crash(hf::SimCrash::kill()); break;
      case 1: b.crash(hf::SimCrash::power_cut()); break;
      default: world.network().partition(a, b); break;
    }
    CHECK(world.run_until([&] { return to_a.down_count == 1; }, 10s));
    CHECK_THROWS_AS(world.wait(pouring), hf::Error);
    CHECK(check.right);
    for (const auto& [key, count] : check.next)
      CHECK(count <= static_cast<std::uint64_t>(sent[std::get<3>(key)]));
    // And the next session starts afresh.
    world.network().heal();
    std::map<int, int> sent_again;
    ++check.session_count;
    Program* again = &from;
    if (!b.is_up()) {
      b.restart();
      again = &start_program(world, b, to_b);
    }
    const int before = check.total;
    world.run(b, 0, [&](hf::Runtime&) {
      return pour(&again->network, endpoint_of(a), seed, 50, &sent_again);
    });
    CHECK(world.run_until([&] { return check.total == before + 50; }, 20s));
    CHECK(check.right);
  }
}

}  // namespace

TEST_CASE(
    "what a killed or cut-off sender had sent arrives as a clean prefix, without a duplicate") {
  lose_a_sender(3);
}

TEST_CASE("what a killed or cut-off sender had sent is a clean prefix, by many seeds", "[long]") {
  lose_a_sender(60);
}

TEST_CASE("a node whose process sleeps through heartbeats does not blame its peer") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 4});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  world.run(b, 0, [&](hf::Runtime&) {
    return send_text(&from.network, endpoint_of(a), "hello", Lane::normal);
  });
  // Shorter than what its peer would bear, but its own clock leaps much further.
  b.pause();
  world.run_for(hf::timing().heartbeat());
  b.jump_clock(20s);
  b.resume();
  world.run_for(10s);
  CHECK(to_a.down_count == 0);
  CHECK(to_b.down_count == 0);
}

namespace {

net::Network::Options budget_of(std::size_t bytes) {
  net::Network::Options options;
  options.receive_budget_bytes = bytes;
  return options;
}

/// Messages of such sizes on one lane, one after the other.
hf::Task<void> send_sizes(net::Network* network, net::Endpoint to, Lane lane,
                          std::vector<std::size_t> sizes) {
  auto session = co_await network->connect(to, hf::after(20s));
  for (const std::size_t size : sizes) {
    Message message;
    message.segments.push_back(hf::Buffer::heap(size));
    co_await session->send(std::move(message), lane, hf::after(60s));
  }
}

hf::Task<void> send_from_many(net::Network* network, net::Endpoint to, std::uint64_t seed,
                              std::atomic<int>* count) {
  std::mt19937_64 random(seed);
  std::vector<hf::Task<void>> senders;
  const auto sizes_around = [&](std::size_t half_window, int how_many) {
    std::vector<std::size_t> sizes;
    for (int i = 0; i < how_many; ++i)
      sizes.push_back(half_window - 4096 + random() % (random() % 4 ? 8192 : 4 * half_window));
    *count += how_many;
    return sizes;
  };
  // A network with 16 MiB to lend has windows of 16 KiB, 128 KiB and 1 MiB on its lanes.
  senders.push_back(send_sizes(network, to, Lane::bulk, std::vector<std::size_t>(6, 3u << 20)));
  *count += 6;
  for (int i = 0; i < 3; ++i) {
    senders.push_back(send_sizes(network, to, Lane::control, sizes_around(8 << 10, 10)));
    senders.push_back(send_sizes(network, to, Lane::normal, sizes_around(64 << 10, 10)));
    senders.push_back(send_sizes(network, to, Lane::bulk, sizes_around(512 << 10, 5)));
  }
  co_await hf::when_all(std::move(senders));
}

}  // namespace

namespace {

void send_large_ones_together(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    to_a.react = to_b.react = [](net::Session&, Lane, Message) {};
    hf::SimWorld world({.seed = seed});
    hf::SimNode &a = world.add_node(), &b = world.add_node();
    Program& at_a = start_program(world, a, to_a, budget_of(16u << 20));
    Program& at_b = start_program(world, b, to_b, budget_of(16u << 20));
    std::atomic<int> from_a{0}, from_b{0};
    auto one = world.start(a, 0, [&](hf::Runtime&) {
      return send_from_many(&at_a.network, endpoint_of(b), seed, &from_a);
    });
    auto other = world.start(b, 0, [&](hf::Runtime&) {
      return send_from_many(&at_b.network, endpoint_of(a), seed + 100, &from_b);
    });
    world.wait(one);
    world.wait(other);
    CHECK(world.run_until([&] { return to_a.count == from_b && to_b.count == from_a; }, 20s));
    CHECK(to_a.down_count == 0);
    CHECK(to_b.down_count == 0);
  }
}

}  // namespace

TEST_CASE("large messages in flight together, from one sender and from many, both ways, arrive") {
  send_large_ones_together(1);
}

TEST_CASE("large messages in flight together arrive, by many seeds", "[long]") {
  send_large_ones_together(40);
}

namespace {

hf::Task<void> only_connect(net::Network* network, net::Endpoint to, hf::Duration within) {
  co_await network->connect(to, hf::after(within));
}

/// Connects, says nothing, and notes when the other side has closed.
hf::Task<void> stay_silent(hf::Address to, std::vector<hf::Time>* closed) {
  hf::Socket socket = co_await hf::Socket::connect(to);
  try {
    (void)co_await socket.receive();
  } catch (const hf::Error&) {
    // Reset is closed too.
  }
  closed->push_back(hf::Clock::now());
}

}  // namespace

TEST_CASE("a session of many links comes up over a slow network, though others heartbeat already") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 8});
  world.network().default_link() = {30ms, 1ms, 100'000'000};
  hf::SimNode &a = world.add_node({.shards = 24}), &b = world.add_node({.shards = 32});
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  world.run(b, 0, [&](hf::Runtime&) { return only_connect(&from.network, endpoint_of(a), 5s); });
  world.run_for(10s);
  CHECK(to_a.ups == 24);
  CHECK(to_b.ups == 32);
  CHECK(to_a.down_count == 0);
  CHECK(to_b.down_count == 0);
}

namespace {

void connect_at_once(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    hf::SimWorld world({.seed = seed});
    hf::SimNode &a = world.add_node({.shards = 2}), &b = world.add_node({.shards = 3});
    Program& at_a = start_program(world, a, to_a);
    Program& at_b = start_program(world, b, to_b);
    auto one = world.start(
        a, 0, [&](hf::Runtime&) { return only_connect(&at_a.network, endpoint_of(b), 5s); });
    auto other = world.start(
        b, 0, [&](hf::Runtime&) { return only_connect(&at_b.network, endpoint_of(a), 5s); });
    world.wait(one);
    world.wait(other);
    world.run_for(1s);
    CHECK(to_a.ups == 2);
    CHECK(to_b.ups == 3);
    CHECK(to_a.down_count == 0);
    CHECK(to_b.down_count == 0);
  }
}

}  // namespace

TEST_CASE("two simulated nodes that connect to each other at once have one session") {
  connect_at_once(12);
}

TEST_CASE("two simulated nodes that connect to each other have one session, by many seeds",
          "[long]") {
  connect_at_once(200);
}

TEST_CASE("a network that closes while a session's links are set up ends with them, not later") {
  for (int step = 0; step < 12; ++step) {
    INFO("step " << step);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    hf::SimWorld world({.seed = 5});
    world.network().default_link() = {30ms, 0ms, 100'000'000};
    hf::SimNode &a = world.add_node({.shards = 4}), &b = world.add_node({.shards = 4});
    start_program(world, a, to_a);
    Program& from = start_program(world, b, to_b);
    auto connecting = world.start(
        b, 0, [&](hf::Runtime&) { return only_connect(&from.network, endpoint_of(a), 20s); });
    REQUIRE(world.run_until([&] { return to_b.ups == 1; }, 5s));
    world.run_for(step * 15ms);
    const hf::Time begin = world.now();
    const auto left = world.run(b, 0, [&](hf::Runtime&) { return from.network.close(60s); });
    CHECK(left == 0);
    CHECK(world.now() - begin < 5s);
    CHECK(to_b.down_count == to_b.ups);
    for (const auto& down : to_b.downs()) CHECK(down.code == hf::Errc::closed);
    CHECK(world.run_until([&] { return to_a.down_count == to_a.ups; }, 5s));
    try {
      world.wait(connecting);
    } catch (const hf::Error&) {
      // It was under way.
    }
  }
}

namespace {

hf::Task<void> connect_without_deadline(net::Network* network, net::Endpoint to) {
  co_await network->connect(to, hf::no_deadline);
}

hf::Task<void> give_up_closing(net::Network* network, std::error_code* code) {
  try {
    co_await hf::with_deadline(network->close(60s), hf::after(100ms));
  } catch (const hf::Error& error) {
    *code = error.code();
  }
}

}  // namespace

TEST_CASE("who waits for a session's link hears of the session's end, without a deadline too") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 5});
  world.network().default_link() = {30ms, 0ms, 100'000'000};
  hf::SimNode &a = world.add_node({.shards = 2}), &b = world.add_node({.shards = 2});
  Program& at_a = start_program(world, a, to_a);
  Program& at_b = start_program(world, b, to_b);
  auto connecting = world.start(
      a, 0, [&](hf::Runtime&) { return only_connect(&at_a.network, endpoint_of(b), 20s); });
  REQUIRE(world.run_until([&] { return to_b.ups == 1; }, 5s));
  // It finds the session that the other side has begun, and waits for the second link of that.
  auto waiting = world.start(
      b, 1, [&](hf::Runtime&) { return connect_without_deadline(&at_b.network, endpoint_of(a)); });
  world.run_for(130ms);
  CHECK(to_b.ups == 1);
  CHECK(!waiting.done());
  a.crash(hf::SimCrash::kill());
  CHECK(world.run_until([&] { return waiting.done(); }, 10s));
  CHECK(to_b.down_count == 1);
  CHECK_THROWS_AS(world.wait(waiting), hf::Error);
  CHECK_THROWS_AS(world.wait(connecting), hf::Error);
}

TEST_CASE("a network whose close was given up holds no port any more") {
  Handler to_a, to_b, to_another;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 5});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  world.run(b, 0, [&](hf::Runtime&) { return only_connect(&from.network, endpoint_of(a), 5s); });
  a.pause();
  std::error_code code;
  world.run(b, 0, [&](hf::Runtime&) { return give_up_closing(&from.network, &code); });
  CHECK(code == hf::Errc::deadline_exceeded);
  world.run_for(10ms);
  CHECK_NOTHROW(start_program(world, b, to_another));
  a.resume();
}

TEST_CASE("silent sockets are closed after the handshake's 5 seconds, and slow no real peer") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 2});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  std::vector<hf::Time> closed;
  const hf::Time begin = world.now();
  std::vector<hf::SimPending<void>> silent;
  for (int i = 0; i < 200; ++i)
    silent.push_back(
        world.start(b, 0, [&](hf::Runtime&) { return stay_silent(a.address(6000), &closed); }));
  world.run_for(100ms);
  const hf::Time before = world.now();
  world.run(b, 0, [&](hf::Runtime&) { return only_connect(&from.network, endpoint_of(a), 5s); });
  CHECK(world.now() - before < 10ms);
  CHECK(closed.empty());
  for (auto& pending : silent) world.wait(pending);
  REQUIRE(closed.size() == 200);
  const auto limit = hf::timing().handshake_deadline();
  for (const hf::Time time : closed) {
    CHECK(time - begin >= limit);
    CHECK(time - begin <= limit + 100ms);
  }
  CHECK(to_a.down_count == 0);
}

TEST_CASE("of too many handshakes that arrive together the oldest give way, however many at once") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 2});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  net::Network::Options options;
  options.max_handshakes = 8;
  start_program(world, a, to_a, options);
  Program& from = start_program(world, b, to_b);
  const std::size_t idle = a.descriptor_count();
  std::vector<hf::Time> closed;
  std::vector<hf::SimPending<void>> silent;
  // All wait in the backlog for the turn in which they are accepted.
  a.pause();
  for (int i = 0; i < 100; ++i)
    silent.push_back(
        world.start(b, 0, [&](hf::Runtime&) { return stay_silent(a.address(6000), &closed); }));
  world.run_for(50ms);
  a.resume();
  world.run_for(50ms);
  CHECK(a.descriptor_count() <= idle + 8);
  CHECK(closed.size() >= 92);
  // A real one is let in at once, and gives way to none of them.
  const hf::Time before = world.now();
  world.run(b, 0, [&](hf::Runtime&) { return only_connect(&from.network, endpoint_of(a), 5s); });
  CHECK(world.now() - before < 10ms);
  for (auto& pending : silent) world.wait(pending);
}

TEST_CASE("one handshake that fails in an unforeseen way ends no other, nor the accepting") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 2});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  auto failures = std::make_shared<int>(0);
  net::Network::Options options;
  options.random = [failures](std::span<std::byte> into) {
    if (*failures && --*failures >= 0) throw std::bad_alloc();
    std::memset(into.data(), 7, into.size());
  };
  Program& server = start_program(world, a, to_a, options);
  Program& from = start_program(world, b, to_b);
  *failures = 1;
  CHECK_THROWS_AS(
      world.run(b, 0,
                [&](hf::Runtime&) { return only_connect(&from.network, endpoint_of(a), 2s); }),
      hf::Error);
  CHECK(*failures == 0);
  world.run(b, 0, [&](hf::Runtime&) { return only_connect(&from.network, endpoint_of(a), 2s); });
  CHECK(to_a.ups == 1);
  const auto left =
      world.run(a, 0, [&](hf::Runtime&) { return server.network.close(std::chrono::seconds(1)); });
  CHECK(left == 0);
  CHECK(world.run_until([&] { return to_b.down_count == 1; }, 5s));
}

namespace {

/// Tells and asks of random sizes on all lanes, one after the other, numbered for each lane.
hf::Task<void> chat(net::Network* network, net::Endpoint to, std::uint64_t seed,
                    std::uint64_t sender, int count, std::atomic<int>* asked) {
  std::mt19937_64 random(seed);
  auto session = co_await network->connect(to, hf::after(20s));
  std::uint64_t numbers[3] = {};
  // What a network with 4 MiB to lend has for half a window.
  const std::size_t half_window[3] = {8 << 10, 32 << 10, 128 << 10};
  for (int i = 0; i < count; ++i) {
    const std::size_t lane = random() % 3;
    std::size_t size = random() % 500;
    if (random() % 4 == 0) size = half_window[lane] - 200 + random() % 400;
    if (random() % 10 == 0) size = random() % 1'000'000;
    Message message;
    message.envelope.type_id = sender;
    message.envelope.context = numbers[lane]++;
    if (random() % 3 == 0) {
      message.envelope.kind = net::MessageKind::ask;
      message.envelope.correlation = random();
      message.envelope.reply_room = static_cast<std::uint32_t>(100 + random() % 20'000);
      ++*asked;
    }
    message.body = hf::Buffer::heap(size);
    co_await session->send(std::move(message), static_cast<Lane>(lane), hf::after(300s));
  }
}

/// The other end of `chat`: checks the order, answers, and keeps what it got for a while.
class Chatter {
 public:
  Chatter(Handler& handler, std::uint64_t seed) : random_(seed) {
    handler.react = [this](net::Session& session, Lane lane, Message message) {
      take(session, lane, std::move(message));
    };
  }
  /// Releases what is kept, by and by.
  hf::Task<void> release() {
    while (true) {
      co_await hf::sleep_for(std::chrono::microseconds(random_() % 3000));
      most_memory = std::max(most_memory, hf::Shard::current()->receive_pool().usage().used_bytes);
      if (!kept_.empty()) kept_.erase(kept_.begin() + static_cast<long>(random_() % kept_.size()));
    }
  }
  /// Sends the answers that need more than their asker's room.
  hf::Task<void> answer() {
    while (true) {
      co_await hf::sleep_for(1ms);
      if (late_.empty()) continue;
      Late late = std::move(late_.back());
      late_.pop_back();
      co_await late.session->send(std::move(late.answer), late.lane, hf::after(300s));
    }
  }
  /// What is kept goes, on its shard.
  hf::Task<void> clear() {
    kept_.clear();
    co_return;
  }
  int told = 0, answered = 0;
  bool in_order = true;
  std::size_t most_memory = 0;

 private:
  struct Late {
    net::SessionRef session;
    Lane lane;
    Message answer;
  };
  void take(net::Session& session, Lane lane, Message message) {
    using enum net::MessageKind;
    const net::Envelope envelope = message.envelope;
    if (random_() % 2) kept_.push_back(std::move(message));
    if (envelope.kind == reply) {
      ++answered;
      return;
    }
    ++told;
    auto& expected = next_[{envelope.type_id, lane}];
    in_order &= envelope.context == expected++;
    if (envelope.kind != ask) return;
    Late late{net::SessionRef(&session), lane, Message()};
    late.answer.envelope = net::answer_to(envelope);
    const std::size_t room = envelope.reply_room - 64;
    late.answer.body = hf::Buffer::heap(random_() % (random_() % 3 ? room : 20 * room));
    if (!session.try_send(late.answer, lane)) late_.push_back(std::move(late));
  }
  std::mt19937_64 random_;
  std::vector<Message> kept_;
  std::vector<Late> late_;
  std::map<std::pair<std::uint64_t, Lane>, std::uint64_t> next_;
};

}  // namespace

namespace {

void chat_through_little_memory(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    Chatter at_a(to_a, seed), at_b(to_b, seed + 50);
    hf::SimWorld world({.seed = seed});
    if (seed % 2) world.network().default_link() = {1ms, 1ms, 50'000'000};
    hf::SimNode &a = world.add_node(), &b = world.add_node();
    Program& of_a = start_program(world, a, to_a, budget_of(4u << 20));
    Program& of_b = start_program(world, b, to_b, budget_of(4u << 20));
    (void)world.start(a, 0, [&](hf::Runtime&) { return at_a.release(); });
    (void)world.start(a, 0, [&](hf::Runtime&) { return at_a.answer(); });
    (void)world.start(b, 0, [&](hf::Runtime&) { return at_b.release(); });
    (void)world.start(b, 0, [&](hf::Runtime&) { return at_b.answer(); });
    std::atomic<int> asked_by_a{0}, asked_by_b{0};
    std::vector<hf::SimPending<void>> senders;
    const int count = 150;
    for (std::uint64_t i = 0; i < 4; ++i) {
      senders.push_back(world.start(a, 0, [&, i](hf::Runtime&) {
        return chat(&of_a.network, endpoint_of(b), seed * 10 + i, i, count, &asked_by_a);
      }));
      senders.push_back(world.start(b, 0, [&, i](hf::Runtime&) {
        return chat(&of_b.network, endpoint_of(a), seed * 20 + i, i, count, &asked_by_b);
      }));
    }
    for (auto& sender : senders) world.wait(sender);
    CHECK(world.run_until(
        [&] {
          return at_a.told == 4 * count && at_b.told == 4 * count && at_a.answered == asked_by_a &&
                 at_b.answered == asked_by_b;
        },
        60s));
    CHECK(at_a.in_order);
    CHECK(at_b.in_order);
    CHECK(to_a.down_count == 0);
    CHECK(to_b.down_count == 0);
    // Blocks of a pool are larger than what they hold, but not twice as large.
    CHECK(at_a.most_memory < 8u << 20);
    CHECK(at_b.most_memory < 8u << 20);
    CHECK(at_a.most_memory > 1u << 20);
    world.run(a, 0, [&](hf::Runtime&) { return at_a.clear(); });
    world.run(b, 0, [&](hf::Runtime&) { return at_b.clear(); });
  }
}

}  // namespace

TEST_CASE("asks, answers and granted messages on all lanes, both ways, through little memory") {
  chat_through_little_memory(2);
}

TEST_CASE("asks, answers and granted messages through little memory, by many seeds", "[long]") {
  chat_through_little_memory(40);
}

TEST_CASE("a send without a deadline of its own waits 5 seconds for credit, and no longer") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 6});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  std::deque<Message> kept;
  to_a.react = [&](net::Session&, Lane, Message message) { kept.push_back(std::move(message)); };
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  hf::Duration waited{0};
  world.run(b, 0, [&](hf::Runtime&) {
    return hf::co_invoke(
        [](net::Network* network, net::Endpoint to, hf::Duration* waited) -> hf::Task<void> {
          auto session = co_await network->connect(to, hf::after(20s));
          hf::Time begin = hf::Clock::now();
          try {
            while (true) {
              Message message;
              message.body = hf::Buffer::heap(50'000);
              begin = hf::Clock::now();
              co_await session->send(std::move(message));
            }
          } catch (const hf::Error& error) {
            if (error.is(hf::Errc::deadline_exceeded)) *waited = hf::Clock::now() - begin;
          }
        },
        &from.network, endpoint_of(a), &waited);
  });
  CHECK(waited >= hf::timing().default_deadline());
  CHECK(waited <= hf::timing().default_deadline() + 10ms);
  // Where the messages belong.
  world.run(a, 0, [&](hf::Runtime&) {
    return hf::co_invoke(
        [](std::deque<Message>* kept) -> hf::Task<void> {
          kept->clear();
          co_return;
        },
        &kept);
  });
}

TEST_CASE("every address of a name is tried, and each is in the error with its own reason") {
  Handler to_c, to_a;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 6});
  // Two hosts of one name: one refuses, one swallows what is sent to it.
  hf::SimNode& a = world.add_node({.name = "pair"});
  hf::SimNode& b = world.add_node({.name = "pair"});
  hf::SimNode& c = world.add_node();
  Program& from = start_program(world, c, to_c);
  world.network().isolate(b);
  const net::Endpoint both{net::Scheme::tcp, "pair", 6000};
  std::string text;
  std::error_code code;
  try {
    world.run(c, 0, [&](hf::Runtime&) { return only_connect(&from.network, both, 4s); });
  } catch (const hf::Error& error) {
    text = error.what();
    code = error.code();
  }
  INFO(text);
  CHECK(code == hf::Errc::unreachable);
  CHECK(text.find("tcp://pair:6000") != std::string::npos);
  CHECK(text.find("tcp://" + a.address().host() + ":6000: Connection refused") !=
        std::string::npos);
  const auto second = text.find("tcp://" + b.address().host() + ":6000: ");
  REQUIRE(second != std::string::npos);
  CHECK(text.find("deadline", second) != std::string::npos);
  // And one that answers is enough, though another eats its share of the time.
  world.network().heal();
  world.network().partition(b, c);
  start_program(world, a, to_a);
  world.run(c, 0, [&](hf::Runtime&) { return only_connect(&from.network, both, 4s); });
  CHECK(to_a.ups == 1);
}

TEST_CASE("closing a network says how many messages its peers have not acknowledged") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 9});
  hf::SimNode &a = world.add_node({.shards = 2}), &b = world.add_node({.shards = 2});
  start_program(world, a, to_a);
  Program& from = start_program(world, b, to_b);
  for (int i = 0; i < 4; ++i)
    world.run(b, 0, [&](hf::Runtime&) {
      return send_text(&from.network, endpoint_of(a), "before", Lane::normal);
    });
  world.run_for(1s);
  CHECK(to_a.count == 4);
  int expected = 0;
  SECTION("none, if all is well") {}
  SECTION("those that a stopped process has not read") {
    a.pause();
    expected = 7;
  }
  SECTION("those that a partition has swallowed") {
    world.network().partition(a, b);
    expected = 7;
  }
  for (unsigned i = 0; i < 7; ++i)
    world.run(b, i % 2, [&](hf::Runtime&) {
      return hf::co_invoke(
          [](net::Network* network, std::uint64_t to, std::size_t size,
             Lane lane) -> hf::Task<void> {
            Message message;
            message.body = hf::Buffer::heap(size);
            auto session = session_with(*network, to);
            co_await session->send(std::move(message), lane);
          },
          &from.network, a.index() + 1, i * 3000, static_cast<Lane>(i % 3));
    });
  const hf::Time begin = world.now();
  const auto left =
      world.run(b, 1, [&](hf::Runtime&) { return from.network.close(std::chrono::seconds(1)); });
  CHECK(left == static_cast<std::uint64_t>(expected));
  CHECK(world.now() - begin < 1100ms);
  CHECK(to_b.down_count == 2);
  for (const auto& down : to_b.downs()) CHECK(down.code == hf::Errc::closed);
  a.resume();
}

namespace {

void lose_a_receiver(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    Handler to_a, to_b;  // the world's nodes refer to them to the end
    hf::SimWorld world({.seed = seed});
    hf::SimNode &a = world.add_node(), &b = world.add_node();
    std::uint64_t received[3] = {};
    to_a.react = [&](net::Session&, Lane lane, Message) {
      ++received[static_cast<std::size_t>(lane)];
    };
    start_program(world, a, to_a);
    Program& from = start_program(world, b, to_b);
    // The session object outlives the session.
    std::optional<net::SessionRef> session;
    world.run(b, 0, [&](hf::Runtime&) {
      return hf::co_invoke(
          [](net::Network* network, net::Endpoint to, std::optional<net::SessionRef>* session)
              -> hf::Task<void> { *session = co_await network->connect(to, hf::after(5s)); },
          &from.network, endpoint_of(a), &session);
    });
    std::map<int, int> sent;
    auto pouring = world.start(b, 0, [&](hf::Runtime&) {
      return pour(&from.network, endpoint_of(a), seed, 100'000, &sent);
    });
    world.run_for(std::chrono::milliseconds(5 + seed % 10 * 7));
    a.crash(hf::SimCrash::kill());
    CHECK(world.run_until([&] { return to_b.down_count == 1; }, 10s));
    CHECK_THROWS_AS(world.wait(pouring), hf::Error);
    const auto stats = (*session)->stats();
    std::uint64_t known = 0;
    for (std::size_t lane = 0; lane < 3; ++lane) {
      INFO("lane " << lane);
      CHECK(stats.lanes[lane].messages_acknowledged <= received[lane]);
      CHECK(received[lane] <= stats.lanes[lane].messages_sent);
      known += stats.lanes[lane].messages_acknowledged;
    }
    CHECK(known > 0);
    const auto down = to_b.downs().at(0);
    CHECK(down.code == hf::Errc::peer_lost);
    CHECK(down.text.find("it has acknowledged") != std::string::npos);
    session.reset();
  }
}

}  // namespace

TEST_CASE("a sender that loses its peer learns which of its messages that has") {
  lose_a_receiver(3);
}

TEST_CASE("a sender that loses its peer learns what that has, by many seeds", "[long]") {
  lose_a_receiver(60);
}
