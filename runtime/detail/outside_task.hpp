// A task of a shard that code outside of all shards waits for, without blocking: what asio's
// completion tokens stand on.
#pragma once

#include <atomic>
#include <exception>
#include <hyperframes/runtime/cancellation.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <source_location>

namespace hyperframes::detail {

/// Shared by who waits and by the task. Its runtime exists until it has completed.
class OutsideTask : public std::enable_shared_from_this<OutsideTask> {
 public:
  OutsideTask() = default;
  OutsideTask(const OutsideTask&) = delete;
  virtual ~OutsideTask() = default;

  /// Runs `execute` on `shard`. From any thread, once.
  void start(Shard& shard, std::source_location from);
  /// Completes it with `failure` instead.
  void fail(std::exception_ptr failure) noexcept;
  /// Cancels the task over there. From any thread, also when it has ended.
  void cancel();

 protected:
  /// On the shard: does the work and keeps what it gives.
  virtual Task<void> execute() = 0;
  /// Called once, when nothing of the task is left; on the shard, or on the thread that ends it.
  virtual void complete() noexcept = 0;

  std::exception_ptr failure_;

 private:
  struct Cancellation;
  struct Ending;
  struct Link;
  static Task<void> run(Ending ending);

  Shard* shard_ = nullptr;
  std::atomic<bool> ended_{false};
  // The shard's.
  CancelSource* source_ = nullptr;
  bool given_up_ = false;
  bool done_ = false;
};

}  // namespace hyperframes::detail
