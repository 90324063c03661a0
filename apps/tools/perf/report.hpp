// What `hyperframes perf` prints of its results.
//
//   std::fputs(table_text(run.rows, true, screen).c_str(), stdout);   // those of the self-loop
//   for (const std::string& line : verdict(run)) std::puts(line.c_str());
#pragma once

#include <cstdint>
#include <hyperframes/apps/tools/perf/result.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools::perf {

/// Three or four digits: ".85", "12.4", "1,240".
std::string number_text(double value);

/// The rows of one half, the self-loop or the other; empty if there are none.
std::string table_text(const std::vector<Row>& rows, bool self_loop, const Screen& screen);

/// Of two halves, which one is slow: a line for round trips, and one for large messages if there
/// were any. Empty without a self-loop to compare with.
std::vector<std::string> verdict(const Run& run);

/// A figure that stands for many when runs are compared.
struct KeyFigure {
  std::string name, unit;
  bool lower_is_better = true;
  std::optional<double> (*of)(const Row& row) = nullptr;
  std::uint64_t size = 0;  ///< Of messages, the nearest that was measured.
};
const std::vector<KeyFigure>& key_figures();
/// The row of that half whose size is nearest, or null.
const Row* nearest_row(const Run& run, bool self_loop, std::uint64_t size);
/// That figure in each run that polled, or did not, for the same transport and size as `row`; empty
/// where a run has none.
std::vector<std::optional<double>> history_of(const std::vector<Run>& runs, bool polling,
                                              const Row& row, const KeyFigure& figure);

/// `run` beside earlier ones: each key figure, the median before, and a line of bars. Empty if
/// there is nothing to compare with.
std::string history_text(const std::vector<Run>& earlier, const Run& run, const Screen& screen);

}  // namespace hyperframes::tools::perf
