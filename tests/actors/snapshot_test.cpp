// What one life of an actor leaves to the next one.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/restart.hpp>

#include "family.hpp"

using namespace actor_test;
using hf::ExitReason;
using hf::Strategy;
using hf::Task;

namespace {

struct Faults {
  bool nothing_after_crash = false;
  int bad_snapshots = 0, bad_restores = 0;
  hf::Duration starts_in{};
};

/// Keeps its total over restarts.
class Keeper final : public demo::OtherCounter::Actor {
 public:
  struct State {
    std::unique_ptr<long> total;  // need not be copyable
  };
  Keeper(Journal* journal, Faults* faults) : journal_(journal), faults_(faults) {}

  Task<void> started() override {
    if (faults_->starts_in > hf::Duration::zero()) co_await hf::sleep_for(faults_->starts_in);
    write("started with");
  }
  std::optional<State> snapshot(ExitReason why) {
    journal_->lines.push_back("snapshot, " + std::string(name(why)));
    if (faults_->bad_snapshots-- > 0) throw std::runtime_error("no snapshot");
    if (faults_->nothing_after_crash && why == ExitReason::crashed) return std::nullopt;
    return State{std::make_unique<long>(total_)};
  }
  Task<void> restore(State state) {
    co_await hf::sleep_for(1ms);
    if (faults_->bad_restores-- > 0) throw std::runtime_error("no restore");
    total_ = *state.total;
    write("restored");
  }
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.name() == "crash") throw std::runtime_error("broken");
    if (request.name() == "finish") stop();
    reply.send({.total = total_ += request.delta()});
    return {};
  }

 private:
  void write(const std::string& what) {
    journal_->lines.push_back(what + " " + std::to_string(total_));
  }
  Journal* journal_;
  Faults* faults_;
  long total_ = 0;
};

Task<demo::OtherCounterRef> keeper(World* world, Journal* journal, Faults* faults) {
  const auto made = co_await world->node.spawn<Keeper>(named("keeper"), journal, faults);
  co_await add(made, 7);
  journal->lines.clear();
  co_return made;
}

}  // namespace

TEST_CASE("an actor that gives a snapshot begins with it after a crash, before it has started") {
  Log log;
  Journal journal;
  Faults faults;
  World world;
  world.run([&]() -> Task<void> {
    const auto made = co_await keeper(&world, &journal, &faults);
    co_await crash(&world, "keeper");
    CHECK(journal.lines ==
          std::vector<std::string>{"snapshot, crashed", "restored 7", "started with 7"});
    CHECK(co_await add(made, 1) == 8);
  });
}

TEST_CASE("only the actor knows whether its state is worth keeping after a crash") {
  Log log;
  Journal journal;
  Faults faults{.nothing_after_crash = true};
  World world;
  world.run([&]() -> Task<void> {
    const auto made = co_await keeper(&world, &journal, &faults);
    co_await crash(&world, "keeper");
    CHECK(journal.lines == std::vector<std::string>{"snapshot, crashed", "started with 0"});
    CHECK(co_await add(made, 1) == 1);
    co_await tell(made, "finish");  // a permanent actor's normal end is another matter
    co_await settle();
    CHECK(co_await add(made, 1) == 2);
  });
}

TEST_CASE("a sibling that is restarted along begins where it was") {
  Log log;
  Journal journal;
  Faults faults;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {hf::child<Keeper>(named("keeper", permanent, 1), &journal, &faults),
                     worker(journal, named("b"))};
    const auto root = co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    CHECK(co_await add(ref(world, "keeper"), 7) == 7);
    co_await crash(&world, "b");
    CHECK(text(journal) == "started with 0 +b !b snapshot, stopped restored 7 started with 7 +b");
    co_await root.restart("keeper");
    CHECK(co_await add(ref(world, "keeper"), 1) == 8);
  });
}

TEST_CASE("what an actor was given outlasts a start that its sibling's crash interrupts") {
  Log log;
  Journal journal;
  Faults faults;
  World world(2);
  world.run([&]() -> Task<void> {
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    plan.children = {worker(journal, named("a")),
                     hf::child<Keeper>(named("keeper", permanent, 1), &journal, &faults),
                     worker(journal, named("b"))};
    co_await world.node.spawn<hf::Supervisor>("root", std::move(plan));
    CHECK(co_await add(ref(world, "keeper"), 7) == 7);
    faults.starts_in = 2s;
    journal.lines.clear();
    co_await crash(&world, "b");
    CHECK(text(journal) == "!b snapshot, stopped -a +a restored 7");
    co_await crash(&world, "a");
    co_await settle();
    co_await settle();
    CHECK(text(journal) ==
          "!b snapshot, stopped -a +a restored 7 !a snapshot, stopped +a restored 7 "
          "started with 7 +b");
  });
}

TEST_CASE("a restore that throws counts as a crash, after which the actor begins anew") {
  Log log;
  Journal journal;
  Faults faults{.bad_restores = 1};
  World world;
  world.run([&]() -> Task<void> {
    const auto made = co_await keeper(&world, &journal, &faults);
    co_await crash(&world, "keeper");
    CHECK(text(journal) == "snapshot, crashed started with 0");  // none of a life that never was
    CHECK(co_await add(made, 1) == 1);
    CHECK(world.node.events().events.back().text == "no restore");
  });
}

TEST_CASE("a snapshot that throws is logged, and the actor begins anew") {
  Log log;
  Journal journal;
  Faults faults{.bad_snapshots = 1};
  World world;
  world.run([&]() -> Task<void> {
    const auto made = co_await keeper(&world, &journal, &faults);
    co_await crash(&world, "keeper");
    CHECK(co_await add(made, 1) == 1);
    CHECK(world.node.events().events.size() == 1);
  });
  CHECK(log.has("actor 'keeper' begins anew, since its snapshot failed: no snapshot"));
}

TEST_CASE("no snapshot is taken of an actor that does not come back") {
  Log log;
  Journal journal;
  Faults faults;
  World world;
  world.run([&]() -> Task<void> {
    const auto made = co_await keeper(&world, &journal, &faults);
    world.node.stop(made);
    co_await world.node.join(made);
    const auto never =
        co_await world.node.spawn<Keeper>(named("never", temporary), &journal, &faults);
    co_await tell(never, "crash");
    co_await world.node.join(never);
    CHECK(text(journal) == "started with 0");
  });
}
