// A scenario: a simulated cluster with work to do, what it is struck with, and what must hold.
//
//   const sim::Scenario& scenario = sim::find_scenario("parameter_server");
//   sim::RunReport report = scenario.run({.seed = 7});
//   if (report.violation) report = scenario.run({.seed = 7, .faults = {{3, 7}}});
//
// A run is one thread's, and depends on its options alone: the same ones give the same trace hash.
// One run at a time in a process, as failpoints and the log's sink are the process's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <hyperframes/apps/sim/fault.hpp>
#include <hyperframes/runtime/time.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::sim {

struct RunOptions {
  std::uint64_t seed = 1;
  /// Of the seed's plan only these; none given: all.
  std::optional<std::vector<std::size_t>> faults{};
  /// Gets a line for what happens, with the virtual time in front.
  std::function<void(const std::string&)> trace{};
  bool trace_all = false;  ///< Each delivery too.
  /// Failpoints to arm for the run: faults planted in the code, "log-without-sync=plant".
  std::vector<std::string> planted{};
};

/// Something that must hold did not.
struct Violation {
  Duration at{};  ///< Of the run.
  std::string text{};
};

/// How often each fault met each state of the cluster.
using Coverage = std::map<std::pair<std::string, std::string>, std::uint64_t>;

struct RunReport {
  std::uint64_t seed = 0;
  std::uint64_t trace_hash = 0;
  Duration span{};               ///< Virtual time.
  std::uint64_t operations = 0;  ///< As the scenario counts them.
  std::uint64_t struck = 0;  ///< Faults that had an effect; the others met a node that was down.
  std::uint64_t turns = 0;
  std::vector<Fault> plan{};         ///< All of the seed's, also those that were left out.
  std::vector<std::string> names{};  ///< Of the nodes.
  Coverage coverage{};
  std::map<std::string, std::uint64_t> counts{};  ///< What else the scenario counts.
  std::optional<Violation> violation{};
};

/// What a run of a scenario with faults is worth at the least.
struct Worth {
  std::size_t nodes = 5;
  Duration span = 60s;
  std::uint64_t operations = 1000;
  std::uint64_t faults = 20;  ///< That struck.
};
/// In what a run falls short of that, as "12 faults of 20"; empty if in nothing.
std::string shortfall(const RunReport& report, const Worth& worth = {});

class Scenario {
 public:
  virtual ~Scenario() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;
  /// What is checked, a line each.
  virtual std::vector<std::string> invariants() const = 0;
  /// The kinds of faults, and the states in which they may strike.
  virtual std::vector<FaultKind> kinds() const = 0;
  virtual std::vector<std::string> states() const = 0;
  virtual RunReport run(const RunOptions& options) const = 0;
};

const std::vector<std::unique_ptr<const Scenario>>& scenarios();
/// Throws not_found, naming those there are.
const Scenario& find_scenario(const std::string& name);

/// The smallest part of a failing seed's plan that still fails, and its run.
struct Shrunk {
  std::vector<std::size_t> places;
  RunReport report;
  std::size_t runs = 0;
};
Shrunk shrink_run(const Scenario& scenario, RunOptions options, const RunReport& failed,
                  std::size_t most_runs = 200);

}  // namespace hyperframes::sim
