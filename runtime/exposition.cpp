#include <hyperframes/runtime/exposition.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hyperframes {
namespace {

/// A name without its unit, and what one of that unit is in the base unit.
struct Unit {
  std::string name;
  double scale = 1;
};

Unit in_seconds(std::string_view name) {
  constexpr std::string_view total = "_total";
  const bool grows = name.ends_with(total);
  std::string_view stem = name;
  if (grows) stem.remove_suffix(total.size());
  constexpr std::pair<std::string_view, double> units[] = {
      {"_ns", 1e-9}, {"_us", 1e-6}, {"_ms", 1e-3}};
  for (const auto& [suffix, scale] : units) {
    if (!stem.ends_with(suffix)) continue;
    stem.remove_suffix(suffix.size());
    return {std::string(stem) + "_seconds" + (grows ? "_total" : ""), scale};
  }
  return {std::string(name), 1};
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Whatever the locale says. Colons are for metrics' names, not for labels'.
std::string valid_name(std::string_view name, bool colons) {
  const auto fits = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
           (colons && c == ':');
  };
  std::string valid(name);
  for (char& c : valid)
    if (!fits(c)) c = '_';
  if (valid.empty() || is_digit(valid.front())) valid.insert(valid.begin(), '_');
  return valid;
}

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (c == '"' && quotes)) out += '\\';
    out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  constexpr double exact = 9e15;  // below it a whole number needs no exponent
  if (value == std::floor(value) && std::abs(value) < exact)
    return fmt::format("{}", static_cast<std::int64_t>(value));
  return fmt::format("{}", value);
}

/// Bytes of the UTF-8 character at the text's beginning; 0 if there is none.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xc2   ? 0
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                           : first < 0xf5 ? 4
                                          : 0;
  if (size == 0 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Longer than it need be, a surrogate, or beyond the last code point.
  const unsigned char second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90)) return 0;
  return size;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    valid += size > 0 ? text.substr(0, size) : "\xef\xbf\xbd";
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return valid;
}

Exposition::Family& Exposition::family(std::string_view name, std::string_view help,
                                       const char* type) {
  std::string valid = valid_name(name, true);
  for (Family& known : families_)
    if (known.name == valid) return known;
  return families_.emplace_back(valid, std::string(help.empty() ? name : help), type, "");
}

void Exposition::sample(Family& family, std::string_view suffix, const Labels& labels,
                        double value) {
  std::string& text = family.samples;
  text += family.name;
  text += suffix;
  for (std::size_t i = 0; i < labels.size(); ++i)
    text += (i == 0 ? "{" : ",") + valid_name(labels[i].first, false) + "=\"" +
            escaped(labels[i].second, true) + "\"";
  text += (labels.empty() ? " " : "} ") + number(value) + "\n";
}

void Exposition::counter(std::string_view name, std::string_view help, const Labels& labels,
                         double value) {
  sample(family(name, help, "counter"), "", labels, value);
}

void Exposition::gauge(std::string_view name, std::string_view help, const Labels& labels,
                       double value) {
  sample(family(name, help, "gauge"), "", labels, value);
}

void Exposition::fill(Family& family, const Labels& labels, const Histogram& values, double unit) {
  int last = 64;
  while (last > 0 && values.buckets()[last] == 0) --last;
  std::uint64_t below = 0;
  Labels with_bound = labels;
  with_bound.emplace_back("le", "");
  for (int width = 0; width <= last && width < 64; ++width) {
    below += values.buckets()[width];
    const double bound = static_cast<double>((std::uint64_t{1} << width) - 1);
    with_bound.back().second = number(bound * unit);
    sample(family, "_bucket", with_bound, static_cast<double>(below));
  }
  with_bound.back().second = "+Inf";
  sample(family, "_bucket", with_bound, static_cast<double>(values.count()));
  sample(family, "_sum", labels, static_cast<double>(values.sum()) * unit);
  sample(family, "_count", labels, static_cast<double>(values.count()));
}

void Exposition::histogram(std::string_view name, std::string_view help, const Labels& labels,
                           const Histogram& values) {
  fill(family(name, help, "histogram"), labels, values, 1);
}

void Exposition::add(const Metrics& metrics, const Labels& labels) {
  metrics.for_each_counter(
      [&](const std::string& name, const std::string& help, const Counter& counter) {
        const Unit unit = in_seconds(name);
        const char* type = name.ends_with("_total") ? "counter" : "gauge";
        sample(family(unit.name, help, type), "", labels,
               static_cast<double>(counter.value()) * unit.scale);
      });
  metrics.for_each_histogram(
      [&](const std::string& name, const std::string& help, const Histogram& histogram) {
        const Unit unit = in_seconds(name);
        fill(family(unit.name, help, "histogram"), labels, histogram, unit.scale);
      });
}

std::string Exposition::text() const {
  std::string text;
  for (const Family& family : families_)
    text += "# HELP " + family.name + " " + escaped(family.help, false) + "\n# TYPE " +
            family.name + " " + family.type + "\n" + family.samples;
  return text;
}

}  // namespace hyperframes
