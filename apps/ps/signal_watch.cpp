#include <hyperframes/apps/ps/signal_watch.hpp>
#include <utility>

namespace hyperframes::ps {

SignalWatch::SignalWatch() {
  ::sigemptyset(&signals_);
  ::sigaddset(&signals_, SIGINT);
  ::sigaddset(&signals_, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
}

SignalWatch::~SignalWatch() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

void SignalWatch::start(std::function<void()> arrived) {
  thread_ = std::thread([this, arrived = std::move(arrived)] {
    const timespec pause{0, 200'000'000};
    while (!ending_)
      if (::sigtimedwait(&signals_, nullptr, &pause) > 0) return arrived();
  });
}

}  // namespace hyperframes::ps
