#include "zmq.hpp"

#include <unistd.h>
#include <zmq.h>

#include <stdexcept>
#include <thread>

namespace hyperframes::bench::zmq_peer {
namespace {

// The first byte of a message.
constexpr char send_back = 'b', keep = 'k';
constexpr std::size_t copied_below = 1024;

void require(bool good, const char* what) {
  if (!good)
    throw std::runtime_error(std::string("ZeroMQ could not ") + what + ": " +
                             ::zmq_strerror(::zmq_errno()));
}

class Socket {
 public:
  explicit Socket(int type) : context_(::zmq_ctx_new()), socket_(::zmq_socket(context_, type)) {
    const int no_limit = 0, linger = 0;
    ::zmq_setsockopt(socket_, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    ::zmq_setsockopt(socket_, ZMQ_RCVHWM, &no_limit, sizeof no_limit);
    ::zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
  }
  ~Socket() {
    ::zmq_close(socket_);
    ::zmq_ctx_term(context_);
  }
  Socket(const Socket&) = delete;

  std::string bind(const std::string& endpoint) {
    char bound[256];
    std::size_t size = sizeof bound;
    require(::zmq_bind(socket_, endpoint.c_str()) == 0 &&
                ::zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, bound, &size) == 0,
            "listen");
    return bound;
  }
  void connect(const std::string& endpoint) {
    require(::zmq_connect(socket_, endpoint.c_str()) == 0, "connect");
  }
  /// `bytes` stay as they are until they have arrived.
  void send(std::vector<char>& bytes) {
    if (bytes.size() < copied_below) {
      require(::zmq_send(socket_, bytes.data(), bytes.size(), 0) >= 0, "send");
      return;
    }
    zmq_msg_t message;
    ::zmq_msg_init_data(&message, bytes.data(), bytes.size(), [](void*, void*) {}, nullptr);
    require(::zmq_msg_send(&message, socket_, 0) >= 0, "send");
  }
  /// Sends it back if it says so.
  void receive(bool may_answer) {
    zmq_msg_t message;
    ::zmq_msg_init(&message);
    require(::zmq_msg_recv(&message, socket_, 0) >= 0, "receive");
    if (may_answer && *static_cast<char*>(::zmq_msg_data(&message)) == send_back)
      require(::zmq_msg_send(&message, socket_, 0) >= 0, "send back");
    else
      ::zmq_msg_close(&message);
  }

 private:
  void *context_, *socket_;
};

class ZmqMessenger final : public Messenger {
 public:
  explicit ZmqMessenger(const std::string& transport) : Messenger({"zmq", transport}) {
    socket_.connect(other_.hear());
    round_trips(64, 1);  // both are up from here on
  }
  void round_trips(std::size_t size, int count) override {
    std::vector<char> bytes(size, send_back);
    for (int i = 0; i < count; ++i) {
      socket_.send(bytes);
      socket_.receive(false);
    }
  }
  void stream(std::size_t size, int count) override {
    std::vector<char> bytes(size, keep);
    for (int i = 0; i < count; ++i) socket_.send(bytes);
    round_trips(64, 1);
  }

 private:
  Socket socket_{ZMQ_DEALER};
};

}  // namespace

std::string version() {
  int major, minor, patch;
  ::zmq_version(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

std::unique_ptr<Messenger> make(const std::string& transport) {
  return std::make_unique<ZmqMessenger>(transport);
}

double messages_per_second(unsigned size, int count) {
  Socket pull(ZMQ_PULL), push(ZMQ_PUSH);
  push.connect(pull.bind("tcp://127.0.0.1:*"));
  std::vector<char> bytes(size, keep);
  push.send(bytes);  // both ends are up from here on
  pull.receive(false);
  const double start = now_ns();
  std::thread sender([&] {
    for (int i = 0; i < count; ++i) push.send(bytes);
  });
  for (int i = 0; i < count; ++i) pull.receive(false);
  const double took = now_ns() - start;
  sender.join();
  return count / took * 1e9;
}

void serve(Starter& starter, const std::vector<std::string>& arguments) {
  Socket socket(ZMQ_DEALER);
  const bool tcp = arguments.at(0) == "tcp";
  starter.say(socket.bind(tcp ? "tcp://127.0.0.1:*"
                              : "ipc://@hyperframes-bench-" + std::to_string(::getpid())));
  starter.attend();
  while (true) socket.receive(true);
}

}  // namespace hyperframes::bench::zmq_peer
