// A supervised actor that crashes, is restarted, and is given up when it crashes too often.
//
//   example_supervised
//
// Its reference stays valid over restarts, and letters that wait in its mailbox reach its
// successor.

#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <iostream>
#include <stdexcept>
#include <string>

#include "divider.fbs.hpp"

namespace {

using namespace std::chrono_literals;

class DividerActor final : public divider::Divider::Actor {
 public:
  hf::Task<void> started() override {
    std::cout << "started\n";
    co_return;
  }
  hf::Task<void> divide(divider::Division request, hf::Reply<divider::Quotient> reply) override {
    // An exception that is no hf::Error is a bug, so the actor's state is not trusted any more.
    if (request.divisor() == 0) throw std::domain_error("division by zero");
    reply.send({.value = request.dividend() / request.divisor()});
    co_return;
  }
};

/// Is told how the divider ended. A restart is no end.
class Watcher final : public divider::Divider::Actor {
 public:
  explicit Watcher(divider::DividerRef watched) { monitor(watched); }
  hf::Task<void> divide(divider::Division, hf::Reply<divider::Quotient>) override { co_return; }
  hf::Task<void> on_down(hf::Down down) override {
    std::cout << down.name << " is down (" << hf::name(down.reason) << "): " << down.text << '\n';
    co_return;
  }
};

hf::Task<void> ask(divider::DividerRef divider, int dividend, int divisor) {
  try {
    const auto quotient = co_await divider.divide({.dividend = dividend, .divisor = divisor});
    std::cout << dividend << " / " << divisor << " = " << quotient.value() << '\n';
  } catch (const hf::Error& error) {
    std::cout << dividend << " / " << divisor << " failed: " << error.found() << '\n';
  }
}

hf::Task<void> run(hf::Node* node) {
  const hf::RestartPolicy twice{.kind = hf::Restart::permanent, .intensity = 2, .period = 10s};
  const auto divider = co_await node->spawn<DividerActor>({.name = "divider", .restart = twice});
  co_await node->spawn<Watcher>("watcher", divider);

  co_await ask(divider, 6, 3);
  for (int crash = 0; crash < 2; ++crash) {
    co_await ask(divider, 1, 0);
    co_await ask(divider, 8, 2);  // waits in the mailbox until the actor runs again
  }
  co_await ask(divider, 1, 0);
  co_await ask(divider, 8, 2);
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count > 1) {
    const std::string argument = arguments[1];
    const bool help = argument == "--help" || argument == "-h";
    (help ? std::cout : std::cerr) << "usage: example_supervised\n"
                                      "crashes an actor until its supervisor gives it up\n";
    return help ? 0 : 2;
  }
  try {
    hf::Runtime runtime({.shards = 1});
    hf::Node node(runtime);
    runtime.run([&](hf::Runtime&) { return run(&node); });
    runtime.run([&](hf::Runtime&) { return node.close(2s); });
  } catch (const hf::Error& error) {
    std::cerr << "example_supervised: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
