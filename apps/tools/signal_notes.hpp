// A signal that asks a program to end, noted, for one that has something to do before that.
//
//   const SignalNotes notes;
//   while (work() && !notes.seen()) {}
//   return notes.seen() ? 128 + notes.seen() : 0;
#pragma once

#include <csignal>
#include <cstddef>

namespace hyperframes::tools {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP does not end this process, but a call that
/// waits in the kernel, with EINTR. The same signal again ends it: it may hang. One at a time.
class SignalNotes {
 public:
  SignalNotes();
  ~SignalNotes();
  SignalNotes(const SignalNotes&) = delete;
  /// The last of these signals since it was made; 0: there was none. From any thread.
  int seen() const noexcept;

 private:
  static constexpr std::size_t count = 3;
  static constexpr int signals[count] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[count];
};

}  // namespace hyperframes::tools
