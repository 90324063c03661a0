#include <hyperframes/actors/down.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "cluster.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::ExitReason;
using hf::Task;

namespace {

class Watcher final : public demo::OtherCounter::Actor {
 public:
  Watcher(Journal* journal, demo::CounterRef other) : journal_(journal) { monitor(other); }
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.delta()) throw std::runtime_error("crash");
    reply.send({});
    return {};
  }
  Task<void> on_down(hf::Down down) override {
    journal_->lines.push_back(down.name + " " + std::string(hf::name(down.reason)) + " " +
                              down.text);
    co_return;
  }

 private:
  Journal* journal_;
};

}  // namespace

TEST_CASE("a monitor is told of an actor's end, once, with the reason") {
  for (unsigned shard : {0u, 1u}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto stopped = co_await world.node.spawn<Counter>({.name = "stopped", .shard = shard});
      auto crashed = co_await world.node.spawn<Counter>({.name = "crashed", .shard = shard});
      co_await world.node.spawn<Watcher>("one", &journal, stopped);
      co_await world.node.spawn<Watcher>("two", &journal, crashed);
      co_await hf::sleep_for(1ms);
      world.node.stop(stopped);
      co_await hf::sleep_for(10ms);
      co_await crashed.tell_crash({.name = "why"});
      co_await hf::sleep_for(10ms);
    });
    CHECK(journal.lines == std::vector<std::string>{"stopped stopped ", "crashed crashed why"});
  }
}

TEST_CASE("a monitor of an actor that has ended is told at once") {
  for (unsigned shard : {0u, 1u}) {
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
      world.node.stop(counter);
      co_await world.node.join(counter);
      co_await world.node.spawn<Watcher>("watcher", &journal, counter);
      co_await hf::sleep_for(1ms);
    });
    CHECK(journal.lines == std::vector<std::string>{" not_found "});
  }
}

TEST_CASE("a restart tells no monitor, giving up does") {
  Log log;
  Journal journal;
  World world;
  world.run([&]() -> Task<void> {
    auto counter = co_await world.node.spawn<Counter>(
        {.name = "counter", .restart = {.kind = hf::Restart::permanent, .intensity = 1}});
    co_await world.node.spawn<Watcher>("watcher", &journal, counter);
    co_await counter.tell_crash({.name = "first"});
    co_await hf::sleep_for(100ms);
    CHECK(journal.lines.empty());
    co_await counter.tell_crash({.name = "second"});
    co_await hf::sleep_for(100ms);
  });
  CHECK(journal.lines == std::vector<std::string>{"counter exhausted second"});
}

TEST_CASE("a watcher that ends first leaves nothing at the watched actor") {
  for (unsigned shard : {0u, 1u}) {
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.shard = shard});
      for (int i = 0; i < 20; ++i) {
        auto watcher = co_await world.node.spawn<Watcher>("watcher", &journal, counter);
        if (i % 2) co_await hf::sleep_for(100us);
        world.node.stop(watcher);
        co_await world.node.join(watcher);
      }
      world.node.stop(counter);
      co_await world.node.join(counter);
    });
    CHECK(journal.lines.empty());
  }
}

TEST_CASE("join waits for an actor's end, or until its deadline") {
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
      for (int i = 0; i < 10; ++i)
        CHECK(co_await code_of<hf::Down>(world.node.join(counter, hf::after(10ms))) ==
              Errc::deadline_exceeded);
      hf::Scope scope;
      int ended = 0;
      auto join = [](hf::Node* node, demo::CounterRef counter, int* ended) -> Task<void> {
        const auto down = co_await node->join(counter);
        CHECK(down.reason == ExitReason::stopped);
        CHECK(down.name == "counter");
        ++*ended;
      };
      for (int i = 0; i < 3; ++i) scope.spawn(join(&world.node, counter, &ended));
      co_await hf::sleep_for(10ms);
      CHECK(ended == 0);
      world.node.stop(counter);
      co_await scope.join();
      CHECK(ended == 3);
      const auto down = co_await world.node.join(counter);
      CHECK(down.reason == ExitReason::not_found);
    });
  }
}

TEST_CASE("an actor joined and monitored at the moment of its end tells each of them once") {
  // The order of what crosses between two shards is drawn anew by each seed.
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Journal journal;
    World world(2, {}, seed);
    world.run([&]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = 1});
      world.node.stop(counter);
      co_await world.node.spawn<Watcher>("watcher", &journal, counter);
      co_await code_of<hf::Down>(world.node.join(counter, hf::after(3us)));
      co_await world.node.join(counter);
      co_await hf::sleep_for(10ms);
    });
    CHECK(journal.lines.size() == 1);
  }
}

TEST_CASE("a watcher that was restarted is told once, by the monitor of its last life") {
  for (unsigned shard : {0u, 1u}) {
    Log log;
    Journal journal;
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
      auto watcher = co_await world.node.spawn<Watcher>(
          {.name = "watcher", .restart = {.kind = hf::Restart::permanent}}, &journal, counter);
      for (int i = 0; i < 2; ++i) {
        co_await watcher.tell_add({.delta = 1});
        co_await hf::sleep_for(1s);
      }
      world.node.stop(counter);
      co_await hf::sleep_for(1s);
    });
    CHECK(world.metric("hyperframes_restarts_total") == 2);
    CHECK(journal.lines == std::vector<std::string>{"counter stopped "});
  }
}

TEST_CASE("a constructor that throws after it monitored leaves nothing to the cell's next actor") {
  struct Failing final : demo::OtherCounter::Actor {
    explicit Failing(demo::CounterRef other) {
      monitor(other);
      throw std::runtime_error("no");
    }
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }
  };
  for (unsigned shard : {0u, 1u}) {
    for (const bool ended : {false, true}) {
      Journal journal;
      World world(2);
      world.run([&, shard, ended]() -> Task<void> {
        auto counter = co_await world.node.spawn<Counter>({.name = "counter", .shard = shard});
        if (ended) {
          world.node.stop(counter);
          co_await world.node.join(counter);
        }
        bool thrown = false;
        try {
          co_await world.node.spawn<Failing>("failing", counter);
        } catch (const std::runtime_error&) {
          thrown = true;
        }
        CHECK(thrown);
        co_await world.node.spawn<Counter>("next", &journal);
        if (!ended) world.node.stop(counter);
        co_await hf::sleep_for(10ms);
      });
      CHECK(journal.lines.empty());
    }
  }
}

// ---- actors of other processes ----------------------------------------------

namespace {

/// Does what it is told by the names of requests; writes down what it hears.
class Relative final : public demo::OtherCounter::Actor {
 public:
  Relative(Journal* journal, std::string name) : journal_(journal), name_(std::move(name)) {}
  ~Relative() override { ++journal_->destroyed; }
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.name() == "crash") throw std::runtime_error("crash of " + name_);
    if (request.name() == "stop") stop();
    if (request.name() == "trap") trap_exits();
    reply.send({});
    return {};
  }
  Task<void> on_down(hf::Down down) override {
    journal_->lines.push_back(name_ + ": " + down.name + " " + std::string(hf::name(down.reason)) +
                              (down.linked ? " (linked)" : ""));
    return {};
  }

 private:
  Journal* journal_;
  std::string name_;
};

/// An actor that does `relate` with another one when it starts, and otherwise is a Relative.
enum class Relation { monitor, monitor_twice, link, link_and_trap, link_and_unlink };
class Related final : public demo::OtherCounter::Actor {
 public:
  Related(Journal* journal, std::string name, hf::ActorRef other, Relation relation)
      : journal_(journal), name_(std::move(name)) {
    if (relation == Relation::link_and_trap) trap_exits();
    if (relation == Relation::monitor || relation == Relation::monitor_twice) monitor(other);
    if (relation == Relation::monitor_twice) monitor(other);
    if (relation >= Relation::link) link(other);
    if (relation >= Relation::link) link(other);  // the same again changes nothing
    if (relation == Relation::link_and_unlink) unlink(other);
  }
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.name() == "crash") throw std::runtime_error("crash of " + name_);
    if (request.name() == "stop") stop();
    reply.send({});
    return {};
  }
  Task<void> on_down(hf::Down down) override {
    journal_->lines.push_back(name_ + ": " + down.name + " " + std::string(hf::name(down.reason)) +
                              (down.linked ? " (linked)" : ""));
    return {};
  }

 private:
  Journal* journal_;
  std::string name_;
};

/// `one` on the client and `other` on the server (or both on the client, on two shards), related.
struct Family {
  explicit Family(bool remote, Relation relation, unsigned shards = 2) : cluster(shards, shards) {
    if (remote) {
      cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
        co_await cluster.server->spawn<Relative>(
            {.name = "other", .shard = cluster.server_shards - 1}, &journal, "other");
      });
    }
    cluster.run([&, remote, relation, shards]() -> Task<void> {
      if (remote) {
        hf::RemoteNode peer = co_await cluster.client->connect(cluster.endpoint());
        other = co_await peer.find<demo::OtherCounter>("other");
      } else {
        other = co_await cluster.client->spawn<Relative>({.name = "other", .shard = shards - 1},
                                                         &journal, "other");
      }
      one = co_await cluster.client->spawn<Related>("one", &journal, "one", other, relation);
      co_await hf::sleep_for(10ms);
    });
  }
  /// Tells one of both to crash or stop, and lets the news spread.
  void tell(demo::OtherCounterRef who, std::string what) {
    cluster.run([&]() -> Task<void> {
      co_await who.tell_add({.name = what});
      co_await hf::sleep_for(100ms);
    });
  }
  bool lives(demo::OtherCounterRef who) {
    bool lives = false;
    cluster.run([&]() -> Task<void> {
      lives = !co_await code_of<demo::Sum>(who.add({}, hf::within(100ms)));
    });
    return lives;
  }

  Log log;
  Journal journal;
  Cluster cluster;
  demo::OtherCounterRef one, other;
};

}  // namespace

TEST_CASE("a monitor is told of the end of an actor in another process, once, and of its reason") {
  for (const unsigned shards : {1u, 2u}) {
    {
      Family family(true, Relation::monitor, shards);
      family.tell(family.other, "crash");
      CHECK(family.journal.lines == std::vector<std::string>{"one: other crashed"});
      CHECK(family.lives(family.one));
    }
    {
      Family family(true, Relation::monitor_twice, shards);
      family.tell(family.other, "stop");
      CHECK(family.journal.lines ==
            std::vector<std::string>{"one: other normal", "one: other normal"});
    }
  }
}

TEST_CASE("a monitor of an actor that has ended in another process is told at once") {
  Family family(true, Relation::monitor);
  family.tell(family.other, "stop");
  family.journal.lines.clear();
  family.cluster.run([&]() -> Task<void> {
    co_await family.cluster.client->spawn<Related>("late", &family.journal, "late", family.other,
                                                   Relation::monitor);
    co_await hf::sleep_for(10ms);
  });
  CHECK(family.journal.lines == std::vector<std::string>{"late:  not_found"});
}

TEST_CASE(
    "when the process of a monitored actor is killed, each monitor is told once that it is lost") {
  for (const unsigned shards : {1u, 2u}) {
    Family family(true, Relation::monitor_twice, shards);
    family.cluster.server_machine.crash(hf::SimCrash::kill());
    family.cluster.sim.run_for(60s);
    CHECK(family.journal.lines == std::vector<std::string>{"one:  lost", "one:  lost"});
    CHECK(family.lives(family.one));
    // One that begins to monitor now is told so, too.
    family.cluster.run([&]() -> Task<void> {
      co_await family.cluster.client->spawn<Related>("late", &family.journal, "late", family.other,
                                                     Relation::monitor);
      co_await hf::sleep_for(10ms);
    });
    CHECK(family.journal.lines.back() == "late:  lost");
    CHECK(family.journal.lines.size() == 3);
  }
}

TEST_CASE("when a peer's power fails, no packet says so, and still its actors are told as lost") {
  Family family(true, Relation::monitor);
  family.cluster.server_machine.crash(hf::SimCrash::power_cut());
  family.cluster.sim.run_for(60s);
  CHECK(family.journal.lines == std::vector<std::string>{"one:  lost"});
}

TEST_CASE("join waits for the end of an actor in another process, and gives up at its deadline") {
  Family family(true, Relation::monitor);
  family.cluster.run([&]() -> Task<void> {
    hf::Node& node = *family.cluster.client;
    for (int i = 0; i < 10; ++i)
      CHECK(co_await code_of<hf::Down>(node.join(family.other, hf::after(10ms))) ==
            Errc::deadline_exceeded);
    co_await family.other.tell_add({.name = "crash"});
    const auto down = co_await node.join(family.other);
    const bool told = down.reason == ExitReason::crashed || down.reason == ExitReason::not_found;
    CHECK(told);
  });
}

TEST_CASE("when one of two linked actors crashes, the other one does, in both directions") {
  for (const bool remote : {false, true}) {
    for (const bool first : {false, true}) {
      Family family(remote, Relation::link);
      family.tell(first ? family.one : family.other, "crash");
      CHECK(!family.lives(family.one));
      CHECK(!family.lives(family.other));
      CHECK(family.log.has("without linked actor"));
      CHECK(family.journal.lines.empty());
    }
  }
}

TEST_CASE("an orderly end leaves linked actors alone") {
  for (const bool remote : {false, true}) {
    for (const bool first : {false, true}) {
      Family family(remote, Relation::link);
      family.tell(first ? family.one : family.other, "stop");
      CHECK(family.lives(first ? family.other : family.one));
    }
  }
}

TEST_CASE("one that traps exits is told of a linked actor's end, and lives on") {
  for (const bool remote : {false, true}) {
    {
      Family family(remote, Relation::link_and_trap);
      family.tell(family.other, "crash");
      CHECK(family.journal.lines == std::vector<std::string>{"one: other crashed (linked)"});
      CHECK(family.lives(family.one));
    }
    {
      Family family(remote, Relation::link);
      family.tell(family.other, "trap");
      family.tell(family.one, "crash");
      CHECK(family.journal.lines == std::vector<std::string>{"other: one crashed (linked)"});
      CHECK(family.lives(family.other));
    }
  }
}

TEST_CASE("what was unlinked ends alone") {
  for (const bool remote : {false, true}) {
    for (const bool first : {false, true}) {
      Family family(remote, Relation::link_and_unlink);
      family.tell(first ? family.one : family.other, "crash");
      CHECK(family.lives(first ? family.other : family.one));
      CHECK(family.journal.lines.empty());
    }
  }
}

TEST_CASE("when a process is killed, what was linked with its actors ends, on the other side") {
  {
    Family family(true, Relation::link);
    family.cluster.server_machine.crash(hf::SimCrash::kill());
    family.cluster.sim.run_for(60s);
    CHECK(!family.lives(family.one));
  }
  {
    Family family(true, Relation::link);
    const int before = family.journal.destroyed;
    family.cluster.client_machine.crash(hf::SimCrash::kill());
    family.cluster.sim.run_for(60s);
    CHECK(family.journal.destroyed == before + 1);
  }
}

TEST_CASE("a link with an actor that has ended takes its maker along") {
  for (const bool remote : {false, true}) {
    Family family(remote, Relation::monitor);
    family.tell(family.other, "stop");
    family.cluster.run([&]() -> Task<void> {
      auto late = co_await family.cluster.client->spawn<Related>("late", &family.journal, "late",
                                                                 family.other, Relation::link);
      co_await hf::sleep_for(10ms);
      CHECK(co_await code_of<demo::Sum>(late.add({})) == Errc::actor_down);
    });
  }
}

TEST_CASE("a long chain of linked actors ends from one end to the other") {
  Log log;
  Journal journal;
  World world(2);
  world.run([&]() -> Task<void> {
    auto first = co_await world.node.spawn<Relative>("first", &journal, "first");
    hf::ActorRef last = first;
    for (unsigned i = 0; i < 1000; ++i)
      last = co_await world.node.spawn<Related>({.shard = i % 2}, &journal, "next", last,
                                                Relation::link);
    co_await first.tell_add({.name = "crash"});
    co_await world.node.join(last);
    co_await hf::sleep_for(1s);
    CHECK(world.node.actor_count() == 0);
  });
}

TEST_CASE("monitors that are given up leave nothing at the peer") {
  Family family(true, Relation::monitor);
  family.cluster.run([&]() -> Task<void> {
    for (int i = 0; i < 100; ++i) {
      auto brief = co_await family.cluster.client->spawn<Related>("brief", &family.journal, "brief",
                                                                  family.other, Relation::link);
      family.cluster.client->stop(brief);
      co_await family.cluster.client->join(brief);
    }
    co_await hf::sleep_for(100ms);
  });
  CHECK(family.lives(family.other));
  family.tell(family.other, "crash");
  CHECK(family.journal.lines == std::vector<std::string>{"one: other crashed"});
}
