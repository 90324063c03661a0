// Actors asked from asio code, with any completion token.
//
//   auto total = co_await hf::async_ask(context.get_executor(), counter.add({.delta = 2}),
//                                       asio::use_awaitable);
//   hf::async_ask(executor, counter.add({.delta = 2}), [](std::exception_ptr failure,
//                                                         demo::Total total) { ... });
//
// From any thread, on whichever shards the actor's node runs; node and runtime must exist until the
// completion. What an awaited ask would throw is the std::exception_ptr that the completion has
// first (Errc::invalid_argument for an empty reference). See runtime/asio.hpp for executors and
// cancellation: a cancelled ask stops waiting; whether its request took effect is unknown.
//
// Answers are copied out of their shard and may be kept for good; segments are not copied, and must
// be released before the runtime's end.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/async_result.hpp>
#include <concepts>
#include <hyperframes/actors/ask.hpp>
#include <hyperframes/actors/detail/home_shard.hpp>
#include <hyperframes/actors/detail/table_view.hpp>
#include <hyperframes/actors/reply.hpp>
#include <hyperframes/runtime/asio.hpp>
#include <source_location>
#include <utility>

namespace hyperframes {
namespace detail {

template <std::derived_from<TableView> View>
struct Portable<View> {
  static View make(View value) {
    if (!value || value.buffer().counts_atomically()) return value;
    return View::unverified(Buffer::copy_of(value.buffer().bytes()));
  }
};
template <class T>
struct Portable<WithSegments<T>> {
  static WithSegments<T> make(WithSegments<T> value) {
    return {Portable<T>::make(std::move(value.value)), portable(std::move(value.segments))};
  }
};

/// A call of an actor, as what `async_run` runs. Called once.
template <class Call>
struct CallFunction {
  Call call;
  Task<typename Call::value_type> operator()() { return std::move(call); }
};

template <class Call, class CompletionToken>
auto async_call(asio::any_io_executor executor, Call call, CompletionToken&& token,
                std::source_location from) {
  using Value = typename Call::value_type;
  Shard* const shard = home_shard(call.destination());
  return asio::async_initiate<CompletionToken, typename AsioSignature<Value>::type>(
      InitiateRun<Value>(std::move(executor)), token, shard, CallFunction<Call>{std::move(call)},
      from);
}

}  // namespace detail

/// Sends `ask` and completes `token` with void(std::exception_ptr, Answer), the latter empty after
/// a failure. The default deadline runs from when the actor's shard (of an actor of another
/// process: shard 0) takes the call up.
template <class Method, class CompletionToken>
auto async_ask(asio::any_io_executor executor, Ask<Method> ask, CompletionToken&& token,
               std::source_location from = std::source_location::current()) {
  return detail::async_call(std::move(executor), std::move(ask),
                            std::forward<CompletionToken>(token), from);
}

/// Sends `tell` and completes `token` with void(std::exception_ptr) once the actor's mailbox, or
/// the session with its process, has taken it.
template <class Method, class CompletionToken>
auto async_tell(asio::any_io_executor executor, Tell<Method> tell, CompletionToken&& token,
                std::source_location from = std::source_location::current()) {
  return detail::async_call(std::move(executor), std::move(tell),
                            std::forward<CompletionToken>(token), from);
}

}  // namespace hyperframes
