// Figures of sessions over loopback TCP, and over shared memory.
#include <unistd.h>

#include <cstring>
#include <functional>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <string>
#include <vector>

#include "floors.hpp"
#include "harness.hpp"
#if HYPERFRAMES_BENCH_ASIO
#include "peers/asio.hpp"
#endif
#if HYPERFRAMES_BENCH_ZMQ
#include "peers/zmq.hpp"
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

/// What carries the bytes between the two of a pair.
enum class Carrier { tcp, shm, tls };

/// Where the server of a pair listens.
net::Endpoint endpoint_of(Carrier carrier) {
  if (carrier != Carrier::shm) return net::Endpoint::parse("tcp://127.0.0.1:0");
  static int last = 0;
  return net::Endpoint::parse("shm://bench-" + std::to_string(::getpid()) + "-" +
                              std::to_string(++last));
}

net::Network::Options options_of(Carrier carrier) {
  net::Network::Options options;
  const std::string secret = "the key of both ends";
  if (carrier == Carrier::tls) options.key = net::Key(std::as_bytes(std::span(secret)));
  return options;
}

/// Two nodes with a runtime each, or both on one shard of one runtime.
struct Pair {
  Pair(Carrier carrier, bool polling, bool one_shard)
      : client_runtime(options(polling)),
        server_runtime(one_shard ? nullptr : std::make_unique<Runtime>(options(polling))),
        client(client_runtime, options_of(carrier), client_handler),
        server(one_shard ? client_runtime : *server_runtime, options_of(carrier), server_handler) {
    Runtime& there = one_shard ? client_runtime : *server_runtime;
    const auto bound = there.run([&](Runtime&) { return server.listen(endpoint_of(carrier)); });
    client_runtime.run([this, bound](Runtime&) { return connect(bound); });
  }
  ~Pair() {
    client_runtime.run([this](Runtime&) { return end(); });
  }
  Task<void> connect(net::Endpoint bound) { session = co_await client.connect(bound, after(5s)); }
  Task<void> end() {
    session = {};
    co_await client.close(1s);
  }
  Runtime client_runtime;
  std::unique_ptr<Runtime> server_runtime;
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

/// Messages a second: told one way, with an ask in the end that comes back behind them.
Task<double> pipelined(Pair& pair, int count) {
  Handler& handler = pair.client_handler;
  const double start = now_ns();
  for (int i = 0; i < count; ++i)
    co_await pair.session->send(message(net::MessageKind::tell, body_bytes));
  handler.arrived.reset();
  handler.wanted = handler.received + 1;
  co_await pair.session->send(message(net::MessageKind::ask, body_bytes));
  co_await handler.arrived.wait();
  co_return count / (now_ns() - start) * 1e9;
}

/// Bytes a second of large messages, all of them the same memory: nobody fills it.
Task<double> large(Pair& pair, std::size_t bytes, int count) {
  Handler& handler = pair.client_handler;
  const Buffer block = message(net::MessageKind::tell, bytes).body;
  std::memset(block.data(), 1, bytes);
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    net::Message made;
    made.body = block;
    co_await pair.session->send(std::move(made), net::Lane::bulk);
  }
  handler.arrived.reset();
  handler.wanted = handler.received + 1;
  co_await pair.session->send(message(net::MessageKind::ask, body_bytes), net::Lane::bulk);
  co_await handler.arrived.wait();
  co_return static_cast<double>(bytes) * count / (now_ns() - start);
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

/// Made on first use, and ended when another shape is needed: polling shards take a core each.
class Pairs {
 public:
  Pair& of(Carrier carrier, bool polling, bool one_shard = false) {
    const Shape shape{carrier, polling, one_shard};
    if (!pair_ || shape != shape_) {
      pair_.reset();
      pair_ = std::make_unique<Pair>(carrier, polling, one_shard);
    }
    shape_ = shape;
    return *pair_;
  }
  void end() { pair_.reset(); }

 private:
  struct Shape {
    Carrier carrier = Carrier::tcp;
    bool polling = false, one_shard = false;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  std::unique_ptr<Pair> pair_;
  Shape shape_;
};

using Measure = std::function<double()>;

Measure trips(std::shared_ptr<Pairs> pairs, Carrier carrier, bool polling, int count,
              bool one_shard = false) {
  return [=] {
    Pair& pair = pairs->of(carrier, polling, one_shard);
    return pair.client_runtime.run([&](Runtime&) { return round_trips(pair, count); });
  };
}
Measure rate(std::shared_ptr<Pairs> pairs, Carrier carrier, int count) {
  return [=] {
    Pair& pair = pairs->of(carrier, false);
    return pair.client_runtime.run([&](Runtime&) { return pipelined(pair, count); });
  };
}
Measure bandwidth(std::shared_ptr<Pairs> pairs, Carrier carrier) {
  return [=] {
    Pair& pair = pairs->of(carrier, false);
    return pair.client_runtime.run([&](Runtime&) { return large(pair, 4u << 20, 256); });
  };
}
/// The floors poll too: the subject's shards must not poll beside them.
Measure alone(std::shared_ptr<Pairs> pairs, Measure measure) {
  return [=] {
    pairs->end();
    return measure();
  };
}

/// Beside TCP, and beside what two bare threads do with the same cache lines.
void add_shared_memory_rows(Runner& runner, const std::shared_ptr<Pairs>& pairs) {
  using enum Carrier;
  const std::string what = "as over tcp: framed, checked, with credit; ";
  runner.add({.group = "shm",
              .name = "64 B round trip, polling",
              .unit = "us",
              .subject = trips(pairs, shm, true, 50'000),
              .peer = {{"tcp, polling", trips(pairs, tcp, true, 20'000), 0}},
              .floor = {{"a cache line there and back",
                         alone(pairs, [] { return bare_cache_line_round_trip() / 1000; }), 3}},
              .note = what + "an ask and its answer, 192 bytes each way"});
  runner.add({.group = "shm",
              .name = "64 B round trip, blocking",
              .unit = "us",
              .subject = trips(pairs, shm, false, 5'000),
              .peer = {{"tcp, blocking", trips(pairs, tcp, false, 3'000), 0}},
              .note = what + "shards spin for an adaptive time before they sleep"});
  runner.add({.group = "shm",
              .name = "64 B messages, pipelined",
              .unit = "msg/s",
              .better = Better::higher,
              .subject = rate(pairs, shm, 500'000),
              .peer = {{"tcp, pipelined", rate(pairs, tcp, 500'000), 0}},
              .floor = {{"a bare ring of cache lines",
                         alone(pairs, [] { return bare_ring_messages_per_second(5'000'000); }), 0}},
              .note = what + "one direction, one session, one shard at each end"});
  runner.add(
      {.group = "shm",
       .name = "4 MiB messages",
       .unit = "GB/s",
       .better = Better::higher,
       .subject = bandwidth(pairs, shm),
       .peer = {{"tcp, 4 MiB messages", bandwidth(pairs, tcp), 0}},
       .floor = {{"memcpy of 4 MiB, one thread",
                  alone(pairs, [] { return memcpy_bytes_per_second(4u << 20, 500) / 1e9; }), 0.9}},
       .note =
           "two copies a byte, one by each end; the sender sends the same memory again and again"});
}

/// Beside TCP, and beside what the cipher and one copy alone allow.
void add_tls_rows(Runner& runner, const std::shared_ptr<Pairs>& pairs) {
  using enum Carrier;
  runner.add({.group = "tls",
              .name = "64 B round trip, polling",
              .unit = "us",
              .subject = trips(pairs, tls, true, 20'000),
              .peer = {{"tcp, polling", trips(pairs, tcp, true, 20'000), 0}},
              .note = "as over tcp; TLS 1.3, TLS_AES_128_GCM_SHA256"});
  const auto cipher_and_copy = [] {
    const double cipher = aes_gcm_bytes_per_second(16 << 10, 20'000);
    const double copy = memcpy_bytes_per_second(4u << 20, 200);
    return 1 / (1 / cipher + 1 / copy) / 1e9;
  };
  runner.add({.group = "tls",
              .name = "4 MiB messages",
              .unit = "GB/s",
              .better = Better::higher,
              .subject = bandwidth(pairs, tls),
              .peer = {{"tcp, 4 MiB messages", bandwidth(pairs, tcp), 0}},
              .floor = {{"AES-128-GCM of 16 KiB blocks, as in openssl speed, and one memcpy of 4 "
                         "MiB, one thread",
                         alone(pairs, cipher_and_copy), 0.8}},
              .note = "TLS_AES_128_GCM_SHA256; the sender sends the same memory again and again"});
}

}  // namespace

void add_network_rows(Runner& runner) {
  auto pairs = std::make_shared<Pairs>();
  using enum Carrier;
  const std::string what = "an ask and its answer through sessions: framed, checked, with credit";
  runner.add({.group = "tcp",
              .name = "64 B round trip, polling",
              .unit = "us",
              .subject = trips(pairs, tcp, true, 20'000),
              .floor = {{"a raw io_uring loop",
                         alone(pairs, [] { return raw_round_trip_us(true, 20'000); }), 1.25}},
              .note = what});
  runner.add({.group = "tcp",
              .name = "64 B round trip, both ends on one shard",
              .unit = "us",
              .subject = trips(pairs, tcp, true, 20'000, true),
              .floor = {{"a raw io_uring loop on one ring",
                         alone(pairs, [] { return raw_round_trip_one_ring_us(20'000); }), 1.25}},
              .note = what});
  Row blocking{.group = "tcp",
               .name = "64 B round trip, blocking",
               .unit = "us",
               .subject = trips(pairs, tcp, false, 3'000),
               .floor = {{"a raw io_uring loop",
                          alone(pairs, [] { return raw_round_trip_us(false, 3'000); }), 1.1}},
               .note = what + "; shards spin for an adaptive time before they sleep"};
  Row messages_row{.group = "tcp",
                   .name = "64 B messages, pipelined",
                   .unit = "msg/s",
                   .better = Better::higher,
                   .subject = rate(pairs, tcp, 500'000),
                   .note = "one direction, one session, one shard at each end"};
#if HYPERFRAMES_BENCH_ZMQ
  blocking.peer = Rival{"ZeroMQ " + zmq_peer::version() + ", REQ to REP",
                        alone(pairs, [] { return zmq_peer::round_trip_us(body_bytes, 3'000); }), 0};
  messages_row.peer =
      Rival{"ZeroMQ " + zmq_peer::version() + ", PUSH to PULL",
            alone(pairs, [] { return zmq_peer::messages_per_second(body_bytes, 500'000); }), 2};
#else
  runner.leave_out("ZeroMQ", "libzmq3-dev is not installed");
#endif
  runner.add(std::move(blocking));
  runner.add(std::move(messages_row));
  add_shared_memory_rows(runner, pairs);
  add_tls_rows(runner, pairs);

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
               [pairs, crowd] {
                 pairs->end();
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
