// Calls from threads that are no shard; with real threads, since that is what it is about.
#include <hyperframes/actors/foreign.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <thread>
#include <vector>

#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

namespace {

struct Program {
  hf::Runtime runtime{{.shards = 2}};
  hf::Node node{runtime};

  demo::CounterRef spawn(unsigned shard, hf::MailboxOptions mailbox = {}) {
    return runtime.run([this, shard, mailbox](hf::Runtime&) -> Task<demo::CounterRef> {
      co_return co_await node.spawn<Counter>({.shard = shard, .mailbox = mailbox});
    });
  }
};

template <class Function>
std::error_code thrown_by(Function function) {
  try {
    function();
  } catch (const hf::Error& error) {
    return error.code();
  }
  return {};
}

}  // namespace

TEST_CASE("a foreign thread asks an actor, and blocks only itself") {
  Program program;
  for (unsigned shard : {0u, 1u}) {
    const auto counter = program.spawn(shard);
    const auto total = hf::submit(counter.add({.delta = 2})).get();
    CHECK(total.total() == 2);
    hf::submit(counter.note({.delta = 3})).get();
    const auto sum = hf::submit(counter.add_named({.name = "Ada", .delta = 4})).get();
    CHECK(sum.total() == 9);
    CHECK(sum.note() == "for Ada");
  }
}

TEST_CASE("a foreign thread asks and tells an actor of another node, each in its order") {
  hf::net::Network::Options open;
  open.insecure = true;
  hf::Runtime near_runtime{{.shards = 2}}, far_runtime{{.shards = 2}};
  hf::Node near(near_runtime, {.name = "near", .network = open});
  hf::Node far(far_runtime, {.name = "far", .network = open});
  const auto bound = far_runtime.run([&](hf::Runtime&) -> Task<hf::net::Endpoint> {
    co_await far.spawn<Counter>({.name = "counter", .shard = 1});
    co_return co_await far.listen(hf::net::Endpoint::parse("tcp://127.0.0.1:0"));
  });
  const auto counter = near_runtime.run([&](hf::Runtime&) -> Task<demo::CounterRef> {
    hf::RemoteNode remote = co_await near.connect(bound);
    co_return co_await remote.find<demo::Counter>("counter");
  });
  CHECK(!counter.is_local());
  for (long i = 1; i <= 100; ++i) {
    hf::submit(counter.note({.delta = 1})).get();
    const auto sum = hf::submit(counter.add_named({.name = "far", .delta = 1})).get();
    CHECK(sum.total() == 2 * i);
    CHECK(sum.note() == "for far");
  }
  CHECK(thrown_by([&] { hf::submit(counter.refuse({.name = "Bob"})).get(); }) ==
        Errc::invalid_argument);
  CHECK(thrown_by([&] { hf::submit(counter.keep({.delta = 1}, hf::within(1ms))).get(); }) ==
        Errc::deadline_exceeded);
}

TEST_CASE("what a foreign thread was answered may be copied there, and outlives the runtime") {
  demo::Sum sum;
  hf::WithSegments<demo::Sum> echo;
  {
    Program program;
    const auto counter = program.spawn(1);
    sum = hf::submit(counter.add_named({.name = "Ada", .delta = 1})).get();
    hf::Segments segments(hf::Buffer::copy_of("a segment"));
    echo = hf::submit(counter.echo({.delta = 7}, std::move(segments))).get();
  }
  std::vector<demo::Sum> copies(10, sum);
  std::thread([moved = std::move(copies)] { CHECK(moved.back().note() == "for Ada"); }).join();
  CHECK(echo.value.total() == 7);
  CHECK(echo.segments[0].text() == "a segment");
}

TEST_CASE("what fails for a foreign thread's call is thrown there") {
  Program program;
  const auto counter = program.spawn(1);
  CHECK(thrown_by([&] { hf::submit(counter.refuse({.name = "Bob"})).get(); }) ==
        Errc::invalid_argument);
  CHECK(thrown_by([&] { hf::submit(counter.keep({.delta = 1}, hf::within(1ms))).get(); }) ==
        Errc::deadline_exceeded);
  CHECK(thrown_by([&] { hf::submit(demo::CounterRef().add({.delta = 1})).get(); }) ==
        Errc::invalid_argument);
}

TEST_CASE("the outcome of a foreign call comes as a callback, too, exactly once") {
  Program program;
  const auto counter = program.spawn(1);
  std::atomic<int> calls = 0, failures = 0;
  for (int i = 0; i < 100; ++i) {
    hf::submit(counter.add({.delta = 1}), [&](hf::Result<demo::Total> total) {
      if (!total) ++failures;
      ++calls;
      calls.notify_all();
    });
  }
  for (int seen = calls; seen < 100; seen = calls) calls.wait(seen);
  CHECK(failures == 0);
  CHECK(hf::submit(counter.add({.delta = 0})).get().total() == 100);
}

TEST_CASE("calls of many foreign threads reach their actor, each thread's in order") {
  Program program;
  const auto counter = program.spawn(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      long before = 0;
      for (int round = 0; round < 200; ++round) {
        const long total = hf::submit(counter.add({.delta = 1})).get().total();
        if (total <= before) FAIL_CHECK("an answer came out of order");
        before = total;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(hf::submit(counter.add({.delta = 0})).get().total() == 800);
}

TEST_CASE("a shard that waits for a foreign call is refused instead of blocked") {
  Program program;
  const auto counter = program.spawn(1);
  program.runtime.run([&](hf::Runtime&) -> Task<void> {
    auto pending = hf::submit(counter.add({.delta = 1}));
    CHECK(thrown_by([&] { pending.get(); }) == Errc::invalid_argument);
    co_return;
  });
}

TEST_CASE("a dump shows the line at which a foreign thread asked what is not answered yet") {
  Program program;
  const auto counter = program.spawn(1);
  auto pending = hf::submit(counter.keep({.delta = 1}, hf::within(1h)));
  hf::submit(counter.add({.delta = 1})).get();  // behind it
  const std::string dump = program.runtime.dump();
  INFO(dump);
  CHECK(dump.find("spawned at foreign_test.cpp:") != std::string::npos);
  hf::submit(counter.release({})).get();
  CHECK(pending.get().total() == 2);
}

TEST_CASE("foreign calls that nobody answers are bounded, and fail when the runtime stops") {
  Log log;  // it names all that had not ended
  std::vector<hf::Pending<demo::Total>> pending;
  {
    Program program;
    const auto counter = program.spawn(1);
    for (std::uint32_t i = 0; i < hf::detail::most_foreign_calls; ++i)
      pending.push_back(hf::submit(counter.keep({.delta = 1}, hf::within(1h))));
    CHECK(thrown_by([&] { hf::submit(counter.add({.delta = 1})).get(); }) == Errc::overloaded);
    program.runtime.stop(1s);
  }
  const auto code = thrown_by([&] { pending.back().get(); });
  const bool told = code == Errc::shutting_down || code == Errc::cancelled;
  CHECK(told);
}

TEST_CASE("an outcome is taken once, and one that is not there is refused instead of waited for") {
  Program program;
  const auto counter = program.spawn(1);
  auto pending = hf::submit(counter.add({.delta = 2}));
  CHECK(pending);
  CHECK(pending.get().total() == 2);
  CHECK(!pending);
  hf::Pending<demo::Total> empty;
  CHECK(!empty);
  for (auto* none : {&pending, &empty}) {
    CHECK(thrown_by([&] { none->get(); }) == Errc::invalid_argument);
    CHECK(thrown_by([&] { none->wait_for(1ms); }) == Errc::invalid_argument);
    CHECK(thrown_by([&] { none->ready(); }) == Errc::invalid_argument);
  }
}

TEST_CASE("an outcome that nobody wants any more may be dropped") {
  Program program;
  const auto counter = program.spawn(1);
  for (int i = 0; i < 10; ++i) static_cast<void>(hf::submit(counter.add({.delta = 1})));
  CHECK(hf::submit(counter.add({.delta = 0})).get().total() == 10);
  auto pending = hf::submit(counter.keep({.delta = 1}, hf::within(1h)));
  CHECK(!pending.wait_for(1ms));
  CHECK(!pending.ready());
  hf::submit(counter.release({})).get();
  CHECK(pending.wait_for(hf::timing().scaled(10s)));
}
