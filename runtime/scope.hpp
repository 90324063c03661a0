// Tasks that run side by side and end before their scope does.
//
//   hf::Scope scope;
//   for (auto& peer : peers) scope.spawn(notify(peer));
//   co_await scope.join();               // rethrows the first failure; the rest is cancelled
//
// Cancelling the coroutine that awaits `join` cancels the children. A Scope that is destroyed with
// children still suspended (its coroutine was destroyed, or an exception passed) destroys their
// frames: nothing it started outlives it. So declare what the children use before the scope, and
// destroy it neither in a child nor in what a child calls.
//
// All of it on the shard where it was made.
#pragma once

#include <hyperframes/runtime/cancellation.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <source_location>

namespace hyperframes {

class Scope {
 public:
  /// With `parent`, which outlives it, cancelled when that is; with or without, when the chain that
  /// awaits `join` is.
  explicit Scope(CancelSource* parent = nullptr);
  /// For combinators, whose tasks are a part of what that coroutine works on: they have its
  /// deadline too.
  explicit Scope(const detail::PromiseBase& parent);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// Stands for the group of the code that spawns.
  static constexpr std::uint8_t same_group = 0xff;

  /// Queues the start of `task` on the current shard, in that group (a Group's number). After
  /// `cancel`, or a child's failure, it starts cancelled: its first wait throws.
  void spawn(Task<void> task, std::uint8_t group = same_group,
             std::source_location from = std::source_location::current());
  /// Asks every child, present and future, to end.
  void cancel(Errc reason = Errc::cancelled) noexcept { cancel_.cancel(reason); }
  /// Children that have not ended.
  std::size_t running() const noexcept { return running_; }

  /// Waits until no child runs, those included that are spawned meanwhile. Rethrows the first
  /// child's failure, after all have ended; what other children throw is lost. If the awaiting
  /// chain is cancelled, the children are, and then joined; it throws only what a child throws. May
  /// be awaited again after more was spawned.
  Task<void> join();

 private:
  struct Child;
  class Emptied;
  static void finished(detail::Launched& launched) noexcept;

  CancelSource cancel_;
  Time deadline_ = no_deadline;
  detail::List<Child> children_;
  std::size_t running_ = 0;
  unsigned joiners_ = 0;
  std::exception_ptr failure_;
  detail::List<detail::Waiter> joining_;
};

}  // namespace hyperframes
