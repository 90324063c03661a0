// The service of docs/tutorials/service.md: it keeps the temperatures of stations, and passes them
// on.
//
//   readings serve tcp://127.0.0.1:6000 127.0.0.1:9464
//   readings record tcp://127.0.0.1:6000 harbour 11.5 12.5
//   readings summarize tcp://127.0.0.1:6000 harbour
//   readings follow tcp://127.0.0.1:6000 harbour 2

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "readings.fbs.hpp"

namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

struct Statistics {
  std::uint64_t count = 0;
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0;

  void add(double value) {
    ++count;
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
  }
};

class ReadingsActor final : public readings::Readings::Actor {
 public:
  hf::Task<void> record(readings::Reading reading, hf::Reply<readings::Nothing> reply) override {
    if (!(reading.celsius() >= -273.15))
      throw hf::Error(hf::Errc::invalid_argument, "record a reading",
                      std::to_string(reading.celsius()) + " degrees is below absolute zero",
                      "check the station's sensor");
    stations_[std::string(reading.station())].add(reading.celsius());
    pass_on(reading);
    reply.send({});
    co_return;
  }

  hf::Task<void> summarize(readings::Station station, hf::Reply<readings::Summary> reply) override {
    const std::string name(station.name());
    const auto found = stations_.find(name);
    if (found == stations_.end())
      throw hf::Error(hf::Errc::not_found, "summarize station '" + name + "'",
                      "it has sent nothing", "check its name");
    const Statistics& known = found->second;
    reply.send({.count = known.count,
                .least = known.least,
                .mean = known.sum / static_cast<double>(known.count),
                .most = known.most});
    co_return;
  }

  hf::Task<void> follow(readings::Station station,
                        hf::StreamWriter<readings::Reading> writer) override {
    followers_.push_back({std::string(station.name()), std::move(writer)});
    co_return;
  }

 private:
  struct Follower {
    std::string station;
    hf::StreamWriter<readings::Reading> writer;
  };

  /// Never waits: a follower that does not keep up loses its stream, and nobody else anything.
  void pass_on(const readings::Reading& reading) {
    for (Follower& follower : followers_) {
      if (follower.station != reading.station()) continue;
      if (!follower.writer.try_write({.station = follower.station, .celsius = reading.celsius()}))
        follower.writer.fail(hf::Error(hf::Errc::overloaded, "follow '" + follower.station + "'",
                                       "too many readings wait to be read", "read faster"));
    }
    std::erase_if(followers_, [](const Follower& follower) { return !follower.writer.writable(); });
  }

  std::map<std::string, Statistics> stations_;
  std::vector<Follower> followers_;
};

hf::Task<void> serve(hf::Node* node, hf::net::Endpoint endpoint) {
  const hf::RestartPolicy restart{.kind = hf::Restart::permanent};
  co_await node->spawn<ReadingsActor>({.name = "readings", .restart = restart});
  const hf::net::Endpoint bound = co_await node->listen(endpoint);
  std::cout << "listening on " << bound.to_string() << std::endl;
}

hf::Task<void> record(readings::ReadingsRef service, std::string station, Words values) {
  for (const std::string& value : values)
    co_await service.record({.station = station, .celsius = std::stod(value)}, hf::within(2s));
  std::cout << "recorded " << values.size() << " of " << station << '\n';
}

hf::Task<void> summarize(readings::ReadingsRef service, std::string station) {
  const readings::Summary summary = co_await service.summarize({.name = station}, hf::within(2s));
  std::cout << station << ": " << summary.count() << " readings, " << summary.least() << " to "
            << summary.most() << ", mean " << summary.mean() << '\n';
}

hf::Task<void> follow(readings::ReadingsRef service, std::string station, int count) {
  hf::StreamReader<readings::Reading> stream = co_await service.follow({.name = station});
  std::cout << "following " << station << std::endl;
  for (; count > 0; --count) {
    const std::optional<readings::Reading> reading = co_await stream.read();
    if (!reading) break;
    std::cout << station << " now has " << reading->celsius() << std::endl;
  }
}

hf::Task<void> ask(hf::Node* node, Words words) {
  const auto endpoint = hf::net::Endpoint::parse(words[1]);
  hf::RemoteNode server = co_await node->connect(endpoint, hf::within(5s));
  const readings::ReadingsRef service = co_await server.find<readings::Readings>("readings");
  if (words[0] == "record")
    co_await record(service, words[2], Words(words.begin() + 3, words.end()));
  else if (words[0] == "summarize")
    co_await summarize(service, words[2]);
  else
    co_await follow(service, words[2], std::stoi(words[3]));
}

/// Before there are other threads, so that only sigwait() sees them.
sigset_t block_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

void run_server(const Words& words) {
  const sigset_t signals = block_stop_signals();
  hf::Runtime runtime({.shards = 1});
  hf::Node node(runtime, {.name = "readings",
                          .network = hf::net::Network::Options{},
                          .http_address = words.size() > 2 ? words[2] : ""});
  const auto endpoint = hf::net::Endpoint::parse(words[1]);
  runtime.run([&](hf::Runtime&) { return serve(&node, endpoint); });
  int signal = 0;
  sigwait(&signals, &signal);
  runtime.run([&](hf::Runtime&) { return node.close(2s); });
}

void run_client(const Words& words) {
  hf::Runtime runtime({.shards = 1});
  hf::Node node(runtime, {.name = words[0], .network = hf::net::Network::Options{}});
  runtime.run([&](hf::Runtime&) { return ask(&node, words); });
  runtime.run([&](hf::Runtime&) { return node.close(2s); });
}

bool understood(const Words& words) {
  if (words.empty()) return false;
  const std::size_t count = words.size();
  return (words[0] == "serve" && (count == 2 || count == 3)) ||
         (words[0] == "record" && count > 3) || (words[0] == "summarize" && count == 3) ||
         (words[0] == "follow" && count == 4);
}

}  // namespace

int main(int argument_count, char** arguments) {
  const Words words(arguments + 1, arguments + argument_count);
  if (!understood(words)) {
    const bool help = words == Words{"--help"} || words == Words{"-h"};
    (help ? std::cout : std::cerr) << "usage: readings serve tcp://HOST:PORT [HOST:PORT]\n"
                                      "       readings record tcp://HOST:PORT STATION CELSIUS...\n"
                                      "       readings summarize tcp://HOST:PORT STATION\n"
                                      "       readings follow tcp://HOST:PORT STATION COUNT\n";
    return help ? 0 : 2;
  }
  try {
    if (words[0] == "serve")
      run_server(words);
    else
      run_client(words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
