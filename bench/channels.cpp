// Figures of channels, for programs without actors: rates, and what one costs.
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <hyperframes/net/channel/messenger.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "harness.hpp"
#if HYPERFRAMES_BENCH_ZMQ
#include "peers/zmq.hpp"
#endif

namespace hyperframes::bench {
namespace {

constexpr std::size_t body_bytes = 64;
constexpr int many = 100'000;

Runtime::Options one_shard() {
  Runtime::Options options;
  options.shards = 1;
  options.stall_threshold = Duration::zero();
  return options;
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// Two programs with a runtime of one shard each, and channels between them.
class ChannelPair {
  template <class Make>
  auto at_client(Make make) {
    return client_runtime_.run([&make](Runtime&) { return make(); });
  }
  template <class Make>
  auto at_server(Make make) {
    return server_runtime_.run([&make](Runtime&) { return make(); });
  }

 public:
  explicit ChannelPair(const std::string& listen_at) {
    uri_ = at_server([&] { return listen(listen_at); });
    more(1);
  }
  ~ChannelPair() {
    at_client([this] { return drop(&here_); });
    at_server([this] { return drop(&there_); });
    at_client([this] { return client_.close(1s); });
    at_server([this] { return server_.close(1s); });
  }

  int count() const { return static_cast<int>(here_.size()); }
  /// Opens channels, some hundreds at a time, until there are so many.
  void more(int wanted) {
    std::thread accepting([&] { at_server([&] { return accept(wanted); }); });
    at_client([&] { return open(wanted); });
    accepting.join();
  }
  /// Messages a second, one after the other on each channel in turn, received in that order.
  double rate(int messages) {
    const double start = now_ns();
    std::thread receiving([&] { at_server([&] { return receive(messages); }); });
    at_client([&] { return send(messages); });
    receiving.join();
    return messages / (now_ns() - start) * 1e9;
  }
  double round_trip_us(int messages) {
    std::thread answering([&] { at_server([&] { return answer(messages); }); });
    const double start = now_ns();
    at_client([&] { return ask(messages); });
    const double took = now_ns() - start;
    answering.join();
    return took / messages / 1000;
  }

 private:
  static Task<void> drop(std::vector<net::Channel>* channels) {
    channels->clear();
    co_return;
  }
  Task<std::string> listen(std::string at) { co_return (co_await server_.listen(at)).to_string(); }
  Task<void> accept(int wanted) {
    there_.reserve(static_cast<std::size_t>(wanted));
    while (static_cast<int>(there_.size()) < wanted) there_.push_back(co_await server_.accept());
  }
  Task<void> open_one() {
    net::Channel opened;
    if (here_.empty())
      opened = co_await client_.connect(uri_, after(60s));
    else
      opened = co_await here_.front().open(after(60s));
    here_.push_back(std::move(opened));
  }
  Task<void> open(int wanted) {
    here_.reserve(static_cast<std::size_t>(wanted));
    while (count() < wanted) {
      std::vector<Task<void>> some;
      const int left = here_.empty() ? 1 : std::min(wanted - count(), 500);
      for (int i = 0; i < left; ++i) some.push_back(open_one());
      co_await when_all(std::move(some));
    }
  }
  net::TypedMessage message() const {
    return {.type = type_, .body = Shard::current()->send_pool().try_allocate(body_bytes).value()};
  }
  Task<void> send(int messages) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(messages); ++i)
      co_await here_[i % here_.size()].send(message(), after(60s));
  }
  // Both ends number the channels alike only if there is one, or all are asked: each gets as many.
  Task<void> receive(int messages) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(messages); ++i)
      (void)co_await there_[i % there_.size()].recv({}, after(60s));
  }
  Task<void> ask(int messages) {
    for (int i = 0; i < messages; ++i) {
      co_await here_.front().send(message(), after(60s));
      (void)co_await here_.front().recv({}, after(60s));
    }
  }
  Task<void> answer(int messages) {
    for (int i = 0; i < messages; ++i) {
      net::TypedMessage asked = co_await there_.front().recv({}, after(60s));
      co_await there_.front().send(std::move(asked), after(60s));
    }
  }

  Runtime client_runtime_{one_shard()}, server_runtime_{one_shard()};
  net::Messenger client_{client_runtime_}, server_{server_runtime_};
  net::MessageType type_{"bench.channel.message"};
  std::string uri_;
  std::vector<net::Channel> here_, there_;
};

/// Made on first use; of another URI, or with more channels, made anew.
class ChannelPairs {
 public:
  ChannelPair& of(const std::string& uri, int channels) {
    if (!pair_ || uri != uri_ || pair_->count() > channels) {
      pair_.reset();
      pair_ = std::make_unique<ChannelPair>(uri);
      uri_ = uri;
    }
    pair_->more(channels);
    return *pair_;
  }
  void end() { pair_.reset(); }

 private:
  std::unique_ptr<ChannelPair> pair_;
  std::string uri_;
};

double bytes_a_channel() {
  ChannelPair pair("tcp://127.0.0.1:0");
  pair.more(1000);
  ::malloc_trim(0);  // what earlier rounds have freed would be used again, and not be seen
  const double before = resident_bytes();
  pair.more(many);
  return (resident_bytes() - before) / (many - 1000);
}

double channels_a_second() {
  ChannelPair pair("tcp://127.0.0.1:0");
  const double start = now_ns();
  pair.more(many);
  return many / (now_ns() - start) * 1e9;
}

std::string shm_name() { return "shm://bench-channels-" + std::to_string(::getpid()); }

}  // namespace

void add_channel_rows(Runner& runner) {
  auto pairs = std::make_shared<ChannelPairs>();
  const std::string tcp = "tcp://127.0.0.1:0", shm = shm_name();
  const auto rate = [pairs](std::string uri, int channels, int messages) {
    return [=] { return pairs->of(uri, channels).rate(messages); };
  };
  const std::string what =
      "typed messages, each received by co_await; one session, one shard at each end";
  Row one{.group = "channel",
          .name = "64 B messages over tcp",
          .unit = "msg/s",
          .better = Better::higher,
          .subject = rate(tcp, 1, 500'000),
          .note = what};
#if HYPERFRAMES_BENCH_ZMQ
  one.peer = Rival{"ZeroMQ " + zmq_peer::version() + ", PUSH to PULL",
                   [pairs] {
                     pairs->end();
                     return zmq_peer::messages_per_second(body_bytes, 500'000);
                   },
                   2};
#endif
  runner.add(std::move(one));
  runner.add({.group = "channel",
              .name = "64 B messages over shm",
              .unit = "msg/s",
              .better = Better::higher,
              .subject = rate(shm, 1, 500'000),
              .peer = {{"over tcp", rate(tcp, 1, 500'000), 0}},
              .note = what});
  runner.add({.group = "channel",
              .name = "64 B round trip over tcp",
              .unit = "us",
              .subject = [=] { return pairs->of(tcp, 1).round_trip_us(3'000); },
              .note = what + "; shards spin for an adaptive time before they sleep"});
  runner.add({.group = "channel",
              .name = "64 B messages over 100,000 channels in turn",
              .unit = "msg/s",
              .better = Better::higher,
              .subject = rate(tcp, many, 5 * many),
              .peer = {{"over one channel", rate(tcp, 1, 5 * many), 0}},
              .rounds = 3,
              .note = what});
  runner.add({.group = "channel",
              .name = "opening a channel, of 100,000 over one session",
              .unit = "per s",
              .better = Better::higher,
              .subject =
                  [pairs] {
                    pairs->end();
                    return channels_a_second();
                  },
              .rounds = 3,
              .note = "500 at a time, each accepted by the other end"});
  runner.add({.group = "channel",
              .name = "resident memory of a channel, of 100,000 over one session",
              .unit = "bytes",
              .subject =
                  [pairs] {
                    pairs->end();
                    return bytes_a_channel();
                  },
              .rounds = 1,
              .note = "both ends together; nothing was sent on them yet"});
}

}  // namespace hyperframes::bench
