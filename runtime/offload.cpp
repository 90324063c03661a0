#include <condition_variable>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <mutex>
#include <thread>
#include <vector>

namespace hyperframes {
namespace {

class ThreadOffload final : public Offload {
 public:
  explicit ThreadOffload(unsigned threads) {
    try {
      for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~ThreadOffload() override { end(); }
  void execute(detail::Work* job) noexcept override {
    {
      std::scoped_lock lock(mutex_);
      queue_.push(job);
    }
    ready_.notify_one();
  }

 private:
  void end() noexcept {
    {
      std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      detail::Work* job = queue_.pop();
      if (!job) return;
      lock.unlock();
      job->run(job);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  detail::WorkQueue queue_;
  bool stopping_ = false;
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
  // It only queues the coroutine, in that one's own group.
  static_cast<Shard*>(call->home_)->post(call, Group::system);
}

void OffloadCall::arrive(Work* self) noexcept {
  const std::shared_ptr<OffloadCall> call = std::move(static_cast<OffloadCall*>(self)->self_);
  if (call->waiting_) std::exchange(call->waiting_, nullptr)->schedule();
}

}  // namespace detail
}  // namespace hyperframes
