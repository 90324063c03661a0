#include "sessions.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <hyperframes/net/key.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <span>
#include <utility>

namespace hyperframes::bench {
namespace {

constexpr std::size_t ping_bytes = 64, bulk_message_bytes = 4u << 20;

/// Sends asks back, and takes note of answers.
class Handler final : public net::MessageHandler {
 public:
  Event answered;

 private:
  void on_message(net::Session& session, net::Lane lane, net::Message message) noexcept override {
    if (message.envelope.kind == net::MessageKind::ask) {
      net::Message answer;
      answer.envelope = net::answer_to(message.envelope);
      answer.body = std::move(message.body);
      (void)session.try_send(answer, lane);
    } else if (message.envelope.kind == net::MessageKind::reply) {
      answered.set();
    }
  }
};

Runtime::Options options(bool polling) {
  Runtime::Options options;
  options.shards = 1;
  options.shard.spin_always = polling;
  options.stall_threshold = Duration::zero();
  return options;
}

net::Endpoint endpoint_of(Carrier carrier) {
  if (carrier != Carrier::shm) return net::Endpoint::parse("tcp://127.0.0.1:0");
  static int last = 0;
  return net::Endpoint::parse("shm://bench-" + std::to_string(::getpid()) + "-" +
                              std::to_string(++last));
}

net::Network::Options network_options(bool encrypted, std::size_t loan_bytes = 0) {
  net::Network::Options options;
  options.loan_bytes = loan_bytes;
  const std::string secret = "the key of both ends";
  if (encrypted) options.key = net::Key(std::as_bytes(std::span(secret)));
  return options;
}

net::Lane lane_of(std::size_t size) {
  return size > 64u << 10 ? net::Lane::bulk : net::Lane::normal;
}

net::Message message(net::MessageKind kind, std::size_t bytes) {
  net::Message made;
  made.envelope.kind = kind;
  made.body = Shard::current()->send_pool().try_allocate(bytes).value();
  return made;
}

class Sessions final : public SessionMessenger {
 public:
  Sessions(Carrier carrier, bool polling, std::size_t loan_bytes)
      : SessionMessenger({"sessions", endpoint_of(carrier).to_string(),
                          polling ? "polling" : "blocking", name(carrier)}),
        runtime_(options(polling)),
        network_(runtime_, network_options(carrier == Carrier::tls, loan_bytes), handler_) {
    const auto bound = net::Endpoint::parse(other_.hear());
    runtime_.run([&](Runtime&) { return connect(bound); });
  }
  ~Sessions() override {
    runtime_.run([this](Runtime&) { return end(); });
  }

  void round_trips(std::size_t size, int count) override {
    runtime_.run([&](Runtime&) { return ask_again_and_again(size, count); });
  }
  void stream(std::size_t size, int count) override {
    runtime_.run([&](Runtime&) { return tell(size, count); });
  }
  double p99_of_pings_us(std::uint64_t bulk_bytes) override {
    return runtime_.run([&](Runtime&) { return ping_beside(bulk_bytes); });
  }
  double lent_round_trip_us(std::size_t size, int count) override {
    runtime_.run([&](Runtime&) { return ask_with_loans(size, count / 10 + 1); });
    const double start = now_ns();
    runtime_.run([&](Runtime&) { return ask_with_loans(size, count); });
    return (now_ns() - start) / 1000 / count;
  }
  double copied_once_gb_per_s(std::size_t size, int count) override {
    runtime_.run([&](Runtime&) { return tell_by_loans(size, count / 10 + 1); });
    const double start = now_ns();
    runtime_.run([&](Runtime&) { return tell_by_loans(size, count); });
    return static_cast<double>(size) * count / (now_ns() - start);
  }

 private:
  Task<void> connect(net::Endpoint bound) {
    session_ = co_await network_.connect(bound, after(5s));
  }
  Task<void> end() {
    session_ = {};
    co_await network_.close(1s);
  }
  Task<void> ask(std::size_t size, net::Lane lane) {
    handler_.answered.reset();
    co_await session_->send(message(net::MessageKind::ask, size), lane);
    co_await handler_.answered.wait();
  }
  Task<void> ask_again_and_again(std::size_t size, int count) {
    for (int i = 0; i < count; ++i) {
      handler_.answered.reset();
      co_await session_->send(message(net::MessageKind::ask, size));
      co_await handler_.answered.wait();
    }
  }
  Task<void> ask_with_loans(std::size_t size, int count) {
    for (int i = 0; i < count; ++i) {
      handler_.answered.reset();
      net::Message made;
      made.envelope.kind = net::MessageKind::ask;
      made.segments.push_back(co_await network_.loan(size));
      co_await session_->send(std::move(made), lane_of(size));
      co_await handler_.answered.wait();
    }
  }
  /// With an ask behind them, whose answer says that all are there.
  Task<void> tell(std::size_t size, int count) {
    const Buffer body = message(net::MessageKind::tell, size).body;
    std::memset(body.data(), 1, size);
    for (int i = 0; i < count; ++i) {
      net::Message made;
      made.body = body;
      co_await session_->send(std::move(made), lane_of(size));
    }
    co_await ask(ping_bytes, lane_of(size));
  }
  Task<void> tell_by_loans(std::size_t size, int count) {
    const Buffer own = message(net::MessageKind::tell, size).body;
    std::memset(own.data(), 1, size);
    for (int i = 0; i < count; ++i) {
      net::Message made;
      Buffer lent = co_await network_.loan(size);
      std::memcpy(lent.data(), own.data(), size);
      made.segments.push_back(std::move(lent));
      co_await session_->send(std::move(made), lane_of(size));
    }
    co_await ask(ping_bytes, lane_of(size));
  }
  Task<void> tell_bulk(std::uint64_t bytes) {
    const Buffer body = message(net::MessageKind::tell, bulk_message_bytes).body;
    std::memset(body.data(), 1, bulk_message_bytes);
    for (std::uint64_t sent = 0; sent < bytes; sent += bulk_message_bytes) {
      net::Message made;
      made.body = body;
      co_await session_->send(std::move(made), net::Lane::bulk, no_deadline);
    }
    bulk_over_ = true;
  }
  Task<void> ping(std::vector<double>* took_us, std::size_t least) {
    while (!bulk_over_ || took_us->size() < least) {
      const double start = now_ns();
      co_await ask(ping_bytes, net::Lane::normal);
      took_us->push_back((now_ns() - start) / 1000);
    }
  }
  Task<double> ping_beside(std::uint64_t bulk_bytes) {
    std::vector<double> took_us;
    bulk_over_ = bulk_bytes == 0;
    co_await when_all(tell_bulk(bulk_bytes), ping(&took_us, bulk_bytes == 0 ? 5'000 : 1));
    co_await ask(ping_bytes, net::Lane::bulk);  // all of it is there
    const auto p99 = took_us.begin() + static_cast<std::ptrdiff_t>(took_us.size() * 99 / 100);
    std::nth_element(took_us.begin(), p99, took_us.end());
    co_return *p99;
  }

  Runtime runtime_;
  Handler handler_;
  net::Network network_;
  net::SessionRef session_;
  bool bulk_over_ = false;
};

}  // namespace

const char* name(Carrier carrier) {
  switch (carrier) {
    case Carrier::tcp: return "tcp";
    case Carrier::shm: return "shm";
    case Carrier::tls: return "tls";
  }
  return "";
}

std::unique_ptr<SessionMessenger> make_sessions(Carrier carrier, bool polling,
                                                std::size_t loan_bytes) {
  return std::make_unique<Sessions>(carrier, polling, loan_bytes);
}

void serve_sessions(Starter& starter, const std::vector<std::string>& arguments) {
  const auto endpoint = net::Endpoint::parse(arguments.at(0));
  Runtime runtime(options(arguments.at(1) == "polling"));
  Handler handler;
  net::Network network(runtime, network_options(arguments.at(2) == name(Carrier::tls)), handler);
  const auto bound = runtime.run([&](Runtime&) { return network.listen(endpoint); });
  starter.say(bound.to_string());
  starter.attend();
  while (true) ::pause();
}

}  // namespace hyperframes::bench
