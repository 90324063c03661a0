#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/local_channel.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/socket.hpp>

using namespace hyperframes;

namespace {

Task<int> answer() {
  co_await sleep_for(1ms);
  co_return 42;
}

Task<void> echo(Listener listener) {
  Socket socket = co_await listener.accept();
  while (true) {
    Buffer chunk = co_await socket.receive();
    if (chunk.empty()) break;
    co_await socket.send(Segments(std::move(chunk)));
  }
}

Task<std::string> ask_echo(Address address, std::string text) {
  Socket socket = co_await Socket::connect(address, after(5s));
  co_await socket.send(Segments(Buffer::copy_of(text)));
  co_await socket.shutdown_send();
  std::string got;
  while (true) {
    Buffer chunk = co_await socket.receive(after(5s));
    if (chunk.empty()) break;
    got += chunk.text();
  }
  co_return got;
}

}  // namespace

TEST_CASE("a task's value reaches the thread that ran it") {
  Runtime runtime({.shards = 2});
  CHECK(runtime.run([](Runtime&) { return answer(); }) == 42);
  CHECK(runtime.run([](Runtime&) { return answer(); }, 1) == 42);
}

TEST_CASE("an exception reaches the thread that ran the task") {
  Runtime runtime({.shards = 1});
  auto fails = [](Runtime&) -> Task<void> {
    co_await yield();
    throw Error(Errc::not_found, "look for it");
  };
  CHECK_THROWS_AS(runtime.run(fails), Error);
}

TEST_CASE("a call runs on the other shard and returns to this one") {
  Runtime runtime({.shards = 2});
  auto indexes = runtime.run([](Runtime& runtime) -> Task<std::vector<unsigned>> {
    std::vector<unsigned> seen;
    seen.push_back(Shard::current()->index());
    seen.push_back(co_await call_on(runtime.shard(1), [] { return Shard::current()->index(); }));
    seen.push_back(Shard::current()->index());
    seen.push_back(co_await call_on(runtime.shard(1), []() -> Task<unsigned> {
      co_await sleep_for(1ms);
      co_return Shard::current()->index() + 10;
    }));
    co_return seen;
  });
  CHECK(indexes == std::vector<unsigned>{0, 1, 0, 11});
}

TEST_CASE("bytes sent over a socket come back from an echo") {
  Runtime runtime({.shards = 1});
  std::string big(300'000, 'x');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>('a' + i % 23);
  auto run = [big](Runtime&) -> Task<std::string> {
    Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
    const Address address = listener.address();
    auto both = co_await when_all(echo(std::move(listener)), ask_echo(address, big));
    co_return std::get<1>(std::move(both));
  };
  CHECK(runtime.run(run) == big);
}

TEST_CASE("what is written to a file is read back") {
  Runtime runtime({.shards = 1});
  const std::string path = "runtime_test_file.tmp";
  auto text = runtime.run([path](Runtime&) -> Task<std::string> {
    co_await write_whole_file(path, Buffer::copy_of("durable"));
    Buffer back = co_await read_whole_file(path);
    co_await remove_file(path);
    co_return std::string(back.text());
  });
  CHECK(text == "durable");
}

TEST_CASE("a deadline ends a wait and says so") {
  Runtime runtime({.shards = 1});
  auto run = [](Runtime&) -> Task<bool> {
    Event never;
    try {
      co_await with_deadline(co_invoke([&never]() -> Task<void> { co_await never.wait(); }),
                             after(5ms));
    } catch (const Error& error) {
      co_return error.is(Errc::deadline_exceeded);
    }
    co_return false;
  };
  CHECK(runtime.run(run));
}

TEST_CASE("stopping names a task that does not end, with the line it waits on") {
  Runtime runtime({.shards = 1});
  runtime.on_every_shard([](Shard& shard) {
    shard.spawn(shielded(co_invoke([]() -> Task<void> {
      Event never;
      co_await never.wait();
    })));
  });
  const auto report = runtime.stop(50ms);
  CHECK_FALSE(report.clean);
  REQUIRE(report.stragglers.size() == 1);
  CHECK(report.stragglers[0].find("runtime_test.cpp") != std::string::npos);
}
