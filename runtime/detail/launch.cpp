#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <memory>

namespace hyperframes::detail {

struct Launched::Runner {
  struct promise_type : PromiseBase {
    explicit promise_type(Task<void>&, Launched& self) noexcept : self(self) {
      suspended_at = self.from();
    }
    // Records nothing: the place that a task was started from says more than a line of ours.
    template <class Awaitable>
    Awaitable&& await_transform(Awaitable&& awaitable) noexcept {
      return std::forward<Awaitable>(awaitable);
    }
    Runner get_return_object() noexcept {
      handle = std::coroutine_handle<promise_type>::from_promise(*this);
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> handle) noexcept {
        promise_type& promise = handle.promise();
        FinishedWork& done = promise.self.finished_work_;
        done.queued = true;
        promise.core->ready[promise.group].push(&done);
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { self.failure = std::current_exception(); }
    Launched& self;
  };
  std::coroutine_handle<promise_type> handle;
};

Launched::Runner Launched::run(Task<void> task, Launched& self) { co_await std::move(task); }

void Launched::start(Task<void> task, ShardCore& core, std::uint8_t group, std::uint32_t owner,
                     Time deadline) noexcept {
  const auto handle = run(std::move(task), *this).handle;
  frame_ = handle;
  promise_ = &handle.promise();
  promise_->core = &core;
  promise_->group = group;
  promise_->owner = owner;
  promise_->cancel = cancel_;
  promise_->deadline = deadline;
  promise_->schedule();
}

Launched::~Launched() {
  if (finished_work_.queued) promise_->core->ready[promise_->group].remove(&finished_work_);
  if (frame_) frame_.destroy();
}

void Launched::FinishedWork::run(Work* work) noexcept {
  auto& done = *static_cast<FinishedWork*>(work);
  done.queued = false;
  Launched& self = done.self;
  self.frame_.destroy();
  self.frame_ = nullptr;
  self.promise_ = nullptr;
  self.finished_(self);
}

std::string describe(const std::source_location& place) { return AwaitPlace(place).to_string(); }

AwaitChain Launched::chain(unsigned level) const {
  return chain_of(promise_ ? promise_->child : nullptr, level);
}

void start_on(Shard& shard, std::function<Task<void>()> make, std::source_location from,
              Group group) {
  struct Start : Work {
    Start(Shard& shard, std::function<Task<void>()> make, std::source_location from, Group group)
        : Work(&Start::arrive), shard(shard), make(std::move(make)), from(from), group(group) {}
    static void arrive(Work* work) noexcept {
      std::unique_ptr<Start> self(static_cast<Start*>(work));
      self->shard.spawn(self->make(), self->group, self->from);
    }
    Shard& shard;
    std::function<Task<void>()> make;
    std::source_location from;
    Group group;
  };
  shard.post(new Start(shard, std::move(make), from, group), group);
}

}  // namespace hyperframes::detail
