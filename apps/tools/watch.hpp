// Nodes that are asked again and again, each on a thread of its own: a slow one holds nobody up.
//
//   Watch watch({"127.0.0.1:9464"}, 1s, [&] { terminal.wake(); });
//   watch.wait_for_answers(2);                               // rates are known from the second on
//   std::vector<WatchedNode> nodes = watch.nodes();
#pragma once

#include <condition_variable>
#include <functional>
#include <hyperframes/apps/tools/page_reader.hpp>
#include <hyperframes/apps/tools/top_screen.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hyperframes::tools {

class Watch {
 public:
  /// `changed` is called after each answer, on a thread of the watch.
  Watch(const std::vector<std::string>& addresses, Duration interval,
        std::function<void()> changed);
  /// Interrupts who is being asked.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// What is known of each, in the order of the addresses.
  std::vector<WatchedNode> nodes() const;
  /// Waits until each has answered, or failed to, so many times.
  void wait_for_answers(unsigned times);

 private:
  void start(std::size_t index);
  void end() noexcept;
  void ask(std::size_t index);
  void run(std::size_t index);

  const Duration interval_;
  const std::function<void()> changed_call_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::vector<WatchedNode> nodes_;
  std::vector<unsigned> answers_;
  std::vector<std::unique_ptr<PageReader>> readers_;
  std::size_t running_ = 0;  ///< Threads.
  std::vector<std::thread> threads_;
};

}  // namespace hyperframes::tools
