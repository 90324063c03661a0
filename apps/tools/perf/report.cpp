#include <hyperframes/apps/tools/perf/report.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <hyperframes/apps/tools/perf/sizes.hpp>

namespace hyperframes::tools::perf {
namespace {

constexpr const char* unknown = "-";

/// A percentile of fewer than this says no more than the longest does.
constexpr std::uint64_t enough_for_p99 = 100, enough_for_p999 = 1000;

/// Of smaller messages the bandwidth says what their rate says.
constexpr std::uint64_t large_from = 32u << 10;

std::vector<std::string> cells_of(const Row& row, const Screen& screen) {
  std::vector<std::string> cells = {size_text(row.size)};
  if (const auto& trips = row.round_trips) {
    cells.push_back(number_text(trips->p50_us));
    cells.push_back(trips->count >= enough_for_p99 ? number_text(trips->p99_us) : unknown);
    cells.push_back(trips->count >= enough_for_p999 ? number_text(trips->p999_us) : unknown);
    cells.push_back(number_text(trips->max_us));
  } else {
    cells.resize(cells.size() + 4, unknown);
  }
  if (const auto& stream = row.stream) {
    cells.push_back(number_text(stream->messages_per_s));
    cells.push_back(number_text(stream->gb_per_s));
    cells.push_back(number_text(stream->cpu_s_per_gb));
    cells.push_back(number_text(stream->cpu_s_per_mmsg));
  } else {
    cells.resize(cells.size() + 4, unknown);
  }
  cells.push_back(with_separators(row.verified));
  cells.push_back(row.wrong == 0 ? "0" : screen.paint(with_separators(row.wrong), Tone::bad));
  return cells;
}

std::string share_text(double part) { return fmt::format("{:.0f} %", 100 * part); }

// Of two times, the second includes the first half's work; where it is shorter, the network's is
// none.
std::string slow_half(double loop, double network, const std::string& transport) {
  if (network > 1.5 * loop)
    return fmt::format("{} adds {} of it, and is the slow half", transport,
                       share_text(1 - loop / network));
  if (network > loop)
    return fmt::format("{} adds {} of it; this host's own half is the slow one", transport,
                       share_text(1 - loop / network));
  return fmt::format("{} adds nothing; this host's own half is the slow one", transport);
}

std::optional<std::string> round_trip_line(const Run& run) {
  const Row* loop = nearest_row(run, true, 64);
  const Row* network = nearest_row(run, false, 64);
  if (!loop || !network || !loop->round_trips || !network->round_trips) return std::nullopt;
  const double here = loop->round_trips->p50_us, there = network->round_trips->p50_us;
  return fmt::format("{} there and back: {} us through memory here, {} us over {}: {}",
                     size_text(network->size), number_text(here), number_text(there),
                     network->transport, slow_half(here, there, network->transport));
}

std::optional<std::string> large_line(const Run& run) {
  const Row* loop = nearest_row(run, true, 4u << 20);
  const Row* network = nearest_row(run, false, 4u << 20);
  if (!loop || !network || !loop->stream || !network->stream) return std::nullopt;
  if (network->size < large_from) return std::nullopt;
  const double here = loop->stream->gb_per_s, there = network->stream->gb_per_s;
  return fmt::format("{} one way: {} GB/s through memory here, {} GB/s over {}: {}",
                     size_text(network->size), number_text(here), number_text(there),
                     network->transport, slow_half(1 / here, 1 / there, network->transport));
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// A character for each value, between the least and the greatest.
std::string bars_of(const std::vector<double>& values, bool unicode) {
  static constexpr const char* tall[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* plain[] = {"_", "_", ".", ".", "-", "-", "^", "^"};
  const auto [low, high] = std::ranges::minmax(values);
  std::string text;
  for (const double value : values) {
    const double share = high > low ? (value - low) / (high - low) : .5;
    const auto level = static_cast<std::size_t>(std::lround(share * 7));
    text += unicode ? tall[level] : plain[level];
  }
  return text;
}

/// One line of the comparison, or nothing.
void add_comparison(Table& table, const std::vector<Run>& earlier, bool polling, const Row& row,
                    const KeyFigure& figure, const Screen& screen) {
  constexpr std::size_t shown = 24;
  const auto now = figure.of(row);
  std::vector<double> values;
  for (const auto& value : history_of(earlier, polling, row, figure))
    if (value) values.push_back(*value);
  if (!now || values.empty()) return;
  const double before = median_of(values);
  values.push_back(*now);
  if (values.size() > shown)
    values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(shown));
  const double ratio = before > 0 ? *now / before : 1;
  const bool worse = figure.lower_is_better ? ratio > 1.1 : ratio < 1 / 1.1;
  const bool better = figure.lower_is_better ? ratio < 1 / 1.1 : ratio > 1.1;
  const Tone tone = worse ? Tone::warning : better ? Tone::good : Tone::plain;
  table.add_row({row.transport + (row.self_loop ? ", self-loop" : ""),
                 fmt::format("{}, {}", size_text(row.size), figure.name), number_text(*now),
                 number_text(before), figure.unit,
                 screen.paint(fmt::format("{:.2f} x", ratio), tone),
                 bars_of(values, screen.unicode())});
}

}  // namespace

std::string number_text(double value) {
  if (!std::isfinite(value)) return unknown;
  if (value >= 1000) return with_separators(static_cast<std::uint64_t>(std::llround(value)));
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  if (value >= .1 || value == 0) return fmt::format("{:.2f}", value);
  return fmt::format("{:.4f}", value);
}

std::string table_text(const std::vector<Row>& rows, bool self_loop, const Screen& screen) {
  Table table({{"size"},
               {"p50 us"},
               {"p99 us"},
               {"p99.9 us"},
               {"max us"},
               {"messages/s"},
               {"GB/s"},
               {"CPU s/GB"},
               {"CPU s/M"},
               {"checked"},
               {"wrong"}});
  bool any = false;
  for (const Row& row : rows) {
    if (row.self_loop != self_loop) continue;
    table.add_row(cells_of(row, screen));
    any = true;
  }
  return any ? table.render(screen) : std::string();
}

std::vector<std::string> verdict(const Run& run) {
  std::vector<std::string> lines;
  if (const auto line = round_trip_line(run)) lines.push_back(*line);
  if (const auto line = large_line(run)) lines.push_back(*line);
  if (std::ranges::any_of(run.rows, [](const Row& row) { return row.transport == "soft-rdma"; }))
    lines.emplace_back("soft-rdma is emulated by Linux: these figures say nothing of a card");
  return lines;
}

const std::vector<KeyFigure>& key_figures() {
  static const std::vector<KeyFigure> figures = {
      {"round trip p50", "us", true,
       [](const Row& row) {
         return row.round_trips ? std::optional(row.round_trips->p50_us) : std::nullopt;
       },
       64},
      {"round trip p99", "us", true,
       [](const Row& row) {
         return row.round_trips ? std::optional(row.round_trips->p99_us) : std::nullopt;
       },
       64},
      {"rate", "messages/s", false,
       [](const Row& row) {
         return row.stream ? std::optional(row.stream->messages_per_s) : std::nullopt;
       },
       64},
      {"bandwidth", "GB/s", false,
       [](const Row& row) {
         return row.stream ? std::optional(row.stream->gb_per_s) : std::nullopt;
       },
       4u << 20},
      {"CPU", "s/GB", true,
       [](const Row& row) {
         return row.stream ? std::optional(row.stream->cpu_s_per_gb) : std::nullopt;
       },
       4u << 20}};
  return figures;
}

const Row* nearest_row(const Run& run, bool self_loop, std::uint64_t size) {
  const auto distance = [size](const Row& row) {
    return std::abs(std::log2(static_cast<double>(row.size)) -
                    std::log2(static_cast<double>(size)));
  };
  const Row* nearest = nullptr;
  for (const Row& row : run.rows)
    if (row.self_loop == self_loop && (!nearest || distance(row) < distance(*nearest)))
      nearest = &row;
  return nearest;
}

std::vector<std::optional<double>> history_of(const std::vector<Run>& runs, bool polling,
                                              const Row& row, const KeyFigure& figure) {
  std::vector<std::optional<double>> values;
  for (const Run& run : runs) {
    auto& value = values.emplace_back();
    if (run.polling != polling) continue;
    for (const Row& other : run.rows)
      if (other.self_loop == row.self_loop && other.size == row.size &&
          other.transport == row.transport)
        value = figure.of(other);
  }
  return values;
}

std::string history_text(const std::vector<Run>& earlier, const Run& run, const Screen& screen) {
  using enum Table::Align;
  Table table({{"transport", left},
               {"figure", left},
               {"now"},
               {"median before"},
               {"", left},
               {"now / before"},
               {"runs, this one last", left}});
  std::string text;
  for (const bool self_loop : {true, false})
    for (const KeyFigure& figure : key_figures())
      if (const Row* row = nearest_row(run, self_loop, figure.size))
        add_comparison(table, earlier, run.polling, *row, figure, screen);
  return table.empty() ? std::string() : table.render(screen);
}

}  // namespace hyperframes::tools::perf
