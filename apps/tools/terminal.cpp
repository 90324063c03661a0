#include <hyperframes/apps/tools/terminal.hpp>

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <hyperframes/runtime/error.hpp>
#include <string_view>

namespace hyperframes::tools {
namespace {

// The other screen, no cursor, and no line that goes on in the next: characters may be wider than
// we think.
constexpr std::string_view enter_screen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view leave_screen = "\x1b[?7h\x1b[?25h\x1b[?1049l";

void write_all(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody is there to see it
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

struct Terminal::Before {
  termios modes{};
  sigset_t signals{};
};

bool Terminal::available() {
  const char* const kind = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO) && kind && *kind &&
         std::string_view(kind) != "dumb";
}

Terminal::Terminal() : before_(std::make_unique<Before>()) {
  if (!available())
    throw Error(Errc::invalid_argument, "take the terminal",
                "standard input or output is none that can be drawn on (TERM)",
                "run it in a terminal");
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH})
    ::sigaddset(&signals, signal);
  signal_file_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  wake_file_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (signal_file_ < 0 || wake_file_ < 0 || ::tcgetattr(STDIN_FILENO, &before_->modes) != 0) {
    const int failure = errno;
    close_files();
    throw Error::system(failure, "take the terminal");
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_->signals);
  take();
}

Terminal::~Terminal() {
  give_back();
  close_files();
  ::pthread_sigmask(SIG_SETMASK, &before_->signals, nullptr);
}

void Terminal::close_files() noexcept {
  for (const int file : {signal_file_, wake_file_})
    if (file >= 0) ::close(file);
}

void Terminal::take() noexcept {
  termios raw = before_->modes;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // signals by keys are kept
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  write_all(enter_screen);
}

void Terminal::give_back() noexcept {
  write_all(leave_screen);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_->modes);
}

void Terminal::stop_and_continue() noexcept {
  give_back();
  ::raise(SIGSTOP);  // until somebody brings it to the foreground again
  take();
}

Terminal::Size Terminal::size() const {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 && size.ws_row != 0)
    return {size.ws_col, size.ws_row};
  return {};
}

// One write for a whole picture, so that it never shows in halves.
void Terminal::draw(const std::vector<std::string>& lines) {
  std::string picture = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i)
    picture += (i > 0 ? "\r\n" : "") + lines[i] + "\x1b[0m\x1b[K";
  picture += "\x1b[J";
  write_all(picture);
}

void Terminal::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_file_, &one, sizeof one);
}

Terminal::News Terminal::wait(Duration span) {
  News news;
  pollfd files[] = {{STDIN_FILENO, POLLIN, 0}, {signal_file_, POLLIN, 0}, {wake_file_, POLLIN, 0}};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
  if (::poll(files, std::size(files), static_cast<int>(ms)) <= 0) return news;
  if (files[0].revents & POLLIN) {
    char bytes[256];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got > 0) news.bytes.assign(bytes, static_cast<std::size_t>(got));
    news.gone = got == 0;
  } else if (files[0].revents) {
    news.gone = true;
  }
  signalfd_siginfo signal{};
  while (::read(signal_file_, &signal, sizeof signal) == sizeof signal) {
    const int number = static_cast<int>(signal.ssi_signo);
    if (number == SIGTSTP) {
      stop_and_continue();
    } else if (number == SIGCONT) {
      take();  // it was stopped by somebody else; a shell has had the terminal meanwhile
    } else if (number != SIGWINCH) {
      news.signal = number;
    }
  }
  std::uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(wake_file_, &count, sizeof count);
  return news;
}

}  // namespace hyperframes::tools
