// What all scenarios stand on: the world with its nodes, the seed's faults at their times, restarts
// of what went down, the trace, and the first violation.
//
//   struct MyCluster final : Stage { void boot(unsigned node) override { ... } };
//   MyCluster cluster(options, {.names = {"a", "b"}, .menu = menu});
//   cluster.start();                                      // boots all, and plans the faults
//   cluster.run_until([&] { return done; }, 120s, "the job is done");
#pragma once

#include <functional>
#include <hyperframes/apps/sim/scenario.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::sim::detail {

class Stage {
 public:
  struct Setup {
    std::vector<std::string> names;
    FaultMenu menu;
    /// What `code_throws` arms, by its amount; each as a failpoint's NAME=ACTION.
    std::vector<std::string> failpoints{};
    Duration restart_pause = 700ms;  ///< Before a process that ended by itself is started again.
    unsigned shards = 1;             ///< Of each node.
  };
  Stage(const RunOptions& options, Setup setup);
  virtual ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Boots all nodes, in their order, and plans the faults.
  void start();
  /// False, and a violation, if `limit` passes first. Ends early by a violation.
  bool run_until(const std::function<bool()>& done, Duration limit, const std::string& what);
  void run_for(Duration span);
  /// When the last fault is over, from the beginning.
  Duration storm_end() const noexcept { return storm_end_; }
  /// Everything is mended at once: disks, network, and processes that are down or frozen.
  void mend();
  /// The first one counts.
  void violate(std::string text);
  bool violated() const noexcept { return report_.violation.has_value(); }
  void note(std::string_view text);
  bool traced() const noexcept { return static_cast<bool>(options_.trace); }
  Duration now() const noexcept { return world_->now() - begin_; }
  SimWorld& world() noexcept { return *world_; }
  SimNode& node(unsigned index) const noexcept { return world_->node(index); }
  RunReport& report() noexcept { return report_; }
  /// Finishes the report, and the world.
  RunReport take_report();

 protected:
  /// Starts the process of a node that has just come up. What it throws ends the process.
  virtual void boot(unsigned node) = 0;
  /// The node's process has ended, by a crash or by itself.
  virtual void went_down(unsigned) {}
  /// In which state a fault meets the cluster, for the coverage.
  virtual std::string state(const Fault& fault) = 0;
  virtual void calendar_set_back(unsigned, Duration) {}
  /// `actor_throws`: false if it has no effect.
  virtual bool actor_throws(const Fault&) { return false; }
  /// Ten times a second.
  virtual void watch() {}
  /// How long `to` has been up and awake, and nothing that `from` sends could reach it, or nothing
  /// was sent. What a network had kept back reaches it when a cut of either way ends.
  Duration silence(unsigned from, unsigned to) const;
  /// How long nothing has been done to two nodes or to what lies between them, but for connections
  /// that broke at once. Both may be a tenth of a second short.
  Duration calm(unsigned a, unsigned b) const;
  bool is_frozen(unsigned node) const noexcept { return machines_[node].frozen != 0; }
  bool is_cut(unsigned from, unsigned to) const noexcept { return cuts_[from][to] != 0; }
  /// Ends the world, and with it all processes: for destructors of what those refer to.
  void close() noexcept {
    over_ = true;
    world_.reset();
  }
  /// Its process has ended by itself: it comes again after a while, unless `stay_down`.
  void process_ended(unsigned node, const std::string& why, bool stay_down = false);
  const Setup& setup() const noexcept { return setup_; }

 private:
  struct Machine {
    std::optional<Time> up_at{};  ///< While it is down.
    bool stays_down = false;
    bool was_up = false;
    unsigned frozen = 0;  ///< Pauses that last.
  };
  void boot_node(unsigned node);
  void crash(unsigned node, SimCrash what, Duration down);
  void keep_watch();
  void strike(std::size_t place);
  bool strike_process(const Fault& fault);
  bool strike_network(const Fault& fault);
  bool strike_disk(const Fault& fault);
  bool strike_code(const Fault& fault);
  void arm_for(Duration span, const std::string& failpoint);
  void cut(unsigned from, unsigned to);
  void mend_cut(unsigned from, unsigned to);
  void note_ways();
  /// Before and after: what lasts less than the time between two looks is noted, too.
  void changing_ways(const std::function<void()>& change);
  bool is_awake(unsigned index) const noexcept { return !is_frozen(index) && node(index).is_up(); }
  bool is_silent(unsigned from, unsigned to) const noexcept {
    return cuts_[from][to] != 0 || !is_awake(from);
  }
  bool is_disturbed(unsigned from, unsigned to) const noexcept;
  void after(Duration span, std::function<void()> act);

  RunOptions options_;
  Setup setup_;
  RunReport report_;
  std::vector<std::unique_ptr<ArmedFailpoint>> planted_;
  std::vector<std::unique_ptr<ArmedFailpoint>> armed_;
  std::vector<Machine> machines_;
  std::vector<std::vector<unsigned>> cuts_;  // faults that cut it now, by from and to
  struct Way {
    std::optional<Time> silent_since{};
    std::uint64_t listener = 0;  // its incarnation
    Time disturbed_at{};
  };
  std::vector<std::vector<Way>> ways_;  // by from and to
  Duration storm_end_{61s};             // at the least
  bool over_ = false;
  std::unique_ptr<SimWorld> world_;
  Time begin_;
};

}  // namespace hyperframes::sim::detail
