#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/channel/blocking.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "error_of.hpp"
#include "support.hpp"
#include "transports.hpp"

using namespace net_test;
namespace blocking = hf::net::blocking;
using net::TypedMessage;

namespace {

hf::Duration long_enough() { return hf::timing().scaled(30s); }

TypedMessage typed(const char* type, const std::string& body) {
  return {.type = type, .body = hf::Buffer::copy_of(body)};
}

}  // namespace

TEST_CASE("plain programs send and receive without a coroutine") {
  const Over over(GENERATE(bare_transports()));
  TypedMessage kept;
  {
    blocking::Messenger server, client;
    const std::string uri = server.listen(Over::uri()).to_string();
    blocking::Channel here = client.connect(uri, long_enough());
    blocking::Channel there = server.accept(long_enough());
    TypedMessage question = typed("demo.chat.question", "how are you?");
    question.segments.push_back(hf::Buffer::copy_of(std::string(200'000, 'x')));
    here.send(std::move(question), long_enough());
    kept = there.recv("demo.chat.*", long_enough());
    there.send(typed("demo.chat.answer", "well"), long_enough());
    CHECK(here.recv({}, long_enough()).body.text() == "well");
    CHECK(there.stats().received == 1);
    CHECK(there.stats().held_bytes == 0);
    CHECK(here.peer().node_id != there.peer().node_id);
    CHECK(client.close() == 0);
    CHECK(error_of([&] { there.recv({}, long_enough()); }).is(hf::Errc::closed));
  }
  // What was received outlives its messenger.
  CHECK(kept.body.text() == "how are you?");
  CHECK(kept.segments[0].text() == std::string(200'000, 'x'));
}

TEST_CASE("many threads may use one channel at the same time") {
  const Over over(GENERATE(bare_transports()));
  blocking::Messenger server, client;
  const std::string uri = server.listen(Over::uri()).to_string();
  blocking::Channel here = client.connect(uri, long_enough());
  blocking::Channel there = server.accept(long_enough());
  constexpr int threads = 4, each = 200;
  std::mutex mutex;
  std::map<std::string, int> got;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (int i = 0; i < each; ++i)
        here.send(typed("test.thread.one", std::to_string(t) + "/" + std::to_string(i)),
                  long_enough());
    });
    all.emplace_back([&] {
      for (int i = 0; i < each; ++i) {
        const TypedMessage message = there.recv({}, long_enough());
        const std::scoped_lock lock(mutex);
        ++got[std::string(message.body.text())];
      }
    });
  }
  for (auto& thread : all) thread.join();
  CHECK(got.size() == threads * each);
  for (const auto& [text, count] : got) REQUIRE(count == 1);
}

TEST_CASE("blocking calls have deadlines, and errors of channels") {
  blocking::Messenger server, client;
  const std::string uri = server.listen(Over::uri()).to_string();
  const hf::Error late = error_of([&] { server.accept(10ms); });
  CHECK(late.is(hf::Errc::deadline_exceeded));
  CHECK(late.tried() == "accept a channel");
  blocking::Channel here = client.connect(uri, long_enough());
  CHECK(error_of([&] { here.recv({}, 10ms); }).is(hf::Errc::deadline_exceeded));
  CHECK(error_of([&] { here.send({}); }).is(hf::Errc::invalid_argument));
  CHECK(error_of([&] {
          client.connect("tcp://127.0.0.1:1", long_enough());
        }).is(hf::Errc::unreachable));
  CHECK(error_of([&] {
          client.connect("nonsense://", long_enough());
        }).is(hf::Errc::invalid_argument));
  blocking::Channel second = here.open(long_enough());
  second.send(typed("test.one.a", "x"), long_enough());
  blocking::Channel there = server.accept(long_enough());
  here.close("enough");
  const hf::Error over = error_of([&] { there.recv({}, long_enough()); });
  CHECK(over.is(hf::Errc::closed));
  CHECK(over.found().find("enough") != std::string::npos);
  CHECK(server.accept(long_enough()).recv({}, long_enough()).body.text() == "x");
  CHECK(error_of([] { blocking::Channel().recv(); }).is(hf::Errc::invalid_argument));
}

TEST_CASE("blocking calls on a shard's thread are refused, and say why") {
  blocking::Messenger server;
  server.listen(Over::uri());
  hf::Runtime runtime(shards(1));
  const hf::Error refused = runtime.run([&](hf::Runtime&) {
    return hf::co_invoke([&]() -> hf::Task<hf::Error> {
      co_return error_of([&] { server.accept(long_enough()); });
    });
  });
  CHECK(refused.is(hf::Errc::would_deadlock));
  CHECK(refused.found().find("shard") != std::string::npos);
  CHECK(refused.remedy().find("co_await") != std::string::npos);
}

TEST_CASE("a buffer of a shard is refused by a blocking channel") {
  blocking::Messenger server, client;
  const std::string uri = server.listen(Over::uri()).to_string();
  blocking::Channel here = client.connect(uri, long_enough());
  hf::Runtime runtime(shards(1));
  TypedMessage message{.type = "test.one.a"};
  message.body = runtime.run([](hf::Runtime&) {
    return hf::co_invoke([]() -> hf::Task<hf::Buffer> {
      co_return hf::Shard::current()->send_pool().try_allocate(100).value();
    });
  });
  CHECK(error_of([&] { here.send(std::move(message)); }).is(hf::Errc::invalid_argument));
}

TEST_CASE("a channel that outlives its messenger is closed") {
  auto client = std::make_unique<blocking::Messenger>();
  blocking::Messenger server;
  blocking::Channel here = client->connect(server.listen(Over::uri()).to_string(), long_enough());
  client.reset();
  CHECK(error_of([&] { here.recv({}, long_enough()); }).is(hf::Errc::closed));
  CHECK(error_of([&] { here.close(); }).is(hf::Errc::closed));
}

TEST_CASE("a forked child is told that its parent's messenger is not there, and ends by itself") {
  auto client = std::make_unique<blocking::Messenger>();
  blocking::Messenger server;
  const std::string uri = server.listen(Over::uri()).to_string();
  blocking::Channel here = client->connect(uri, long_enough());
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(30);  // ends what hangs
    const auto refused = [](auto action) {
      try {
        action();
      } catch (const hf::Error& error) {
        return error.is(hf::Errc::unsupported) && error.found().find("forked") != std::string::npos;
      }
      return false;
    };
    const bool all = refused([&] { here.send(typed("test.one.a", "x"), 1s); }) &&
                     refused([&] { here.recv({}, 1s); }) &&
                     refused([&] { client->connect(uri, 1s); }) &&
                     refused([&] { client->close(); });
    here = blocking::Channel();
    client.reset();
    ::_exit(all ? 7 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
  // The parent has not noticed.
  here.send(typed("test.one.a", "x"), long_enough());
  blocking::Channel there = server.accept(long_enough());
  CHECK(there.recv({}, long_enough()).body.text() == "x");
}
