#include <hyperframes/apps/tools/progress.hpp>
//
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>

namespace hyperframes::tools {
namespace {

bool variable_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool is_capable_terminal(int file) {
  const char* kind = std::getenv("TERM");
  return ::isatty(file) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

// The first of these that is set decides, as for every program with a locale.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!variable_set(name)) continue;
    const std::string_view value = std::getenv(name);
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  }
  return false;
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody looks any more
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// The length of the escape sequence that `text` begins with, or 0.
std::size_t escape_length(std::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b' || text[1] != '[') return 0;
  std::size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

// The length of the UTF-8 sequence that `text` begins with; a stray byte counts as one.
std::size_t code_point_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
    ++length;
  return length;
}

constexpr std::string_view hide_cursor = "\x1b[?25l";
constexpr std::string_view show_cursor = "\x1b[?25h";
constexpr std::string_view reset_tone = "\x1b[0m";

}  // namespace

// ---- Screen
// --------------------------------------------------------------------------------------

Screen::Screen(Options options)
    : options_(options),
      terminal_(options.terminal.value_or(is_capable_terminal(options.file))),
      colours_(options.colours.value_or(terminal_ && !variable_set("NO_COLOR"))),
      unicode_(options.unicode.value_or(locale_is_utf8())) {}

Screen::~Screen() {
  if (shown_ != 0) write_all(options_.file, show_cursor);
}

std::size_t Screen::width() const {
  if (options_.width) return *options_.width;
  winsize size = {};
  if (::ioctl(options_.file, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) return size.ws_col;
  return 80;
}

void Screen::refresh(const std::vector<std::string>& lines, std::string_view plain) {
  if (terminal_) return draw(lines, {});
  const Time now = Clock::read_system();
  if (last_plain_ && now - *last_plain_ < options_.plain_interval) return;
  last_plain_ = now;
  if (!plain.empty()) write_all(options_.file, std::string(plain) + "\n");
}

void Screen::print(std::string_view text) {
  std::string line(text);
  if (!line.ends_with('\n')) line += '\n';
  if (terminal_)
    draw(std::vector<std::string>(last_lines_), line);
  else
    write_all(options_.file, line);
}

void Screen::clear() {
  draw({}, {});
  last_plain_.reset();
}

// One write for a whole picture, so that it never shows in halves.
void Screen::draw(const std::vector<std::string>& lines, std::string_view above) {
  if (!terminal_) return;
  std::string picture;
  if (shown_ != 0) picture += fmt::format("\x1b[{}F\x1b[J", shown_);
  picture += above;
  const std::size_t cells = std::max<std::size_t>(width(), 2) - 1;
  for (const std::string& line : lines) picture += cut_to_width(line, cells) + "\n";
  if (shown_ == 0 && !lines.empty()) picture.insert(0, hide_cursor);
  if (shown_ != 0 && lines.empty()) picture += show_cursor;
  shown_ = lines.size();
  last_lines_ = lines;
  write_all(options_.file, picture);
}

std::string Screen::paint(std::string_view text, Tone tone) const {
  static constexpr std::array<std::string_view, 6> codes = {"",         "\x1b[1m",  "\x1b[2m",
                                                            "\x1b[32m", "\x1b[33m", "\x1b[31m"};
  if (!colours_ || tone == Tone::plain) return std::string(text);
  return fmt::format("{}{}{}", codes[static_cast<std::size_t>(tone)], text, reset_tone);
}

std::string Screen::bar(double fraction, std::size_t cells) const {
  static constexpr std::array<std::string_view, 8> parts = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled =
      std::clamp(std::isnan(fraction) ? 0.0 : fraction, 0.0, 1.0) * static_cast<double>(cells);
  const auto whole = static_cast<std::size_t>(filled);
  std::string text;
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (cell < whole)
      text += unicode_ ? "█" : "#";
    else if (cell == whole && unicode_)
      text += parts[static_cast<std::size_t>((filled - static_cast<double>(whole)) * 8)];
    else
      text += unicode_ ? " " : "-";
  }
  return unicode_ ? "▕" + paint(text, Tone::good) + "▏" : "[" + text + "]";
}

// ---- Table
// ---------------------------------------------------------------------------------------

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.emplace_back(std::move(cells));
}

void Table::add_rule() { rows_.emplace_back(); }

std::string Table::render(const Screen& screen) const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    widths.push_back(display_width(columns_[column].title));
    for (const auto& row : rows_)
      if (row) widths[column] = std::max(widths[column], display_width((*row)[column]));
  }
  const auto line_of = [&](const std::vector<std::string>& cells, Tone tone) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string gap(widths[column] - display_width(cells[column]), ' ');
      const std::string text = screen.paint(cells[column], tone);
      if (column != 0) line += "  ";
      line += columns_[column].align == Align::left ? text + gap : gap + text;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  };
  std::vector<std::string> titles;
  std::string rule;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    titles.push_back(columns_[column].title);
    rule += std::string(column == 0 ? 0 : 2, ' ') + std::string(widths[column], '-');
  }
  const bool has_head = std::any_of(titles.begin(), titles.end(),
                                    [](const std::string& title) { return !title.empty(); });
  std::string text = has_head ? line_of(titles, Tone::bold) + rule + "\n" : "";
  for (const auto& row : rows_) text += row ? line_of(*row, Tone::plain) : rule + "\n";
  return text;
}

// ---- Texts
// ---------------------------------------------------------------------------------------

std::size_t display_width(std::string_view text) {
  std::size_t cells = 0;
  while (!text.empty()) {
    const std::size_t escape = escape_length(text);
    if (escape == 0) ++cells;
    text.remove_prefix(escape != 0 ? escape : code_point_length(text));
  }
  return cells;
}

std::string cut_to_width(std::string_view text, std::size_t cells) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t escape = escape_length(text);
    const std::size_t length = escape != 0 ? escape : code_point_length(text);
    if (escape != 0)
      kept += text.substr(0, length);
    else if (cells != 0) {
      kept += text.substr(0, length);
      --cells;
    }
    text.remove_prefix(length);
  }
  return kept;
}

std::string wrap_text(std::string_view text, std::size_t cells, std::size_t indent) {
  std::string wrapped;
  std::size_t used = 0;  // cells of the line under way
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    const std::size_t size = display_width(word);
    if (used != 0 && used + 1 + size > cells) {
      wrapped += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (used != 0) {
      wrapped += ' ';
      ++used;
    }
    wrapped += word;
    used += size;
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return wrapped;
}

std::string with_separators(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_separators(count), noun, count == 1 ? "" : "s");
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::string_view unit;
  for (const std::string_view next : {"kB", "MB", "GB", "TB"}) {
    if (!unit.empty() && value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string minutes_text(Duration span) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(span).count();
  return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
}

}  // namespace hyperframes::tools
