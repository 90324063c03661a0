#include <hyperframes/actors/spawn_options.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <hyperframes/runtime/runtime.hpp>

#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

namespace {

/// Works in steps that never end, and counts them.
class Busy final : public demo::OtherCounter::Actor {
 public:
  explicit Busy(std::uint64_t* steps) : steps_(steps) { start(work()); }
  Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
    reply.send({.total = static_cast<long>(shard().running_group)});
    return {};
  }

 private:
  Task<void> work() {
    while (true) {
      ++*steps_;
      co_await hf::yield();
    }
  }
  std::uint64_t* steps_;
};

}  // namespace

TEST_CASE("an actor's group is chosen at spawn, and decides its share of a busy shard") {
  hf::SimWorld sim{hf::SimWorld::Options{}};
  hf::SimNodeOptions options;
  options.shard.groups = {{"serving", 300}};
  hf::SimNode& machine = sim.add_node(options);
  hf::Node& node = machine.emplace<hf::Node>(machine.runtime());
  std::uint64_t user = 0, serving = 0;
  sim.run(machine, 0, [&](hf::Runtime& runtime) -> Task<void> {
    const hf::Group group = runtime.group("serving");
    co_await node.spawn<Busy>({.name = "user"}, &user);
    auto busy = co_await node.spawn<Busy>({.name = "serving", .group = group}, &serving);
    const auto sum = co_await busy.add({});
    CHECK(sum.total() == static_cast<long>(group));
    co_await hf::sleep_for(20ms);
    const double part = static_cast<double>(serving) / static_cast<double>(user + serving);
    CHECK(std::abs(part - .75) < .03);
    for (const auto& name : node.names()) node.stop(node.find<demo::OtherCounter>(name).value());
    co_await hf::sleep_for(1ms);
  });
}

TEST_CASE("a group that the runtime does not have is refused at spawn") {
  World world;
  world.run([&]() -> Task<void> {
    std::uint64_t steps = 0;
    CHECK(co_await code_of<demo::OtherCounterRef>(world.node.spawn<Busy>(
              {.name = "busy", .group = static_cast<hf::Group>(2)}, &steps)) ==
          Errc::invalid_argument);
    CHECK(world.node.names().empty());
  });
}
