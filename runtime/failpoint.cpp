#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <string>
#include <thread>

namespace hyperframes::detail {
namespace {

struct Armed {
  std::string name, action;
  unsigned long number = 1;
  std::atomic<unsigned long> passages{0};
};

Armed& armed() {
  static Armed instance;
  return instance;
}

// NAME=ACTION or NAME=ACTION:NUMBER; empty if `value` is, or what is wrong with it.
std::string parse(const std::string& value, Armed& point) {
  const auto equals = value.find('=');
  if (equals == std::string::npos || equals == 0) return "there is no '=' behind a name";
  point.name = value.substr(0, equals);
  point.action = value.substr(equals + 1);
  if (const auto colon = point.action.find(':'); colon != std::string::npos) {
    const char* const begin = point.action.data() + colon + 1;
    const char* const end = point.action.data() + point.action.size();
    const auto [rest, fault] = std::from_chars(begin, end, point.number);
    if (fault != std::errc() || rest != end || point.number == 0)
      return "'" + std::string(begin, end) + "' is no number from 1";
    point.action.resize(colon);
  }
  for (const char* known : {"kill", "stop", "sleep", "error"})
    if (point.action == known) return {};
  return "there is no action '" + point.action + "'";
}

// Runs before main, where nothing catches and no log is set up: what is wrong is said, and no point
// is armed.
bool read_environment() {
  const char* text = std::getenv("HYPERFRAMES_FAILPOINT");
  if (!text || !*text) return false;
  const std::string fault = parse(text, armed());
  if (fault.empty()) return true;
  std::fprintf(stderr,
               "HYPERFRAMES_FAILPOINT='%s' arms nothing: %s; give it as NAME=ACTION or "
               "NAME=ACTION:NUMBER, with kill, stop, sleep or error as the action\n",
               text, fault.c_str());
  return false;
}

}  // namespace

const bool failpoints_armed = read_environment();

void pass_failpoint(const char* name) {
  Armed& point = armed();
  if (point.name != name) return;
  if (point.action == "sleep") {
    std::this_thread::sleep_for(std::chrono::milliseconds(point.number));
    return;
  }
  if (point.passages.fetch_add(1) + 1 != point.number) return;
  if (point.action == "kill") ::kill(::getpid(), SIGKILL);
  if (point.action == "stop") ::kill(::getpid(), SIGSTOP);
  if (point.action == "error")
    throw Error(Errc::internal, std::string("pass the failpoint '") + name + "'", "it is armed");
}

}  // namespace hyperframes::detail
