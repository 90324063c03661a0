// One binary that holds Boost.Asio as well as the standalone asio that the runtime uses.
#include <catch2/catch_test_macros.hpp>

#include "boost_side.hpp"

#if defined(HYPERFRAMES_TEST_BOOST) && defined(HYPERFRAMES_HAS_ASIO)

#include <hyperframes/runtime/asio.hpp>
#include <hyperframes/runtime/sleep.hpp>

TEST_CASE("one binary holds Boost.Asio, and shards on standalone asio") {
  using namespace hyperframes;
  test::BoostSide boosts;
  asio::io_context context;
  AsioRuntime embedded(context);
  int got = 0;
  async_run(
      context.get_executor(), embedded.shard(0),
      []() -> Task<int> {
        co_await sleep_for(1ms);
        co_return 8;
      },
      [&](std::exception_ptr, int value) {
        boosts.post([&got, value] { got = value; });
        embedded.async_stop(5s, [](Runtime::StopReport) {});
      });
  context.run();
  bool rang = false;
  boosts.run([&] { rang = true; });
  CHECK(got == 8);
  CHECK(rang);
}

#else

TEST_CASE("one binary holds Boost.Asio, and shards on standalone asio") {
  SKIP("Boost.Asio is not installed (Debian: libboost-dev), or asio is not (libasio-dev)");
}

#endif
