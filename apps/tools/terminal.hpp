// A terminal that a program has to itself: other screen, keys as they are pressed, no cursor.
//
//   Terminal terminal;                             // takes it; signals come through it from now on
//   terminal.draw(lines);
//   const Terminal::News news = terminal.wait(1s);  // keys, a new size, or a wish to end
//
// It is given back however the program ends, also by SIGINT, SIGTERM or SIGHUP, which `wait`
// reports instead; Control and Z gives it back while the program is stopped. One at a time, and
// made before any thread, which then leaves these signals to it.
#pragma once

#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::tools {

class Terminal {
 public:
  struct News {
    std::string bytes;  ///< What was typed.
    int signal = 0;     ///< That asks the program to end.
    bool gone = false;  ///< Nobody is at the terminal any more.
  };

  /// Throws invalid_argument where standard input and output are no terminal.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Whether standard input and output are a terminal that can be taken.
  static bool available();

  struct Size {
    std::size_t columns = 80, rows = 24;
  };
  Size size() const;
  /// Replaces what it shows.
  void draw(const std::vector<std::string>& lines);
  /// Until something comes, or `span` has passed, or `wake` was called.
  News wait(Duration span);
  /// From any thread.
  void wake() noexcept;

 private:
  void take() noexcept;
  void give_back() noexcept;
  void stop_and_continue() noexcept;
  void close_files() noexcept;

  struct Before;
  std::unique_ptr<Before> before_;  ///< How the terminal and the thread's signals were.
  int signal_file_ = -1, wake_file_ = -1;
};

}  // namespace hyperframes::tools
