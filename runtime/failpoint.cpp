#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
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

bool read_environment() {
  const char* text = std::getenv("HYPERFRAMES_FAILPOINT");
  if (!text) return false;
  const std::string value(text);
  const auto equals = value.find('=');
  if (equals == std::string::npos) return false;
  Armed& point = armed();
  point.name = value.substr(0, equals);
  point.action = value.substr(equals + 1);
  if (const auto colon = point.action.find(':'); colon != std::string::npos) {
    point.number = std::strtoul(point.action.c_str() + colon + 1, nullptr, 10);
    point.action.resize(colon);
  }
  return true;
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
