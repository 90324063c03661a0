#include "asio.hpp"

#include <unistd.h>

#include <array>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/version.hpp>
#include <asio/write.hpp>
#include <deque>

#include "../floors.hpp"

namespace hyperframes::bench::asio_peer {
namespace {

class Connection {
 public:
  Connection(asio::io_context& context, int socket)
      : socket_(context, asio::ip::tcp::v4(), ::dup(socket)) {}
  void receive() {
    asio::async_read(socket_, asio::buffer(bytes_), [this](std::error_code failure, std::size_t) {
      if (!failure) send();
    });
  }

 private:
  void send() {
    asio::async_write(socket_, asio::buffer(bytes_), [this](std::error_code failure, std::size_t) {
      if (!failure) receive();
    });
  }
  asio::ip::tcp::socket socket_;
  std::array<char, raw_message_bytes> bytes_;
};

}  // namespace

std::string version() {
  return std::to_string(ASIO_VERSION / 100000) + "." + std::to_string(ASIO_VERSION / 100 % 1000) +
         "." + std::to_string(ASIO_VERSION % 100);
}

void serve_echo(const std::vector<int>& sockets) {
  asio::io_context context(1);
  std::deque<Connection> connections;
  for (const int socket : sockets) connections.emplace_back(context, socket).receive();
  context.run();
}

}  // namespace hyperframes::bench::asio_peer
