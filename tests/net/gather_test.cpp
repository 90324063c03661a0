#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/channel/gather.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <string>
#include <vector>

#include "messengers.hpp"
#include "transports.hpp"

using namespace net_test;

namespace {

struct Many {
  std::vector<Channel> here, there;
};

hf::Task<Many> connect_many(Messengers* both, int count) {
  Many many;
  for (int i = 0; i < count; ++i) {
    Ends ends = co_await both->connect();
    many.here.push_back(std::move(ends.here));
    many.there.push_back(std::move(ends.there));
  }
  co_return many;
}

}  // namespace

TEST_CASE("what is scattered is worked on, and gathered in the order of the channels") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Many many = co_await connect_many(&both, 4);
    std::vector<TypedMessage> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(typed("ml.work.part", std::to_string(i)));
    co_await net::scatter(many.here, std::move(parts), soon());
    // The last one answers first.
    for (std::size_t i = 4; i-- > 0;) {
      TypedMessage part = co_await many.there[i].recv({}, soon());
      CHECK(part.body.text() == std::to_string(i));
      co_await many.there[i].send(typed("ml.work.log", "not this"), soon());
      co_await many.there[i].send(typed("ml.work.done", "done " + std::to_string(i)), soon());
    }
    const auto results = co_await net::gather(many.here, "ml.work.done", soon());
    REQUIRE(results.size() == 4);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(results[i].body.text() == "done " + std::to_string(i));
  });
}

TEST_CASE("a gather that lacks one takes none") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Many many = co_await connect_many(&both, 3);
    co_await many.there[0].send(typed("ml.work.done", "0"), soon());
    co_await many.there[2].send(typed("ml.work.done", "2"), soon());
    co_await many.there[1].send(typed("ml.work.log", "?"), soon());
    const hf::Error late =
        co_await failure_of(net::gather(many.here, "ml.work.done", hf::after(50ms)));
    CHECK(late.is(hf::Errc::deadline_exceeded));
    CHECK(mentions(late, "ml.work.done"));
    co_await many.there[1].send(typed("ml.work.done", "1"), soon());
    const auto results = co_await net::gather(many.here, "ml.work.done", soon());
    REQUIRE(results.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(results[i].body.text() == std::to_string(i));
    many.there[1].close("out of order");
    const hf::Error over = co_await failure_of(net::gather(many.here, "ml.work.done", soon()));
    CHECK(over.is(hf::Errc::closed));
    CHECK(mentions(over, "out of order"));
  });
}

TEST_CASE("whoever has something is first, and those who have much take turns") {
  const Over over(GENERATE(bare_transports()));
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Many many = co_await connect_many(&both, 3);
    co_await many.there[1].send(typed("ml.work.done", "x"), soon());
    const net::AnyMessage only = co_await net::gather_any(many.here, "ml.*", soon());
    CHECK(only.channel == 1);
    CHECK(only.message.body.text() == "x");

    for (int i = 0; i < 4; ++i)
      for (Channel& channel : many.there)
        co_await channel.send(typed("ml.work.done", std::to_string(i)), soon());
    // All have come when the last of each lane has.
    const hf::Time limit = soon();
    const auto all_came = [&] {
      return std::ranges::all_of(many.here, [](const Channel& channel) {
        return channel.stats().unreceived_messages == 4;
      });
    };
    while (!all_came() && hf::Clock::now() < limit) co_await hf::sleep_for(1ms);
    std::vector<int> taken(3);
    std::size_t next = 0;
    for (int i = 0; i < 6; ++i) {
      const net::AnyMessage any = co_await net::gather_any(many.here, {}, soon(), next);
      ++taken[any.channel];
      next = any.channel + 1;
    }
    CHECK(taken == std::vector<int>{2, 2, 2});
  });
}

TEST_CASE("channels that have ended are passed over until all have") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Many many = co_await connect_many(&both, 2);
    many.there[0].close("first");
    co_await many.there[1].send(typed("ml.work.done", "x"), soon());
    const net::AnyMessage any = co_await net::gather_any(many.here, {}, soon());
    CHECK(any.channel == 1);
    many.there[1].close("second");
    const hf::Error over = co_await failure_of(net::gather_any(many.here, {}, soon()));
    CHECK(over.is(hf::Errc::closed));
    CHECK(mentions(over, "first"));
  });
}

TEST_CASE("a scatter needs one message for each channel") {
  Messengers both;
  both.run([&]() -> hf::Task<void> {
    Many many = co_await connect_many(&both, 2);
    std::vector<TypedMessage> one;
    one.push_back(typed("ml.work.part", "x"));
    try {
      co_await net::scatter(many.here, std::move(one), soon());
      FAIL("it went well");
    } catch (const hf::Error& error) {
      CHECK(error.is(hf::Errc::invalid_argument));
      CHECK(mentions(error, "1 messages for 2 channels"));
    }
  });
}
