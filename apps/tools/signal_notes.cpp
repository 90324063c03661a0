#include <hyperframes/apps/tools/signal_notes.hpp>

#include <atomic>

namespace hyperframes::tools {
namespace {

std::atomic<int> last{0};

void note(int signal) { last = signal; }

}  // namespace

SignalNotes::SignalNotes() {
  last = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESETHAND;  // without SA_RESTART: waiting ends at once
  for (std::size_t i = 0; i < count; ++i) ::sigaction(signals[i], &action, &before_[i]);
}

SignalNotes::~SignalNotes() {
  for (std::size_t i = 0; i < count; ++i) ::sigaction(signals[i], &before_[i], nullptr);
}

int SignalNotes::seen() const noexcept { return last; }

}  // namespace hyperframes::tools
