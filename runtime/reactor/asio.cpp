#include <hyperframes/runtime/reactor/asio.hpp>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <hyperframes/runtime/reactor/asio_reactor.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes {
namespace {

/// A base, so that it lives before and after the driver's own.
struct Loop {
  asio::io_context context{1};  // one thread runs it; others post
};

class ThreadReactor final : private Loop, public detail::AsioReactor {
 public:
  explicit ThreadReactor(AsioReactorOptions options)
      : AsioReactor(context.get_executor(), options), work_(context.get_executor()) {}
  ~ThreadReactor() override { shut(); }

  std::string_view name() const noexcept override { return "asio"; }

  void wait(Time until) noexcept override {
    if (has_deliverable()) return;
    arm(until);
    // `poll` takes the rest. What ends the wait needs no more: the shard looks at all it has then.
    context.run_one();
  }

  void wake() noexcept override {
    if (wake_rung_.exchange(true, std::memory_order_acq_rel)) return;
    asio::post(context, [this] { wake_rung_.store(false, std::memory_order_release); });
  }

 private:
  void run_handlers() noexcept override { context.poll(); }
  void on_activity() noexcept override {}  // the thread that waits is the one that runs this

  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::atomic<bool> wake_rung_{false};
};

}  // namespace

bool has_asio_reactor() noexcept { return true; }

std::unique_ptr<Reactor> make_asio_reactor(AsioReactorOptions options) try {
  return std::make_unique<ThreadReactor>(options);
} catch (const asio::system_error& error) {
  throw Error(error.code(), "start the asio driver", {}, "raise the open-files limit (ulimit -n)");
}

}  // namespace hyperframes
