#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools {
namespace {

// What is written to a file, taken out again.
class Capture {
 public:
  Capture() { REQUIRE(::pipe(ends_) == 0); }
  ~Capture() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int file() const { return ends_[1]; }
  std::string take() {
    if (::write(ends_[1], "\0", 1) != 1) return "";  // so that there is always something to read
    std::array<char, 8192> bytes;
    const ssize_t count = ::read(ends_[0], bytes.data(), bytes.size());
    return std::string(bytes.data(), static_cast<std::size_t>(count) - 1);
  }

 private:
  int ends_[2];
};

Screen::Options on_terminal(const Capture& capture, std::size_t width = 40) {
  return {
      .file = capture.file(), .terminal = true, .colours = false, .unicode = false, .width = width};
}

Screen plain_screen(bool unicode = false, bool colours = false) {
  return Screen({.file = -1, .terminal = false, .colours = colours, .unicode = unicode});
}

TEST_CASE("text is wrapped at spaces, by the cells that it takes") {
  CHECK(wrap_text("", 10).empty());
  CHECK(wrap_text("one two", 10) == "one two");
  CHECK(wrap_text("one two three", 8, 2) == "one two\n  three");
  CHECK(wrap_text("\x1b[32mone\x1b[0m two", 7) == "\x1b[32mone\x1b[0m two");
  CHECK(wrap_text("PASSED  two three", 11, 8) == "PASSED  two\n        three");
  CHECK(wrap_text("a/very/long/path and more", 8) == "a/very/long/path\nand more");
}

TEST_CASE("a refresh replaces the lines of the one before") {
  Capture capture;
  Screen screen(on_terminal(capture));
  screen.refresh({"one", "two"}, "ignored");
  CHECK(capture.take() == "\x1b[?25lone\ntwo\n");
  screen.refresh({"three"}, "ignored");
  CHECK(capture.take() == "\x1b[2F\x1b[Jthree\n");
  screen.clear();
  CHECK(capture.take() == "\x1b[1F\x1b[J\x1b[?25h");
}

TEST_CASE("a printed line stays above the refreshed ones") {
  Capture capture;
  Screen screen(on_terminal(capture));
  screen.refresh({"status"}, "");
  capture.take();
  screen.print("server-0 was killed");
  CHECK(capture.take() == "\x1b[1F\x1b[Jserver-0 was killed\nstatus\n");
}

TEST_CASE("the cursor comes back when a screen ends with lines on it") {
  Capture capture;
  {
    Screen screen(on_terminal(capture));
    screen.refresh({"status"}, "");
    capture.take();
  }
  CHECK(capture.take() == "\x1b[?25h");
}

TEST_CASE("a line wider than the terminal is cut, so that it can be replaced") {
  Capture capture;
  Screen screen(on_terminal(capture, 6));
  screen.refresh({"0123456789"}, "");
  CHECK(capture.take() == "\x1b[?25l01234\n");
}

TEST_CASE("where there is no terminal, plain text comes now and then and nothing is coloured") {
  Capture capture;
  Screen screen({.file = capture.file(), .plain_interval = 1h});
  CHECK_FALSE(screen.terminal());
  screen.refresh({"a bar"}, "10 % done");
  screen.refresh({"a bar"}, "20 % done");
  screen.print(screen.paint("server-0 was killed", Tone::bad));
  CHECK(capture.take() == "10 % done\nserver-0 was killed\n");
  screen.clear();
  screen.refresh({"a bar"}, "next: 0 % done");
  CHECK(capture.take() == "next: 0 % done\n");
}

TEST_CASE("a bar is as full as its fraction, whatever the fraction") {
  const Screen screen = plain_screen();
  CHECK(screen.bar(0, 4) == "[----]");
  CHECK(screen.bar(.5, 4) == "[##--]");
  CHECK(screen.bar(1, 4) == "[####]");
  CHECK(screen.bar(7, 4) == "[####]");
  CHECK(screen.bar(-1, 4) == "[----]");
  CHECK(screen.bar(0.0 / 0.0, 4) == "[----]");
  CHECK(plain_screen(true).bar(.625, 4) == "▕██▌ ▏");
}

TEST_CASE("escape sequences take no room and survive a cut") {
  CHECK(display_width("\x1b[31mred\x1b[0m") == 3);
  CHECK(display_width("▕██▌ ▏") == 6);
  CHECK(cut_to_width("\x1b[31mred\x1b[0m and more", 2) == "\x1b[31mre\x1b[0m");
  CHECK(display_width("\xff\x1b[") == 1);
}

TEST_CASE("a table is as wide as its cells") {
  Table table({{"server", Table::Align::left}, {"rows"}, {"state", Table::Align::left}});
  table.add_row({"server-0", "12,345", "up"});
  table.add_rule();
  table.add_row({"all", "7"});
  CHECK(table.render(plain_screen()) ==
        "server      rows  state\n"
        "--------  ------  -----\n"
        "server-0  12,345  up\n"
        "--------  ------  -----\n"
        "all            7\n");
}

TEST_CASE("painted cells keep a table's columns straight") {
  Table table({{"a"}, {"b"}});
  const Screen screen = plain_screen(false, true);
  table.add_row({screen.paint("1", Tone::good), "2"});
  table.add_row({"10", "20"});
  CHECK(table.render(screen).find(" \x1b[32m1\x1b[0m   2\n10  20\n") != std::string::npos);
}

TEST_CASE("a table without titles has no head") {
  Table table({{"", Table::Align::left}, {""}});
  table.add_row({"server-0", "7"});
  CHECK(table.render(plain_screen()) == "server-0  7\n");
}

TEST_CASE("numbers are written as people read them") {
  CHECK(with_separators(0) == "0");
  CHECK(with_separators(999) == "999");
  CHECK(with_separators(1234567) == "1,234,567");
  CHECK(counted(1, "actor") == "1 actor");
  CHECK(counted(0, "actor") == "0 actors");
  CHECK(counted(2'000, "actor") == "2,000 actors");
  CHECK(bytes_text(830) == "830 B");
  CHECK(bytes_text(12'400'000) == "12.4 MB");
  CHECK(bytes_text(999'960) == "1.0 MB");
  CHECK(minutes_text(7s) == "0:07");
  CHECK(minutes_text(750s) == "12:30");
}

}  // namespace
}  // namespace hyperframes::tools
