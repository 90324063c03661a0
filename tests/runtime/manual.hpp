// Shards whose turns a test calls one by one, on a clock that only the test moves: what happens
// between two turns is then exactly what the test says.
#pragma once

#include <cerrno>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/reactor/blocking.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <vector>

namespace hyperframes::test {

/// Operations wait until the test completes them; cancelled ones end in the next poll.
class ManualReactor final : public Reactor {
 public:
  explicit ManualReactor(const Time& clock) noexcept : clock_(clock) {}
  ~ManualReactor() override {
    for (auto& [operation, result] : std::exchange(ended_, {}))
      detail::finish_operation(operation, result, *this);
    for (Operation* operation : std::exchange(started, {})) {
      operation->owner = nullptr;
      detail::finish_operation(operation, -ECANCELED, *this);
    }
  }

  std::string_view name() const noexcept override { return "manual"; }
  Time now() const noexcept override { return clock_; }
  void start(Operation* operation) noexcept override { started.push_back(operation); }
  void cancel(Operation* operation) noexcept override {
    ++cancels;
    complete(operation, -ECANCELED);
  }
  /// Lets `operation` end with `result` in the next poll, unless it ends already.
  void complete(Operation* operation, std::int64_t result) noexcept {
    if (std::erase(started, operation)) ended_.emplace_back(operation, result);
  }
  std::size_t poll() noexcept override {
    auto ended = std::exchange(ended_, {});
    for (auto& [operation, result] : ended) detail::finish_operation(operation, result, *this);
    return ended.size();
  }
  void wait(Time) noexcept override { poll(); }
  void wake() noexcept override { ++wakes; }
  int listen(const Address&, int) override { return 0; }
  Address local_address(int) const override { return {}; }
  void tune_socket(int, std::size_t) noexcept override {}
  void close_now(int descriptor) noexcept override { closed.push_back(descriptor); }
  std::size_t in_flight() const noexcept override { return started.size() + ended_.size(); }

  std::vector<Operation*> started;
  std::vector<int> closed;
  std::atomic<int> wakes{0};
  int cancels = 0;

 private:
  const Time& clock_;
  std::vector<std::pair<Operation*, std::int64_t>> ended_;
};

/// Jobs wait until the test runs them.
class ManualOffload final : public Offload {
 public:
  explicit ManualOffload(std::vector<detail::OffloadJob*>& jobs) noexcept : jobs_(jobs) {}
  ~ManualOffload() override {
    while (!jobs_.empty()) run_first(jobs_);
  }
  void execute(detail::OffloadJob* job) noexcept override { jobs_.push_back(job); }
  static void run_first(std::vector<detail::OffloadJob*>& jobs) {
    detail::OffloadJob* job = jobs.front();
    jobs.erase(jobs.begin());
    job->run(job);
  }

 private:
  std::vector<detail::OffloadJob*>& jobs_;
};

class Manual {
 public:
  explicit Manual(unsigned shards = 1, Shard::Options options = {}) {
    std::vector<std::unique_ptr<Reactor>> drivers;
    for (unsigned i = 0; i < shards; ++i) {
      auto driver = std::make_unique<ManualReactor>(clock_);
      reactors_.push_back(driver.get());
      drivers.push_back(std::move(driver));
    }
    runtime_ = std::make_unique<Runtime>(Runtime::Options{.shards = shards, .shard = options},
                                         std::move(drivers), std::make_unique<ManualOffload>(jobs));
  }

  Runtime& runtime() noexcept { return *runtime_; }
  Shard& shard(unsigned index = 0) noexcept { return runtime_->shard(index); }
  ManualReactor& reactor(unsigned index = 0) noexcept { return *reactors_[index]; }

  /// Calls `function` as code of a shard.
  template <class Function>
  decltype(auto) on(unsigned index, Function function) {
    CurrentShard here(shard(index));
    return function();
  }
  /// Spawns the task that `make` returns.
  template <class Make>
  void spawn(Make make, Group group = Group::user, unsigned index = 0) {
    CurrentShard here(shard(index));
    shard(index).spawn(make(), group);
  }
  bool turn(unsigned index = 0) { return shard(index).turn(); }
  /// Turns of all shards until none has anything left to do at this time.
  void settle() {
    for (bool more = true; more;) {
      more = false;
      for (unsigned i = 0; i < runtime_->shard_count(); ++i) more |= turn(i);
      for (unsigned i = 0; i < runtime_->shard_count(); ++i) more |= shard(i).next_turn() <= clock_;
      for (ManualReactor* reactor : reactors_)
        more |= reactor->in_flight() > reactor->started.size();
    }
  }
  void advance(Duration span) {
    clock_ += span;
    settle();
  }
  /// Moves the clock and runs nothing.
  void let_pass(Duration span) { clock_ += span; }
  Time now() const noexcept { return clock_; }
  std::size_t frames(unsigned index = 0) {
    return on(index, [&] { return shard(index).load().frames; });
  }
  /// Ends the runtime now, and with it every task.
  void end() { runtime_.reset(); }

  std::vector<detail::OffloadJob*> jobs;  ///< Of the offload executor.

 private:
  Time clock_{Duration(1'000'000'000)};
  std::vector<ManualReactor*> reactors_;
  std::unique_ptr<Runtime> runtime_;
};

/// Counts its living copies; destroying one twice, or one never made, is noticed.
class Tracked {
 public:
  explicit Tracked(int value = 0) noexcept : value(value), self_(this) { ++alive(); }
  Tracked(const Tracked& other) noexcept : value(other.value), self_(this) { ++alive(); }
  Tracked(Tracked&& other) noexcept : value(other.value), self_(this) { ++alive(); }
  Tracked& operator=(const Tracked& other) noexcept {
    value = other.value;
    return *this;
  }
  ~Tracked() {
    if (self_ != this) ++misused();
    self_ = nullptr;
    --alive();
  }
  static int& alive() noexcept {
    static int count = 0;
    return count;
  }
  static int& misused() noexcept {
    static int count = 0;
    return count;
  }
  int value;

 private:
  Tracked* self_;
};

}  // namespace hyperframes::test
