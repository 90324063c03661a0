// What a long-running command shows: lines refreshed in place on a terminal, plain lines elsewhere.
//
//   tools::Screen screen({.file = STDERR_FILENO});
//   screen.refresh({screen.bar(.4, 24) + " 40 %", "server-0  up"}, "40 %");   // again and again
//   screen.print("server-0 was killed");                    // stays, above the refreshed lines
//
// Where the file is no terminal, `refresh` prints its plain text now and then, and nothing is
// coloured. One thread at a time.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/time.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools {

enum class Tone : std::uint8_t { plain, bold, dim, good, warning, bad };

class Screen {
 public:
  struct Options {
    int file = 2;                           ///< Standard error unless given.
    std::optional<bool> terminal = {};      ///< Empty: ask the file.
    std::optional<bool> colours = {};       ///< Empty: on a terminal, unless NO_COLOR is set.
    std::optional<bool> unicode = {};       ///< Empty: what the locale's variables say.
    std::optional<std::size_t> width = {};  ///< Empty: ask the terminal, at each refresh.
    Duration plain_interval = 5s;           ///< Between plain texts where there is no terminal.
  };

  explicit Screen(Options options);
  ~Screen();  ///< Leaves the last lines where they are, and the cursor shown.
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// Replaces what the last refresh showed. Lines wider than the terminal are cut.
  void refresh(const std::vector<std::string>& lines, std::string_view plain);
  /// Prints text that stays, above the refreshed lines. A newline is added where it has none.
  void print(std::string_view text);
  /// Takes the refreshed lines away.
  void clear();

  bool terminal() const noexcept { return terminal_; }
  /// Whether more than ASCII may be printed.
  bool unicode() const noexcept { return unicode_; }
  std::size_t width() const;
  std::string paint(std::string_view text, Tone tone) const;
  /// `fraction` of `cells` filled; out of range is brought into it.
  std::string bar(double fraction, std::size_t cells) const;

 private:
  void draw(const std::vector<std::string>& lines, std::string_view above);

  Options options_;
  bool terminal_;
  bool colours_;
  bool unicode_;
  std::size_t shown_ = 0;                // lines that stand on the terminal now
  std::vector<std::string> last_lines_;  // and what they say
  std::optional<Time> last_plain_;
};

/// Columns, each as wide as its widest cell; cells may be painted. Without any title there is no
/// head.
class Table {
 public:
  enum class Align : std::uint8_t { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };
  explicit Table(std::vector<Column> columns);
  /// Fewer cells than columns leave the rest empty.
  void add_row(std::vector<std::string> cells);
  /// A line between the rows before and after it.
  void add_rule();
  bool empty() const noexcept { return rows_.empty(); }
  /// Every line ends in a newline. The title row is painted bold where the screen has colours.
  std::string render(const Screen& screen) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::optional<std::vector<std::string>>> rows_;  // empty: a rule
};

/// Terminal cells that a text takes: escape sequences take none, and a code point one.
std::size_t display_width(std::string_view text);
/// At most `cells` of `text`, which keeps its escape sequences.
std::string cut_to_width(std::string_view text, std::size_t cells);
/// Lines of at most `cells`, broken at spaces, all but the first indented by `indent`; a longer
/// word stays whole. Without a newline at the end.
std::string wrap_text(std::string_view text, std::size_t cells, std::size_t indent = 0);
/// "1,234,567".
std::string with_separators(std::uint64_t value);
/// "1 actor", "1,024 actors".
std::string counted(std::uint64_t count, std::string_view noun);
/// "830 B", "12.4 MB".
std::string bytes_text(std::uint64_t bytes);
/// "0:07", "12:30".
std::string minutes_text(Duration span);

}  // namespace hyperframes::tools
