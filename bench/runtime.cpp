// Figures of the runtime alone: two shards, and a socket.
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <memory>
#include <stdexcept>
#include <thread>

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

/// Two threads hand one cache line back and forth.
double bare_cache_line_round_trip() {
  constexpr int count = 200'000;
  struct alignas(64) Line {
    std::atomic<int> value{0};
  };
  static Line ping, pong;
  ping.value = pong.value = 0;
  auto pin = [](unsigned core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
  };
  std::thread other([&] {
    pin(1);
    for (int i = 1; i <= count; ++i) {
      while (ping.value.load(std::memory_order_acquire) != i) {
      }
      pong.value.store(i, std::memory_order_release);
    }
  });
  double took = 0;
  std::thread self([&] {
    pin(0);
    const double start = now_ns();
    for (int i = 1; i <= count; ++i) {
      ping.value.store(i, std::memory_order_release);
      while (pong.value.load(std::memory_order_acquire) != i) {
      }
    }
    took = now_ns() - start;
  });
  self.join();
  other.join();
  return took / count;
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

double cross_shard_round_trip(Runtime& runtime) {
  constexpr int trips = 100'000;
  std::promise<double> done;
  auto ended = done.get_future();
  Bouncer bouncer(runtime.shard(0), runtime.shard(1), trips, done);
  const double start = now_ns();
  runtime.shard(0).post(&bouncer);
  return (ended.get() - start) / trips;
}

// ---- A 64-byte message over a loopback TCP connection and back ------------------------------------

constexpr std::size_t message_bytes = 64;

int connected_pair(int& accepted) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener, 1) != 0)
    throw std::runtime_error("no loopback listener");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(client, reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw std::runtime_error("no loopback connection");
  accepted = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  const int on = 1;
  for (int socket : {client, accepted})
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return client;
}

/// A raw ring with one receive outstanding for each socket; polls or blocks.
class RawRing {
 public:
  RawRing() {
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    if (::io_uring_queue_init_params(64, &ring_, &parameters) < 0)
      throw std::runtime_error("no io_uring");
  }
  ~RawRing() { ::io_uring_queue_exit(&ring_); }

  void receive(int socket, char* into) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_recv(entry, socket, into, message_bytes, MSG_WAITALL);
    ::io_uring_sqe_set_data64(entry, static_cast<std::uint64_t>(socket));
  }
  void send(int socket, const char* from) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_send(entry, socket, from, message_bytes, MSG_NOSIGNAL);
    ::io_uring_sqe_set_data64(entry, 0);
  }
  /// The socket whose receive completed.
  int next(bool poll) {
    while (true) {
      io_uring_cqe* entry = nullptr;
      if (poll) {
        ::io_uring_submit_and_get_events(&ring_);
        if (::io_uring_peek_cqe(&ring_, &entry) != 0) continue;
      } else {
        ::io_uring_submit_and_wait(&ring_, 1);
        if (::io_uring_peek_cqe(&ring_, &entry) != 0) continue;
      }
      const auto socket = static_cast<int>(entry->user_data);
      ::io_uring_cqe_seen(&ring_, entry);
      if (socket) return socket;
    }
  }

 private:
  io_uring ring_{};
};

double raw_round_trip(bool poll, int count) {
  int server = -1;
  const int client = connected_pair(server);
  std::thread echo([&] {
    RawRing ring;
    char bytes[message_bytes];
    for (int i = 0; i < count; ++i) {
      ring.receive(server, bytes);
      ring.next(poll);
      ring.send(server, bytes);
    }
    ring.receive(server, bytes);  // submits the last answer; ends with the client's close
    ring.next(poll);
  });
  double took = 0;
  {
    RawRing ring;
    char bytes[message_bytes] = {};
    const double start = now_ns();
    for (int i = 0; i < count; ++i) {
      ring.send(client, bytes);
      ring.receive(client, bytes);
      ring.next(poll);
    }
    took = now_ns() - start;
  }
  ::close(client);
  echo.join();
  ::close(server);
  return took / count / 1000;
}

/// Both ends on one ring.
double raw_round_trip_one_ring(int count) {
  int server = -1;
  const int client = connected_pair(server);
  double took = 0;
  {
    RawRing ring;
    char there[message_bytes] = {}, here[message_bytes];
    ring.receive(server, there);
    const double start = now_ns();
    for (int i = 0; i < count; ++i) {
      ring.receive(client, here);
      ring.send(client, here);
      while (ring.next(true) != server) {
      }
      ring.receive(server, there);
      ring.send(server, there);
      while (ring.next(true) != client) {
      }
    }
    took = now_ns() - start;
  }
  ::close(client);
  ::close(server);
  return took / count / 1000;
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
  Buffer message = Shard::current()->send_pool().try_allocate(message_bytes).value();
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    co_await socket.send(Segments(message));
    for (std::size_t got = 0; got < message_bytes;) {
      Buffer chunk = co_await socket.receive();
      got += chunk.size();
    }
  }
  const double took = now_ns() - start;
  co_await socket.close();
  co_return took / count / 1000;
}

double socket_round_trip(Runtime& runtime, unsigned server_shard, int count) {
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
  auto polled = std::make_shared<Runtime>(polling(2));
  auto sleeping = std::make_shared<Runtime>(Runtime::Options{.shards = 2, .pin_threads = true});
  runner.add({.group = "runtime",
              .name = "cross-shard round trip, polling",
              .unit = "ns",
              .subject = [polled] { return cross_shard_round_trip(*polled); },
              .floor = {{"a bare cache line between two threads", bare_cache_line_round_trip, 2.5}},
              .note = "a work item posted to the other shard and back"});
  runner.add({.group = "runtime",
              .name = "socket 64 B round trip, polling",
              .unit = "us",
              .subject = [polled] { return socket_round_trip(*polled, 1, 20'000); },
              .floor = {{"a raw io_uring loop", [] { return raw_round_trip(true, 20'000); }, 1.25}},
              .note = "two shards, loopback TCP, sockets of the runtime without sessions"});
  runner.add({.group = "runtime",
              .name = "socket 64 B round trip, one shard",
              .unit = "us",
              .subject = [polled] { return socket_round_trip(*polled, 0, 20'000); },
              .floor = {{"a raw io_uring loop on one ring",
                         [] { return raw_round_trip_one_ring(20'000); }, 1.25}},
              .note = "both ends on one shard"});
  runner.add({.group = "runtime",
              .name = "socket 64 B round trip, blocking",
              .unit = "us",
              .subject = [sleeping] { return socket_round_trip(*sleeping, 1, 3'000); },
              .floor = {{"a raw io_uring loop", [] { return raw_round_trip(false, 3'000); }, 1.1}},
              .note = "shards spin for a bounded, adaptive time before they sleep"});
}

}  // namespace hyperframes::bench
