#include <hyperframes/apps/tools/perf/page.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <hyperframes/apps/tools/perf/plot.hpp>
#include <hyperframes/apps/tools/perf/report.hpp>
#include <hyperframes/apps/tools/perf/sizes.hpp>
#include <hyperframes/runtime/error.hpp>
#include <initializer_list>
#include <optional>
#include <utility>

namespace hyperframes::tools::perf {
namespace {

constexpr const char* style = R"(
:root { color-scheme: light dark; --ink: #1f2328; --soft: #656d76; --line: #d8dee4; --paper: #fff;
  --panel: #f6f8fa; --s0: #1f6fd0; --s1: #d4621a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d;
  --paper: #0d1117; --panel: #161b22; --s0: #5aa2f5; --s1: #f0883e; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p.facts { color: var(--soft); margin: .3rem 0 1rem; }
.banner { border-left: 4px solid var(--bad); background: var(--panel); padding: .6rem 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
  gap: 1rem; }
figure { margin: 0; background: var(--panel); border-radius: 8px; padding: .8rem 1rem; }
figcaption { font-weight: 600; } small { color: var(--soft); font-weight: 400; }
.legend { color: var(--soft); font-size: 13px; } .legend span { margin-right: 1.2em; }
.legend svg { margin-right: .4em; vertical-align: middle; }
svg { overflow: visible; } figure > svg { width: 100%; height: auto; display: block; }
.grid, .axis { stroke: var(--line); stroke-width: 1; fill: none; }
.tick { fill: var(--soft); font-size: 11.5px; text-anchor: middle; }
.tick.value { text-anchor: end; }
.s0 path, .s1 path { fill: none; stroke-width: 2; stroke-linejoin: round; }
.s0 path { stroke: var(--s0); } .s1 path { stroke: var(--s1); }
.s0 circle { fill: var(--s0); } .s1 circle { fill: var(--s1); }
.dashed path { stroke-dasharray: 5 4; } .dot .reach { fill: transparent; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { font-weight: 600; text-align: right; } td { text-align: right; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); }
td.wrong { color: var(--bad); font-weight: 700; }
)";

using Value = std::function<std::optional<double>(const Row&)>;

/// What a series of plotted rows is called.
std::string half_name(const Row& row) {
  return row.self_loop ? "self-loop over shared memory" : row.transport;
}

bool has_half(const Run& run, bool self_loop) { return nearest_row(run, self_loop, 64) != nullptr; }

void add_series(Plot& plot, const Run& run, bool self_loop, const std::string& suffix, bool dashed,
                const Value& value) {
  Plot::Series series;
  series.colour = self_loop ? 1 : 0;
  series.dashed = dashed;
  for (const Row& row : run.rows) {
    const auto y = row.self_loop == self_loop ? value(row) : std::nullopt;
    if (!y) continue;
    series.name = half_name(row) + suffix;
    series.points.push_back({static_cast<double>(row.size), *y,
                             fmt::format("{}, {}: {} {}", series.name, size_text(row.size),
                                         number_text(*y), plot.unit)});
  }
  if (!series.points.empty()) plot.series.push_back(std::move(series));
}

Plot plot_over_sizes(const Run& run, std::string title, std::string unit, bool log_y) {
  Plot plot{.title = std::move(title), .unit = std::move(unit), .log_x = true, .log_y = log_y};
  for (const Row& row : run.rows) {
    bool known = false;
    for (const auto& [size, label] : plot.ticks) known |= size == static_cast<double>(row.size);
    if (!known) plot.ticks.emplace_back(static_cast<double>(row.size), size_text(row.size));
  }
  return plot;
}

std::string latency_plot(const Run& run) {
  Plot plot = plot_over_sizes(run, "Round trip", "us", true);
  for (const bool self_loop : {false, true}) {
    add_series(plot, run, self_loop, ", p50", false, [](const Row& row) {
      return row.round_trips ? std::optional(row.round_trips->p50_us) : std::nullopt;
    });
    add_series(plot, run, self_loop, ", p99", true, [](const Row& row) {
      return row.round_trips ? std::optional(row.round_trips->p99_us) : std::nullopt;
    });
  }
  return plot.render();
}

std::string stream_plot(const Run& run, std::string title, std::string unit, bool log_y,
                        double Stream::* member) {
  Plot plot = plot_over_sizes(run, std::move(title), std::move(unit), log_y);
  for (const bool self_loop : {false, true})
    add_series(plot, run, self_loop, "", false, [member](const Row& row) {
      return row.stream ? std::optional((*row.stream).*member) : std::nullopt;
    });
  return plot.render();
}

/// `runs` end with the one that `row` is of.
void add_history(Plot& plot, const std::vector<Run>& runs, const Row& row,
                 const KeyFigure& figure) {
  Plot::Series series;
  series.name = half_name(row);
  series.colour = row.self_loop ? 1 : 0;
  const auto values = history_of(runs, runs.back().polling, row, figure);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!values[i]) continue;
    series.points.push_back(
        {static_cast<double>(i + 1), *values[i],
         fmt::format("{}, run {} of {} on {}: {} {}", series.name, i + 1, runs[i].time,
                     runs[i].host, number_text(*values[i]), figure.unit)});
  }
  if (!series.points.empty()) plot.series.push_back(std::move(series));
}

std::string history_plots(const Run& run, const std::vector<Run>& earlier) {
  std::vector<Run> runs = earlier;
  runs.push_back(run);
  std::string text;
  for (const KeyFigure& figure : key_figures()) {
    const Row* const row = nearest_row(run, false, figure.size);
    const Row* const loop = nearest_row(run, true, figure.size);
    if (!row && !loop) continue;
    Plot plot{.title = fmt::format("{}, {}", size_text((row ? row : loop)->size), figure.name),
              .unit = figure.unit};
    for (std::size_t i = 0; i < runs.size(); ++i)
      plot.ticks.emplace_back(static_cast<double>(i + 1), runs[i].time.substr(0, 10));
    for (const Row* const half : {row, loop})
      if (half) add_history(plot, runs, *half, figure);
    text += plot.render();
  }
  return text;
}

std::string table_of(const Run& run, bool self_loop) {
  std::string text =
      "<div class=\"wide\"><table><tr><th>size<th>p50 us<th>p99 us<th>p99.9 us<th>max us"
      "<th>round trips<th>messages/s<th>GB/s<th>CPU s/GB<th>of it checksums<th>CPU s/M messages"
      "<th>checked<th>wrong</tr>\n";
  const auto cells = [&text](bool known, std::initializer_list<std::string> values) {
    for (const std::string& value : values) text += "<td>" + (known ? value : "-");
  };
  for (const Row& row : run.rows) {
    if (row.self_loop != self_loop) continue;
    const RoundTrips trips = row.round_trips.value_or(RoundTrips());
    const Stream stream = row.stream.value_or(Stream());
    text += "<tr><td>" + size_text(row.size);
    cells(row.round_trips.has_value(),
          {number_text(trips.p50_us), number_text(trips.p99_us), number_text(trips.p999_us),
           number_text(trips.max_us), with_separators(trips.count)});
    cells(row.stream.has_value(),
          {number_text(stream.messages_per_s), number_text(stream.gb_per_s),
           number_text(stream.cpu_s_per_gb), number_text(stream.check_s_per_gb),
           number_text(stream.cpu_s_per_mmsg)});
    text += fmt::format("<td>{}<td{}>{}</tr>\n", with_separators(row.verified),
                        row.wrong ? " class=\"wrong\"" : "", row.wrong);
  }
  return text + "</table></div>\n";
}

std::string banner(const std::string& text) {
  return "<p class=\"banner\">" + escape_html(text) + "</p>\n";
}

std::string head_of(const Run& run) {
  std::string text = fmt::format(
      "<h1>hyperframes perf, {}</h1>\n<p class=\"facts\">{} from {} to {}; hyperframes {}; {}, {} "
      "cores, Linux {}; {:g} s of steady state{}; every message checked</p>\n",
      escape_html(run.uri), escape_html(run.time), escape_html(run.host),
      escape_html(run.peer_host.empty() ? "nobody" : run.peer_host), escape_html(run.version),
      escape_html(run.processor), run.cores, escape_html(run.kernel), run.seconds,
      run.polling ? ", shards that never sleep" : "");
  if (run.partial()) text += banner("Partial: the run ended early. " + run.error);
  if (run.wrong() != 0)
    text += banner(fmt::format("{} messages arrived wrong or not at all. The first: {}",
                               run.wrong(), run.problem));
  for (const std::string& line : verdict(run)) text += "<p>" + escape_html(line) + "</p>\n";
  return text;
}

}  // namespace

std::string page_of(const Run& run, const std::vector<Run>& earlier) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>hyperframes perf, {}</title>\n"
      "<style>{}</style></head><body>\n",
      escape_html(run.uri), style);
  text += head_of(run);
  text += "<div class=\"plots\">\n" + latency_plot(run);
  text += stream_plot(run, "Bandwidth, one way", "GB/s", false, &Stream::gb_per_s);
  text += stream_plot(run, "Rate, one way", "messages/s", true, &Stream::messages_per_s);
  text += stream_plot(run, "CPU of both ends", "s/GB", true, &Stream::cpu_s_per_gb) + "</div>\n";
  if (!earlier.empty())
    text +=
        fmt::format("<h2>This run behind {} earlier ones</h2>\n<div class=\"plots\">\n{}</div>\n",
                    earlier.size(), history_plots(run, earlier));
  if (has_half(run, true))
    text += "<h2>Self-loop over shared memory, both ends on this host</h2>\n" + table_of(run, true);
  if (has_half(run, false))
    text += fmt::format("<h2>{}</h2>\n", escape_html(run.uri)) + table_of(run, false);
  return text + "</body></html>\n";
}

void write_page(const std::string& path, const Run& run, const std::vector<Run>& earlier) {
  std::ofstream file(path, std::ios::trunc);
  file << page_of(run, earlier);
  file.close();
  if (!file)
    throw Error::system(errno, "write " + path, {},
                        "check the folder, its permissions and the disk");
}

}  // namespace hyperframes::tools::perf
