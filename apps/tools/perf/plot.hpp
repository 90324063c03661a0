// Lines through points, as SVG that stands in a page.
//
//   Plot plot{.title = "Round trip", .unit = "us", .log_y = true, .log_x = true};
//   plot.ticks = {{64, "64 B"}, {4096, "4 KiB"}};
//   plot.series.push_back({"tcp", 0, false, {{64, 31.5, "64 B: 31.5 us"}}});
//   std::string html = plot.render();
//
// Colours and fonts are the page's: classes `s0` and `s1` for series, `axis`, `grid`, `tick`.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hyperframes::tools::perf {

/// With &, <, > and quotes written so that they are no markup.
std::string escape_html(const std::string& text);

struct Plot {
  struct Point {
    double x = 0, y = 0;
    std::string says;  ///< Shown where the pointer rests on it.
  };
  struct Series {
    std::string name;
    int colour = 0;  ///< 0 or 1.
    bool dashed = false;
    std::vector<Point> points;
  };

  std::string title = {}, unit = {};
  bool log_x = false, log_y = false;
  std::vector<std::pair<double, std::string>> ticks = {};  ///< Along x.
  std::vector<Series> series = {};

  /// A figure element; empty if no point can be shown. On a logarithmic axis only positive values
  /// can.
  std::string render() const;
};

}  // namespace hyperframes::tools::perf
