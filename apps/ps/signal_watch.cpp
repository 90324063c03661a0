#include <hyperframes/apps/ps/signal_watch.hpp>
#include <utility>

namespace hyperframes::ps {

SignalWatch::SignalWatch() {
  ::sigemptyset(&signals_);
  ::sigaddset(&signals_, SIGINT);
  ::sigaddset(&signals_, SIGTERM);
  ::sigaddset(&signals_, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
}

void SignalWatch::end() noexcept {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

SignalWatch::~SignalWatch() {
  end();
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

void SignalWatch::start(std::function<void()> arrived, std::function<void()> asked) {
  thread_ = std::thread([this, arrived = std::move(arrived), asked = std::move(asked)] {
    const timespec pause{0, 200'000'000};
    while (!ending_ && received_ == 0) {
      const int signal = ::sigtimedwait(&signals_, nullptr, &pause);
      if (signal == SIGUSR1) {
        if (asked) asked();
      } else if (signal > 0) {
        received_ = signal;
      }
    }
    if (received_ != 0) arrived();
  });
}

}  // namespace hyperframes::ps
