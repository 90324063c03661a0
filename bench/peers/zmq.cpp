#include "zmq.hpp"

#include <zmq.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "../harness.hpp"

namespace hyperframes::bench::zmq_peer {
namespace {

/// A pair of sockets over a port that the system picks.
struct Pair {
  Pair(int bound_type, int connected_type) {
    context = ::zmq_ctx_new();
    bound = ::zmq_socket(context, bound_type);
    connected = ::zmq_socket(context, connected_type);
    const int no_limit = 0, linger = 0;
    for (void* socket : {bound, connected}) {
      ::zmq_setsockopt(socket, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
      ::zmq_setsockopt(socket, ZMQ_RCVHWM, &no_limit, sizeof no_limit);
      ::zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    }
    char endpoint[128];
    std::size_t size = sizeof endpoint;
    if (::zmq_bind(bound, "tcp://127.0.0.1:*") != 0 ||
        ::zmq_getsockopt(bound, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0 ||
        ::zmq_connect(connected, endpoint) != 0)
      throw std::runtime_error("ZeroMQ could not connect over loopback");
  }
  ~Pair() {
    ::zmq_close(connected);
    ::zmq_close(bound);
    ::zmq_ctx_term(context);
  }
  void *context, *bound, *connected;
};

}  // namespace

std::string version() {
  int major, minor, patch;
  ::zmq_version(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

double messages_per_second(unsigned size, int count) {
  Pair pair(ZMQ_PULL, ZMQ_PUSH);
  std::vector<char> bytes(size), into(size);
  ::zmq_send(pair.connected, bytes.data(), size, 0);  // both ends are up from here on
  ::zmq_recv(pair.bound, into.data(), size, 0);
  const double start = now_ns();
  std::thread sender([&] {
    for (int i = 0; i < count; ++i) ::zmq_send(pair.connected, bytes.data(), size, 0);
  });
  for (int i = 0; i < count; ++i) ::zmq_recv(pair.bound, into.data(), size, 0);
  const double took = now_ns() - start;
  sender.join();
  return count / took * 1e9;
}

double round_trip_us(unsigned size, int count) {
  Pair pair(ZMQ_REP, ZMQ_REQ);
  std::thread echo([&] {
    std::vector<char> bytes(size);
    for (int i = 0; i < count; ++i) {
      ::zmq_recv(pair.bound, bytes.data(), size, 0);
      ::zmq_send(pair.bound, bytes.data(), size, 0);
    }
  });
  std::vector<char> bytes(size);
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    ::zmq_send(pair.connected, bytes.data(), size, 0);
    ::zmq_recv(pair.connected, bytes.data(), size, 0);
  }
  const double took = now_ns() - start;
  echo.join();
  return took / count / 1000;
}

}  // namespace hyperframes::bench::zmq_peer
