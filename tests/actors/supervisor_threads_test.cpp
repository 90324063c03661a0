// Supervision between shards that have threads of their own.
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/supervisor.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <thread>

#include "../runtime/captured_log.hpp"
#include "family.hpp"

using namespace actor_test;
using hf::Strategy;
using hf::Task;

namespace {

constexpr unsigned shards = 3;
using Lives = std::array<std::atomic<int>, shards>;

/// Crashes when told, and knows how often it was made.
class Fragile final : public demo::OtherCounter::Actor {
 public:
  Fragile(Lives* lives, unsigned index) : made_((*lives)[index]) { ++made_; }
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.name() == "crash") throw std::runtime_error("broken");
    reply.send({.total = made_});
    return {};
  }

 private:
  std::atomic<int>& made_;
};

/// Takes so many turns to start, and to end.
class Slow final : public demo::OtherCounter::Actor {
 public:
  explicit Slow(int turns) : turns_(turns) {}
  Task<void> started() override { return pass(); }
  Task<void> stopping() override { return pass(); }
  Task<void> add(demo::Named, hf::Reply<demo::Sum>) override { return {}; }

 private:
  Task<void> pass() {
    for (int i = 0; i < turns_; ++i) co_await hf::yield();
  }
  const int turns_;
};

Task<void> start(hf::Node* node, hf::Supervision plan) {
  try {
    co_await node->spawn<hf::Supervisor>("root", std::move(plan));
  } catch (const hf::Error&) {  // it was told to stop
  }
}

/// Stops and awaits the root, if there is one by now.
Task<bool> end(hf::Node* node) {
  auto found = node->find<hf::Supervisor>("root");
  if (!found) co_return false;
  const hf::SupervisorRef root = found.value();
  node->stop(root);
  co_await node->join(root, hf::after(hf::timing().scaled(60s)));
  co_return true;
}

}  // namespace

TEST_CASE("children on three threads are restarted together, while others look and ask") {
  hf::test::CapturedLog log;
  Lives lives{};
  hf::Runtime runtime({.shards = shards});
  hf::Node node(runtime);
  const auto root = runtime.run([&](hf::Runtime&) {
    hf::RestartPolicy often{.kind = hf::Restart::permanent, .intensity = 1000};
    often.backoff_min = often.backoff_max = 100us;
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    for (unsigned shard = 0; shard < shards; ++shard)
      plan.children.push_back(
          hf::child<Fragile>(named("child " + std::to_string(shard), often, shard), &lives, shard));
    return node.spawn<hf::Supervisor>("root", std::move(plan));
  });
  std::atomic<bool> done{false}, in_order{true};
  std::thread looking([&] {
    std::uint64_t seen = 0;
    while (!done) {
      const auto events = node.events(seen);
      for (const auto& event : events.events)
        if (event.number != ++seen) in_order = false;
      std::this_thread::sleep_for(100us);
    }
  });
  constexpr int rounds = 30;
  for (int round = 0; round < rounds; ++round)
    runtime.run(
        [&, round](hf::Runtime&) -> Task<void> {
          auto victim = node.find<demo::OtherCounter>("child " + std::to_string(round % 3));
          co_await victim.value().tell_add({.name = "crash"});
          if (round % 5 == 0) co_await root.restart("child " + std::to_string((round + 1) % 3));
          // Each answers again, in its next life or in this one.
          for (unsigned shard = 0; shard < shards; ++shard) {
            auto one = node.find<demo::OtherCounter>("child " + std::to_string(shard));
            co_await one.value().add({}, hf::within(hf::timing().scaled(60s)));
          }
        },
        static_cast<unsigned>(round) % 3);
  done = true;
  looking.join();
  CHECK(in_order);
  // By itself it would have its first life, and one for each of its own crashes.
  for (const std::atomic<int>& made : lives) CHECK(made > 1 + rounds / 3);
  const auto left = runtime.run([&](hf::Runtime&) { return node.close(hf::timing().scaled(60s)); });
  CHECK(left.empty());
}

TEST_CASE("trees on three threads that are stopped while they start leave nobody behind") {
  hf::test::CapturedLog log;
  hf::Runtime runtime({.shards = shards});
  hf::Node node(runtime);
  for (int round = 0; round < 60; ++round) {
    INFO("round " << round);
    const auto left = runtime.run([&, round](hf::Runtime&) -> Task<std::vector<std::string>> {
      hf::Supervision pool{.children = {hf::child<Slow>(named("a", permanent, 2), 1 + round % 7),
                                        hf::child<Slow>(named("b", permanent, 0), round % 5)}};
      hf::Supervision plan{.children = {supervisor(named("pool", permanent, 1), pool),
                                        hf::child<Slow>(named("c", permanent, 2), round % 3)}};
      hf::Scope scope;
      scope.spawn(start(&node, plan));
      for (int i = 0; i < round; ++i) co_await hf::yield();
      const bool ended = co_await end(&node);
      co_await scope.join();
      if (!ended) co_await end(&node);
      co_return node.names();
    });
    CHECK(left.empty());
  }
}
