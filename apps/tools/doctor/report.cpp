#include <hyperframes/apps/tools/doctor/report.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace hyperframes::tools::doctor {
namespace {

constexpr std::size_t gap = 2, title_at = gap + 4 + gap, least_cells = 30;

std::string label(Status status, const Screen& screen) {
  switch (status) {
    case Status::pass: return screen.paint("PASS", Tone::good);
    case Status::warn: return screen.paint("WARN", Tone::warning);
    case Status::fail: return screen.paint("FAIL", Tone::bad);
    case Status::none: return screen.paint("none", Tone::dim);
  }
  return "";
}

std::string title(const Check& check) {
  return check.subject.empty() ? check.name : check.name + ", " + check.subject;
}

/// Where what was measured begins, and where lines end.
struct Columns {
  std::size_t text = 0, end = 0;

  Columns(const Checks& checks, std::size_t columns) {
    for (const Check& check : checks) text = std::max(text, display_width(title(check)));
    text += title_at + gap;
    end = std::max(columns, text + least_cells);
  }
};

/// `text` in lines that all begin at cell `at`; those after the first `hanging` cells later.
std::string block_of(std::string_view text, std::size_t at, std::size_t end, std::size_t hanging) {
  std::string block = wrap_text(text, end - at, hanging);
  const std::string indent(at, ' ');
  for (std::size_t line = block.find('\n'); line != block.npos; line = block.find('\n', line + 1))
    block.insert(line + 1, indent);
  return block + "\n";
}

// Commands begin early in their line, so that most are whole on it and can be copied.
void add_check(std::string& text, const Check& check, const Screen& screen,
               const Columns& columns) {
  const std::string words = title(check);
  text += std::string(gap, ' ') + label(check.status, screen) + std::string(gap, ' ') + words +
          std::string(columns.text - title_at - display_width(words), ' ') +
          block_of(check.measured, columns.text, columns.end, 0);
  if (check.status != Status::warn && check.status != Status::fail) return;
  const std::string indent(title_at, ' ');
  text += indent + block_of("needed: " + check.needed, title_at, columns.end, 8);
  text += indent + block_of("mend:   " + check.remedy, title_at, columns.end, 8);
}

std::string summary(const Checks& checks, const Screen& screen) {
  const auto part = [&](Status status, std::string_view what, Tone tone) {
    const std::size_t number = count(checks, status);
    const std::string text = fmt::format("{} {}", number, what);
    return number == 0 ? text : screen.paint(text, tone);
  };
  return part(Status::pass, "PASS", Tone::good) + ", " + part(Status::warn, "WARN", Tone::warning) +
         ", " + part(Status::fail, "FAIL", Tone::bad) + ", " +
         fmt::format("{} not there or not seen", count(checks, Status::none));
}

}  // namespace

std::string report_text(const Report& report, const Screen& screen, std::size_t columns) {
  const Columns widths(report.checks, columns);
  std::string text = fmt::format("{}: {}, Linux {}\n",
                                 screen.paint("hyperframes doctor " + report.version, Tone::bold),
                                 report.host, report.kernel);
  std::string_view group;
  for (const Check& check : report.checks) {
    if (check.group != group) text += "\n" + screen.paint(check.group, Tone::bold) + "\n";
    group = check.group;
    add_check(text, check, screen, widths);
  }
  return text + "\n" + summary(report.checks, screen) + "\n";
}

std::string report_json(const Report& report) {
  nlohmann::ordered_json all = {
      {"host", report.host}, {"kernel", report.kernel}, {"version", report.version}};
  for (const Status status : {Status::pass, Status::warn, Status::fail, Status::none})
    all[std::string(name(status))] = count(report.checks, status);
  auto& checks = all["checks"] = nlohmann::ordered_json::array();
  for (const Check& check : report.checks)
    checks.push_back({{"group", check.group},
                      {"name", check.name},
                      {"subject", check.subject},
                      {"status", name(check.status)},
                      {"measured", check.measured},
                      {"needed", check.needed},
                      {"remedy", check.remedy}});
  // What a host's files say need not be UTF-8.
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace hyperframes::tools::doctor
