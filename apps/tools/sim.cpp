#include <fmt/format.h>

#include <stdlib.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/sim/scenario.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <hyperframes/apps/tools/signal_notes.hpp>
#include <hyperframes/runtime/error.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace hyperframes::tools {
namespace {

using nlohmann::json;
using Steady = std::chrono::steady_clock;

constexpr const char* footer =
    R"(Examples:

  hyperframes sim --list
  hyperframes sim --scenario parameter_server --seeds 1..200
  hyperframes sim --scenario parameter_server --seeds 1..1000000 --minutes 30
  hyperframes sim --scenario parameter_server --seed 17                  # with a trace
  hyperframes sim --scenario parameter_server --seed 17 --faults 3,7,9   # only these of its faults
  hyperframes sim --scenario parameter_server --seeds 1..5 --hashes      # to compare two builds

A run is a whole cluster in this process, in virtual time, struck by the faults that its seed has.
The same seed gives the same run, with the same trace hash. A seed that fails is run again with
fewer and fewer faults, and what is left is printed. Ctrl-C ends a range of seeds after the one
that runs, with what was found so far. Exit status 1 if a seed failed, 130 after Ctrl-C.
)";

struct SimFlags {
  std::string scenario = "parameter_server";
  std::string seeds;
  std::optional<std::uint64_t> seed;
  std::string faults;
  std::vector<std::string> planted;
  double minutes = 0;
  bool list = false, as_json = false, trace_all = false, no_shrink = false, hashes = false;
};

struct SeedRange {
  std::uint64_t first = 1, last = 100;
};

SeedRange parse_seeds(const std::string& text) {
  SeedRange range;
  if (text.empty()) return range;
  const auto dots = text.find("..");
  const auto number = [&](const std::string& part) {
    if (part.empty() || part.size() > 18 ||
        part.find_first_not_of("0123456789") != std::string::npos)
      throw Error(Errc::invalid_argument, "read the seeds '" + text + "'",
                  "they are no two numbers", "give them as --seeds 1..200");
    return std::stoull(part);
  };
  range.first = number(text.substr(0, dots));
  range.last = dots == std::string::npos ? range.first : number(text.substr(dots + 2));
  if (range.first > range.last)
    throw Error(Errc::invalid_argument, "read the seeds '" + text + "'",
                "the first is above the last", "give them as --seeds 1..200");
  return range;
}

double seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

json json_of(const sim::RunReport& report, const std::string& scenario) {
  json out{{"scenario", scenario},
           {"seed", report.seed},
           {"trace_hash", fmt::format("{:016x}", report.trace_hash)},
           {"virtual_s", seconds(report.span)},
           {"operations", report.operations},
           {"faults", report.struck},
           {"faults_planned", report.plan.size()},
           {"turns", report.turns},
           {"counts", report.counts},
           {"failed", report.violation.has_value()}};
  if (report.violation) {
    out["violation"] = report.violation->text;
    out["violation_at_s"] = seconds(report.violation->at);
  }
  return out;
}

/// The sum of many runs.
struct Sum {
  std::uint64_t seeds = 0, operations = 0, struck = 0;
  Duration span{};
  sim::Coverage coverage;
  std::map<std::uint64_t, std::string> short_runs;  ///< By seed: what a run fell short of.

  void add(const sim::RunReport& report) {
    ++seeds;
    operations += report.operations;
    struck += report.struck;
    span += report.span;
    for (const auto& [pair, count] : report.coverage) coverage[pair] += count;
    if (std::string missing = sim::shortfall(report); !missing.empty() && !report.violation)
      short_runs[report.seed] = std::move(missing);
  }
};

/// Fault by state: how often each pair was met, and which never was.
std::string coverage_text(const sim::Scenario& scenario, const sim::Coverage& coverage,
                          const Screen& screen) {
  std::vector<Table::Column> columns = {{"fault", Table::Align::left}};
  for (const auto& state : scenario.states()) columns.push_back({state});
  Table table(std::move(columns));
  std::size_t met = 0, all = 0;
  for (const auto kind : scenario.kinds()) {
    std::vector<std::string> row = {std::string(sim::name(kind))};
    for (const auto& state : scenario.states()) {
      const auto found = coverage.find({row[0], state});
      const bool there = found != coverage.end();
      met += there;
      ++all;
      row.push_back(there ? with_separators(found->second) : screen.paint("never", Tone::warning));
    }
    table.add_row(std::move(row));
  }
  return table.render(screen) +
         fmt::format("{} of {} pairs of a fault and a state were met\n", met, all);
}

std::string summary_text(const Sum& sum, double took_s) {
  return fmt::format(
      "{} seeds: {:.0f} virtual seconds, {} operations, {} faults, in {:.1f} s "
      "({:.0f} virtual seconds a second)",
      with_separators(sum.seeds), seconds(sum.span), with_separators(sum.operations),
      with_separators(sum.struck), took_s, took_s > 0 ? seconds(sum.span) / took_s : 0);
}

/// Of seeds that were worth little: they say less than their number.
std::string short_runs_text(const Sum& sum) {
  if (sum.short_runs.empty()) return {};
  const auto& [seed, missing] = *sum.short_runs.begin();
  return fmt::format("{} of the seeds were worth less than they should, such as {}: {}\n",
                     with_separators(sum.short_runs.size()), seed, missing);
}

void list_scenarios(bool as_json) {
  json all = json::array();
  for (const auto& each : sim::scenarios()) {
    if (as_json) {
      json kinds = json::array();
      for (const auto kind : each->kinds()) kinds.push_back(sim::name(kind));
      all.push_back({{"name", each->name()},
                     {"summary", each->summary()},
                     {"invariants", each->invariants()},
                     {"faults", kinds},
                     {"states", each->states()}});
      continue;
    }
    fmt::print("{}: {}\n", each->name(), each->summary());
    for (const auto& line : each->invariants()) fmt::print("  - {}\n", line);
  }
  if (as_json) fmt::print("{}\n", all.dump(2));
}

class SimRuns {
 public:
  explicit SimRuns(const SimFlags& flags)
      : flags_(flags), scenario_(sim::find_scenario(flags.scenario)), screen_({}) {}

  /// The exit status.
  int run_seeds() {
    const SeedRange range = parse_seeds(flags_.seeds);
    const auto began = Steady::now();
    const auto took = [&] { return std::chrono::duration<double>(Steady::now() - began).count(); };
    Sum sum;
    std::optional<sim::RunReport> failed;
    auto signals = std::make_unique<SignalNotes>();
    for (std::uint64_t seed = range.first; seed <= range.last && !failed; ++seed) {
      if (signals->seen() || (flags_.minutes > 0 && took() > flags_.minutes * 60)) break;
      sim::RunReport report = scenario_.run(options_of(seed));
      sum.add(report);
      show(range, seed, sum, took());
      if (report.violation) failed = std::move(report);
    }
    const int signal = signals->seen();
    signals.reset();  // shrinking takes long, and has nothing to tell before its end
    screen_.clear();
    if (flags_.as_json) {
      print_json(sum, failed, took());
    } else {
      fmt::print("{}: {}\n{}", scenario_.name(), summary_text(sum, took()),
                 coverage_text(scenario_, sum.coverage, screen_));
      if (counts_for_something()) fmt::print("{}", short_runs_text(sum));
      if (failed) print_failure(*failed);
    }
    if (failed) return 1;
    return signal ? 128 + signal : 0;
  }

  /// A line each, whether it fails or not. The exit status.
  int print_hashes() {
    const SeedRange range = parse_seeds(flags_.seeds);
    bool well = true;
    for (std::uint64_t seed = range.first; seed <= range.last; ++seed) {
      const sim::RunReport report = scenario_.run(options_of(seed));
      fmt::print("{} {} {:016x}\n", scenario_.name(), seed, report.trace_hash);
      std::fflush(stdout);
      well &= !report.violation;
    }
    return well ? 0 : 1;
  }

  /// The exit status.
  int run_one(std::uint64_t seed) {
    sim::RunOptions options = options_of(seed);
    if (!flags_.as_json) options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    options.trace_all = flags_.trace_all;
    const sim::RunReport report = scenario_.run(options);
    if (flags_.as_json) {
      fmt::print("{}\n", json_of(report, scenario_.name()).dump());
      return report.violation ? 1 : 0;
    }
    fmt::print(
        "{}: seed {}, trace hash {:016x}, {:.1f} virtual seconds, {} operations, {} faults\n",
        scenario_.name(), seed, report.trace_hash, seconds(report.span), report.operations,
        report.struck);
    for (const auto& [what, count] : report.counts) fmt::print("  {}: {}\n", what, count);
    if (report.violation) print_violation(report);
    return report.violation ? 1 : 0;
  }

 private:
  /// Neither without faults nor with some of them left out.
  bool counts_for_something() const { return flags_.faults.empty() && !scenario_.kinds().empty(); }

  sim::RunOptions options_of(std::uint64_t seed) const {
    sim::RunOptions options;
    options.seed = seed;
    options.planted = flags_.planted;
    if (!flags_.faults.empty())
      options.faults =
          flags_.faults == "none" ? std::vector<std::size_t>() : sim::parse_places(flags_.faults);
    return options;
  }

  void show(const SeedRange& range, std::uint64_t seed, const Sum& sum, double took_s) {
    if (flags_.as_json) return;
    const double share = static_cast<double>(seed - range.first + 1) /
                         static_cast<double>(range.last - range.first + 1);
    screen_.refresh(
        {fmt::format("{} {:3.0f} %  seed {}", screen_.bar(share, 24), share * 100, seed),
         summary_text(sum, took_s)},
        fmt::format("seed {}: {}", seed, summary_text(sum, took_s)));
  }

  static void print_violation(const sim::RunReport& report) {
    fmt::print("FAILED after {:.3f} virtual seconds: {}\n", seconds(report.violation->at),
               report.violation->text);
  }

  std::string planted_text() const {
    std::string text;
    for (const auto& each : flags_.planted) text += " --plant " + each;
    return text;
  }

  void print_failure(const sim::RunReport& failed) {
    fmt::print("seed {} failed, trace hash {:016x}\n", failed.seed, failed.trace_hash);
    print_violation(failed);
    if (flags_.no_shrink) return;
    fmt::print("leaving out faults, as long as it fails ...\n");
    std::fflush(stdout);
    const auto shrunk = sim::shrink_run(scenario_, options_of(failed.seed), failed);
    fmt::print("{} of {} faults are enough (found in {} runs):\n", shrunk.places.size(),
               failed.plan.size(), shrunk.runs);
    for (const std::size_t place : shrunk.places)
      fmt::print("  {:3}  {}\n", place, sim::describe(failed.plan[place], failed.names));
    print_violation(shrunk.report);
    fmt::print("run it again:\n  hyperframes sim --scenario {} --seed {} --faults {}{}\n",
               scenario_.name(), failed.seed,
               shrunk.places.empty() ? "none" : sim::places_text(shrunk.places), planted_text());
  }

  void print_json(const Sum& sum, const std::optional<sim::RunReport>& failed, double took_s) {
    json coverage = json::array();
    for (const auto& [pair, count] : sum.coverage)
      coverage.push_back({{"fault", pair.first}, {"state", pair.second}, {"count", count}});
    json out{{"scenario", scenario_.name()},   {"seeds", sum.seeds},
             {"virtual_s", seconds(sum.span)}, {"operations", sum.operations},
             {"faults", sum.struck},           {"took_s", took_s},
             {"coverage", coverage},           {"failed", failed.has_value()}};
    if (counts_for_something()) out["short_runs"] = sum.short_runs.size();
    if (failed) {
      out["failure"] = json_of(*failed, scenario_.name());
      if (!flags_.no_shrink) {
        const auto shrunk = sim::shrink_run(scenario_, options_of(failed->seed), *failed);
        json plan = json::array();
        for (const std::size_t place : shrunk.places)
          plan.push_back(sim::describe(failed->plan[place], failed->names));
        out["failure"]["shrunk_to"] = shrunk.places;
        out["failure"]["shrunk_plan"] = plan;
      }
    }
    fmt::print("{}\n", out.dump());
  }

  const SimFlags& flags_;
  const sim::Scenario& scenario_;
  Screen screen_;
};

void run_sim(const SimFlags& flags) {
  // Slow machines have no use of longer heartbeats in virtual time.
  ::setenv("HYPERFRAMES_TIME_SCALE", "1", 1);
  if (flags.list) return list_scenarios(flags.as_json);
  SimRuns runs(flags);
  const int status = flags.seed     ? runs.run_one(*flags.seed)
                     : flags.hashes ? runs.print_hashes()
                                    : runs.run_seeds();
  std::fflush(stdout);
  if (status != 0) throw CLI::RuntimeError(status);
}

}  // namespace

void add_sim_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "sim",
      "Runs a whole cluster in virtual time, with faults, by seeds, and checks what must hold");
  const auto flags = std::make_shared<SimFlags>();
  command->add_option("--scenario", flags->scenario, "Which cluster, doing what (see --list)")
      ->capture_default_str();
  auto* seeds = command->add_option("--seeds", flags->seeds, "A..B: these seeds (default: 1..100)");
  ps::take_whole(command->add_option("--seed", flags->seed, "One seed, with a trace"))
      ->excludes(seeds);
  command->add_option("--faults", flags->faults,
                      "Only these faults of a seed's plan, by number: 3,7,9 or 3-5; or none");
  ps::take_number(command->add_option("--minutes", flags->minutes, "Stop after so long"), 0, 1e6);
  command->add_flag("--list", flags->list, "Show the scenarios, and what they check");
  command->add_flag("--json", flags->as_json, "Print one line of JSON");
  command->add_flag("--trace_all", flags->trace_all, "With --seed: each delivery too");
  command->add_flag("--no_shrink", flags->no_shrink, "Leave a failing seed's faults as they are");
  command->add_flag("--hashes", flags->hashes, "Print each seed's trace hash, and nothing else")
      ->needs(seeds);
  command->add_option("--plant", flags->planted,
                      "Plant a fault in the code, as NAME=plant: to see that it is found");
  command->footer(footer);
  command->callback([flags] { run_sim(*flags); });
}

}  // namespace hyperframes::tools
