#include "nng.hpp"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <unistd.h>

#include <stdexcept>

namespace hyperframes::bench::nng_peer {
namespace {

// The first byte of a message.
constexpr char send_back = 'b', keep = 'k';
constexpr int queued_messages = 128;

void require(int result, const char* what) {
  if (result != 0)
    throw std::runtime_error(std::string("nng could not ") + what + ": " + ::nng_strerror(result));
}

class Socket {
 public:
  Socket() {
    require(::nng_pair0_open(&socket_), "open a socket");
    require(::nng_socket_set_int(socket_, NNG_OPT_SENDBUF, queued_messages), "size its queue");
    require(::nng_socket_set_int(socket_, NNG_OPT_RECVBUF, queued_messages), "size its queue");
    require(::nng_socket_set_size(socket_, NNG_OPT_RECVMAXSZ, 0), "lift its limit");
  }
  ~Socket() { ::nng_close(socket_); }
  Socket(const Socket&) = delete;

  std::string listen(bool tcp) {
    const std::string abstract = "abstract://hyperframes-bench-" + std::to_string(::getpid());
    nng_listener listener;
    require(::nng_listen(socket_, tcp ? "tcp://127.0.0.1:0" : abstract.c_str(), &listener, 0),
            "listen");
    if (!tcp) return abstract;
    int port = 0;
    require(::nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port), "tell its port");
    return "tcp://127.0.0.1:" + std::to_string(port);
  }
  void connect(const std::string& url) {
    require(::nng_dial(socket_, url.c_str(), nullptr, 0), "connect");
  }
  void send(std::size_t size, char first) {
    nng_msg* message = nullptr;
    require(::nng_msg_alloc(&message, size), "allocate a message");
    *static_cast<char*>(::nng_msg_body(message)) = first;
    require(::nng_sendmsg(socket_, message, 0), "send");
  }
  /// Sends it back if it says so.
  void receive(bool may_answer) {
    nng_msg* message = nullptr;
    require(::nng_recvmsg(socket_, &message, 0), "receive");
    if (may_answer && *static_cast<char*>(::nng_msg_body(message)) == send_back)
      require(::nng_sendmsg(socket_, message, 0), "send back");
    else
      ::nng_msg_free(message);
  }

 private:
  nng_socket socket_{};
};

class NngMessenger final : public Messenger {
 public:
  explicit NngMessenger(const std::string& transport) : Messenger({"nng", transport}) {
    socket_.connect(other_.hear());
    round_trips(64, 1);
  }
  void round_trips(std::size_t size, int count) override {
    for (int i = 0; i < count; ++i) {
      socket_.send(size, send_back);
      socket_.receive(false);
    }
  }
  void stream(std::size_t size, int count) override {
    for (int i = 0; i < count; ++i) socket_.send(size, keep);
    round_trips(64, 1);
  }

 private:
  Socket socket_;
};

}  // namespace

std::string version() { return ::nng_version(); }

std::unique_ptr<Messenger> make(const std::string& transport) {
  return std::make_unique<NngMessenger>(transport);
}

void serve(Starter& starter, const std::vector<std::string>& arguments) {
  Socket socket;
  starter.say(socket.listen(arguments.at(0) == "tcp"));
  starter.attend();
  while (true) socket.receive(true);
}

}  // namespace hyperframes::bench::nng_peer
