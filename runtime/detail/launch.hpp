// Starting a task that nobody awaits directly: what Scope, when_all and Shard::spawn are made of.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <hyperframes/runtime/await_chain.hpp>
#include <hyperframes/runtime/detail/promise.hpp>
#include <hyperframes/runtime/task.hpp>
#include <source_location>

namespace hyperframes {
class Shard;
enum class Group : std::uint8_t;

namespace detail {

/// Owns one running task. Its owner keeps it in a list and is told, from the ready queue, when
/// the task has ended; then, or at any time while the task is suspended, it may be destroyed.
class Launched : public ListNode {
 public:
  using Finished = void (*)(Launched&) noexcept;

  /// `cancel` may be null. `finished` runs on the shard after the task's end; it may delete this.
  Launched(Finished finished, CancelSource* cancel, std::source_location from,
           void* context = nullptr) noexcept
      : finished_work_(*this),
        finished_(finished),
        context_(context),
        cancel_(cancel),
        from_(from) {}
  Launched(const Launched&) = delete;
  ~Launched();

  /// Queues the task's start on `core`, the current shard.
  void start(Task<void> task, ShardCore& core, std::uint8_t group, std::uint32_t owner,
             Time deadline = no_deadline) noexcept;

  std::exception_ptr failure;
  /// Of a scope's task: how many coroutines wait for the scope. Where there are none, no other
  /// chain leads to it.
  const unsigned* joiners = nullptr;
  std::source_location from() const noexcept { return from_; }
  void* context() const noexcept { return context_; }
  std::uint32_t owner() const noexcept { return promise_ ? promise_->owner : 0; }
  /// The lines it is suspended on.
  AwaitChain chain(unsigned level = 0) const;

 private:
  struct Runner;
  struct FinishedWork : Work {
    explicit FinishedWork(Launched& self) noexcept : Work(&FinishedWork::run), self(self) {}
    static void run(Work* work) noexcept;
    Launched& self;
    bool queued = false;
  };
  static Runner run(Task<void> task, Launched& self);

  std::coroutine_handle<> frame_;
  PromiseBase* promise_ = nullptr;
  FinishedWork finished_work_;
  Finished finished_;
  void* context_;
  CancelSource* cancel_;
  std::source_location from_;
};

/// Function, file and line, as a dump shows them.
std::string describe(const std::source_location& place);

/// Calls `make()` on `shard` and spawns the task it returns there. From any thread.
void start_on(Shard& shard, std::function<Task<void>()> make,
              std::source_location from = std::source_location::current(),
              Group group = Group{1});  // user

}  // namespace detail
}  // namespace hyperframes
