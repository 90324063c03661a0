// Actors of other processes: two simulated machines, joined by the network's own code.
#include <hyperframes/actors/node.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "cluster.hpp"
#include "everything.fbs.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

TEST_CASE("a node tells its peers what its actors do, and which lines they wait on") {
  Cluster cluster(2);
  cluster.run([&]() -> Task<void> {
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    const auto counter = co_await remote.find<demo::Counter>("counter");
    co_await counter.tell_add_slowly({.delta = 60'000});
    co_await hf::sleep_for(1s);
    const std::string json = co_await remote.inspect_json();
    for (const char* part : {"\"node\":\"server\"", "\"name\":\"counter\"",
                             "\"method\":\"demo.Counter.AddSlowly\"", "\"file\":\"support.hpp\""})
      if (json.find(part) == std::string::npos) FAIL_CHECK(part << " is not in " << json);
  });
}

TEST_CASE("an actor of another process is found by name and asked like any other") {
  for (const auto& [server_shards, client_shards] :
       {std::pair(1u, 1u), std::pair(3u, 2u), std::pair(1u, 3u)}) {
    Cluster cluster(server_shards, client_shards);
    for (unsigned shard = 0; shard < client_shards; ++shard) {
      cluster.run(
          [&]() -> Task<void> {
            auto counter = co_await cluster.find();
            CHECK(!counter.is_local());
            const auto before = co_await counter.add({.delta = 0});
            co_await counter.note({.delta = 1});
            const auto value = co_await counter.add({.delta = 2}, hf::within(50ms));
            CHECK(value.total() == before.total() + 3);
            const auto sum = co_await counter.add_named({.name = "Ada", .delta = 7});
            CHECK(sum.note() == "for Ada");
            hf::Segments segments;
            segments.push_back(hf::Buffer::copy_of("one"));
            segments.push_back(hf::Buffer::copy_of("two"));
            const auto echo = co_await counter.echo({.delta = 5}, std::move(segments));
            CHECK(echo.value.total() == 5);
            CHECK(echo.segments.count() == 2);
            CHECK(echo.segments[1].text() == "two");
          },
          shard);
    }
  }
}

TEST_CASE("a reference found on one shard works on every other") {
  Cluster cluster(2, 3);
  const auto counter = cluster.run([&] { return cluster.find(); });
  for (unsigned shard = 0; shard < 3; ++shard) {
    const long total = cluster.run(
        [&]() -> Task<long> {
          const auto value = co_await counter.add({.delta = 1});
          co_return value.total();
        },
        shard);
    CHECK(total == shard + 1);
  }
}

TEST_CASE("messages of one sender to one actor keep their order") {
  Cluster cluster(2, 1);
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    for (int i = 1; i <= 500; ++i) co_await counter.note({.delta = i});
    co_await counter.add({.delta = 0});
  });
  REQUIRE(cluster.journal.lines.size() == 500);
  for (int i = 0; i < 500; ++i)
    if (cluster.journal.lines[static_cast<std::size_t>(i)] != "note " + std::to_string(i + 1))
      FAIL_CHECK("note " << i + 1 << " is out of order");
}

TEST_CASE("what a handler throws crosses the wire with code and texts") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    std::string text;
    try {
      co_await counter.refuse({.name = "Bob"});
    } catch (const hf::Error& error) {
      CHECK(error.is(Errc::invalid_argument));
      text = error.tried() + "|" + error.found() + "|" + error.remedy();
    }
    CHECK(text == "add for Bob|it is refused|ask another one");
    CHECK(co_await code_of<demo::Nothing>(counter.forget({})) == Errc::no_reply);
  });
}

TEST_CASE("find says what is wrong with a name or its service") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    CHECK(co_await code_of<demo::CounterRef>(remote.find<demo::Counter>("nobody")) ==
          Errc::not_found);
    CHECK(co_await code_of<demo::OtherCounterRef>(remote.find<demo::OtherCounter>("counter")) ==
          Errc::invalid_argument);
  });
}

TEST_CASE("a late answer from another process reaches nobody") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    for (int i = 0; i < 3; ++i)
      CHECK(co_await code_of<demo::Total>(counter.add_beside({.delta = 100}, hf::within(10ms))) ==
            Errc::deadline_exceeded);
    // Asks that reuse the places of those must get their own answers.
    for (int i = 0; i < 20; ++i) {
      co_await hf::sleep_for(10ms);
      const auto sum = co_await counter.add_named({.name = std::to_string(i)});
      CHECK(sum.note() == "for " + std::to_string(i));
    }
  });
  CHECK(cluster.metric(cluster.client_machine, "hyperframes_late_replies_total") == 3);
}

TEST_CASE("the deadline travels: what expired on the way or in the mailbox is not begun") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    co_await counter.tell_add_slowly({.delta = 100});
    CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1000}, hf::within(20ms))) ==
          Errc::deadline_exceeded);
    const auto value = co_await counter.add({.delta = 0});
    CHECK(value.total() == 100);
  });
  CHECK(cluster.metric(cluster.server_machine, "hyperframes_expired_letters_total") == 1);
}

TEST_CASE("an ask with a short deadline reaches a node that has slept for longer") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    for (int i = 1; i <= 20; ++i) {
      co_await hf::sleep_for(137ms);
      const auto total = co_await counter.add({.delta = 1}, hf::within(50ms));
      CHECK(total.total() == i);
    }
  });
}

TEST_CASE("an actor that ended, and one that never was, are reported") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    co_await counter.tell_crash({.name = "now"});
    CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::actor_down);
  });
}

TEST_CASE("a request that does not verify gives a typed error, and the log has type and sender") {
  Log log;
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    // What a faulty peer would send: bytes that are no table.
    hf::Buffer garbage = hf::Buffer::copy_of("these bytes are no table");
    auto request = demo::Named::unverified(std::move(garbage));
    CHECK(co_await code_of<demo::Sum>(counter.add_named(std::move(request))) ==
          Errc::verification_failed);
    const auto value = co_await counter.add({.delta = 1});  // nothing else was lost
    CHECK(value.total() == 1);
  });
  CHECK(log.has("demo.Counter.AddNamed"));
  CHECK(log.has(cluster.client_machine.address().host()));
  CHECK(cluster.metric(cluster.server_machine, "hyperframes_refused_messages_total") == 1);
}

TEST_CASE("an answer that does not verify gives its asker a typed error") {
  struct Liar final : demo::OtherCounter::Actor {
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      reply.send(demo::Sum::unverified(hf::Buffer::copy_of("these bytes are no table")));
      return {};
    }
  };
  Log log;
  Cluster cluster;
  cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
    co_await cluster.server->spawn<Liar>("liar");
  });
  cluster.run([&]() -> Task<void> {
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    auto liar = co_await remote.find<demo::OtherCounter>("liar");
    CHECK(co_await code_of<demo::Sum>(liar.add({})) == Errc::verification_failed);
  });
  CHECK(log.has("demo.OtherCounter.Add"));
}

TEST_CASE("a method that the actor's service does not have is an unknown type") {
  Log log;
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    const demo::OtherCounterRef wrong(counter);
    CHECK(co_await code_of<demo::Sum>(wrong.add({})) == Errc::unknown_type);
  });
}

TEST_CASE("a stalled actor suspends remote senders, and gets everything in the end") {
  for (unsigned server_shards : {1u, 2u}) {
    Cluster cluster(server_shards);
    cluster.run([&]() -> Task<void> {
      auto counter = co_await cluster.find();
      co_await counter.tell_add_slowly({.delta = 600'000});
      // What its mailbox and the credit of the connection take, and no more.
      const std::size_t lane = static_cast<std::size_t>(hf::net::Lane::normal);
      const auto session = cluster.client->network().sessions().at(0);
      const std::uint64_t credit = session->stats().lanes[lane].credit_bytes;
      long told = 0;
      while (told < 100'000) {
        const auto code = co_await code_of<void>(counter.note({.delta = 1}, hf::within(1s)));
        if (code == Errc::deadline_exceeded) break;
        REQUIRE(!code);
        ++told;
      }
      CHECK(told >= 64);
      CHECK(told <= 64 + static_cast<long>(credit / 64));
      const auto value = co_await counter.add({.delta = 0}, hf::within(1h));
      CHECK(value.total() == 600'000 + told);
      co_await hf::sleep_for(1s);
      CHECK(session->stats().lanes[lane].credit_bytes >= credit / 2);
    });
  }
}

namespace {
Task<void> relay_one(demo::CounterRef to, hf::Reply<demo::Total> reply) {
  const auto total = co_await to.add({.delta = 1});
  reply.send({.total = total.total()});
}
/// Answers with what `to`, in the process that asks, answers.
Task<void> relay(demo::Counter::Inbox self, demo::CounterRef to) {
  while (auto letter = co_await self.recv())
    if (auto call = letter.as<demo::Counter::AddMethod>())
      self.start(relay_one(to, std::move(call->reply)));
}
/// Keeps what it is given to store.
Task<void> hoard(tests::everything::Exchange::Inbox self) {
  using Store = tests::everything::Exchange::StoreMethod;
  std::vector<hf::detail::Invocation<Store>> kept;
  while (auto letter = co_await self.recv())
    if (auto call = letter.as<Store>()) kept.push_back(std::move(*call));
}
/// Answers with much.
Task<void> give(tests::everything::Exchange::Inbox self) {
  while (auto letter = co_await self.recv())
    if (auto call = letter.as<tests::everything::Exchange::FetchMethod>())
      call->reply.send({}, hf::Segments(hf::Buffer::heap(100 << 10)));
}
}  // namespace

TEST_CASE("asks that wait for room hold up no answer, which may be what makes room") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    co_await cluster.client->spawn<Counter>("own");
    co_await cluster.client->listen(
        hf::net::Endpoint::parse("tcp://" + cluster.client_machine.address().host() + ":6001"));
  });
  const auto client_endpoint =
      hf::net::Endpoint::parse("tcp://" + cluster.client_machine.address().host() + ":6001");
  cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
    hf::RemoteNode client = co_await cluster.server->connect(client_endpoint);
    auto own = co_await client.find<demo::Counter>("own");
    co_await cluster.server->spawn<demo::Counter>("relay", &relay, own);
  });
  cluster.run([&]() -> Task<void> {
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    auto relay = co_await remote.find<demo::Counter>("relay");
    // Far more than there is room for at once, both here and there.
    std::vector<Task<demo::Total>> asks;
    for (int i = 0; i < 3000; ++i) asks.push_back(relay.add({.delta = 1}));
    const auto totals = co_await hf::when_all(std::move(asks));
    CHECK(totals.size() == 3000);
  });
}

TEST_CASE("an ask that ends while its message waits for the connection leaves nothing behind") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    co_await counter.tell_add_slowly({.delta = 600'000});
    long told = 0;
    for (std::error_code code; !code; told += !code)
      code = co_await code_of<void>(counter.note({.delta = 1}, hf::within(1s)));
    hf::Scope first;
    first.spawn(counter.note({.delta = 1}, hf::within(1h)));  // there is no credit for it
    co_await hf::sleep_for(1ms);

    const auto ask = [](demo::CounterRef counter, hf::Duration span) -> Task<void> {
      co_await counter.add({.delta = 1000}, hf::within(span));
    };
    for (int i = 0; i < 20; ++i)
      CHECK(co_await code_of<void>(ask(counter, 20ms)) == Errc::deadline_exceeded);
    auto cancelled = std::make_unique<hf::Scope>(), destroyed = std::make_unique<hf::Scope>();
    for (int i = 0; i < 20; ++i) {
      cancelled->spawn(ask(counter, 1h));
      destroyed->spawn(ask(counter, 1h));
    }
    co_await hf::sleep_for(1ms);
    cancelled->cancel();
    co_await code_of<void>(cancelled->join());
    destroyed.reset();

    co_await first.join();
    const auto total = co_await counter.add({.delta = 0}, hf::within(1h));
    CHECK(total.total() == 600'000 + told + 1);  // what nobody waits for was not sent
  });
}

TEST_CASE("an answer that can't be sent tells its asker why, and leaves room for others") {
  Cluster cluster;
  auto& machine = cluster.sim.add_node({.shards = 1, .name = "small"});
  auto options = network(machine, cluster.sim);
  options.receive_budget_bytes = 1 << 20;
  auto& small = machine.emplace<hf::Node>(machine.runtime(),
                                          hf::Node::Options{.name = "small", .network = options});
  cluster.sim.run(machine, 0, [&](hf::Runtime&) -> Task<void> {
    hf::RemoteNode remote = co_await small.connect(cluster.endpoint());
    auto counter = co_await remote.find<demo::Counter>("counter");
    const hf::Buffer large = hf::Buffer::heap(800 << 10);
    for (int i = 0; i < 100; ++i)
      CHECK(co_await code_of<hf::WithSegments<demo::Sum>>(counter.echo({}, hf::Segments(large))) ==
            Errc::too_large);
    const auto total = co_await counter.add({.delta = 1}, hf::within(1s));
    CHECK(total.total() == 1);
  });
}

TEST_CASE(
    "an answer that waits too long for credit becomes a failure, and leaves room for others") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    const hf::Buffer part = hf::Buffer::heap(100 << 10);
    const auto echo = [](demo::CounterRef counter, hf::Buffer part,
                         std::vector<hf::Segments>* kept) -> Task<void> {
      auto answer = co_await counter.echo({}, hf::Segments(std::move(part)), hf::within(1h));
      kept->push_back(std::move(answer.segments));
    };
    std::vector<hf::Segments> kept;  // so that the server gets no credit back
    int failed = 0;
    for (int round = 0; round < 40; ++round) {
      std::vector<Task<std::error_code>> echoes;
      for (int i = 0; i < 10; ++i) echoes.push_back(code_of<void>(echo(counter, part, &kept)));
      for (const auto& code : co_await hf::when_all(std::move(echoes)))
        failed += code == Errc::deadline_exceeded;
    }
    CHECK(failed > 300);
    kept.clear();
    const auto total = co_await counter.add({.delta = 1}, hf::within(10s));
    CHECK(total.total() == 1);
  });
}

TEST_CASE("an answer that waited when its session ended does not go out on the next one") {
  Log log;
  Cluster cluster;
  const auto client_endpoint =
      hf::net::Endpoint::parse("tcp://" + cluster.client_machine.address().host() + ":6001");
  cluster.run([&]() -> Task<void> {
    co_await cluster.client->spawn<Counter>("own");
    co_await cluster.client->listen(client_endpoint);
  });
  // The server asks the client in its turn, all the time.
  int failed = 0, answered = 0;
  bool stop = false;
  const auto ask_on = [](demo::CounterRef own, int* failed, int* answered,
                         const bool* stop) -> Task<void> {
    while (!*stop) {
      const auto code = co_await code_of<demo::Total>(own.add({.delta = 1}, hf::within(1s)));
      ++*(code ? failed : answered);
      co_await hf::sleep_for(10ms);
    }
  };
  cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
    hf::RemoteNode client = co_await cluster.server->connect(client_endpoint);
    auto own = co_await client.find<demo::Counter>("own");
    hf::Shard::current()->spawn(ask_on(own, &failed, &answered, &stop));
    co_await cluster.server->spawn<tests::everything::Exchange>("giver", &give);
  });
  cluster.run([&]() -> Task<void> {
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    auto giver = co_await remote.find<tests::everything::Exchange>("giver");
    // The client keeps what it gets, so most of the answers wait at the server.
    std::vector<hf::WithSegments<tests::everything::Nothing>> kept;
    const auto fetch = [](tests::everything::ExchangeRef giver,
                          decltype(kept)* kept) -> Task<void> {
      kept->push_back(co_await giver.fetch({}, hf::Segments()));
    };
    hf::Scope scope;
    for (int i = 0; i < 30; ++i) scope.spawn(fetch(giver, &kept));
    co_await hf::sleep_for(500ms);
    CHECK(scope.running() > 5);
    // The connection breaks, and can't be made anew before the session has ended.
    cluster.sim.network().faults().refuse = 1;
    CHECK(cluster.sim.network().reset(cluster.server_machine, cluster.client_machine) > 0);
    CHECK(co_await code_of<void>(scope.join()) == Errc::peer_lost);
    cluster.sim.network().faults().refuse = 0;
    co_await cluster.client->connect(cluster.endpoint());
    failed = answered = 0;
    co_await hf::sleep_for(5s);
    stop = true;
    co_await hf::sleep_for(2s);
  });
  CHECK(failed <= 1);  // what was under way meanwhile
  CHECK(answered >= 300);
}

TEST_CASE(
    "an answer that a session in its closing refuses is dropped, and not tried again and again") {
  Cluster cluster;
  auto counter = cluster.run([&] { return cluster.find(); });
  auto asking = cluster.sim.start(cluster.client_machine, 0, [&](hf::Runtime&) {
    return hf::co_invoke(
        [](demo::CounterRef counter) -> hf::Task<void> {
          co_await counter.add_slowly({.delta = 200}, hf::within(30s));
        },
        counter);
  });
  cluster.sim.run_for(50ms);
  // Its last words can't arrive, so it stays in its closing for 3 heartbeats.
  cluster.sim.network().partition(cluster.server_machine, cluster.client_machine);
  cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) {
    return hf::co_invoke(
        [](hf::Node* server) -> hf::Task<void> {
          for (const auto& session : server->network().sessions()) session->close("enough");
          co_return;
        },
        cluster.server);
  });
  cluster.sim.run_for(145ms);
  const std::uint64_t turns = cluster.sim.turn_count();
  cluster.sim.run_for(15ms);  // in which it answers
  CHECK(cluster.sim.turn_count() - turns < 200);
  CHECK_FALSE(asking.done());
}

TEST_CASE("a large message that waits for its grant holds up no other lane") {
  Cluster cluster;
  cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
    co_await cluster.server->spawn<tests::everything::Exchange>("hoarder", &hoard);
  });
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    auto hoarder = co_await remote.find<tests::everything::Exchange>("hoarder");
    hf::Scope scope;
    const auto store = [](tests::everything::ExchangeRef hoarder) -> Task<void> {
      hf::Segments large(hf::Buffer::heap(64 << 20));
      co_await hoarder.tell_store({}, std::move(large), hf::within(1h));
    };
    for (int i = 0; i < 2; ++i) scope.spawn(store(hoarder));
    co_await hf::sleep_for(10s);
    CHECK(scope.running() == 1);  // the first one's memory is kept
    const auto total = co_await counter.add({.delta = 1}, hf::within(1s));
    CHECK(total.total() == 1);
    scope.cancel();
    co_await code_of<void>(scope.join());
  });
}

TEST_CASE("remote senders wait while an actor pauses before its restart") {
  for (unsigned server_shards : {1u, 2u}) {
    Log log;
    Cluster cluster(server_shards);
    cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
      co_await cluster.server->spawn<Counter>(
          {.name = "again",
           .shard = server_shards - 1,
           .restart = {.kind = hf::Restart::permanent, .backoff_min = 1s, .backoff_max = 1s}},
          &cluster.journal);
    });
    cluster.run([&]() -> Task<void> {
      hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
      auto counter = co_await remote.find<demo::Counter>("again");
      co_await counter.tell_crash({.name = "now"});
      co_await hf::sleep_for(100ms);
      co_await counter.note({.delta = 1});
      co_await counter.note({.delta = 2});
      const auto value = co_await counter.add({.delta = 3});
      CHECK(value.total() == 6);
    });
    CHECK(cluster.journal.lines == std::vector<std::string>{"note 1", "note 2"});
    CHECK(cluster.dead.letters.empty());
  }
}

TEST_CASE("what a peer sends to an actor that has ended reaches the dead letters") {
  Log log;
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    co_await counter.tell_crash({.name = "now"});
    co_await hf::sleep_for(10ms);
    co_await counter.note({.delta = 1});
    co_await hf::sleep_for(10ms);
    REQUIRE(cluster.dead.letters.size() == 1);
    CHECK(cluster.dead.letters[0].target == counter.id());
    CHECK(cluster.dead.letters[0].cause == Errc::actor_down);
  });
  CHECK(cluster.metric(cluster.server_machine, "hyperframes_dead_letters_total") == 1);
}

TEST_CASE("an answer counts only if it comes from whom was asked") {
  Silent handler;
  Cluster cluster;
  hf::SimNode& forger = cluster.sim.add_node({.name = "forger"});
  auto& forging =
      forger.emplace<hf::net::Network>(forger.runtime(), network(forger, cluster.sim), handler);
  const auto endpoint = hf::net::Endpoint::parse("tcp://" + forger.address().host() + ":6000");
  cluster.sim.run(forger, 0,
                  [&](hf::Runtime&) -> Task<void> { co_await forging.listen(endpoint); });
  auto asked = cluster.sim.start(cluster.client_machine, 0, [&](hf::Runtime&) -> Task<long> {
    auto counter = co_await cluster.find();
    co_await cluster.client->connect(endpoint);
    const auto value = co_await counter.add_slowly({.delta = 1000});
    co_return value.total();
  });
  cluster.sim.run_for(500ms);
  // Correlations are small numbers in two fields: all that can be in use are soon tried.
  cluster.sim.run(forger, 0, [&](hf::Runtime&) -> Task<void> {
    const auto session = forging.sessions().at(0);
    for (std::uint64_t slot = 0; slot < 4; ++slot) {
      for (std::uint64_t generation = 0; generation < 16; ++generation) {
        const long forged = 666;
        hf::net::Message message;
        message.envelope.kind = hf::net::MessageKind::reply;
        message.envelope.correlation = generation << 28 | slot;
        message.body = hf::Buffer::copy_of(std::as_bytes(std::span(&forged, 1)));
        co_await session->send(std::move(message));
      }
    }
  });
  CHECK(cluster.sim.wait(asked) == 1000);
  CHECK(cluster.metric(cluster.client_machine, "hyperframes_late_replies_total") == 64);
}

TEST_CASE("when the peer's process dies, what was asked fails; its successor is found anew") {
  Log log;
  Cluster cluster;
  for (int round = 0; round < 3; ++round) {
    const auto counter = cluster.run([&] { return cluster.find(); });
    auto asked = cluster.sim.start(cluster.client_machine, 0, [&](hf::Runtime&) {
      return code_of<demo::Total>(counter.add_slowly({.delta = 100'000}, hf::within(1h)));
    });
    cluster.sim.run_for(10ms);
    cluster.server_machine.crash(hf::SimCrash::kill());
    CHECK(cluster.sim.wait(asked) == Errc::peer_lost);
    // The old reference stays dead, also once a successor listens there.
    cluster.server_machine.restart();
    cluster.start_server();
    cluster.run([&]() -> Task<void> {
      CHECK(co_await code_of<demo::Total>(counter.add({.delta = 1})) == Errc::peer_lost);
      auto anew = co_await cluster.find();
      const auto value = co_await anew.add({.delta = 1});
      CHECK(value.total() == 1);
    });
  }
}

TEST_CASE("a peer that lost power and restarted is not kept out by its stale connection") {
  Log log;
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    auto counter = co_await cluster.find();
    co_await counter.add({.delta = 1});
  });
  // The server notices nothing: no packet says that its client is gone.
  cluster.client_machine.crash(hf::SimCrash::power_cut());
  cluster.client_machine.restart();
  cluster.client = &cluster.client_machine.emplace<hf::Node>(
      cluster.client_machine.runtime(),
      hf::Node::Options{.name = "client", .network = network(cluster.client_machine, cluster.sim)});
  cluster.run([&]() -> Task<void> {
    const hf::Time before = hf::Clock::now();
    auto counter = co_await cluster.find();
    const auto value = co_await counter.add({.delta = 1});
    CHECK(value.total() == 2);
    CHECK(hf::Clock::now() - before < 1s);
  });
}

TEST_CASE("two nodes of one program are as far apart as two processes") {
  Cluster cluster;
  cluster.run([&]() -> Task<void> {
    hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
    CHECK(remote.id() == 100);
    CHECK(remote.incarnation() == 1);
  });
}

TEST_CASE("a cluster with one seed does the same twice") {
  const auto trace = [] {
    Cluster cluster(2, 2, 7);
    cluster.run([&]() -> Task<void> {
      auto counter = co_await cluster.find();
      for (int i = 0; i < 50; ++i) co_await counter.add({.delta = i});
    });
    return cluster.sim.trace_hash();
  };
  CHECK(trace() == trace());
}
