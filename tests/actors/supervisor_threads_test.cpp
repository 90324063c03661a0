// Supervision between shards that have threads of their own.
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

/// Crashes when told, and knows how often it was made.
class Fragile final : public demo::OtherCounter::Actor {
 public:
  explicit Fragile(std::atomic<int>* made) : made_(*made) { ++made_; }
  Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.name() == "crash") throw std::runtime_error("broken");
    reply.send({.total = made_});
    return {};
  }

 private:
  std::atomic<int>& made_;
};

}  // namespace

TEST_CASE("children on three threads are restarted together, while others look and ask") {
  hf::test::CapturedLog log;
  std::atomic<int> made{0};
  hf::Runtime runtime({.shards = 3});
  hf::Node node(runtime);
  const auto root = runtime.run([&](hf::Runtime&) {
    hf::RestartPolicy often{.kind = hf::Restart::permanent, .intensity = 1000};
    often.backoff_min = often.backoff_max = 100us;
    hf::Supervision plan{.strategy = Strategy::one_for_all};
    for (unsigned shard = 0; shard < 3; ++shard)
      plan.children.push_back(
          hf::child<Fragile>(named("child " + std::to_string(shard), often, shard), &made));
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
          for (unsigned shard = 0; shard < 3; ++shard) {
            auto one = node.find<demo::OtherCounter>("child " + std::to_string(shard));
            co_await one.value().add({}, hf::within(hf::timing().scaled(60s)));
          }
        },
        static_cast<unsigned>(round) % 3);
  done = true;
  looking.join();
  CHECK(in_order);
  CHECK(made >= 3 + rounds);
  const auto left = runtime.run([&](hf::Runtime&) { return node.close(hf::timing().scaled(60s)); });
  CHECK(left.empty());
}
