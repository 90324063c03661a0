#include <hyperframes/apps/sim/scenario.hpp>

#include <fmt/format.h>

#include <hyperframes/apps/sim/detail/scenarios.hpp>
#include <hyperframes/apps/sim/shrink.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::sim {

const std::vector<std::unique_ptr<const Scenario>>& scenarios() {
  static const auto all = [] {
    std::vector<std::unique_ptr<const Scenario>> list;
    list.push_back(detail::make_parameter_server());
    list.push_back(detail::make_power_loss());
    list.push_back(detail::make_sessions());
    list.push_back(detail::make_supervision());
    list.push_back(detail::make_idle());
    return list;
  }();
  return all;
}

const Scenario& find_scenario(const std::string& name) {
  std::string names;
  for (const auto& each : scenarios()) {
    if (each->name() == name) return *each;
    names += (names.empty() ? "" : ", ") + each->name();
  }
  throw Error(Errc::not_found, "run the scenario '" + name + "'", "there is none of that name",
              "choose one of: " + names);
}

std::string shortfall(const RunReport& report, const Worth& worth) {
  std::string text;
  const auto compare = [&](std::uint64_t found, std::uint64_t wanted, const char* what) {
    if (found < wanted)
      text += fmt::format("{}{} {} of {}", text.empty() ? "" : ", ", found, what, wanted);
  };
  const auto whole_seconds = [](Duration span) {
    return static_cast<std::uint64_t>(std::chrono::floor<std::chrono::seconds>(span).count());
  };
  compare(report.names.size(), worth.nodes, "nodes");
  compare(whole_seconds(report.span), whole_seconds(worth.span), "virtual seconds");
  compare(report.operations, worth.operations, "operations");
  compare(report.struck, worth.faults, "faults");
  return text;
}

Shrunk shrink_run(const Scenario& scenario, RunOptions options, const RunReport& failed,
                  std::size_t most_runs) {
  Shrunk shrunk{{}, failed, 0};
  const std::vector<std::size_t> given = options.faults.value_or([&] {
    std::vector<std::size_t> all(failed.plan.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }());
  const auto chosen = [&](const std::vector<std::size_t>& places) {
    std::vector<std::size_t> of_plan;
    for (const std::size_t place : places) of_plan.push_back(given[place]);
    return of_plan;
  };
  shrunk.places = given;
  shrink(
      given.size(),
      [&](const std::vector<std::size_t>& places) {
        options.faults = chosen(places);
        ++shrunk.runs;
        RunReport report = scenario.run(options);
        if (!report.violation) return false;
        shrunk.places = *options.faults;
        shrunk.report = std::move(report);
        return true;
      },
      most_runs);
  return shrunk;
}

}  // namespace hyperframes::sim
