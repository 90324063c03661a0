// SIGINT and SIGTERM as a call, for the programs' main functions.
//
//   hf::ps::SignalWatch signals;        // before any thread is made: they inherit the mask
//   hf::Runtime runtime;
//   signals.start([&] { ask_to_stop(runtime); });   // called once, on a thread of its own
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace hyperframes::ps {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  void start(std::function<void()> arrived);
  /// After it, `arrived` is not called. To be called before what that refers to goes away.
  void end() noexcept;
  /// The signal that came; 0 before.
  int received() const noexcept { return received_; }

  /// Calls `end` when it goes away: made after all that `arrived` refers to.
  class Ending {
   public:
    explicit Ending(SignalWatch& watch) noexcept : watch_(watch) {}
    ~Ending() { watch_.end(); }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    SignalWatch& watch_;
  };

 private:
  sigset_t signals_, previous_;
  std::atomic<bool> ending_{false};
  std::atomic<int> received_{0};
  std::thread thread_;
};

}  // namespace hyperframes::ps
