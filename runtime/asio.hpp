// Hyperframes inside a program that runs on standalone asio: shards on its io_context, and tasks of
// shards awaited from asio code with any completion token.
//
//   hf::AsioRuntime embedded(context);                            // one shard: a strand
//   auto rows = co_await hf::async_run(context.get_executor(), embedded.shard(0),
//                                      [] { return load_rows(); }, asio::use_awaitable);
//   co_await embedded.async_stop(5s, asio::use_awaitable);
//
// An embedded shard is a strand on the caller's io_context, which may have one thread or several;
// it adds no thread, no signal handler, and never ends the process. `async_run` (and async_ask of
// actors/asio.hpp) works with shards on threads of their own as well: asio code then stays on its
// io_context, tasks on their shards.
//
// What leaves a task, a hf::Error mostly, arrives as the std::exception_ptr that every completion
// has first. A handler runs on its associated executor, or on the one that was given. Its
// cancellation slot, if it is connected, cancels the task (terminal and partial cancellation; a
// task may have had effects by then); it still completes, once the task has ended.
//
// Link `hyperframes::asio`: it brings asio and the definitions that this library was built with.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/version.hpp>
#include <concepts>
#include <functional>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/detail/outside_task.hpp>
#include <hyperframes/runtime/detail/portable.hpp>
#include <hyperframes/runtime/reactor/asio.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

namespace hyperframes {
namespace detail {

template <class Value>
struct AsioSignature {
  using type = void(std::exception_ptr, Value);
};
template <>
struct AsioSignature<void> {
  using type = void(std::exception_ptr);
};

/// A call that completes an asio handler.
template <class Value, class Function, class Handler>
class AsioCall final : public OutsideTask {
  using Executor = typename asio::associated_executor<Handler, asio::any_io_executor>::type;

 public:
  AsioCall(const asio::any_io_executor& otherwise, Function function, Handler handler)
      : work_(asio::get_associated_executor(handler, otherwise)),
        function_(std::move(function)),
        handler_(std::move(handler)) {}
  Handler& handler() noexcept { return handler_; }

 private:
  Task<void> execute() override {
    Task<Value> task(function_());
    if constexpr (std::is_void_v<Value>) {
      co_await std::move(task);
      value_.emplace();
    } else {
      value_.emplace(Portable<Value>::make(co_await std::move(task)));
    }
  }

  // Posted, never called from here: this is a turn of the shard. The io_context has work until
  // `post` has returned: its `run` could else be over, and itself gone, while this thread is in it.
  void complete() noexcept override {
    auto self = std::static_pointer_cast<AsioCall>(this->shared_from_this());
    const auto posting = work_;
    asio::post(work_.get_executor(), [self]() mutable { invoke(std::move(self)); });
  }

  // Nothing of the call is left when the handler runs.
  static void invoke(std::shared_ptr<AsioCall> call) {
    auto slot = asio::get_associated_cancellation_slot(call->handler_);
    if (slot.is_connected()) slot.clear();
    Handler handler(std::move(call->handler_));
    std::exception_ptr failure = std::move(call->failure_);
    std::optional<ValueOf<Value>> value = std::move(call->value_);
    call->work_.reset();
    call.reset();
    if constexpr (std::is_void_v<Value>) {
      std::move(handler)(std::move(failure));
    } else {
      std::move(handler)(std::move(failure), value ? std::move(*value) : Value());
    }
  }

  asio::executor_work_guard<Executor> work_;
  Function function_;
  Handler handler_;
  std::optional<ValueOf<Value>> value_;
};

template <class Value>
class InitiateRun {
 public:
  using executor_type = asio::any_io_executor;
  explicit InitiateRun(asio::any_io_executor executor) noexcept : executor_(std::move(executor)) {}
  executor_type get_executor() const noexcept { return executor_; }

  /// Without a shard it fails with what `missing` says.
  template <class Handler, class Function>
  void operator()(Handler&& handler, Shard* shard, Function function,
                  std::source_location from) const {
    static_assert(std::is_void_v<Value> || std::default_initializable<ValueOf<Value>>,
                  "a task that fails completes with an empty value: make it default-constructible");
    using Call = AsioCall<Value, Function, std::decay_t<Handler>>;
    auto call =
        std::make_shared<Call>(executor_, std::move(function), std::forward<Handler>(handler));
    if (!shard)
      return call->fail(std::make_exception_ptr(
          Error(Errc::invalid_argument, "call an actor", "the reference is empty")));
    auto slot = asio::get_associated_cancellation_slot(call->handler());
    if (slot.is_connected())
      slot.assign([weak = std::weak_ptr<OutsideTask>(call)](asio::cancellation_type type) {
        using Type = asio::cancellation_type;
        if ((type & (Type::terminal | Type::partial)) == Type::none) return;
        if (auto call = weak.lock()) call->cancel();
      });
    call->start(*shard, from);
  }

 private:
  asio::any_io_executor executor_;
};

/// What a program and this library must have in common to share an io_context.
struct AsioBuild {
  unsigned version = ASIO_VERSION;
  bool threads =
#ifdef ASIO_HAS_THREADS
      true;
#else
      false;
#endif
  bool io_uring =
#ifdef ASIO_HAS_IO_URING
      true;
#else
      false;
#endif
};
/// Throws Errc::version_mismatch unless the library was compiled like `program`.
void check_asio_build(const AsioBuild& program);

}  // namespace detail

/// Runs `function()`, which returns a Task, on `shard`, and completes `token` with
/// void(std::exception_ptr, T), or void(std::exception_ptr) for a Task<void>; T must be
/// default-constructible. `function` travels by value; so does the result, which must not refer to
/// memory of the shard: Buffers and Segments are made so, and may be kept as long as the runtime.
/// The runtime must exist until the handler was called. Errc::shutting_down if it stops before.
template <class Function, class CompletionToken>
auto async_run(asio::any_io_executor executor, Shard& shard, Function function,
               CompletionToken&& token,
               std::source_location from = std::source_location::current()) {
  using Value = typename std::invoke_result_t<Function&>::value_type;
  return asio::async_initiate<CompletionToken, typename detail::AsioSignature<Value>::type>(
      detail::InitiateRun<Value>(std::move(executor)), token, &shard, std::move(function), from);
}

/// A runtime whose shards are strands on the caller's io_context. It must be destroyed before that,
/// off the shards. Several may share one io_context.
///
/// Until it has stopped, it counts as work of the io_context: `run` does not return for want of
/// any.
class AsioRuntime {
 public:
  struct Options {
    unsigned shards = 1;        ///< At least one; as many as the context has threads is plenty.
    Shard::Options shard = {};  ///< For every shard; what concerns spinning does not apply.
    AsioReactorOptions reactor = {};
    /// Where calls run that block: files, names, hf::offload. By default on the io_context, where
    /// they hold up one of its threads; give an asio::thread_pool's executor to keep them off it.
    asio::any_io_executor offload = {};
  };

  explicit AsioRuntime(asio::io_context& context) : AsioRuntime(context, Options()) {}
  /// Throws Errc::version_mismatch if this program and the library were compiled with different
  /// asios, Errc::invalid_argument without shards, and what asio throws if the context can't get
  /// its descriptors. `context` may run already, or not yet.
  AsioRuntime(asio::io_context& context, Options options)
      : AsioRuntime(context, std::move(options), detail::AsioBuild{}) {}
  /// Ends what is left, without grace; `async_stop` first for an orderly end. Waits for turns that
  /// other threads are in the middle of, and for nothing else.
  ~AsioRuntime();
  AsioRuntime(const AsioRuntime&) = delete;
  AsioRuntime& operator=(const AsioRuntime&) = delete;

  /// Don't call what waits for a task (`run`) on a thread that the io_context needs; to stop it
  /// there is `async_stop`, its own `stop` does nothing here.
  Runtime& runtime() noexcept;
  Shard& shard(unsigned index) noexcept { return runtime().shard(index); }
  asio::io_context::executor_type get_executor() const noexcept { return executor_; }

  /// Cancels all tasks, and completes `token` with void(hf::Runtime::StopReport) once they have
  /// ended or `grace` has passed; what is left is destroyed then, and named in the report. Blocks
  /// no thread. A shard that is stuck in a turn is named too, and the destructor waits for it.
  template <class CompletionToken>
  auto async_stop(Duration grace, CompletionToken&& token) {
    return asio::async_initiate<CompletionToken, void(Runtime::StopReport)>(
        [this](auto&& handler, Duration grace) {
          stop(grace, make_done(std::forward<decltype(handler)>(handler)));
        },
        token, grace);
  }

 private:
  using Done = std::function<void(Runtime::StopReport)>;
  struct Impl;
  AsioRuntime(asio::io_context& context, Options options, detail::AsioBuild program);
  void stop(Duration grace, Done done);

  /// Calls the handler on its executor, which has work until then.
  template <class Handler>
  Done make_done(Handler&& handler) {
    auto kept = std::make_shared<std::decay_t<Handler>>(std::forward<Handler>(handler));
    const asio::any_io_executor otherwise = executor_;
    auto work = asio::make_work_guard(asio::get_associated_executor(*kept, otherwise));
    return [kept, work](Runtime::StopReport report) {
      asio::post(work.get_executor(), [kept, report]() mutable {
        auto handler = std::move(*kept);
        std::move(handler)(std::move(report));
      });
    };
  }

  asio::io_context::executor_type executor_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hyperframes
