// One binary that holds Boost.Asio as well as the standalone asio that the runtime uses.
#include <catch2/catch_test_macros.hpp>

#if __has_include(<boost/asio.hpp>) && defined(HYPERFRAMES_HAS_ASIO)

#include <asio/steady_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <hyperframes/runtime/asio.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <thread>

TEST_CASE("one binary holds Boost.Asio, and shards on standalone asio") {
  using namespace hyperframes;
  boost::asio::io_context boosts;
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
        boost::asio::post(boosts, [&got, value] { got = value; });
        embedded.async_stop(5s, [](Runtime::StopReport) {});
      });
  context.run();
  boost::asio::steady_timer timer(boosts, std::chrono::milliseconds(1));
  bool rang = false;
  timer.async_wait([&](const boost::system::error_code&) { rang = true; });
  boosts.run();
  CHECK(got == 8);
  CHECK(rang);
}

#else

TEST_CASE("one binary holds Boost.Asio, and shards on standalone asio") {
  SKIP("Boost.Asio is not installed (Debian: libboost-dev), or asio is not (libasio-dev)");
}

#endif
