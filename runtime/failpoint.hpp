// Named places where a fault test can end, freeze or slow this process.
//
//   co_await hf::failpoint("log-after-write");
//   HYPERFRAMES_FAILPOINT="log-after-write=kill:20" hyperframes_server ...    // the 20th time
//
// Actions: kill (SIGKILL to itself), stop (SIGSTOP to itself), sleep:MS, error (throws). A number
// behind kill, stop and error says which passage acts; without it the first does. Without the
// environment variable, which is read once, a failpoint costs one load.
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

inline FailpointAwaiter failpoint(const char* name) noexcept { return FailpointAwaiter(name); }

}  // namespace hyperframes
