// Figures of sessions over loopback TCP within one process.
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <vector>

#include "floors.hpp"
#include "harness.hpp"
#if HYPERFRAMES_BENCH_ASIO
#include "peers/asio.hpp"
#endif

namespace hyperframes::bench {
namespace {

constexpr std::size_t body_bytes = 64;

/// Counts what arrives; sends asks back.
class Handler final : public net::MessageHandler {
 public:
  std::uint64_t received = 0;
  Event arrived;
  std::uint64_t wanted = 0;

 private:
  void on_message(net::Session& session, net::Lane lane, net::Message message) noexcept override {
    if (message.envelope.kind == net::MessageKind::ask) {
      net::Message answer;
      answer.envelope = net::answer_to(message.envelope);
      answer.body = std::move(message.body);
      (void)session.try_send(answer, lane);
      return;
    }
    if (++received >= wanted) arrived.set();
  }
};

Runtime::Options options(bool polling) {
  Runtime::Options options;
  options.shards = 1;
  options.shard.spin_always = polling;
  options.stall_threshold = Duration::zero();
  return options;
}

/// Two nodes on one shard.
struct Pair {
  Pair() : client(runtime, {}, client_handler), server(runtime, {}, server_handler) {
    runtime.run([this](Runtime&) { return connect(); });
  }
  ~Pair() {
    runtime.run([this](Runtime&) { return end(); });
  }
  Task<void> connect() {
    const auto bound = co_await server.listen(net::Endpoint::parse("tcp://127.0.0.1:0"));
    session = co_await client.connect(bound, after(5s));
  }
  Task<void> end() {
    session = {};
    co_await client.close(1s);
  }
  Runtime runtime{options(true)};
  Handler client_handler, server_handler;
  net::Network client, server;
  net::SessionRef session;
};

net::Message message(net::MessageKind kind, std::size_t bytes) {
  net::Message made;
  made.envelope.kind = kind;
  made.body = Shard::current()->send_pool().try_allocate(bytes).value();
  return made;
}

Task<double> round_trips(Pair& pair, int count) {
  Handler& handler = pair.client_handler;
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    handler.arrived.reset();
    handler.wanted = handler.received + 1;
    co_await pair.session->send(message(net::MessageKind::ask, body_bytes));
    co_await handler.arrived.wait();
  }
  co_return (now_ns() - start) / count / 1000;
}

/// Sends an ask again each time that one was answered, as long as the crowd has some left.
class Asker final : public net::MessageHandler {
 public:
  Asker(int& left, int& missing, Event& done) noexcept
      : left_(left), missing_(missing), done_(done) {}

 private:
  void on_message(net::Session& session, net::Lane, net::Message message) noexcept override {
    if (--missing_ == 0) return done_.set();
    if (left_ == 0) return;
    --left_;
    net::Message next;
    next.envelope.kind = net::MessageKind::ask;
    next.body = std::move(message.body);
    (void)session.try_send(next);
  }
  int& left_;
  int& missing_;
  Event& done_;
};

/// One server, and many nodes that each have a session with it; one ask in flight on each.
class Crowd {
 public:
  explicit Crowd(int connections) : server_(server_runtime_, {}, answering_) {
    const auto bound = server_runtime_.run(
        [this](Runtime&) { return server_.listen(net::Endpoint::parse("tcp://127.0.0.1:0")); });
    client_runtime_.run([&](Runtime& runtime) { return connect(runtime, bound, connections); });
  }
  ~Crowd() {
    client_runtime_.run([this](Runtime&) { return end(); });
  }
  /// Microseconds of the server's processor time a message.
  double server_cpu_us(int count) {
    const double before = server_cpu();
    client_runtime_.run([&](Runtime&) { return ask_all(count); });
    return (server_cpu() - before) / count * 1e6;
  }

 private:
  double server_cpu() {
    return server_runtime_.run([](Runtime&) -> Task<double> { co_return thread_cpu_seconds(); });
  }
  Task<void> connect(Runtime& runtime, net::Endpoint bound, int connections) {
    for (int i = 0; i < connections; ++i) {
      askers_.push_back(std::make_unique<Asker>(left_, missing_, done_));
      clients_.push_back(
          std::make_unique<net::Network>(runtime, net::Network::Options(), *askers_.back()));
      sessions_.push_back(co_await clients_.back()->connect(bound, after(5s)));
    }
  }
  Task<void> ask_all(int count) {
    left_ = missing_ = count;
    done_.reset();
    for (auto& session : sessions_) {
      --left_;  // before the first answer can come; a young session may still wait for credit
      co_await session->send(message(net::MessageKind::ask, body_bytes));
    }
    co_await done_.wait();
  }
  Task<void> end() {
    sessions_.clear();
    for (auto& client : clients_) co_await client->close(1s);
  }

  Runtime client_runtime_{options(false)}, server_runtime_{options(false)};
  int left_ = 0, missing_ = 0;
  Event done_;
  Handler answering_;
  net::Network server_;
  std::vector<std::unique_ptr<Asker>> askers_;
  std::vector<std::unique_ptr<net::Network>> clients_;
  std::vector<net::SessionRef> sessions_;
};

}  // namespace

void add_network_rows(Runner& runner) {
  auto pair = std::make_shared<std::unique_ptr<Pair>>();
  runner.add({.group = "tcp",
              .name = "64 B round trip, both ends on one shard",
              .unit = "us",
              .subject =
                  [pair] {
                    *pair = std::make_unique<Pair>();
                    return (*pair)->runtime.run(
                        [&](Runtime&) { return round_trips(**pair, 20'000); });
                  },
              .floor = {{"a raw io_uring loop on one ring",
                         [pair] {
                           pair->reset();  // its shard would poll meanwhile
                           return raw_round_trip_one_ring_us(20'000);
                         },
                         1.25}},
              .note = "an ask and its answer through sessions: framed, checked, with credit",
              .finish = [pair] { pair->reset(); }});

  static constexpr int connections = 100, messages = 60'000;
  auto crowd = std::make_shared<std::unique_ptr<Crowd>>();
  auto without_crowd = [crowd](void (*serve)(const std::vector<int>&)) {
    return [=] {
      crowd->reset();
      return echo_server_cpu_us(connections, messages, serve);
    };
  };
  Row many{.group = "tcp",
           .name = "100 connections: server CPU a message",
           .unit = "us",
           .subject =
               [crowd] {
                 if (!*crowd) *crowd = std::make_unique<Crowd>(connections);
                 return (*crowd)->server_cpu_us(messages);
               },
           .floor = {{"a raw io_uring loop", without_crowd(&serve_echo_raw), 1.2}},
           .note =
               "64 B asks answered through sessions, one in flight on each connection; time of "
               "the server's thread, kernel included"};
#if HYPERFRAMES_BENCH_ASIO
  many.peer = Rival{"asio " + asio_peer::version() + ", async_read and async_write",
                    without_crowd(&asio_peer::serve_echo), 1};
#else
  runner.leave_out("asio", "libasio-dev is not installed");
#endif
  runner.add(std::move(many));
}

}  // namespace hyperframes::bench
