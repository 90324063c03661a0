#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/channel/broadcast.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <string>
#include <vector>

#include "messengers.hpp"
#include "transports.hpp"

using namespace net_test;
using net::Broadcast;
using net::SlowReader;

namespace {

Messenger::Options small_window() {
  Messenger::Options options;
  options.window_bytes = 32 << 10;
  return options;
}

/// One that receives all, beside one that never receives.
struct Audience {
  std::unique_ptr<Broadcast> feed;
  Channel quick, slow;
};

hf::Task<Audience> make_audience(Messengers* both, SlowReader policy) {
  Audience audience;
  audience.feed =
      std::make_unique<Broadcast>(Broadcast::Options{.queue_bytes = 64 << 10, .slow = policy});
  for (Channel* reader : {&audience.quick, &audience.slow}) {
    Ends ends = co_await both->connect();
    *reader = std::move(ends.here);
    audience.feed->add(std::move(ends.there));
  }
  co_return audience;
}

/// Far more than window and queue of a reader hold; the quick one receives each of them.
hf::Task<void> publish(Audience* audience, int count) {
  for (int i = 0; i < count; ++i) {
    co_await audience->feed->send(
        {.type = "market.feed.tick",
         .body = hf::Buffer::copy_of(std::to_string(i) + std::string(4000, ' '))},
        soon());
    TypedMessage got = co_await audience->quick.recv({}, soon());
    REQUIRE(got.body.text().substr(0, std::to_string(i).size()) == std::to_string(i));
  }
}

int number_of(const TypedMessage& message) { return std::stoi(std::string(message.body.text())); }

}  // namespace

TEST_CASE("a slow reader blocks neither the publisher nor other readers, and is let go") {
  const Over over(GENERATE(bare_transports()));
  const LogLines log;
  Messengers both(small_window());
  both.run([&]() -> hf::Task<void> {
    Audience audience = co_await make_audience(&both, SlowReader::let_go);
    co_await publish(&audience, 200);
    CHECK(audience.feed->let_go() == 1);
    CHECK(audience.feed->dropped() == 0);
    CHECK(audience.feed->reader_count() == 1);
    CHECK(log.has("reader 2"));
    // It gets what was sent before, none missing, and then the reason.
    int next = 0;
    hf::Error end(hf::Errc::internal, "");
    try {
      while (true) {
        TypedMessage got = co_await audience.slow.recv({}, soon());
        REQUIRE(number_of(got) == next++);
      }
    } catch (const hf::Error& error) {
      end = error;
    }
    CHECK(next > 0);
    CHECK(end.is(hf::Errc::closed));
    CHECK(mentions(end, "did not keep up"));
  });
}

TEST_CASE("what a slow reader misses is dropped only if that was asked for, and is counted") {
  const bool oldest = GENERATE(true, false);
  Messengers both(small_window());
  both.run([&]() -> hf::Task<void> {
    Audience audience =
        co_await make_audience(&both, oldest ? SlowReader::drop_oldest : SlowReader::drop_newest);
    co_await publish(&audience, 200);
    CHECK(audience.feed->let_go() == 0);
    CHECK(audience.feed->reader_count() == 2);
    const auto readers = audience.feed->readers();
    REQUIRE(readers.size() == 2);
    CHECK(readers[0].dropped == 0);
    CHECK(readers[0].sent == 200);
    CHECK(readers[1].dropped > 0);
    CHECK(readers[1].dropped == audience.feed->dropped());
    CHECK(readers[1].queued_bytes <= 64 << 10);
    // All that was not dropped comes, in order.
    const int kept = 200 - static_cast<int>(readers[1].dropped);
    int last = -1;
    for (int i = 0; i < kept; ++i) {
      TypedMessage got = co_await audience.slow.recv({}, soon());
      REQUIRE(number_of(got) > last);
      last = number_of(got);
    }
    if (oldest) CHECK(last == 199);
    if (!oldest) CHECK(last < 199);
    co_await audience.feed->drain(soon());
  });
}

TEST_CASE("a publisher that chose to wait waits for the slowest, and then says for whom") {
  Messengers both(small_window());
  both.run([&]() -> hf::Task<void> {
    Audience audience = co_await make_audience(&both, SlowReader::wait);
    int sent = 0;
    std::optional<hf::Error> late;
    while (!late) {
      try {
        co_await audience.feed->send(
            {.type = "market.feed.tick",
             .body = hf::Buffer::copy_of(std::to_string(sent) + std::string(4000, ' '))},
            hf::after(50ms));
        ++sent;
      } catch (const hf::Error& error) {
        late = error;
      }
      if (!late) (void)co_await audience.quick.recv({}, soon());
    }
    CHECK(late->is(hf::Errc::deadline_exceeded));
    CHECK(mentions(*late, "reader 2"));
    for (int i = 0; i < sent; ++i) {
      TypedMessage got = co_await audience.slow.recv({}, soon());
      REQUIRE(number_of(got) == i);
    }
    co_await audience.feed->send({.type = "market.feed.end"}, soon());
    (void)co_await audience.slow.recv("market.feed.end", soon());
  });
}

TEST_CASE("a reader that goes away leaves the broadcast") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Audience audience = co_await make_audience(&both, SlowReader::let_go);
    audience.slow = Channel();
    const hf::Time limit = soon();
    while (audience.feed->reader_count() > 1 && hf::Clock::now() < limit) {
      co_await publish(&audience, 1);
      co_await hf::sleep_for(1ms);
    }
    CHECK(audience.feed->reader_count() == 1);
    CHECK(audience.feed->let_go() == 0);
    co_await publish(&audience, 10);
  });
}

TEST_CASE("what can be sent to nobody is refused before anybody gets it") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Audience audience = co_await make_audience(&both, SlowReader::let_go);
    const hf::Error bad = co_await failure_of(
        audience.feed->send({.type = "market.feed.tick", .metadata = {{"nokey", ""}}}));
    CHECK(bad.is(hf::Errc::invalid_argument));
    CHECK(mentions(bad, "'nokey'"));
    CHECK(audience.feed->reader_count() == 2);
    co_await publish(&audience, 1);
  });
}
