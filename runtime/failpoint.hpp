// Named places where a fault test can end, freeze or slow this process.
//
//   co_await hf::failpoint("log-after-write");
//   HYPERFRAMES_FAILPOINT="log-after-write=kill:20" hyperframes_server ...    // the 20th time
//
// Actions: kill (SIGKILL to itself), stop (SIGSTOP to itself), sleep:MS (each passage blocks its
// shard for so long), error (throws Errc::internal). A number behind kill, stop and error says
// which passage acts, of the whole process; without it the first does. The variable arms one
// failpoint, and is read once, at the start; without it a failpoint costs one load. For tests only.
#pragma once

#include <coroutine>

namespace hyperframes {
namespace detail {
extern const bool failpoints_armed;
void pass_failpoint(const char* name);
/// The same where there is no coroutine to await it.
inline void pass_failpoint_now(const char* name) {
  if (failpoints_armed) pass_failpoint(name);
}
}  // namespace detail

class FailpointAwaiter {
 public:
  explicit FailpointAwaiter(const char* name) noexcept : name_(name) {}
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  void await_resume() const {
    if (detail::failpoints_armed) detail::pass_failpoint(name_);
  }

 private:
  const char* name_;
};

/// Never suspends. `name` must stay valid: use a literal.
[[nodiscard]] inline FailpointAwaiter failpoint(const char* name) noexcept {
  return FailpointAwaiter(name);
}

}  // namespace hyperframes
