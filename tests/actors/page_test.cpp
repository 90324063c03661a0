// The pages of a node, asked for over real sockets.
#include <hyperframes/actors/detail/page.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "../runtime/captured_log.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::Task;

namespace {

/// A connection to 127.0.0.1:PORT, closed with it.
class Client {
 public:
  explicit Client(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 120, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    REQUIRE(::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  void send(const std::string& text) {
    REQUIRE(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
  }
  /// False once the other end has closed.
  bool try_send(const std::string& text) {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  std::string receive_all() {
    std::string text;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::recv(socket_, bytes, sizeof bytes, 0)) > 0;)
      text.append(bytes, static_cast<std::size_t>(got));
    return text;
  }

 private:
  int socket_;
};

struct Answer {
  std::string head, body;
};

Answer ask(const std::string& address, const std::string& request) {
  Client client(address);
  client.send(request);
  const std::string text = client.receive_all();
  const auto end = text.find("\r\n\r\n");
  REQUIRE(end != std::string::npos);
  return {text.substr(0, end), text.substr(end + 4)};
}

Answer get(const std::string& address, const std::string& path,
           const std::string& host = "localhost", const std::string& more = "") {
  return ask(address, "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + more +
                          "Connection: close\r\n\r\n");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Null where the build has no HTTP.
std::unique_ptr<hf::Node> node_with_page(hf::Runtime& runtime, hf::Node::Options options = {}) {
  options.name = "paged";
  if (options.http_address.empty()) options.http_address = "127.0.0.1:0";
  try {
    return std::make_unique<hf::Node>(runtime, options);
  } catch (const hf::Error& error) {
    if (error.is(hf::Errc::unsupported)) SKIP(error.what());
    throw;
  }
}

int status_of(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a node shows its actors as JSON and as text, and its metrics to Prometheus") {
  hf::Runtime runtime({.shards = 2});
  const auto node = node_with_page(runtime);
  const std::string address = node->http_address();
  CHECK(address.starts_with("127.0.0.1:"));
  CHECK(!address.ends_with(":0"));
  runtime.run([&](hf::Runtime&) -> Task<void> {
    const auto ref = co_await node->spawn<Counter>({.name = "counted", .shard = 1}, nullptr);
    for (int i = 0; i < 3; ++i) co_await ref.add({.delta = 1});
  });
  const Answer actors = get(address, "/actors");
  CHECK(actors.head.starts_with("HTTP/1.1 200"));
  CHECK(contains(actors.head, "application/json"));
  CHECK(contains(actors.body, "\"name\":\"counted\""));
  CHECK(contains(actors.body, "\"handled\":3"));
  CHECK(contains(get(address, "/dump").body, "counted (demo.Counter): open"));
  const Answer metrics = get(address, "/metrics");
  CHECK(contains(metrics.head, "text/plain; version=0.0.4"));
  CHECK(contains(metrics.body, "hyperframes_turns_total{shard=\"1\"} "));
  CHECK(contains(metrics.body, "hyperframes_busy_seconds_total{shard=\"0\"} "));
  CHECK(contains(metrics.body, "hyperframes_shard_up{shard=\"0\"} 1\n"));
  CHECK(contains(metrics.body,
                 "hyperframes_actor_handled_total{actor=\"counted\","
                 "service=\"demo.Counter\",shard=\"1\"} 3\n"));
  CHECK(contains(get(address, "/").body, "/metrics"));
  CHECK(get(address, "/nosuch").head.starts_with("HTTP/1.1 404"));
}

TEST_CASE("a node shows what its supervisors decided, all of it or since a number") {
  hf::test::CapturedLog log;
  hf::Runtime runtime({.shards = 2});
  const auto node = node_with_page(runtime);
  runtime.run([&](hf::Runtime&) -> Task<void> {
    for (const char* name : {"first", "second"}) {
      const auto made = co_await node->spawn<Counter>({.name = name, .shard = 1}, nullptr);
      CHECK(co_await code_of<demo::Nothing>(made.crash({.name = "bang"})) == hf::Errc::actor_down);
      co_await node->join(made);
    }
  });
  const std::string address = node->http_address();
  const Answer all = get(address, "/events");
  CHECK(contains(all.head, "application/json"));
  CHECK(contains(all.body, "\"latest\":2"));
  CHECK(contains(all.body, "actor 'first' crashed: bang"));
  CHECK(contains(all.body, "actor 'second' crashed: bang"));
  const Answer since = get(address, "/events?after=1");
  CHECK(!contains(since.body, "'first'"));
  CHECK(contains(since.body, "'second'"));
  CHECK(contains(get(address, "/events?after=2").body, "\"events\":[]"));
  for (const std::string wrong : {"nonsense", "5x", "", "-1", "99999999999999999999"}) {
    const Answer refused = get(address, "/events?after=" + wrong);
    CHECK(contains(refused.head, " 400 "));
    CHECK(contains(refused.body, "'after' is '" + wrong + "'"));
  }
}

TEST_CASE("promtool finds nothing to complain of in a node's metrics") {
  const std::string promtool = HYPERFRAMES_SOURCE_DIR "/tests/actors/promtool";
  if (status_of(promtool + " --version > /dev/null 2>&1") == 77)
    SKIP("promtool is missing, and can't be fetched; on Debian: apt-get install prometheus");
  hf::Runtime runtime({.shards = 2});
  hf::Node::Options options;
  options.network.emplace();
  const auto node = node_with_page(runtime, options);
  hf::Node::Options peers;
  peers.network.emplace();
  hf::Node peer(runtime, peers);
  runtime.run([&](hf::Runtime&) -> Task<void> {
    co_await node->spawn<Counter>("with \"quotes\", \\ and\nlines", nullptr);
    const auto bound = co_await node->listen(hf::net::Endpoint::parse("tcp://127.0.0.1:0"));
    co_await peer.connect(bound);
  });
  runtime.on_every_shard(
      [](hf::Shard& shard) { shard.metrics().histogram("test_ns", "For the test").record(100); });
  const std::string text = get(node->http_address(), "/metrics").body;
  for (const char* name : {"hyperframes_session_credit_bytes", "hyperframes_session_info",
                           "transport=\"tcp\"", "test_seconds_bucket"})
    CHECK(contains(text, name));
  const auto file = std::filesystem::temp_directory_path() /
                    ("hyperframes-metrics-" + std::to_string(::getpid()));
  std::ofstream(file) << text;
  INFO(text);
  CHECK(status_of(promtool + " check metrics < '" + file.string() + "'") == 0);
  std::filesystem::remove(file);
  runtime.run([&](hf::Runtime&) { return peer.close(1s); });
  runtime.run([&](hf::Runtime&) { return node->close(1s); });
}

TEST_CASE("pages are served on loopback only, and an address that is taken is an error") {
  hf::Runtime runtime({.shards = 1});
  const auto code = [&](const std::string& address) {
    try {
      hf::Node::Options options;
      options.http_address = address;
      const hf::Node node(runtime, options);
    } catch (const hf::Error& error) {
      return error.code();
    }
    return std::error_code();
  };
  const auto node = node_with_page(runtime);
  CHECK(code("0.0.0.0:0") == hf::make_error_code(hf::Errc::unauthenticated));
  CHECK(code("10.0.0.1:0") == hf::make_error_code(hf::Errc::unauthenticated));
  CHECK(code("nonsense:port") == hf::make_error_code(hf::Errc::invalid_argument));
  CHECK(code(node->http_address()) == std::errc::address_in_use);
  CHECK(code("localhost:0") == std::error_code());
}

TEST_CASE("a web page under another name than this host's may not read a node's pages") {
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  for (const char* host : {"evil.example", "evil.example:80", "", "[2001:db8::1]:80"}) {
    INFO(host);
    const Answer answer = get(node->http_address(), "/actors", host);
    CHECK(answer.head.starts_with("HTTP/1.1 403"));
    CHECK(!contains(answer.body, "actors"));
  }
  for (const char* host : {"localhost:1", "127.0.0.1", "[::1]:80", "[::1]"})
    CHECK(get(node->http_address(), "/actors", host).head.starts_with("HTTP/1.1 200"));
}

TEST_CASE("silent and garbling clients do not keep a page from others, nor the node from its end") {
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  const std::string address = node->http_address();
  Client silent(address), half(address), garbage(address);
  half.send("GET /actors HTT");
  garbage.send(std::string(100'000, '\xff'));
  CHECK(contains(get(address, "/actors").body, "\"actors\""));
}

TEST_CASE("a request that never ends is cut off, as a head, as a line and as a body") {
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  constexpr std::size_t most = std::size_t{64} << 20;
  for (const std::string& piece : {"X-More: " + std::string(4000, 'x') + "\r\n",
                                   std::string(4096, 'x'), std::string(4096, '\0')}) {
    Client client(node->http_address());
    std::size_t sent = 0;
    bool open = client.try_send("GET /actors HTTP/1.1\r\nHost: localhost\r\n");
    for (; open && sent < most; sent += piece.size()) open = client.try_send(piece);
    CHECK(!open);
  }
  const Answer posted = ask(node->http_address(),
                            "POST /actors HTTP/1.1\r\nHost: localhost\r\n"
                            "Content-Length: 1000000000\r\n\r\nabc");
  CHECK(posted.head.starts_with("HTTP/1.1 405"));
  CHECK(get(node->http_address(), "/actors").head.starts_with("HTTP/1.1 200"));
}

TEST_CASE("a client that sends a little now and then does not hold a page's thread for long") {
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<Client>(node->http_address()));
    slow.back()->send("GET /actors HTTP/1.1\r\nX: ");
  }
  const hf::Time limit = hf::Clock::read_system() + hf::timing().scaled(60s);
  std::size_t open = slow.size();
  while (open > 0 && hf::Clock::read_system() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    open = static_cast<std::size_t>(
        std::ranges::count_if(slow, [](auto& client) { return client->try_send("x"); }));
  }
  CHECK(open == 0);
}

TEST_CASE("of very many connections most are closed at once, and who asks later is answered") {
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  const std::string address = node->http_address();
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = descriptors();
  constexpr int count = 200;
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < count; ++i) silent.push_back(std::make_unique<Client>(address));
  const hf::Time limit = hf::Clock::read_system() + hf::timing().scaled(60s);
  const auto held = [&] { return descriptors() - before - count; };
  while (held() > 100 && hf::Clock::read_system() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(held() <= 100);
  std::string body;
  while (!contains(body, "\"actors\"") && hf::Clock::read_system() < limit) {
    Client client(address);
    if (client.try_send("GET /actors HTTP/1.1\r\nHost: localhost\r\n\r\n"))
      body = client.receive_all();
  }
  CHECK(contains(body, "\"actors\""));
}

TEST_CASE("no wish of a client makes an answer larger, or slower to make") {
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 500; ++i) ranges += ",0-";
  const Answer answer = get(node->http_address(), "/", "localhost",
                            ranges + "\r\nAccept-Encoding: br, gzip, deflate\r\n");
  CHECK(answer.head.starts_with("HTTP/1.1 200"));
  CHECK(!contains(answer.head, "Content-Encoding"));
  CHECK(answer.body == get(node->http_address(), "/").body);
}

TEST_CASE("reading metrics has nobody sample what the shards do") {
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  CHECK(contains(get(node->http_address(), "/metrics").body, "hyperframes_shard_up"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(contains(get(node->http_address(), "/actors").body, "\"samples\":0"));
}

TEST_CASE("a page answers while a shard is stuck, and says in which actor") {
  class Stubborn final : public demo::OtherCounter::Actor {
   public:
    explicit Stubborn(const std::atomic<bool>* released) : released_(released) {}
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      while (!*released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      co_return;
    }

   private:
    const std::atomic<bool>* released_;
  };
  hf::test::CapturedLog log;
  hf::Runtime runtime({.shards = 2});
  std::atomic<bool> released{false};
  const auto node = node_with_page(runtime);
  const auto stubborn = runtime.run([&](hf::Runtime&) {
    return node->spawn<Stubborn>({.name = "stubborn", .shard = 1}, &released);
  });
  runtime.run([&](hf::Runtime&) -> Task<void> { co_await stubborn.tell_add({.delta = 1}); });
  std::string body;
  do {
    body = get(node->http_address(), "/actors").body;
  } while (!contains(body, "in actor 'stubborn' of node 'paged'"));
  CHECK(contains(get(node->http_address(), "/metrics").body,
                 "hyperframes_shard_up{shard=\"1\"} 0\n"));
  released = true;
}

TEST_CASE("while pages are watched, an actor that works all the time is seen to") {
  class Worker final : public demo::OtherCounter::Actor {
   public:
    explicit Worker(const std::atomic<bool>* released) : released_(released) {}
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      while (!*released_) co_await hf::yield();
    }

   private:
    const std::atomic<bool>* released_;
  };
  hf::Runtime runtime({.shards = 1});
  std::atomic<bool> released{false};
  const auto node = node_with_page(runtime);
  runtime.run([&](hf::Runtime&) -> Task<void> {
    const auto ref = co_await node->spawn<Worker>("worker", &released);
    co_await ref.tell_add({.delta = 1});
  });
  const auto samples_of = [](const std::string& body) {
    const std::string key = "\"busy_samples\":";
    unsigned long most = 0;
    for (auto at = body.find(key); at != std::string::npos; at = body.find(key, at + 1))
      most = std::max(most, std::strtoul(body.c_str() + at + key.size(), nullptr, 10));
    return most;
  };
  while (samples_of(get(node->http_address(), "/actors").body) < 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  released = true;
}

TEST_CASE("serving pages leaves the process's signals as they were") {
  struct sigaction before{}, after{};
  ::sigaction(SIGPIPE, nullptr, &before);
  hf::Runtime runtime({.shards = 1});
  const auto node = node_with_page(runtime);
  ::sigaction(SIGPIPE, nullptr, &after);
  CHECK(before.sa_handler == after.sa_handler);
}
