#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace hyperframes {
namespace detail {
namespace {

struct Armed {
  std::string name, action;
  unsigned long number = 1;
  std::atomic<unsigned long> passages{0};
};

/// They stay where they are while others come and go.
std::deque<Armed>& armed() {
  static std::deque<Armed> points;
  return points;
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
  for (const char* known : {"kill", "stop", "sleep", "error", "throw", "plant"})
    if (point.action == known) return {};
  return "there is no action '" + point.action + "'";
}

constexpr const char* usage =
    "give it as NAME=ACTION or NAME=ACTION:NUMBER, with kill, stop, sleep, error, throw or plant "
    "as "
    "the action";

// Runs before main, where nothing catches and no log is set up: what is wrong is said, and no point
// is armed.
bool read_environment() {
  const char* text = std::getenv("HYPERFRAMES_FAILPOINT");
  if (!text || !*text) return false;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    const std::string fault = parse(one, armed().emplace_back());
    if (fault.empty()) continue;
    armed().clear();
    std::fprintf(stderr, "HYPERFRAMES_FAILPOINT='%s' arms nothing: %s; %s\n", text, fault.c_str(),
                 usage);
    return false;
  }
  return true;
}

void pass(Armed& point) {
  if (point.action == "plant") return;
  if (point.action == "sleep") {
    std::this_thread::sleep_for(std::chrono::milliseconds(point.number));
    return;
  }
  if (point.passages.fetch_add(1) + 1 != point.number) return;
  const std::string tried = "pass the failpoint '" + point.name + "'";
  if (point.action == "kill") ::kill(::getpid(), SIGKILL);
  if (point.action == "stop") ::kill(::getpid(), SIGSTOP);
  if (point.action == "error") throw Error(Errc::internal, tried, "it is armed");
  if (point.action == "throw") throw std::runtime_error(tried + ": it is armed");
}

}  // namespace

std::atomic<bool> failpoints_armed = read_environment();

void pass_failpoint(const char* name) {
  for (Armed& point : armed())
    if (point.name == name) pass(point);
}

bool is_planted(const char* name) {
  for (const Armed& point : armed())
    if (point.name == name && point.action == "plant") return true;
  return false;
}

}  // namespace detail

ArmedFailpoint::ArmedFailpoint(const std::string& what) {
  detail::Armed& point = detail::armed().emplace_back();
  const std::string fault = detail::parse(what, point);
  if (!fault.empty()) {
    detail::armed().pop_back();
    throw Error(Errc::invalid_argument, "arm the failpoint '" + what + "'", fault, detail::usage);
  }
  point_ = &point;
  detail::failpoints_armed = true;
}

// Its place stays, as others point behind it; the name that nothing has is never met.
ArmedFailpoint::~ArmedFailpoint() {
  auto& points = detail::armed();
  static_cast<detail::Armed*>(point_)->name.clear();
  while (!points.empty() && points.back().name.empty()) points.pop_back();
  detail::failpoints_armed = !points.empty();
}

bool ArmedFailpoint::passed() const noexcept {
  const auto& point = *static_cast<const detail::Armed*>(point_);
  return point.passages.load() >= point.number;
}

}  // namespace hyperframes
