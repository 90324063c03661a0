#include <hyperframes/apps/tools/perf/plot.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hyperframes::tools::perf {
namespace {

constexpr double width = 560, height = 300;
constexpr double left = 62, right = 14, top = 10, bottom = 34;

/// One direction of the plot: values to pixels.
class Axis {
 public:
  Axis(bool logarithmic, double from_pixel, double to_pixel)
      : logarithmic_(logarithmic), from_(from_pixel), to_(to_pixel) {}

  bool can_show(double value) const { return std::isfinite(value) && (!logarithmic_ || value > 0); }
  void include(double value) {
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  bool empty() const { return low_ > high_; }

  /// Widens it to round values and returns those, with the room between them.
  std::vector<double> round_values() {
    std::vector<double> values = logarithmic_ ? decades() : steps();
    low_ = values.front();
    high_ = values.back();
    return values;
  }
  /// Some room at both ends, where there are no round values.
  void pad() {
    if (low_ == high_) {
      low_ = logarithmic_ ? low_ / 2 : low_ - 1;
      high_ = logarithmic_ ? high_ * 2 : high_ + 1;
    }
  }
  double pixel(double value) const {
    const double share = (scale(value) - scale(low_)) / (scale(high_) - scale(low_));
    return from_ + share * (to_ - from_);
  }

 private:
  double scale(double value) const { return logarithmic_ ? std::log10(value) : value; }

  std::vector<double> decades() const {
    const int first = static_cast<int>(std::floor(std::log10(low_)));
    const int last = std::max(first + 1, static_cast<int>(std::ceil(std::log10(high_))));
    const bool few = last - first <= 2;
    std::vector<double> values;
    for (int power = first; power <= last; ++power)
      for (const double factor : {1.0, 2.0, 5.0})
        if ((factor == 1 || few) && (power < last || factor == 1))
          values.push_back(factor * std::pow(10.0, power));
    return values;
  }
  std::vector<double> steps() const {
    const double most = high_ > 0 ? high_ : 1;
    double step = std::pow(10.0, std::floor(std::log10(most)));
    if (most / step < 2)
      step /= 5;
    else if (most / step < 5)
      step /= 2;
    std::vector<double> values;
    for (int i = 0; i == 0 || values.back() < most; ++i) values.push_back(step * i);
    return values;
  }

  bool logarithmic_;
  double from_, to_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

std::string value_text(double value) {
  if (value >= 1e9) return fmt::format("{:g} G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:g} M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:g} k", value / 1e3);
  return fmt::format("{:g}", value);
}

std::string line_of(const Plot::Series& series, const Axis& x, const Axis& y) {
  std::string path, dots;
  bool pen_down = false;
  for (const Plot::Point& point : series.points) {
    if (!x.can_show(point.x) || !y.can_show(point.y)) {
      pen_down = false;
      continue;
    }
    const double px = x.pixel(point.x), py = y.pixel(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", px, py);
    dots += fmt::format(
        "<g class=\"dot\"><circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"3\"/>"
        "<circle class=\"reach\" cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"10\"/><title>{2}</title></g>",
        px, py, escape_html(point.says));
    pen_down = true;
  }
  return fmt::format("<g class=\"s{}{}\"><path d=\"{}\"/>{}</g>\n", series.colour,
                     series.dashed ? " dashed" : "", path, dots);
}

std::string legend_of(const std::vector<Plot::Series>& series) {
  if (series.size() < 2) return {};
  std::string text = "<div class=\"legend\">";
  for (const Plot::Series& one : series)
    text += fmt::format(
        "<span><svg width=\"22\" height=\"10\"><g class=\"s{}{}\"><path d=\"M0 5L22 5\"/></g></svg>"
        "{}</span>",
        one.colour, one.dashed ? " dashed" : "", escape_html(one.name));
  return text + "</div>";
}

/// Those of `ticks` that have room for their text.
std::string ticks_of(const std::vector<std::pair<double, std::string>>& ticks, const Axis& x) {
  constexpr double per_character = 6.4, gap = 8;
  std::string text;
  double free_from = 0;
  for (const auto& [value, label] : ticks) {
    if (!x.can_show(value)) continue;
    const double at = x.pixel(value);
    const double half = per_character * static_cast<double>(label.size()) / 2;
    const double middle = std::clamp(at, half, width - half);
    text += fmt::format("<path class=\"axis\" d=\"M{0:.1f} {1}L{0:.1f} {2}\"/>", at,
                        height - bottom, height - bottom + 4);
    if (middle - half < free_from) continue;
    free_from = middle + half + gap;
    text += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", middle,
                        height - bottom + 18, escape_html(label));
  }
  return text;
}

}  // namespace

std::string escape_html(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string Plot::render() const {
  Axis x(log_x, left, width - right), y(log_y, height - bottom, top);
  for (const Series& one : series)
    for (const Point& point : one.points)
      if (x.can_show(point.x) && y.can_show(point.y)) {
        x.include(point.x);
        y.include(point.y);
      }
  if (x.empty()) return {};
  x.pad();
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                                width, height, escape_html(title));
  for (const double value : y.round_values()) {
    const double at = y.pixel(value);
    svg += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}L{} {:.1f}\"/>", left, at, width - right,
                       at);
    svg += fmt::format("<text class=\"tick value\" x=\"{}\" y=\"{:.1f}\">{}</text>\n", left - 8,
                       at + 4, value_text(value));
  }
  svg += ticks_of(ticks, x);
  for (const Series& one : series) svg += line_of(one, x, y);
  return fmt::format("<figure><figcaption>{} <small>{}</small></figcaption>{}\n{}</svg></figure>\n",
                     escape_html(title), escape_html(unit), legend_of(series), svg);
}

}  // namespace hyperframes::tools::perf
