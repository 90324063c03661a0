#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/channel/blocking.hpp>
#include <hyperframes/net/channel/channel.hpp>
#include <hyperframes/net/channel/messenger.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <random>
#include <string>
#include <vector>

#include "error_of.hpp"
#include "messengers.hpp"
#include "process.hpp"
#include "proxy.hpp"
#include "transports.hpp"

using namespace net_test;

namespace {

Messenger::Options with_window(std::size_t bytes) {
  Messenger::Options options;
  options.window_bytes = bytes;
  return options;
}

Messenger::Options with_keys(std::vector<std::string> keys) {
  Messenger::Options options;
  options.keys = std::move(keys);
  return options;
}

/// Sends until the peer's window is full. Returns how many went.
hf::Task<int> fill_up(Channel* channel, std::size_t bytes) {
  int sent = 0;
  for (; channel->stats().credit_bytes > 0; ++sent)
    co_await channel->send(typed("test.fill.one", std::string(bytes, 'x')), soon());
  co_return sent;
}

/// All that was said before has come when this is done.
hf::Task<void> go_round(Ends* ends) {
  co_await ends->here.send(typed("test.round.trip", ""), soon());
  TypedMessage there = co_await ends->there.recv("test.round.trip", soon());
  co_await ends->there.send(std::move(there), soon());
  (void)co_await ends->here.recv("test.round.trip", soon());
}

/// The same memory, `times` one behind the other.
hf::Buffer repeated(std::size_t bytes, std::size_t times) {
  const int file = ::memfd_create("repeated", MFD_CLOEXEC);
  REQUIRE(::ftruncate(file, static_cast<off_t>(bytes)) == 0);
  void* const all = ::mmap(nullptr, bytes * times, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(all != MAP_FAILED);
  auto* const begin = static_cast<std::byte*>(all);
  for (std::size_t i = 0; i < times; ++i)
    REQUIRE(::mmap(begin + i * bytes, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                   0) != MAP_FAILED);
  ::close(file);
  for (std::size_t i = 0; i < bytes; i += 4096) begin[i] = static_cast<std::byte>(i / 4096 * 7);
  auto* const block = new hf::detail::Block;
  block->atomic_count = true;
  block->data = begin;
  block->capacity = bytes * times;
  block->dispose = [](hf::detail::Block* self) noexcept {
    ::munmap(self->data, self->capacity);
    delete self;
  };
  return hf::Buffer::adopt(block, begin, block->capacity);
}

hf::Task<void> send_numbers(Channel* channel, int count, std::size_t large_bytes) {
  for (int i = 0; i < count; ++i) {
    TypedMessage message = typed("test.order.number", std::to_string(i));
    if (i % 5 == 0) message.segments.push_back(hf::Buffer::heap(large_bytes));
    co_await channel->send(std::move(message), soon());
  }
}

}  // namespace

TEST_CASE("two programs talk both ways on one channel") {
  const Over over(GENERATE(bare_transports()));
  Messengers both(with_keys({"trace", "step"}));
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    TypedMessage question{.type = "demo.chat.question", .metadata = {{"trace", "7f3a"}}};
    question.body = hf::Buffer::copy_of("how are you?");
    question.segments.push_back(hf::Buffer::copy_of(std::string(100'000, 'a')));
    question.segments.push_back(hf::Buffer());
    question.segments.push_back(hf::Buffer::copy_of("b"));
    co_await ends.here.send(std::move(question), soon());
    TypedMessage got = co_await ends.there.recv({}, soon());
    CHECK(got.type == "demo.chat.question");
    CHECK(got.metadata == net::Metadata{{"trace", "7f3a"}});
    CHECK(got.body.text() == "how are you?");
    REQUIRE(got.segments.count() == 3);
    CHECK(got.segments[0].text() == std::string(100'000, 'a'));
    CHECK(got.segments[1].empty());
    CHECK(got.segments[2].text() == "b");

    co_await ends.there.send({.type = "demo.chat.answer"}, soon());
    TypedMessage answer = co_await ends.here.recv({}, soon());
    CHECK(answer.type == "demo.chat.answer");
    CHECK(answer.body.empty());
    CHECK(answer.metadata.empty());
  });
}

TEST_CASE("messages of a channel stay in order, though small ones pass large ones on the way") {
  const Over over(GENERATE(bare_transports()));
  Messengers both(with_window(8u << 20));
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    hf::Scope scope;
    scope.spawn(send_numbers(&ends.here, 60, 700'000));
    for (int i = 0; i < 60; ++i) {
      TypedMessage got = co_await ends.there.recv({}, soon());
      REQUIRE(got.body.text() == std::to_string(i));
    }
    co_await scope.join();
  });
}

TEST_CASE("a filter takes what it names, and leaves the rest in order") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (const char* type :
         {"ml.splitter.batch", "ml.loader.batch", "ml.splitter.end", "app.log.line"})
      co_await ends.here.send(typed(type, ""), soon());
    TypedMessage end = co_await ends.there.recv("ml.splitter.end", soon());
    CHECK(end.type == "ml.splitter.end");
    TypedMessage batch = co_await ends.there.recv("ml.*.batch", soon());
    CHECK(batch.type == "ml.splitter.batch");
    CHECK(!ends.there.try_recv("ml.splitter.*"));
    TypedMessage first = co_await ends.there.recv({}, soon());
    CHECK(first.type == "ml.loader.batch");
    TypedMessage last = co_await ends.there.recv("app.*", soon());
    CHECK(last.type == "app.log.line");
  });
}

TEST_CASE("two that receive on one channel each get what they want") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    const auto sends = [&]() -> hf::Task<int> {
      co_await ends.here.send(typed("test.one.b", "b"), soon());
      co_await ends.here.send(typed("test.one.a", "a"), soon());
      co_await ends.here.send(typed("test.one.a", "again"), soon());
      co_return 0;
    };
    auto got = co_await hf::when_all(ends.there.recv("test.one.a", soon()),
                                     ends.there.recv("test.one.a", soon()),
                                     ends.there.recv("test.one.b", soon()), hf::co_invoke(sends));
    CHECK(std::get<0>(got).body.text() == "a");
    CHECK(std::get<1>(got).body.text() == "again");
    CHECK(std::get<2>(got).body.text() == "b");
  });
}

TEST_CASE("a metadata key that was not declared is named, with those that are") {
  Messengers both(with_keys({"trace", "step"}), with_keys({"trace", "step", "extra"}));
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    const hf::Error own = co_await failure_of(
        ends.here.send({.type = "demo.chat.line", .metadata = {{"stpe", "1"}}}));
    CHECK(own.is(hf::Errc::invalid_argument));
    CHECK(mentions(own, "'stpe'"));
    CHECK(mentions(own, "declared are: extra, step, trace"));
    const hf::Error theirs = co_await failure_of(
        ends.here.send({.type = "demo.chat.line", .metadata = {{"extra", "1"}}}));
    CHECK(theirs.is(hf::Errc::invalid_argument));
    CHECK(mentions(theirs, "'extra'"));
    CHECK(mentions(theirs, "it declares: step, trace"));
    const hf::Error none = co_await failure_of(ends.here.send({}));
    CHECK(none.is(hf::Errc::invalid_argument));
    CHECK(mentions(none, "no type"));
    // Nothing of that was sent, and the channel is as good as before.
    co_await ends.here.send({.type = "demo.chat.line", .metadata = {{"step", "1"}}}, soon());
    TypedMessage got = co_await ends.there.recv({}, soon());
    CHECK(*got.metadata.find("step") == "1");
  });
}

TEST_CASE("a recv that matches nothing says which types did arrive, in the log and in its error") {
  const LogLines log;
  Messenger::Options options;
  options.report_unmatched_after = 10ms;
  Messengers both(options);
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (int i = 0; i < 3; ++i) co_await ends.here.send(typed("ml.loader.batch", "x"), soon());
    co_await ends.here.send(typed("ml.loader.end", "x"), soon());
    hf::CancelSource stop;
    hf::Scope scope(&stop);
    std::optional<hf::Error> failure;
    scope.spawn(hf::co_invoke([&]() -> hf::Task<void> {
      failure = co_await failure_of(ends.there.recv("ml.splitter.*"));
    }));
    const hf::Time limit = soon();
    while (!log.has("ml.splitter.*") && hf::Clock::now() < limit) co_await hf::sleep_for(5ms);
    CHECK(log.has("receive 'ml.splitter.*'"));
    CHECK(log.has("so far came ml.loader.batch (3), ml.loader.end (1)"));
    stop.cancel();
    co_await scope.join();
    REQUIRE(failure);
    CHECK(failure->is(hf::Errc::cancelled));

    const hf::Error late = co_await failure_of(ends.there.recv("ml.splitter.*", hf::after(20ms)));
    CHECK(late.is(hf::Errc::deadline_exceeded));
    CHECK(mentions(late, "ml.loader.batch (3), ml.loader.end (1)"));
    // They are still there.
    CHECK(ends.there.stats().unreceived_messages == 4);
    // A channel on which nothing comes is no mistake, and not reported.
    const hf::Error idle = co_await failure_of(ends.here.recv("ml.*", hf::after(60ms)));
    CHECK(idle.is(hf::Errc::deadline_exceeded));
    CHECK(mentions(idle, "nothing at all"));
    CHECK(!log.has("nothing at all"));
  });
}

TEST_CASE("a recv that waits ends with the deadline of those who wait for it") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    const hf::Error late =
        co_await failure_of(hf::with_deadline(ends.there.recv(), hf::after(20ms)));
    CHECK(late.is(hf::Errc::deadline_exceeded));
    co_await ends.here.send(typed("test.one.a", "a"), soon());
    TypedMessage got = co_await ends.there.recv({}, soon());
    CHECK(got.body.text() == "a");
  });
}

TEST_CASE("a receiver that does not receive stops the sender of its channel, and no other") {
  const Over over(GENERATE(bare_transports()));
  // Together they hold more than any lane's window.
  Messengers both(with_window(512 << 10));
  both.run([&]() -> hf::Task<void> {
    std::vector<Ends> stalled;
    for (int i = 0; i < 12; ++i) {
      stalled.push_back(co_await both.connect());
      const int sent = co_await fill_up(&stalled.back().here, 1000);
      const auto window = static_cast<int>(stalled.back().there.stats().window_bytes);
      CHECK(sent * 1000 <= window + 1000);
      CHECK(sent * 1200 >= window);
      const hf::Error full = co_await failure_of(
          stalled.back().here.send(typed("test.fill.one", "x"), hf::after(10ms)));
      CHECK(full.is(hf::Errc::deadline_exceeded));
      CHECK(mentions(full, "its window is 524288"));
    }
    Ends free = co_await both.connect();
    for (int i = 0; i < 5000; ++i) {
      co_await free.here.send(typed("test.free.one", std::string(1000, 'y')), soon());
      TypedMessage got = co_await free.there.recv({}, soon());
      REQUIRE(got.body.size() == 1000);
    }
    co_await free.here.send(typed("test.free.large", std::string(3u << 20, 'z')), soon());
    TypedMessage large = co_await free.there.recv({}, soon());
    CHECK(large.body.size() == 3u << 20);
    // What the stalled ones hold is all there.
    for (Ends& ends : stalled) {
      TypedMessage got = co_await ends.there.recv({}, soon());
      CHECK(got.body.size() == 1000);
    }
  });
}

TEST_CASE("credit goes back when a message's buffers are destroyed, not when it was received") {
  const Over over(GENERATE(bare_transports()));
  Messengers both(with_window(64 << 10));
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    Ends beside = co_await both.connect();
    const int sent = co_await fill_up(&ends.here, 1000);
    std::vector<TypedMessage> kept;
    for (int i = 0; i < sent; ++i) kept.push_back(co_await ends.there.recv({}, soon()));
    CHECK(ends.there.stats().unreceived_messages == 0);
    CHECK(ends.there.stats().held_bytes >= static_cast<std::uint64_t>(sent) * 1000);
    co_await go_round(&beside);
    CHECK(ends.here.stats().credit_bytes <= 0);
    kept.clear();
    CHECK(ends.there.stats().held_bytes == 0);
    co_await ends.here.send(typed("test.fill.one", "x"), soon());
    CHECK(ends.here.stats().credit_bytes > 0);
  });
}

TEST_CASE("buffers that are destroyed on another shard give their credit back") {
  Messengers both(with_window(64 << 10), with_window(64 << 10), 2);
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (int i = 0; i < 400; ++i) {
      co_await ends.here.send(typed("test.fill.one", std::string(1000, 'x')), soon());
      TypedMessage got = co_await ends.there.recv({}, soon());
      REQUIRE(got.body.unique());
      auto size = [body = std::move(got.body)] { return body.size(); };
      got = {};
      const std::size_t bytes = co_await hf::call_on(both.runtime.shard(1), std::move(size));
      REQUIRE(bytes == 1000);
    }
  });
}

TEST_CASE("a message larger than the window goes when nothing else is on its way") {
  const Over over(GENERATE(bare_transports()));
  Messengers both(with_window(10'000));
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (int i = 0; i < 5; ++i) {
      co_await ends.here.send(typed("test.large.one", std::string(2u << 20, 'x')), soon());
      TypedMessage got = co_await ends.there.recv({}, soon());
      REQUIRE(got.body.size() == 2u << 20);
    }
  });
}

TEST_CASE("what was sent before a channel is closed arrives, and then the reason") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (int i = 0; i < 20; ++i)
      co_await ends.here.send(typed("test.last.words", std::string(i % 2 ? 10 : 100'000, 'x')),
                              soon());
    ends.here.close("done for today");
    for (int i = 0; i < 20; ++i) {
      TypedMessage got = co_await ends.there.recv({}, soon());
      REQUIRE(got.body.size() == (i % 2 ? 10 : 100'000));
    }
    const hf::Error over = co_await failure_of(ends.there.recv({}, soon()));
    CHECK(over.is(hf::Errc::closed));
    CHECK(mentions(over, "done for today"));
    CHECK(!ends.there.up());
    const hf::Error late = co_await failure_of(ends.there.send(typed("test.last.words", "")));
    CHECK(late.is(hf::Errc::closed));
    const hf::Error own = co_await failure_of(ends.here.send(typed("test.last.words", "")));
    CHECK(own.is(hf::Errc::closed));
    CHECK(mentions(own, "this end closed it"));
    // The session goes on.
    Ends next = co_await both.connect();
    co_await next.here.send(typed("test.last.words", "x"), soon());
    TypedMessage got = co_await next.there.recv({}, soon());
    CHECK(got.body.text() == "x");
  });
}

TEST_CASE("channels go on over connections that break at any byte") {
  const std::uint64_t seed = Catch::getSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const LogLines log;  // each break is a line
  Messengers both;
  const std::string uri = both.run([&] { return both.listen(); });
  Proxy proxy(net::Endpoint::parse(uri));
  both.run([&]() -> hf::Task<void> {
    Channel here[2], there[2];
    for (int i = 0; i < 2; ++i) {
      here[i] = co_await both.client->connect(proxy.endpoint().to_string(), soon());
      there[i] = co_await both.server->accept(soon());
    }
    std::uint64_t last[2] = {};
    for (int round = 0; round < 40; ++round) {
      proxy.cut_after(static_cast<std::int64_t>(random() % 300'000));
      const std::size_t sizes[] = {random() % 100, random() % 300'000, random() % 5000};
      for (const std::size_t size : sizes)
        for (Channel& channel : here)
          co_await channel.send(typed("test.break.one", std::string(size, 'x')), soon());
      for (int i = 0; i < 2; ++i)
        for (const std::size_t size : sizes) {
          TypedMessage got = co_await there[i].recv({}, soon());
          REQUIRE(got.body.size() == size);
          ++last[i];
        }
    }
    CHECK(there[0].stats().received == last[0]);
    CHECK(there[1].stats().received == last[1]);
  });
  CHECK(log.has("broke"));
}

TEST_CASE("a filter that nothing matched learns at the end what came instead") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    co_await ends.here.send(typed("test.last.words", ""), soon());
    ends.here.close();
    const hf::Error over = co_await failure_of(ends.there.recv("test.first.words", soon()));
    CHECK(over.is(hf::Errc::closed));
    CHECK(mentions(over, "test.last.words (1)"));
  });
}

TEST_CASE("a peer that goes away leaves what it has sent, and then an error") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  auto ends = both.run([&]() -> hf::Task<std::shared_ptr<Ends>> {
    auto made = std::make_shared<Ends>(co_await both.connect());
    for (int i = 0; i < 10; ++i) co_await made->here.send(typed("test.last.words", "x"), soon());
    made->here = Channel();  // the last user of the client's end
    co_await both.client->close(5s);
    co_return made;
  });
  both.client.reset();
  both.run([&, ends = std::move(ends)]() mutable -> hf::Task<void> {
    const auto kept = std::move(ends);
    for (int i = 0; i < 10; ++i) {
      TypedMessage got = co_await kept->there.recv({}, soon());
      REQUIRE(got.body.text() == "x");
    }
    const hf::Error over = co_await failure_of(kept->there.recv({}, soon()));
    CHECK(over.is(hf::Errc::closed));
  });
}

TEST_CASE("peer process: sends five messages on a channel and receives none", "[.][peer]") {
  if (report_descriptor() < 0) return;
  net::blocking::Messenger messenger;
  report(messenger.listen(Over::uri()).to_string());
  net::blocking::Channel channel = messenger.accept();
  for (int i = 0; i < 5; ++i) channel.send(typed("test.from.peer", std::string(100'000, 'x')));
  while (true) ::pause();
}

TEST_CASE("close counts what was lost with a peer that died before it, and the log tells of it") {
  const Over over(GENERATE(bare_transports()));
  Process peer("peer process: sends five messages on a channel and receives none");
  const std::string uri = peer.endpoint().to_string();
  const LogLines log;
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Channel channel = co_await both.client->connect(uri, soon());
    std::vector<TypedMessage> kept;
    for (int i = 0; i < 5; ++i) kept.push_back(co_await channel.recv({}, soon()));
    peer.stop();
    kept.clear();  // the credit for them is a word of the channel's, and does not count below
    for (int i = 0; i < 20; ++i) co_await channel.send(typed("test.to.peer", "x"), soon());
    peer.signal(SIGKILL);
    for (const hf::Time limit = soon(); channel.up() && hf::Clock::now() < limit;)
      co_await hf::sleep_for(1ms);
    CHECK(!channel.up());
    channel.close();
    CHECK(co_await both.client->close(5s) == 20);
    CHECK(co_await both.client->close(5s) == 20);
  });
  CHECK(log.has("ended before 20 messages were acknowledged"));
}

TEST_CASE("a channel that is accepted after its peer has left still has its messages") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    co_await both.listen();
    Channel here = co_await both.client->connect(both.uri, soon());
    co_await here.send(typed("test.last.words", "bye"), soon());
    here = Channel();
    co_await both.client->close(5s);
    Channel there = co_await both.server->accept(soon());
    TypedMessage got = co_await there.recv({}, soon());
    CHECK(got.body.text() == "bye");
  });
}

TEST_CASE("many channels share one session, and none mixes up its messages with another's") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Ends first = co_await both.connect();
    std::vector<Channel> here, there;
    for (int i = 0; i < 500; ++i) {
      here.push_back(co_await (i % 2 ? first.here : first.there).open(soon()));
      there.push_back(co_await (i % 2 ? both.server : both.client)->accept(soon()));
    }
    for (std::size_t i = 0; i < here.size(); ++i)
      co_await here[i].send(typed("test.many.one", std::to_string(i)), soon());
    for (std::size_t i = here.size(); i-- > 0;) {
      TypedMessage got = co_await there[i].recv({}, soon());
      REQUIRE(got.body.text() == std::to_string(i));
      co_await there[i].send(std::move(got), soon());
    }
    for (std::size_t i = 0; i < here.size(); ++i) {
      TypedMessage got = co_await here[i].recv({}, soon());
      REQUIRE(got.body.text() == std::to_string(i));
    }
  });
}

TEST_CASE("channels that are opened and closed without end leave nothing behind") {
  Messenger::Options options;
  options.max_channels = 8;  // so that one that is not forgotten is missed soon
  Messengers both(options);
  both.run([&]() -> hf::Task<void> {
    Ends first = co_await both.connect();
    for (int i = 0; i < 300; ++i) {
      Channel here = co_await first.here.open(soon());
      Channel there = co_await both.server->accept(soon());
      co_await here.send(typed("test.many.one", std::string(100'000, 'x')), soon());
      if (i % 3 == 0) there.close();
      if (i % 3 == 1) here.close();
      if (i % 3 == 2) {
        TypedMessage got = co_await there.recv({}, soon());
        REQUIRE(got.body.size() == 100'000);
      }
      here = Channel();
      there = Channel();
      // Both ends have to hear of it before it counts no more.
      co_await go_round(&first);
      co_await go_round(&first);
    }
  });
}

TEST_CASE("more channels than a peer takes are refused, with the number") {
  Messenger::Options options;
  options.max_channels = 2;
  Messengers both(options);
  both.run([&]() -> hf::Task<void> {
    Ends first = co_await both.connect();
    Ends second = co_await both.connect();
    const hf::Error refused = co_await failure_of(both.client->connect(both.uri, soon()));
    CHECK(refused.is(hf::Errc::exhausted));
    CHECK(mentions(refused, "2 channels"));
    CHECK(mentions(refused, "max_channels"));
    // The others are not touched by that.
    co_await second.here.send(typed("test.one.a", "x"), soon());
    TypedMessage got = co_await second.there.recv({}, soon());
    CHECK(got.body.text() == "x");
  });
}

TEST_CASE("a message that a receiver can never take is refused, and the text says what it takes") {
  const Over over(GENERATE(bare_transports()));
  Messenger::Options small;
  small.network.receive_budget_bytes = 4u << 20;
  Messengers both(small, {});
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    TypedMessage large{.type = "test.large.one"};
    const hf::Buffer part = hf::Buffer::heap(1u << 20);
    for (int i = 0; i < 1024; ++i) large.segments.push_back(part);  // a GiB that is one MiB
    const hf::Error refused = co_await failure_of(ends.here.send(std::move(large), soon()));
    CHECK(refused.is(hf::Errc::too_large));
    CHECK(mentions(refused, "the peer takes at most"));
    CHECK(mentions(refused, "receive budget"));
    co_await ends.here.send(typed("test.large.one", "small"), soon());
    TypedMessage got = co_await ends.there.recv({}, soon());
    CHECK(got.body.text() == "small");
  });
}

// Takes as much memory as it sends; the sender's is 64 MiB, which its address space shows again and
// again.
TEST_CASE("a message of more than 4 GiB arrives whole, in one segment", "[long]") {
  const Over over(GENERATE(bare_transports()));
  Messenger::Options roomy;
  roomy.network.receive_budget_bytes = std::size_t{8} << 30;
  Messengers both(roomy, {});
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    const hf::Time limit = hf::after(hf::timing().scaled(600s));
    constexpr std::size_t part = 64u << 20, parts = 66;
    TypedMessage large = typed("test.large.one", "and a body");
    large.segments.push_back(repeated(part, parts));
    co_await ends.here.send(std::move(large), limit);
    TypedMessage got = co_await ends.there.recv({}, limit);
    CHECK(got.body.text() == "and a body");
    REQUIRE(got.segments.count() == 1);
    REQUIRE(got.segments[0].size() == part * parts);
    const std::string_view whole = got.segments[0].text();
    for (std::size_t i = 0; i < part; i += 4096) {
      const auto wanted = static_cast<char>(i / 4096 * 7);
      REQUIRE(whole[i] == wanted);
    }
    for (std::size_t i = 1; i < parts; ++i) {
      REQUIRE(whole.substr(i * part, part) == whole.substr(0, part));
      co_await hf::yield();
    }
  });
}

TEST_CASE("a channel to a node without channels is refused, and the session is left as it was") {
  const Over over(GENERATE(bare_transports()));
  Node node;  // as actors have them
  const std::string uri = node.listen().to_string();
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    const hf::Error refused = co_await failure_of(both.client->connect(uri, soon()));
    CHECK(refused.is(hf::Errc::unsupported));
    CHECK(mentions(refused, "no channels"));
    CHECK(mentions(refused, "Messenger"));
  });
  CHECK(node.handler.down_count == 0);
}

TEST_CASE("a message for an actor at a messenger is refused where it is sent, with the reason") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  both.run([&]() -> hf::Task<void> { co_await both.listen(); });
  Node node;  // as actors have them
  const auto messenger = node.connect(net::Endpoint::parse(both.uri));
  for (int i = 0; i < 2; ++i) {
    const hf::Error refused = error_of([&] { node.send(messenger, "a call"); });
    CHECK(refused.is(hf::Errc::unsupported));
    CHECK(mentions(refused, "Messenger"));
    CHECK(mentions(refused, "address of a Node"));
  }
  // The messenger has not heard of it, nor lost its session.
  CHECK(node.handler.down_count == 0);
  CHECK(node.run([&] { return node.network.close(5s); }) == 0);
  CHECK(node.handler.down_count == 1);
}

TEST_CASE("a channel stays on its link, whichever side has more shards") {
  const Over over(GENERATE(bare_transports()));
  hf::Runtime few(shards(1)), many(shards(3));
  Messenger first(few), second(many);
  const bool few_listen = GENERATE(true, false);
  Messenger& server = few_listen ? first : second;
  Messenger& client = few_listen ? second : first;
  hf::Runtime& server_runtime = few_listen ? few : many;
  hf::Runtime& client_runtime = few_listen ? many : few;
  const std::string uri =
      server_runtime.run([&](hf::Runtime&) { return server.listen(Over::uri()); }).to_string();
  // Each shard of the server sends back what it gets, on two channels of it.
  std::vector<std::thread> echoes;
  std::atomic<int> failed{0};
  for (unsigned shard = 0; shard < server_runtime.shard_count(); ++shard)
    echoes.emplace_back([&, shard] {
      const auto echo = [&]() -> hf::Task<void> {
        while (true) {
          Channel channel = co_await server.accept();
          for (int i = 0; i < 50; ++i) {
            TypedMessage got = co_await channel.recv({}, soon());
            co_await channel.send(std::move(got), soon());
          }
          (void)co_await failure_of(channel.recv({}, soon()));  // until it is closed
        }
      };
      try {
        server_runtime.run([&](hf::Runtime&) { return hf::co_invoke(echo); }, shard);
      } catch (const hf::Error& error) {
        if (!error.is(hf::Errc::closed)) ++failed;
      }
    });
  for (unsigned shard = 0; shard < client_runtime.shard_count(); ++shard) {
    const auto talk = [&]() -> hf::Task<void> {
      for (int again = 0; again < 2; ++again) {
        Channel channel = co_await client.connect(uri, soon());
        for (int i = 0; i < 50; ++i) {
          co_await channel.send(typed("test.echo.one", std::string(i % 5 ? 10 : 90'000, 'x')),
                                soon());
          TypedMessage got = co_await channel.recv({}, soon());
          REQUIRE(got.body.size() == (i % 5 ? 10 : 90'000));
        }
      }
    };
    client_runtime.run([&](hf::Runtime&) { return hf::co_invoke(talk); }, shard);
  }
  server_runtime.run([&](hf::Runtime&) { return server.close(1s); });
  for (auto& echo : echoes) echo.join();
  CHECK(failed == 0);
}

TEST_CASE("options of a messenger that make no sense are refused by name") {
  hf::Runtime runtime(shards(1));
  const auto is_refused = [&](Messenger::Options options, const std::string& name) {
    try {
      Messenger messenger(runtime, std::move(options));
    } catch (const hf::Error& error) {
      return error.is(hf::Errc::invalid_argument) && mentions(error, name);
    }
    return false;
  };
  CHECK(is_refused(with_window(0), "window_bytes"));
  CHECK(is_refused(with_window(std::size_t{1} << 40), "window_bytes"));
  CHECK(is_refused(with_keys({"No"}), "keys"));
  CHECK(is_refused(with_keys({""}), "keys"));
  Messenger::Options none;
  none.max_channels = 0;
  CHECK(is_refused(none, "max_channels"));
}
