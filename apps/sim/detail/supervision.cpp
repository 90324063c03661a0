#include <fmt/format.h>

#include <array>
#include <deque>
#include <hyperframes/actors/supervisor.hpp>
#include <hyperframes/apps/sim/detail/scenarios.hpp>
#include <hyperframes/apps/sim/detail/stage.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <map>
#include <sim.fbs.hpp>
#include <stdexcept>

namespace hyperframes::sim::detail {
namespace {

constexpr unsigned nodes = 5, groups = 3, members = 3, leaves = groups * members;
constexpr Duration completion_limit = 60s;
const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
constexpr std::array<const char*, groups> group_names = {"flat", "chain", "ring"};
constexpr std::array<Strategy, groups> strategies = {Strategy::one_for_one, Strategy::rest_for_one,
                                                     Strategy::one_for_all};
const RestartPolicy leaf_policy{.kind = Restart::permanent,
                                .intensity = 4,
                                .period = 6s,
                                .backoff_min = 20ms,
                                .backoff_max = 500ms};
const RestartPolicy group_policy{.kind = Restart::permanent, .intensity = 3, .period = 20s};

std::string leaf_name(unsigned leaf) {
  return fmt::format("{}-{}", group_names[leaf / members], leaf % members);
}

FaultMenu menu() {
  using enum FaultKind;
  const std::vector<unsigned> all = {0, 1, 2, 3, 4};
  FaultMenu menu;
  menu.from = 1s;
  menu.until = 60s;
  menu.least = 60;
  menu.most = 90;
  menu.dishes = {
      // The leaf, and how often: up to more than its budget, and its supervisor's.
      {.kind = actor_throws, .weight = 40, .nodes = all, .amount_most = leaves * 12 - 1},
      {.kind = kill, .weight = 2, .nodes = all, .least = 20ms, .most = 5s},
      {.kind = pause, .weight = 3, .nodes = all, .least = 20ms, .most = 8s},
      {.kind = clock_jump, .weight = 3, .nodes = all, .least = 20ms, .most = 8s},
  };
  return menu;
}

/// What became of the leaves of one process.
class Tree {
 public:
  Tree(std::string node, std::function<void(std::string)> violate)
      : node_(std::move(node)), violate_(std::move(violate)) {}

  // Order of starts decides who may live beside whom.
  void started(unsigned leaf) {
    Leaf& own = leaves_[leaf];
    if (++own.alive != 1) violate(leaf, "has two lives at a time");
    const std::uint64_t before = std::exchange(own.started, ++starts_);
    const unsigned group = leaf / members;
    if (strategies[group] == Strategy::one_for_one) return;
    for (unsigned other = group * members; other < leaf; ++other)
      if (leaves_[other].started == 0 || leaves_[other].alive == 0)
        violate(leaf, fmt::format("starts while {} is down", leaf_name(other)));
    for (unsigned other = leaf + 1; other < (group + 1) * members; ++other)
      if (leaves_[other].alive != 0)
        violate(leaf, fmt::format("starts while {} still lives", leaf_name(other)));
    if (strategies[group] != Strategy::one_for_all) return;
    for (unsigned other = group * members; other < leaf; ++other)
      if (before != 0 && leaves_[other].started < before)
        violate(leaf, fmt::format("is restarted, and {} was not", leaf_name(other)));
  }
  void ended(unsigned leaf) { --leaves_[leaf].alive; }
  /// Whether it shall throw now.
  bool served(unsigned leaf) {
    Leaf& own = leaves_[leaf];
    ++operations;
    ++own.served;
    const unsigned group = leaf / members;
    if (strategies[group] != Strategy::one_for_one && leaf % members != 0 &&
        leaves_[leaf - 1].started > own.started)
      violate(leaf, fmt::format("outlives a restart of {}", leaf_name(leaf - 1)));
    if (own.throws == 0) return false;
    --own.throws;
    return true;
  }
  void let_throw(unsigned leaf, unsigned times) { leaves_[leaf].throws += times; }
  void forget_throws() {
    for (Leaf& leaf : leaves_) leaf.throws = 0;
  }
  std::uint64_t served_by(unsigned leaf) const { return leaves_[leaf].served; }
  bool is_restarting() const {
    for (const Leaf& leaf : leaves_)
      if (leaf.alive == 0) return true;
    return false;
  }
  std::uint64_t operations = 0;

 private:
  struct Leaf {
    int alive = 0;
    std::uint64_t started = 0, served = 0;
    unsigned throws = 0;
  };
  void violate(unsigned leaf, const std::string& what) {
    violate_(fmt::format("{} of {} {}", leaf_name(leaf), node_, what));
  }

  std::string node_;
  std::function<void(std::string)> violate_;
  std::array<Leaf, leaves> leaves_{};
  std::uint64_t starts_ = 0;
};

class Leaf final : public protocol::Part::Actor {
 public:
  Leaf(Tree* tree, unsigned number) : tree_(tree), number_(number) {}
  ~Leaf() override {
    if (begun_) tree_->ended(number_);
  }

 private:
  Task<void> started() override {
    begun_ = true;
    tree_->started(number_);
    co_return;
  }
  Task<void> serve(protocol::Work work, Reply<protocol::Life> reply) override {
    if (tree_->served(number_)) throw std::runtime_error("it was told to throw");
    if (work.number() % 5 == 0) co_await sleep_for(3ms);
    reply.send({work.number()});
  }

  Tree* tree_;
  unsigned number_;
  bool begun_ = false;
};

ChildSpec group_of(Tree& tree, unsigned group) {
  Supervision plan{.strategy = strategies[group]};
  for (unsigned member = 0; member < members; ++member) {
    const unsigned leaf = group * members + member;
    plan.children.push_back(
        child<Leaf>(SpawnOptions{.name = leaf_name(leaf), .restart = leaf_policy}, &tree, leaf));
  }
  return child<Supervisor>(SpawnOptions{.name = group_names[group], .restart = group_policy},
                           std::move(plan));
}

/// A process with a tree of 9 leaves in 3 groups, and those who ask them.
struct TreeOn {
  TreeOn(SimNode& on, Tree& tree, std::uint64_t seed)
      : tree(tree),
        random(SimRandom::mix(seed + on.index() * 100 + on.incarnation())),
        node(on.runtime(), {.name = on.name()}) {}

  Task<std::string> run() {
    Supervision plan;
    for (unsigned group = 0; group < groups; ++group)
      plan.children.push_back(group_of(tree, group));
    const SupervisorRef root = co_await node.spawn<Supervisor>({.name = "root"}, std::move(plan));
    Scope scope;
    for (unsigned leaf = 0; leaf < leaves; ++leaf) scope.spawn(ask(leaf));
    const Down down = co_await node.join(root);
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const Error&) {
      // They were cancelled.
    }
    co_await node.close(2s);
    co_return down.text;
  }
  Task<void> ask(unsigned leaf) {
    while (true) {
      co_await sleep_for(random.between(Duration(100ms), Duration(1500ms)));
      try {
        auto found = node.find<protocol::Part>(leaf_name(leaf));
        if (found) co_await found->serve({++asked}, within(500ms));
      } catch (const Error& error) {
        if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) throw;
      }
    }
  }

  Tree& tree;
  SimRandom random;
  std::uint64_t asked = 0, seen = 0;
  std::map<std::uint64_t, std::deque<Time>> restarts;  // of each actor, within its period
  Node node;
};

class Forest final : public Stage {
 public:
  explicit Forest(const RunOptions& options)
      : Stage(options, {.names = names, .menu = menu()}), trees_(nodes, nullptr) {}

  ~Forest() override { close(); }

  void play() {
    start();
    run_for(storm_end());
    mend();
    std::array<std::uint64_t, nodes> boots{};
    std::array<std::array<std::uint64_t, leaves>, nodes> before{};
    const auto all_serve = [&] { return serves_again(boots, before); };
    run_until(all_serve, completion_limit, "an answer of each leaf");
  }
  RunReport finish() {
    RunReport& out = report();
    for (const Tree& each : all_) out.operations += each.operations;
    out.counts = {{"restarts", restarts_}, {"given up", given_up_}};
    return take_report();
  }

 private:
  void boot(unsigned index) override {
    all_.emplace_back(names[index], [this](std::string text) { violate(std::move(text)); });
    auto& process = node(index).emplace<TreeOn>(node(index), all_.back(), world().seed());
    trees_[index] = &process;
    world().start(node(index), 0,
                  [this, &process, index](Runtime&) { return run(&process, index); });
  }
  Task<void> run(TreeOn* process, unsigned index) {
    std::string why;
    try {
      why = co_await process->run();
    } catch (const std::exception& error) {
      why = error.what();
    }
    process_ended(index, why);
  }

  bool actor_throws(const Fault& fault) override {
    if (!node(fault.node).is_up()) return false;
    trees_[fault.node]->tree.let_throw(static_cast<unsigned>(fault.amount % leaves),
                                       static_cast<unsigned>(1 + fault.amount / leaves));
    return true;
  }

  /// Each leaf of each node, after the last time that its process began.
  bool serves_again(std::array<std::uint64_t, nodes>& boots,
                    std::array<std::array<std::uint64_t, leaves>, nodes>& before) {
    bool all = true;
    for (unsigned index = 0; index < nodes; ++index) {
      if (!node(index).is_up()) return false;
      Tree& tree = trees_[index]->tree;
      if (boots[index] != node(index).incarnation()) {
        boots[index] = node(index).incarnation();
        tree.forget_throws();
        for (unsigned leaf = 0; leaf < leaves; ++leaf) before[index][leaf] = tree.served_by(leaf);
      }
      for (unsigned leaf = 0; leaf < leaves; ++leaf)
        all &= tree.served_by(leaf) > before[index][leaf] + 1;
    }
    return all;
  }

  void watch() override {
    for (unsigned index = 0; index < nodes; ++index) {
      if (!node(index).is_up()) continue;
      TreeOn& process = *trees_[index];
      const SupervisionEvents found = process.node.events(process.seen);
      process.seen = found.latest;
      for (const SupervisionEvent& event : found.events) check(process, names[index], event);
    }
  }
  /// Restarts within a period never exceed the budget, and nobody is given up before it is used.
  void check(TreeOn& process, const std::string& on, const SupervisionEvent& event) {
    auto& latest = process.restarts[event.actor];
    while (!latest.empty() && event.at - latest.front() > event.period) latest.pop_front();
    if (event.decision == Decision::restart && !event.by_hand) {
      ++restarts_;
      latest.push_back(event.at);
      if (latest.size() > event.intensity)
        violate(fmt::format("{} of {} is restarted {} times within its period, and {} are allowed",
                            event.name, on, latest.size(), event.intensity));
    }
    if (event.decision == Decision::give_up) {
      ++given_up_;
      if (latest.size() < event.intensity)
        violate(fmt::format("{} of {} is given up after {} restarts, and {} are allowed",
                            event.name, on, latest.size(), event.intensity));
    }
    if (event.decision == Decision::restart && event.strategy == Strategy::one_for_one &&
        !event.along.empty())
      violate(fmt::format("{} of {} takes others along, one for one", event.name, on));
  }

  std::string state(const Fault&) override {
    for (unsigned index = 0; index < nodes; ++index) {
      if (!node(index).is_up()) return "node down";
      if (is_frozen(index)) return "node frozen";
    }
    for (const TreeOn* each : trees_)
      if (each->tree.is_restarting()) return "restarting";
    return "all up";
  }

  std::deque<Tree> all_;  // of all processes that were
  std::vector<TreeOn*> trees_;
  std::uint64_t restarts_ = 0, given_up_ = 0;
};

class SupervisionScenario final : public Scenario {
  std::string name() const override { return "supervision"; }
  std::string summary() const override {
    return "5 processes with trees of supervisors whose actors throw";
  }
  std::vector<std::string> invariants() const override {
    return {"an actor has one life at a time",
            "with rest_for_one and one_for_all nobody lives beside a successor of an older one",
            "with one_for_all nobody is restarted alone, with one_for_one everybody is",
            "restarts within a period never exceed the intensity; nobody is given up before that",
            "60 s after the last fault every leaf answers"};
  }
  std::vector<FaultKind> kinds() const override { return kinds_of(menu()); }
  std::vector<std::string> states() const override {
    return {"all up", "restarting", "node down", "node frozen"};
  }
  RunReport run(const RunOptions& options) const override {
    Forest forest(options);
    forest.play();
    return forest.finish();
  }
};

}  // namespace

std::unique_ptr<const Scenario> make_supervision() {
  return std::make_unique<SupervisionScenario>();
}

}  // namespace hyperframes::sim::detail
