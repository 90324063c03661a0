#include <catch2/catch_test_macros.hpp>

#ifndef HYPERFRAMES_HAS_ASIO

TEST_CASE("asio code asks actors") { SKIP("asio is not installed (Debian: libasio-dev)"); }

#else

#include <hyperframes/actors/asio.hpp>
#include <hyperframes/actors/foreign.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <functional>
#include <thread>
#if __has_include(<asio/deferred.hpp>)
#include <asio/deferred.hpp>
#define HYPERFRAMES_TEST_DEFERRED asio::deferred
#else
#include <asio/experimental/deferred.hpp>
#define HYPERFRAMES_TEST_DEFERRED asio::experimental::deferred
#endif

#include "support.hpp"

using namespace actor_test;

namespace {

std::error_code code_of(const std::exception_ptr& failure) {
  if (!failure) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const hf::Error& error) {
    return error.code();
  }
}

/// An io_context with threads, and a runtime in it whose end the test may await or leave to this.
class Embedded {
 public:
  explicit Embedded(unsigned shards = 1, unsigned threads = 1)
      : runtime(context, {.shards = shards}) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { context.run(); });
  }
  ~Embedded() {
    CHECK(runtime.async_stop(5s, asio::use_future).get().clean);
    for (auto& thread : threads_) thread.join();
  }
  auto executor() { return context.get_executor(); }
  /// On a shard, and waits here.
  template <class Function>
  auto run(unsigned shard, Function function) {
    return hf::async_run(executor(), runtime.shard(shard), std::move(function), asio::use_future)
        .get();
  }

  asio::io_context context;
  hf::AsioRuntime runtime;

 private:
  std::vector<std::thread> threads_;
};

demo::CounterRef spawn_counter(Embedded& embedded, hf::Node& node, std::string name,
                               unsigned shard = 0) {
  return embedded.run(shard, [&node, name, shard] {
    return node.spawn<Counter>(hf::SpawnOptions{.name = name, .shard = shard});
  });
}

/// A node that is closed in order.
struct ClosedNode {
  ClosedNode(Embedded& embedded, hf::Node::Options options)
      : embedded(embedded), node(embedded.runtime.runtime(), std::move(options)) {}
  ~ClosedNode() {
    CHECK(embedded.run(0, [this] { return node.close(5s); }).empty());
  }
  Embedded& embedded;
  hf::Node node;
};

}  // namespace

TEST_CASE("asio code asks actors with a callback, a future, a coroutine and a deferred call") {
  Embedded embedded(2, 2);
  ClosedNode home(embedded, {.name = "home"});
  const auto counter = spawn_counter(embedded, home.node, "counter", 1);

  CHECK(hf::async_ask(embedded.executor(), counter.add({.delta = 1}), asio::use_future)
            .get()
            .total() == 1);

  std::promise<long> told;
  hf::async_ask(embedded.executor(), counter.add({.delta = 2}),
                [&](std::exception_ptr failure, demo::Total total) {
                  told.set_value(failure || hf::Shard::current() ? -1 : total.total());
                });
  CHECK(told.get_future().get() == 3);

  auto ask = [](hf::AsioRuntime& runtime, demo::CounterRef counter) -> asio::awaitable<long> {
    const auto total = co_await hf::async_ask(runtime.get_executor(), counter.add({.delta = 3}),
                                              asio::use_awaitable);
    co_return total.total();
  };
  CHECK(asio::co_spawn(embedded.context, ask(embedded.runtime, counter), asio::use_future).get() ==
        6);

  auto deferred =
      hf::async_ask(embedded.executor(), counter.add({.delta = 4}), HYPERFRAMES_TEST_DEFERRED);
  CHECK(std::move(deferred)(asio::use_future).get().total() == 10);
}

TEST_CASE("an answer that is a table may be kept when its runtime is gone") {
  demo::Sum kept;
  {
    Embedded embedded;
    ClosedNode home(embedded, {});
    const auto counter = spawn_counter(embedded, home.node, "counter");
    kept = hf::async_ask(embedded.executor(), counter.add_named({.name = "Ada", .delta = 5}),
                         asio::use_future)
               .get();
  }
  CHECK(kept.total() == 5);
  CHECK(kept.note() == "for Ada");
}

TEST_CASE("segments travel from asio code to an actor and back") {
  Embedded embedded;
  ClosedNode home(embedded, {});
  const auto counter = spawn_counter(embedded, home.node, "counter");
  hf::Segments sent(hf::Buffer::copy_of("some bytes"));
  sent.push_back(hf::Buffer::copy_of("and more"));
  auto answer =
      hf::async_ask(embedded.executor(), counter.echo({.name = "box", .delta = 1}, std::move(sent)),
                    asio::use_future)
          .get();
  CHECK(answer.value.note() == "box");
  REQUIRE(answer.segments.count() == 2);
  CHECK(answer.segments[0].text() == "some bytes");
  CHECK(answer.segments[1].text() == "and more");
}

TEST_CASE("what an awaited ask throws comes first in the completion") {
  Embedded embedded;
  ClosedNode home(embedded, {});
  const auto counter = spawn_counter(embedded, home.node, "counter");
  const auto failure_of = [&](auto call) {
    std::promise<std::error_code> told;
    hf::async_ask(embedded.executor(), std::move(call),
                  [&](std::exception_ptr failure, auto&&) { told.set_value(code_of(failure)); });
    return told.get_future().get();
  };
  CHECK(failure_of(counter.refuse({.name = "you"})) == make_error_code(hf::Errc::invalid_argument));
  CHECK(failure_of(counter.forget({})) == make_error_code(hf::Errc::no_reply));
  CHECK(failure_of(counter.keep({.delta = 1}, hf::within(5ms))) ==
        make_error_code(hf::Errc::deadline_exceeded));
  CHECK(failure_of(demo::CounterRef().add({.delta = 1})) ==
        make_error_code(hf::Errc::invalid_argument));
  embedded.run(0, [&]() -> hf::Task<void> {
    home.node.stop(counter);
    co_await home.node.join(counter);
  });
  CHECK(failure_of(counter.add({.delta = 1})) == make_error_code(hf::Errc::actor_down));
}

TEST_CASE("a tell completes when the mailbox took it") {
  Embedded embedded;
  ClosedNode home(embedded, {});
  const auto counter = spawn_counter(embedded, home.node, "counter");
  for (int i = 0; i < 10; ++i)
    hf::async_tell(embedded.executor(), counter.note({.delta = 1}), asio::use_future).get();
  CHECK(hf::async_ask(embedded.executor(), counter.add({.delta = 0}), asio::use_future)
            .get()
            .total() == 10);
}

TEST_CASE("an ask completes on the strand of its handler, and its slot cancels it") {
  Embedded embedded(1, 2);
  ClosedNode home(embedded, {});
  const auto counter = spawn_counter(embedded, home.node, "counter");
  auto strand = asio::make_strand(embedded.context);
  asio::cancellation_signal signal;
  std::promise<std::error_code> told;
  asio::post(strand, [&] {
    hf::async_ask(embedded.executor(), counter.keep({.delta = 1}, hf::within(1h)),
                  asio::bind_cancellation_slot(
                      signal.slot(),
                      asio::bind_executor(strand, [&](std::exception_ptr failure, demo::Total) {
                        told.set_value(strand.running_in_this_thread() ? code_of(failure)
                                                                       : std::error_code());
                      })));
    asio::post(strand, [&] { signal.emit(asio::cancellation_type::terminal); });
  });
  CHECK(told.get_future().get() == make_error_code(hf::Errc::cancelled));
  // The actor is none the worse for it.
  CHECK(hf::async_ask(embedded.executor(), counter.add({.delta = 1}), asio::use_future)
            .get()
            .total() == 1);
}

TEST_CASE("whichever of an ask and a timer ends first cancels the other") {
  Embedded embedded;
  ClosedNode home(embedded, {});
  const auto counter = spawn_counter(embedded, home.node, "counter");
  auto race = [](hf::AsioRuntime& runtime, demo::CounterRef counter, long span_ms,
                 std::chrono::milliseconds limit) -> asio::awaitable<std::string> {
    using namespace asio::experimental::awaitable_operators;
    asio::steady_timer timer(runtime.get_executor(), limit);
    auto first = co_await (hf::async_ask(runtime.get_executor(),
                                         counter.add_slowly({.delta = span_ms}, hf::within(1h)),
                                         asio::use_awaitable) ||
                           timer.async_wait(asio::use_awaitable));
    co_return first.index() == 0 ? "the ask" : "the timer";
  };
  const auto first = [&](long span_ms, std::chrono::milliseconds limit) {
    return asio::co_spawn(embedded.context, race(embedded.runtime, counter, span_ms, limit),
                          asio::use_future)
        .get();
  };
  CHECK(first(1, std::chrono::hours(1)) == "the ask");
  CHECK(first(200, std::chrono::milliseconds(1)) == "the timer");
}

TEST_CASE("several nodes of one process, on one io_context and on two, talk over TCP") {
  Embedded first(2, 2), second(1, 1);
  hf::net::Network::Options open;
  open.insecure = true;
  ClosedNode left(first, {.name = "left", .network = open});
  ClosedNode right(first, {.name = "right", .network = open});
  ClosedNode far(second, {.name = "far", .network = open});
  const auto counter = spawn_counter(first, left.node, "counter", 1);
  CHECK_FALSE(right.node.find<demo::Counter>("counter"));

  const auto bound =
      first.run(0, [&] { return left.node.listen(hf::net::Endpoint::parse("tcp://127.0.0.1:0")); });
  for (ClosedNode* asker : {&right, &far}) {
    Embedded& where = asker->embedded;
    auto find = [asker, bound]() -> hf::Task<demo::CounterRef> {
      hf::RemoteNode remote = co_await asker->node.connect(bound, hf::within(10s));
      co_return co_await remote.find<demo::Counter>("counter");
    };
    const demo::CounterRef remote = where.run(0, find);
    CHECK_FALSE(remote.is_local());
    for (int i = 0; i < 20; ++i)
      hf::async_ask(where.executor(), remote.add({.delta = 1}), asio::use_future).get();
    const auto sum = hf::async_ask(where.executor(), remote.add_named({.name = "far", .delta = 0}),
                                   asio::use_future)
                         .get();
    CHECK(sum.note() == "for far");
  }
  CHECK(
      hf::async_ask(first.executor(), counter.add({.delta = 0}), asio::use_future).get().total() ==
      40);
}

TEST_CASE("a node is made before its io_context runs, and destroyed when it has stopped running") {
  asio::io_context context;
  hf::AsioRuntime embedded(context, {.shards = 2});
  std::string got;
  {
    hf::Node node(embedded.runtime(), {.name = "early"});
    auto main = [](hf::AsioRuntime& embedded, hf::Node& node) -> asio::awaitable<std::string> {
      const auto executor = embedded.get_executor();
      const auto spawn = [&node] { return node.spawn<Counter>("counter"); };
      const auto counter =
          co_await hf::async_run(executor, embedded.shard(1), spawn, asio::use_awaitable);
      const auto total =
          co_await hf::async_ask(executor, counter.add({.delta = 4}), asio::use_awaitable);
      const auto close = [&node] { return node.close(1s); };
      co_await hf::async_run(executor, embedded.shard(0), close, asio::use_awaitable);
      const auto report = co_await embedded.async_stop(1s, asio::use_awaitable);
      co_return std::to_string(total.total()) + (report.clean ? ", clean" : ", not clean");
    };
    asio::co_spawn(context, main(embedded, node),
                   [&](std::exception_ptr, std::string text) { got = std::move(text); });
    context.run();
  }
  CHECK(got == "4, clean");
}

TEST_CASE("asio code asks actors whose shards have threads of their own") {
  hf::Runtime runtime({.shards = 2});
  hf::Node node(runtime);
  const auto counter = runtime.run(
      [&](hf::Runtime&) { return node.spawn<Counter>(hf::SpawnOptions{.name = "counter"}); }, 1);
  asio::io_context context;
  long sum = 0;
  for (int i = 0; i < 10; ++i)
    hf::async_ask(context.get_executor(), counter.add({.delta = 1}),
                  [&](std::exception_ptr, demo::Total total) { sum += total.total(); });
  context.run();  // has work until all have been answered
  CHECK(sum == 55);
  runtime.run([&](hf::Runtime&) { return node.close(5s); });
}

#endif
