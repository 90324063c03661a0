#include <hyperframes/apps/tools/watch.hpp>

#include <algorithm>
#include <utility>

namespace hyperframes::tools {

Watch::Watch(const std::vector<std::string>& addresses, Duration interval,
             std::function<void()> changed)
    : interval_(interval), changed_call_(std::move(changed)), answers_(addresses.size()) {
  for (const auto& address : addresses) {
    nodes_.push_back({.address = address, .view = {}, .trouble = {}});
    readers_.push_back(std::make_unique<PageReader>(address));
  }
  try {
    for (std::size_t i = 0; i < nodes_.size(); ++i) start(i);
  } catch (...) {
    end();
    throw;
  }
}

Watch::~Watch() { end(); }

void Watch::start(std::size_t index) {
  std::scoped_lock lock(mutex_);
  threads_.emplace_back([this, index] { run(index); });
  ++running_;
}

// Who waits for an answer is interrupted: a user who leaves does not wait for a node that hangs.
void Watch::end() noexcept {
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    while (running_ > 0) {
      for (auto& reader : readers_) reader->stop();
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
  }
  for (auto& thread : threads_) thread.join();
}

std::vector<WatchedNode> Watch::nodes() const {
  std::scoped_lock lock(mutex_);
  return nodes_;
}

void Watch::wait_for_answers(unsigned times) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::ranges::all_of(answers_, [&](unsigned count) { return count >= times; });
  });
}

void Watch::ask(std::size_t index) {
  std::optional<NodeView> view;
  std::string trouble;
  try {
    view = parse_node(readers_[index]->get("/actors"));
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  std::scoped_lock lock(mutex_);
  WatchedNode& node = nodes_[index];
  node.trouble = std::move(trouble);
  ++answers_[index];
  if (!view) return;
  if (node.view) add_rates(*view, *node.view);
  node.view = std::move(view);
}

void Watch::run(std::size_t index) {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const Time began = Clock::read_system();
    lock.unlock();
    ask(index);
    changed_.notify_all();
    if (changed_call_) changed_call_();
    lock.lock();
    const Time next = began + interval_;
    while (!ending_ && Clock::read_system() < next)
      changed_.wait_for(lock, next - Clock::read_system());
  }
  --running_;
  changed_.notify_all();
}

}  // namespace hyperframes::tools
