// The results of `hyperframes perf` as a page with plots that needs nothing but itself.
//
//   std::ofstream("perf.html") << page_of(run, earlier);
//
// Styles and plots stand in the page; there is no script, and nothing is loaded from elsewhere.
// What came from the other end, or from a file, is escaped.
#pragma once

#include <hyperframes/apps/tools/perf/result.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools::perf {

/// `earlier` runs, the oldest first, are plotted with this one behind them.
std::string page_of(const Run& run, const std::vector<Run>& earlier);
/// Throws the system's error.
void write_page(const std::string& path, const Run& run, const std::vector<Run>& earlier);

}  // namespace hyperframes::tools::perf
