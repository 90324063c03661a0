// Figures of the runtime alone: two shards, and a socket.
#include <atomic>
#include <future>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/socket.hpp>

#include "floors.hpp"
#include "harness.hpp"

namespace hyperframes::bench {
namespace {

Runtime::Options polling(unsigned shards) {
  Runtime::Options options;
  options.shards = shards;
  options.pin_threads = true;
  options.shard.spin_limit = 1s;
  options.shard.spin_always = true;
  return options;
}

/// A work item that bounces between two shards until it has made its trips.
struct Bouncer : hyperframes::detail::Work {
  Bouncer(Shard& a, Shard& b, int trips, std::promise<double>& done)
      : Work(&Bouncer::arrive), shards{&a, &b}, left(2 * trips), done(done) {}
  static void arrive(Work* work) noexcept {
    auto* self = static_cast<Bouncer*>(work);
    if (self->left-- == 0) return self->done.set_value(now_ns());
    self->shards[self->left & 1]->post(self);
  }
  Shard* shards[2];
  int left;
  std::promise<double>& done;
};

// Each runtime here ends with its round: shards that poll take the cores of whatever is measured
// beside them, floors and the other rows too.

double cross_shard_round_trip() {
  constexpr int trips = 100'000;
  Runtime runtime(polling(2));
  std::promise<double> done;
  auto ended = done.get_future();
  Bouncer bouncer(runtime.shard(0), runtime.shard(1), trips, done);
  const double start = now_ns();
  runtime.shard(0).post(&bouncer);
  return (ended.get() - start) / trips;
}

Task<void> echo_messages(int descriptor) {
  Socket socket = Socket::adopt(descriptor, Address());
  while (true) {
    Buffer chunk = co_await socket.receive();
    if (chunk.empty()) break;
    co_await socket.send(Segments(std::move(chunk)));
  }
}

Task<double> send_messages(int descriptor, int count) {
  Socket socket = Socket::adopt(descriptor, Address());
  Buffer message = Shard::current()->send_pool().try_allocate(raw_message_bytes).value();
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    co_await socket.send(Segments(message));
    for (std::size_t got = 0; got < raw_message_bytes;) {
      Buffer chunk = co_await socket.receive();
      got += chunk.size();
    }
  }
  const double took = now_ns() - start;
  co_await socket.close();
  co_return took / count / 1000;
}

double socket_round_trip(const Runtime::Options& options, unsigned server_shard, int count) {
  Runtime runtime(options);
  int server = -1;
  const int client = connected_pair(server);
  return runtime.run([=](Runtime& runtime) -> Task<double> {
    Shard& other = runtime.shard(server_shard);
    co_await call_on(other, [server] { Shard::current()->spawn(echo_messages(server)); });
    co_return co_await send_messages(client, count);
  });
}

}  // namespace

void add_runtime_rows(Runner& runner) {
  runner.add({.group = "runtime",
              .name = "cross-shard round trip, polling",
              .unit = "ns",
              .subject = cross_shard_round_trip,
              .floor = {{"a bare cache line between two threads", bare_cache_line_round_trip, 2.5}},
              .note = "a work item posted to the other shard and back"});
  runner.add(
      {.group = "runtime",
       .name = "socket 64 B round trip, polling",
       .unit = "us",
       .subject = [] { return socket_round_trip(polling(2), 1, 20'000); },
       .floor = {{"a raw io_uring loop", [] { return raw_round_trip_us(true, 20'000); }, 1.25}},
       .note = "two shards, loopback TCP, sockets of the runtime without sessions"});
  runner.add({.group = "runtime",
              .name = "socket 64 B round trip, one shard",
              .unit = "us",
              .subject = [] { return socket_round_trip(polling(2), 0, 20'000); },
              .floor = {{"a raw io_uring loop on one ring",
                         [] { return raw_round_trip_one_ring_us(20'000); }, 1.25}},
              .note = "both ends on one shard"});
  runner.add(
      {.group = "runtime",
       .name = "socket 64 B round trip, blocking",
       .unit = "us",
       .subject = [] { return socket_round_trip({.shards = 2, .pin_threads = true}, 1, 3'000); },
       .floor = {{"a raw io_uring loop", [] { return raw_round_trip_us(false, 3'000); }, 1.1}},
       .note = "shards spin for a bounded, adaptive time before they sleep"});
}

}  // namespace hyperframes::bench
