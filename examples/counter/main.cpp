// A counter service and its client, in two processes:
//
//   example_counter serve tcp://127.0.0.1:6000
//   example_counter ask tcp://127.0.0.1:6000
//
// or over shared memory, with shm://counter in place of the address, or over whichever of the two
// the hosts allow, with auto://127.0.0.1:6000. The same reference type reaches an actor in this
// process and in another one.

#include <csignal>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <iostream>
#include <string>

#include "counter.fbs.hpp"

namespace {

using namespace std::chrono_literals;

class CounterActor final : public counter::Counter::Actor {
 public:
  hf::Task<void> add(counter::Addition request, hf::Reply<counter::Total> reply) override {
    reply.send({.value = total_ += request.delta()});
    co_return;
  }
  hf::Task<void> rename(counter::Rename request, hf::Reply<counter::Renamed> reply) override {
    // What a handler throws as hf::Error is the answer; the actor lives on.
    if (request.name().empty())
      throw hf::Error(hf::Errc::invalid_argument, "rename the counter", "the name is empty",
                      "give it one");
    reply.send({.greeting = "My name is " + std::string(request.name())});
    co_return;
  }

 private:
  long total_ = 0;
};

hf::Task<void> serve(hf::Node* node, hf::net::Endpoint endpoint) {
  co_await node->spawn<CounterActor>("counter");
  const hf::net::Endpoint bound = co_await node->listen(endpoint);
  std::cout << "listening on " << bound.to_string() << std::endl;
}

hf::Task<void> ask(hf::Node* node, hf::net::Endpoint endpoint) {
  hf::RemoteNode server = co_await node->connect(endpoint, hf::within(5s));
  counter::CounterRef counter = co_await server.find<counter::Counter>("counter");

  for (long delta : {1, 2, 3}) {
    const counter::Total total = co_await counter.add({.delta = delta}, hf::within(50ms));
    std::cout << "added " << delta << ": " << total.value() << '\n';
  }
  const counter::Renamed renamed = co_await counter.rename({.name = "Ada"});
  std::cout << renamed.greeting() << '\n';
  try {
    co_await counter.rename({});
  } catch (const hf::Error& error) {
    std::cout << error.what() << '\n';
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  const std::string role = argument_count == 3 ? arguments[1] : "";
  if (role != "serve" && role != "ask") {
    const std::string argument = argument_count == 2 ? arguments[1] : "";
    const bool help = argument == "--help" || argument == "-h";
    (help ? std::cout : std::cerr)
        << "usage: example_counter serve|ask tcp://HOST:PORT|shm://NAME\n";
    return help ? 0 : 2;
  }
  // Blocked before there are other threads, so that only sigwait() below sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  try {
    const auto endpoint = hf::net::Endpoint::parse(arguments[2]);
    hf::Runtime runtime({.shards = 1});
    hf::Node node(runtime, {.name = role, .network = hf::net::Network::Options{}});
    if (role == "serve") {
      runtime.run([&](hf::Runtime&) { return serve(&node, endpoint); });
      int signal = 0;
      sigwait(&signals, &signal);
    } else {
      runtime.run([&](hf::Runtime&) { return ask(&node, endpoint); });
    }
    runtime.run([&](hf::Runtime&) { return node.close(2s); });
  } catch (const hf::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
