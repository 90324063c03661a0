#include "floors.hpp"

#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "harness.hpp"

namespace hyperframes::bench {

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

// ---- A 64-byte message over a loopback TCP connection and back
// ------------------------------------

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

namespace {

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
    ::io_uring_prep_recv(entry, socket, into, raw_message_bytes, MSG_WAITALL);
    ::io_uring_sqe_set_data64(entry, static_cast<std::uint64_t>(socket));
  }
  void send(int socket, const char* from) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_send(entry, socket, from, raw_message_bytes, MSG_NOSIGNAL);
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

}  // namespace

double raw_round_trip_us(bool poll, int count) {
  int server = -1;
  const int client = connected_pair(server);
  std::thread echo([&] {
    RawRing ring;
    char bytes[raw_message_bytes];
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
    char bytes[raw_message_bytes] = {};
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

double raw_round_trip_one_ring_us(int count) {
  int server = -1;
  const int client = connected_pair(server);
  double took = 0;
  {
    RawRing ring;
    char there[raw_message_bytes] = {}, here[raw_message_bytes];
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

}  // namespace hyperframes::bench
