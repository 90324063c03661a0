// The asio HTTP server, asked by hand and under load.
#include <catch2/catch_test_macros.hpp>

#ifndef EXAMPLE_ASIO_HTTP

TEST_CASE("the asio HTTP server counts visits") {
  SKIP("asio is not installed (Debian: libasio-dev)");
}

#else

#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"

using asio::ip::tcp;
using example_test::Program;

namespace {

/// A server on a free port.
struct Server {
  explicit Server(std::string threads) : program({EXAMPLE_ASIO_HTTP, "0", std::move(threads)}) {
    const std::string line = program.line();
    REQUIRE(line.starts_with("listening on http://127.0.0.1:"));
    port = static_cast<std::uint16_t>(std::atoi(line.substr(line.rfind(':') + 1).c_str()));
  }
  Program program;
  std::uint16_t port;
};

/// A connection that is kept open.
class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(context_) {
    socket_.connect({asio::ip::address_v4::loopback(), port});
    socket_.set_option(tcp::no_delay(true));
  }
  void send(const std::string& text) { asio::write(socket_, asio::buffer(text)); }
  /// Status line and body, as "200 OK: ...".
  std::string receive() {
    const std::size_t head = asio::read_until(socket_, asio::dynamic_buffer(data_), "\r\n\r\n");
    const std::string headers = data_.substr(0, head);
    data_.erase(0, head);
    const std::string length = "Content-Length: ";
    const auto size =
        static_cast<std::size_t>(std::atoi(headers.c_str() + headers.find(length) + length.size()));
    if (data_.size() < size)
      asio::read(socket_, asio::dynamic_buffer(data_), asio::transfer_exactly(size - data_.size()));
    const std::string body = data_.substr(0, size);
    data_.erase(0, size);
    return headers.substr(9, headers.find("\r\n") - 9) + ": " + body;
  }
  std::string ask(const std::string& method, const std::string& path) {
    send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return receive();
  }
  /// Whether the server has closed the connection.
  bool ended() {
    asio::error_code failure;
    char byte;
    return asio::read(socket_, asio::buffer(&byte, 1), failure) == 0 && failure;
  }

 private:
  asio::io_context context_;
  tcp::socket socket_;
  std::string data_;
};

}  // namespace

TEST_CASE("the asio HTTP server counts visits") {
  Server server("1");
  Client client(server.port);
  CHECK(client.ask("GET", "/visits/home") == "200 OK: {\"page\":\"home\",\"visits\":0}\n");
  CHECK(client.ask("POST", "/visits/home") == "200 OK: {\"page\":\"home\",\"visits\":1}\n");
  CHECK(client.ask("POST", "/visits/home") == "200 OK: {\"page\":\"home\",\"visits\":2}\n");
  CHECK(client.ask("GET", "/visits/about") == "200 OK: {\"page\":\"about\",\"visits\":0}\n");
  // Two requests at once, one of them with a body.
  client.send(
      "POST /visits/home HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
      "GET /visits/home HTTP/1.1\r\n\r\n");
  CHECK(client.receive() == "200 OK: {\"page\":\"home\",\"visits\":3}\n");
  CHECK(client.receive() == "200 OK: {\"page\":\"home\",\"visits\":3}\n");
  CHECK(server.program.end() == 0);
}

TEST_CASE("the asio HTTP server answers what it does not serve, and closes on nonsense") {
  Server server("2");
  Client client(server.port);
  CHECK(client.ask("GET", "/nothing") == "404 Not Found: ");
  CHECK(client.ask("GET", "/visits/Not%20A%20Page") == "404 Not Found: ");
  CHECK(client.ask("DELETE", "/visits/home") == "405 Method Not Allowed: ");
  client.send("hello\r\n\r\n");
  CHECK(client.receive() == "400 Bad Request: ");
  CHECK(client.ended());
  Client endless(server.port);
  endless.send("GET /visits/home HTTP/1.1\r\nX: " + std::string(20'000, 'x'));
  CHECK(endless.ended());
  Client brief(server.port);
  brief.send("POST /visits/home HTTP/1.1\r\nConnection: close\r\n\r\n");
  CHECK(brief.receive() == "200 OK: {\"page\":\"home\",\"visits\":1}\n");
  CHECK(brief.ended());
  CHECK(server.program.end() == 0);
}

TEST_CASE("the asio HTTP server counts every visit of many connections at once") {
  constexpr int clients = 16, requests = 200, pages = 5;
  Server server("3");
  std::vector<std::thread> threads;
  std::vector<int> failures(clients, 0);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < clients; ++i)
    threads.emplace_back([&, i] {
      Client client(server.port);
      for (int k = 0; k < requests; ++k) {
        const std::string page = "/visits/page-" + std::to_string((i + k) % pages);
        failures[i] += !client.ask("POST", page).starts_with("200 OK");
      }
    });
  for (auto& thread : threads) thread.join();
  const std::chrono::duration<double> span = std::chrono::steady_clock::now() - began;
  for (const int count : failures) CHECK(count == 0);
  Client client(server.port);
  for (int page = 0; page < pages; ++page) {
    const std::string name = "page-" + std::to_string(page);
    CHECK(client.ask("GET", "/visits/" + name) ==
          "200 OK: {\"page\":\"" + name +
              "\",\"visits\":" + std::to_string(clients * requests / pages) + "}\n");
  }
  CHECK(server.program.end() == 0);
  SUCCEED(clients * requests / span.count() << " requests/s");
}

TEST_CASE("the asio HTTP server explains itself, and says what is wrong") {
  Program help({EXAMPLE_ASIO_HTTP, "--help"});
  CHECK(help.line().starts_with("usage: example_asio_http"));
  CHECK(help.wait() == 0);
  for (const char* wrong : {"port", "70000", "-1"}) {
    Program program({EXAMPLE_ASIO_HTTP, wrong});
    CHECK(program.rest().empty());
    CHECK(program.wait() == 2);
  }
  Server server("1");
  Program second({EXAMPLE_ASIO_HTTP, std::to_string(server.port)});  // the port is taken
  CHECK(second.rest().empty());
  CHECK(second.wait() == 1);
}

#endif
