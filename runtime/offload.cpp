#include <condition_variable>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace hyperframes {
namespace {

/// Its threads share the state with it, and outlive it if what they run does not return.
class ThreadOffload final : public Offload {
 public:
  explicit ThreadOffload(unsigned threads) : state_(std::make_shared<State>()) {
    state_->running.resize(threads);
    try {
      for (unsigned i = 0; i < threads; ++i)
        threads_.emplace_back([state = state_, i] { state->serve(i); });
    } catch (const std::system_error& error) {
      end(no_deadline);
      throw Error(error.code(), "start a thread for blocking calls", {},
                  "raise the limits of memory (ulimit -v) and of processes (ulimit -u)");
    } catch (...) {
      end(no_deadline);
      throw;
    }
  }
  ~ThreadOffload() override { end(no_deadline); }

  void execute(detail::OffloadJob* job) noexcept override {
    {
      std::scoped_lock lock(state_->mutex);
      state_->queue.push(job);
    }
    state_->ready.notify_one();
  }

  std::vector<std::string> end(Time until) override {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->ready.notify_all();
    const auto ended = [this] { return state_->ended_count >= threads_.size(); };
    if (until == no_deadline) {
      state_->ended.wait(lock, ended);
    } else {
      state_->ended.wait_for(lock, until - Clock::read_system(), ended);
    }
    const std::vector<std::string> left = ended() ? std::vector<std::string>() : state_->give_up();
    lock.unlock();
    for (auto& thread : threads_) {
      if (left.empty()) {
        thread.join();
      } else {
        thread.detach();
      }
    }
    threads_.clear();
    state_->ended_count = 0;
    return left;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready, ended;
    detail::WorkQueue queue;
    bool stopping = false;
    std::size_t ended_count = 0;
    std::vector<std::string> running;  ///< What each thread does; empty: nothing.

    void serve(unsigned index) {
      std::unique_lock lock(mutex);
      while (true) {
        ready.wait(lock, [this] { return stopping || !queue.empty(); });
        auto* job = static_cast<detail::OffloadJob*>(queue.pop());
        if (!job) break;
        running[index] = job->description();
        lock.unlock();
        job->run(job);
        lock.lock();
        running[index].clear();
      }
      ++ended_count;
      ended.notify_all();
    }

    // What has not begun never does. It frees itself by running, so it is kept reachable.
    std::vector<std::string> give_up() {
      static auto& kept = *new detail::WorkQueue;
      std::vector<std::string> left;
      for (const auto& description : running)
        if (!description.empty()) left.push_back(description);
      while (detail::Work* job = queue.pop()) {
        left.push_back(static_cast<detail::OffloadJob*>(job)->description() + ", not begun");
        kept.push(job);
      }
      return left;
    }
  };

  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Offload> make_thread_offload(unsigned threads) {
  return std::make_unique<ThreadOffload>(threads ? threads : 1);
}

namespace detail {

bool OffloadAwaiter::begin(PromiseBase& promise) noexcept {
  if (promise.cancel && promise.cancel->cancelled()) {
    call_->failure =
        std::make_exception_ptr(Error(promise.cancel->reason(), "offload a call", "cancelled"));
    return false;
  }
  auto& shard = static_cast<Shard&>(*promise.core);
  call_->waiting_ = &promise;
  call_->home_ = &shard;
  call_->gate_ = shard.runtime().offload_gate();
  call_->self_ = call_;
  shard.offload().execute(call_.get());
  return true;
}

void OffloadCall::execute(Work* self) noexcept {
  auto* call = static_cast<OffloadCall*>(self);
  try {
    call->call();
  } catch (...) {
    call->failure = std::current_exception();
  }
  call->run = &OffloadCall::arrive;
  const auto gate = call->gate_;
  gate->bring_back(call, *static_cast<Shard*>(call->home_));
}

std::string OffloadCall::description() const { return "a call offloaded at " + describe(from_); }

void OffloadGate::bring_back(OffloadJob* job, Shard& home) noexcept {
  {
    std::shared_lock lock(mutex_);
    // It only queues the coroutine, in that one's own group.
    if (!closed_) return home.post(job, Group::system);
  }
  static std::mutex kept_mutex;
  static auto& kept = *new WorkQueue;
  std::scoped_lock lock(kept_mutex);
  kept.push(job);
}

void OffloadGate::close() noexcept {
  std::scoped_lock lock(mutex_);
  closed_ = true;
}

void OffloadCall::arrive(Work* self) noexcept {
  const std::shared_ptr<OffloadCall> call = std::move(static_cast<OffloadCall*>(self)->self_);
  if (call->waiting_) std::exchange(call->waiting_, nullptr)->schedule();
}

}  // namespace detail
}  // namespace hyperframes
