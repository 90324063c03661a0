#include <exception>
#include <hyperframes/apps/ps/signal_watch.hpp>
#include <hyperframes/runtime/log.hpp>
#include <string>
#include <utility>

namespace hyperframes::ps {
namespace {

void answer(const std::function<void()>& asked) noexcept try {
  asked();
} catch (const std::exception& error) {
  log::warning(std::string("can't say what this process does: ") + error.what());
}

}  // namespace

SignalWatch::SignalWatch() {
  ::sigemptyset(&signals_);
  ::sigaddset(&signals_, SIGINT);
  ::sigaddset(&signals_, SIGTERM);
  // Who was started with nohup shall outlive the terminal.
  struct sigaction of_terminal = {};
  if (::sigaction(SIGHUP, nullptr, &of_terminal) == 0 && of_terminal.sa_handler != SIG_IGN)
    ::sigaddset(&signals_, SIGHUP);
  ::sigaddset(&signals_, SIGUSR1);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, &previous_file_limit_);
  ::pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
}

void SignalWatch::end() noexcept {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

SignalWatch::~SignalWatch() {
  end();
  // Nobody answers any more; left pending it would end the process.
  sigset_t questions;
  ::sigemptyset(&questions);
  ::sigaddset(&questions, SIGUSR1);
  const timespec at_once{};
  while (::sigtimedwait(&questions, nullptr, &at_once) == SIGUSR1) continue;
  ::sigaction(SIGXFSZ, &previous_file_limit_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

void SignalWatch::start(std::function<void()> arrived, std::function<void()> asked) {
  thread_ = std::thread([this, arrived = std::move(arrived), asked = std::move(asked)] {
    const timespec pause{0, 200'000'000};
    while (!ending_ && received_ == 0) {
      const int signal = ::sigtimedwait(&signals_, nullptr, &pause);
      if (signal == SIGUSR1) {
        if (asked) answer(asked);
      } else if (signal > 0) {
        received_ = signal;
      }
    }
    if (received_ != 0) arrived();
  });
}

}  // namespace hyperframes::ps
