// Sessions whose connections break, in the simulator: resets, partitions, frozen processes and dead
// ones, at any moment, by seed.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "../runtime/captured_log.hpp"
#include "sim_program.hpp"
#include "storm.hpp"

using namespace net_test;
using net::Lane;
using net::Message;

namespace {

/// Two nodes with a session that `b` has begun.
struct Pair {
  explicit Pair(std::uint64_t seed, unsigned shards_a = 1, unsigned shards_b = 1)
      : world({.seed = seed}),
        a(world.add_node({.shards = shards_a})),
        b(world.add_node({.shards = shards_b})),
        at_a(&start_program(world, a, to_a, options())),
        at_b(&start_program(world, b, to_b, options())) {
    connect();
  }
  static net::Network::Options options() {
    net::Network::Options options;
    options.receive_budget_bytes = 16u << 20;
    return options;
  }
  void connect() {
    world.run(b, 0, [this](hf::Runtime&) { return connect_task(&at_b->network, endpoint_of(a)); });
    world.run_for(10ms);  // the other shards' links
  }
  static hf::Task<void> connect_task(net::Network* network, net::Endpoint to) {
    co_await network->connect(to, hf::after(5s));
  }
  Standing standing(hf::SimNode& node, Program* program) {
    Standing all;
    for (unsigned shard = 0; shard < node.runtime().shard_count(); ++shard) {
      const Standing here =
          world.run(node, shard, [&](hf::Runtime&) { return standing_here(&program->network); });
      all.resuming += here.resuming;
      all.resumes += here.resumes;
      all.unacknowledged += here.unacknowledged;
      all.held += here.held;
    }
    return all;
  }
  Standing of_a() { return standing(a, at_a); }
  Standing of_b() { return standing(b, at_b); }
  bool is_calm() { return of_a().resuming == 0 && of_b().resuming == 0; }
  /// False if links are still broken after `limit`.
  bool calm_down(hf::Duration limit) {
    const hf::Time until = world.now() + limit;
    while (!is_calm()) {
      if (world.now() > until) return false;
      world.run_for(5ms);
    }
    return true;
  }
  void send(hf::SimNode& from, Program* program, std::string text, unsigned shard = 0,
            Lane lane = Lane::normal) {
    const std::uint64_t to = from.index() == 0 ? 2 : 1;
    world.run(from, shard,
              [=](hf::Runtime&) { return send_task(&program->network, to, text, lane); });
  }
  static hf::Task<void> send_task(net::Network* network, std::uint64_t to, std::string text,
                                  Lane lane) {
    auto session = network->session(to);
    if (!session) throw hf::Error(hf::Errc::not_found, "use a session", "there is none");
    Message message;
    message.body = hf::Buffer::copy_of(text);
    co_await session->send(std::move(message), lane, hf::after(60s));
  }

  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world;
  hf::SimNode &a, &b;
  Program *at_a, *at_b;
};

/// Faults that living processes get over, one after the other.
class Faults {
 public:
  Faults(Pair& pair, std::uint64_t seed) : pair_(pair), random_(seed) {}

  void strike() {
    auto& network = pair_.world.network();
    pair_.world.run_for(std::chrono::microseconds(random_() % 20'000));
    switch (random_() % 12) {
      case 0:
      case 1: network.reset(pair_.a, pair_.b); return;
      case 2:
      case 3:
      case 4: network.reset_any(); return;
      case 5:
        network.faults().reset = 0.02;
        pair_.world.run_for(20ms);
        network.faults().reset = 0;
        return;
      case 6: return silence([&] { network.partition(pair_.a, pair_.b); });
      case 7: return silence([&] { network.cut(pair_.a, pair_.b); });
      case 8: return silence([&] { network.cut(pair_.b, pair_.a); });
      case 9: return pause(pair_.a);
      case 10: return pause(pair_.b);
      default: network.reset_any(); network.reset_any();
    }
  }

 private:
  /// Often noticed, and short enough for a link that was last heard of a heartbeat before: what is
  /// left of 3 is for taking it up.
  hf::Duration span() {
    const auto beat = hf::timing().heartbeat();
    return random_() % 3 ? beat * static_cast<int>(random_() % 12) / 10
                         : beat * static_cast<int>(12 + random_() % 4) / 10;
  }
  /// Until every link was heard of since the last silence, or has broken and was taken up.
  void rest() {
    pair_.world.run_for(hf::timing().heartbeat() * 21 / 10);
    REQUIRE(pair_.calm_down(hf::timing().down_after()));
  }
  template <class Begin>
  void silence(Begin begin) {
    rest();
    begin();
    pair_.world.run_for(span());
    pair_.world.network().heal();
    REQUIRE(pair_.calm_down(hf::timing().down_after()));
  }
  void pause(hf::SimNode& node) {
    rest();
    node.pause();
    pair_.world.run_for(span());
    node.resume();
    REQUIRE(pair_.calm_down(hf::timing().down_after()));
  }
  Pair& pair_;
  std::mt19937_64 random_;
};

/// Two nodes that talk with each other while connections break, by so many seeds.
void break_and_compare(std::uint64_t seeds, std::size_t largest) {
  const std::uint64_t first = std::random_device()();
  std::uint64_t resumes = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    INFO("seed " << seed);
    Record record;
    Pair pair(seed, 2, seed % 2 ? 2 : 3);
    Talker in_a(pair.to_a, record, seed), in_b(pair.to_b, record, seed + 1000);
    // As slow as heartbeats are, so that it lasts through several faults.
    in_a.pause_us = in_b.pause_us = static_cast<std::uint64_t>(100'000 * hf::timing().scale);
    const std::size_t descriptors = pair.a.descriptor_count() + pair.b.descriptor_count();
    std::vector<hf::SimPending<void>> senders;
    for (std::uint64_t i = 0; i < 4; ++i) {
      senders.push_back(pair.world.start(pair.a, i % 2, [&, i](hf::Runtime&) {
        return in_a.talk(&pair.at_a->network, 2, 10 + i, 150, largest);
      }));
      senders.push_back(pair.world.start(pair.b, i % 2, [&, i](hf::Runtime&) {
        return in_b.talk(&pair.at_b->network, 1, 20 + i, 150, largest);
      }));
    }
    pair.world.run_for(30ms);
    CHECK(pair.world.network().reset_any());  // one at least, whatever the seed has for others
    Faults faults(pair, seed);
    const auto done = [&] {
      return std::ranges::all_of(senders, [](const auto& sender) { return sender.done(); });
    };
    for (int strikes = 0; strikes < 1000 && !done(); ++strikes) faults.strike();
    for (auto& sender : senders) pair.world.wait(sender);
    const auto all = [&] {
      return in_a.told + in_b.told == record.tells + record.asks &&
             in_a.answered + in_b.answered == record.asks;
    };
    CHECK(pair.world.run_until(all, 60s));
    CHECK(in_a.right);
    CHECK(in_b.right);
    CHECK(pair.to_a.down_count == 0);
    CHECK(pair.to_b.down_count == 0);
    CHECK(pair.to_a.ups == 2);
    pair.world.run_for(hf::timing().heartbeat() * 3);
    const Standing a = pair.of_a(), b = pair.of_b();
    CHECK(a.unacknowledged + b.unacknowledged == 0);
    CHECK(a.held + b.held == 0);
    CHECK(pair.a.descriptor_count() + pair.b.descriptor_count() == descriptors);
    resumes += a.resumes;
  }
  CHECK(resumes > seeds / 2);  // that what is promised here was tried at all
}

}  // namespace

TEST_CASE("whatever breaks under two living processes, each message comes once, whole, in order") {
  break_and_compare(2, 800'000);
}

TEST_CASE("whatever breaks, by many seeds and with larger messages, each comes once, in order",
          "[long]") {
  break_and_compare(40, 3'000'000);
}

TEST_CASE("the same faults by the same seed give the same trace") {
  const auto run = [](std::uint64_t seed) {
    Record record;
    Pair pair(seed, 2, 2);
    Talker in_a(pair.to_a, record, seed), in_b(pair.to_b, record, seed + 1000);
    auto sender = pair.world.start(pair.b, 0, [&](hf::Runtime&) {
      return in_b.talk(&pair.at_b->network, 1, 20, 60, 500'000);
    });
    Faults faults(pair, seed);
    for (int i = 0; i < 10; ++i) faults.strike();
    pair.world.wait(sender);
    pair.world.run_for(2s);
    return pair.world.trace_hash();
  };
  CHECK(run(3) == run(3));
  CHECK(run(3) != run(4));
}

TEST_CASE("a break and its end are told in the log, once each side, and in the session's figures") {
  hf::test::CapturedLog log;
  Pair pair(7);
  pair.send(pair.b, pair.at_b, "before");
  pair.world.network().cut(pair.b, pair.a);
  pair.world.network().reset(pair.a, pair.b);
  pair.world.run_for(100ms);
  CHECK(pair.of_a().resuming == 1);
  CHECK(pair.of_b().resuming == 1);
  CHECK(pair.of_a().resumes == 0);
  pair.world.network().heal();
  REQUIRE(pair.calm_down(3s));
  CHECK(pair.of_a().resumes == 1);
  CHECK(pair.of_b().resumes == 1);
  pair.send(pair.b, pair.at_b, "after");
  CHECK(pair.world.run_until([&] { return pair.to_a.count == 2; }, 1s));
  const std::string text = log.text();
  const auto count = [&](const std::string& words) {
    int found = 0;
    for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
      ++found;
    return found;
  };
  CHECK(count(" broke: ") == 2);
  CHECK(count(" goes on over ") == 2);
  CHECK(count("\n") == 4);
}

// Else the nodes behind a network that is there again would push each other out of the handshake.
TEST_CASE("of many links that broke together a session takes up 16 at a time, and then all") {
  constexpr int links = 24, at_once = 16;
  Pair pair(11, links, links);
  REQUIRE(pair.to_a.ups == links);
  const auto open = [&] { return static_cast<int>(pair.a.descriptor_count()); };
  const int without = open() - links;
  pair.world.network().default_link() = {30ms, 0ms, 100'000'000};
  pair.world.network().reset(pair.a, pair.b);
  int most = 0;
  const hf::Time until = pair.world.now() + hf::timing().heartbeat();
  for (int resumed = 0; resumed < links && pair.world.now() < until;) {
    pair.world.run_for(4ms);
    resumed = static_cast<int>(pair.of_a().resumes);
    most = std::max(most, open() - without - resumed);
  }
  CHECK(most == at_once);
  CHECK(pair.calm_down(hf::timing().heartbeat()));
  CHECK(pair.of_b().resumes == links);
  CHECK(pair.to_a.down_count == 0);
  CHECK(pair.to_b.down_count == 0);
}

TEST_CASE("one link of several is taken up, while the others go on undisturbed") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed, 3, 3);
    REQUIRE(pair.to_a.ups == 3);
    REQUIRE(pair.world.network().reset_any());
    for (unsigned shard = 0; shard < 3; ++shard) {
      pair.send(pair.a, pair.at_a, "from a", shard);
      pair.send(pair.b, pair.at_b, "from b", shard);
    }
    CHECK(pair.world.run_until([&] { return pair.to_a.count == 3 && pair.to_b.count == 3; }, 2s));
    CHECK(pair.of_a().resumes == 1);
    CHECK(pair.of_b().resumes == 1);
    CHECK(pair.to_a.down_count == 0);
  }
}

namespace {

void lose_a_dead_peer(std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    Record record;
    Pair pair(seed);
    Talker in_a(pair.to_a, record, seed), in_b(pair.to_b, record, seed + 1000);
    auto from_a = pair.world.start(pair.a, 0, [&](hf::Runtime&) {
      return in_a.talk(&pair.at_a->network, 2, 1, 100'000, 200'000);
    });
    auto from_b = pair.world.start(pair.b, 0, [&](hf::Runtime&) {
      return in_b.talk(&pair.at_b->network, 1, 2, 100'000, 200'000);
    });
    pair.world.run_for(std::chrono::milliseconds(20 + seed % 24 * 3));
    if (seed % 3 == 0) pair.world.network().reset(pair.a, pair.b);  // broken already
    const bool acceptor_dies = seed % 2;
    const bool silently = seed % 4 > 1;
    hf::SimNode& victim = acceptor_dies ? pair.a : pair.b;
    Handler& told = acceptor_dies ? pair.to_b : pair.to_a;
    victim.crash(silently ? hf::SimCrash::power_cut() : hf::SimCrash::kill());
    // A tenth for what was on its way, and for turns.
    const hf::Duration limit = acceptor_dies && !silently ? hf::timing().heartbeat() / 2
                                                          : hf::timing().down_after() * 31 / 30;
    CHECK(pair.world.run_until([&] { return told.down_count == 1; }, limit));
    REQUIRE(told.down_count == 1);
    CHECK(told.downs()[0].code == hf::Errc::peer_lost);
    CHECK(told.downs()[0].text.find("it has acknowledged") != std::string::npos);
    CHECK_THROWS_AS(pair.world.wait(from_a), hf::Error);
    CHECK_THROWS_AS(pair.world.wait(from_b), hf::Error);
    CHECK(in_a.right);
    CHECK(in_b.right);
  }
}

}  // namespace

// 12: each way to die, on either side, with the connection broken before or not.
TEST_CASE(
    "a dead peer is lost at once to the side that had connected, in 3 heartbeats to the other") {
  lose_a_dead_peer(12);
}

TEST_CASE("a dead peer is lost in time, by many seeds", "[long]") { lose_a_dead_peer(96); }

TEST_CASE("a peer is down 3 heartbeats after it was last heard of, however its connection ended") {
  const hf::Duration down = hf::timing().down_after();
  for (const bool acceptor : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      INFO("seed " << seed << ", the one that stays accepted: " << acceptor);
      Pair pair(seed);
      hf::SimNode& victim = acceptor ? pair.b : pair.a;
      Handler& told = acceptor ? pair.to_a : pair.to_b;
      // At any point between two heartbeats; the last word is this message.
      pair.world.run_for(3s + std::chrono::milliseconds(seed * 83));
      pair.send(victim, acceptor ? pair.at_b : pair.at_a, "last words");
      REQUIRE(pair.world.run_until([&] { return told.count == 1; }, 1s));
      const hf::Time heard = pair.world.now();
      victim.crash(hf::SimCrash::power_cut());
      if (seed % 2) {
        pair.world.run_for(std::chrono::milliseconds(seed * 40));
        pair.world.network().reset(pair.a, pair.b);
      }
      REQUIRE(pair.world.run_until([&] { return told.down_count == 1; }, 10s));
      const hf::Duration after = pair.world.now() - heard;
      CHECK(after > down - down / 30);
      CHECK(after < down + down / 30);
      CHECK(told.downs()[0].text.find("within 3 heartbeats") != std::string::npos);
    }
  }
}

TEST_CASE("a node that sleeps while its link is broken does not give its peer up for that") {
  for (const bool acceptor : {false, true}) {
    INFO("the one that sleeps accepted: " << acceptor);
    Pair pair(9);
    hf::SimNode& sleeper = acceptor ? pair.a : pair.b;
    pair.world.network().cut(pair.b, pair.a);
    pair.world.network().reset(pair.a, pair.b);
    pair.world.run_for(10ms);
    sleeper.pause();
    pair.world.run_for(hf::timing().heartbeat());
    sleeper.jump_clock(20s);
    sleeper.resume();
    pair.world.network().heal();
    CHECK(pair.calm_down(hf::timing().heartbeat()));
    pair.world.run_for(10s);
    CHECK(pair.to_a.down_count == 0);
    CHECK(pair.to_b.down_count == 0);
    CHECK(pair.of_a().resumes == 1);
  }
}

TEST_CASE("a peer that was started anew is not taken for the one that broke off") {
  for (const bool both : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      INFO("seed " << seed << ", both: " << both);
      Pair pair(seed);
      pair.send(pair.b, pair.at_b, "one");
      REQUIRE(pair.world.run_until([&] { return pair.to_a.count == 1; }, 1s));
      pair.world.network().cut(pair.b, pair.a);
      pair.world.network().reset(pair.a, pair.b);
      pair.world.run_for(10ms);
      pair.a.crash(hf::SimCrash::kill());
      if (both) pair.b.crash(hf::SimCrash::kill());
      pair.world.run_for(10ms);
      pair.a.restart();
      pair.at_a = &start_program(pair.world, pair.a, pair.to_a, Pair::options());
      if (both) {
        pair.b.restart();
        pair.at_b = &start_program(pair.world, pair.b, pair.to_b, Pair::options());
      }
      pair.world.network().heal();
      if (!both) {
        REQUIRE(pair.world.run_until([&] { return pair.to_b.down_count == 1; },
                                     hf::timing().down_after()));
        CHECK(pair.to_b.downs()[0].code == hf::Errc::peer_lost);
        CHECK(pair.to_b.downs()[0].text.find("incarnation 2") != std::string::npos);
      }
      pair.connect();
      pair.send(pair.b, pair.at_b, "two");
      CHECK(pair.world.run_until([&] { return pair.to_a.count == 2; }, 2s));
    }
  }
}

TEST_CASE("a network that closes while connections are broken delivers all, on either side") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed, 2, 2);
    const bool acceptor_closes = seed % 2;
    hf::SimNode& from = acceptor_closes ? pair.a : pair.b;
    Program* program = acceptor_closes ? pair.at_a : pair.at_b;
    Handler& to = acceptor_closes ? pair.to_b : pair.to_a;
    if (seed % 3) pair.world.network().reset(pair.a, pair.b);
    for (unsigned i = 0; i < 8; ++i)
      pair.send(from, program, std::string(i * 5000, 'x'), i % 2, static_cast<Lane>(i % 3));
    if (seed % 3 != 1) pair.world.network().reset(pair.a, pair.b);
    auto closing = pair.world.start(
        from, 0, [&](hf::Runtime&) { return program->network.close(hf::Duration(5s)); });
    pair.world.run_for(std::chrono::microseconds(seed * 40));
    if (seed % 5 == 0) pair.world.network().reset(pair.a, pair.b);  // in the middle of it
    const auto left = pair.world.wait(closing);
    // The last acknowledgement may be what was lost.
    if (seed % 5) CHECK(left == 0);
    CHECK(to.count == 8);
    const auto span = hf::timing().down_after() + hf::timing().heartbeat();
    CHECK(pair.world.run_until([&] { return to.down_count == 2; }, span));
  }
}

TEST_CASE("a network that closes counts what a peer that dies meanwhile has not acknowledged") {
  Pair pair(3, 2, 2);
  pair.world.network().reset(pair.a, pair.b);
  for (unsigned i = 0; i < 8; ++i) pair.send(pair.a, pair.at_a, "never arrives", i % 2);
  auto closing = pair.world.start(
      pair.a, 0, [&](hf::Runtime&) { return pair.at_a->network.close(hf::Duration(60s)); });
  pair.b.crash(hf::SimCrash::kill());
  CHECK(pair.world.wait(closing) == 8);
  CHECK(pair.to_a.down_count == 2);
}

TEST_CASE("a session that is closed while its connection is broken ends on both sides") {
  for (const bool acceptor : {false, true}) {
    INFO("acceptor: " << acceptor);
    Pair pair(5);
    pair.world.network().reset(pair.a, pair.b);
    hf::SimNode& from = acceptor ? pair.a : pair.b;
    Program* program = acceptor ? pair.at_a : pair.at_b;
    pair.send(from, program, "last words");
    pair.world.run(from, 0, [&](hf::Runtime&) {
      return hf::co_invoke(
          [](net::Network* network) -> hf::Task<void> {
            for (const auto& session : network->sessions()) session->close("enough");
            co_return;
          },
          &program->network);
    });
    CHECK(pair.world.run_until(
        [&] { return pair.to_a.down_count == 1 && pair.to_b.down_count == 1; }, 1s));
    CHECK((acceptor ? pair.to_b : pair.to_a).count == 1);
    CHECK(pair.to_a.downs().at(0).code == hf::Errc::closed);
    CHECK(pair.to_b.downs().at(0).code == hf::Errc::closed);
  }
}

TEST_CASE("a process may stop while its connections are broken") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed, 2, 2);
    pair.send(pair.b, pair.at_b, "one");
    if (seed % 2) pair.world.network().partition(pair.a, pair.b);
    pair.world.network().reset(pair.a, pair.b);
    pair.world.run_for(std::chrono::microseconds(seed * 100));
    const auto report = (seed % 4 < 2 ? pair.a : pair.b).stop();
    CHECK(report.stragglers.empty());
  }
}

TEST_CASE("of two nodes that break off and connect anew at once, no session is left over") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed);
    pair.world.network().reset(pair.a, pair.b);
    // The accepting side connects on its own, while the other one takes the link up.
    auto one = pair.world.start(pair.a, 0, [&](hf::Runtime&) {
      return Pair::connect_task(&pair.at_a->network, endpoint_of(pair.b));
    });
    auto other = pair.world.start(pair.b, 0, [&](hf::Runtime&) {
      return Pair::connect_task(&pair.at_b->network, endpoint_of(pair.a));
    });
    pair.world.wait(one);
    pair.world.wait(other);
    pair.send(pair.a, pair.at_a, "to b");
    pair.send(pair.b, pair.at_b, "to a");
    CHECK(pair.world.run_until([&] { return pair.to_a.count == 1 && pair.to_b.count == 1; }, 2s));
    CHECK(pair.to_a.ups == 1);
    CHECK(pair.to_b.ups == 1);
    CHECK(pair.to_a.down_count == 0);
  }
}
