// SIGINT, SIGTERM and SIGHUP as a call, SIGUSR1 as another one, for the programs' main functions.
//
//   hf::ps::SignalWatch signals;        // before any thread is made: they inherit the mask
//   hf::Runtime runtime;
//   signals.start([&] { ask_to_stop(runtime); },    // called once, on a thread of its own
//                 [&] { log_what_it_does(runtime); });   // for each SIGUSR1
//
// SIGHUP is left alone where it is ignored, as by nohup. SIGXFSZ is ignored meanwhile, so that a
// file at its limit (ulimit -f) is an error with a text.
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
  /// `arrived` is for a signal to end; `asked`, which may be empty, for each SIGUSR1 before.
  void start(std::function<void()> arrived, std::function<void()> asked = {});
  /// After it, neither is called. To be called before what they refer to goes away.
  void end() noexcept;
  /// The signal to end that came; 0 before.
  int received() const noexcept { return received_; }

  /// Calls `end` when it goes away: made after all that the calls refer to.
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
  struct sigaction previous_file_limit_ = {};
  std::atomic<bool> ending_{false};
  std::atomic<int> received_{0};
  std::thread thread_;
};

}  // namespace hyperframes::ps
