// Named places where a fault test can end, freeze or slow this process.
//
//   co_await hf::failpoint("log-after-write");
//   HYPERFRAMES_FAILPOINT="log-after-write=kill:20" hyperframes_server ...    // the 20th time
//
// Actions: kill (SIGKILL to itself), stop (SIGSTOP to itself), sleep:MS (each passage blocks its
// shard for so long), error (throws Errc::internal), throw (throws what is no hf::Error, as a bug
// would), plant (`planted` is true: what stands there is left out or done wrong). A number behind
// kill, stop, error and throw says which passage acts, of the whole process; without it the first
// does. The variable arms one failpoint, or several with commas between, and is read once, at the
// start; without it a failpoint costs one load. `ArmedFailpoint` arms further ones from within. For
// tests only.
#pragma once

#include <atomic>
#include <coroutine>
#include <string>

namespace hyperframes {
namespace detail {
extern std::atomic<bool> failpoints_armed;
void pass_failpoint(const char* name);
bool is_planted(const char* name);
/// The same where there is no coroutine to await it.
inline void pass_failpoint_now(const char* name) {
  if (failpoints_armed.load(std::memory_order_relaxed)) pass_failpoint(name);
}
/// Whether the fault of that name is to be there.
inline bool planted(const char* name) {
  return failpoints_armed.load(std::memory_order_relaxed) && is_planted(name);
}
}  // namespace detail

/// Arms a failpoint of this process for as long as it lives, besides others. Made and destroyed
/// while no other thread can pass one: for the simulator, whose nodes are one thread.
class ArmedFailpoint {
 public:
  /// As the variable has it: NAME=ACTION or NAME=ACTION:NUMBER. Throws Errc::invalid_argument.
  explicit ArmedFailpoint(const std::string& what);
  ~ArmedFailpoint();
  ArmedFailpoint(const ArmedFailpoint&) = delete;
  ArmedFailpoint& operator=(const ArmedFailpoint&) = delete;
  /// Whether its passage has come.
  bool passed() const noexcept;

 private:
  void* point_;
};

class FailpointAwaiter {
 public:
  explicit FailpointAwaiter(const char* name) noexcept : name_(name) {}
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  void await_resume() const { detail::pass_failpoint_now(name_); }

 private:
  const char* name_;
};

/// Never suspends. `name` must stay valid: use a literal.
[[nodiscard]] inline FailpointAwaiter failpoint(const char* name) noexcept {
  return FailpointAwaiter(name);
}

}  // namespace hyperframes
