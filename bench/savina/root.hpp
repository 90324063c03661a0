// The actor that every Savina benchmark begins with, and how one is timed.
//
//   class CountRoot final : public Root {
//     Task<std::int64_t> fork() override;      // starts the others; how many reports will come
//   };
//   Outcome run(const Counting& program) { return timed<CountRoot>(program); }
#pragma once

#include <cstdint>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <optional>
#include <savina.fbs.hpp>
#include <utility>

#include "../harness.hpp"
#include "programs.hpp"

namespace hyperframes::bench::savina {

/// Answers with the sum of what the others report.
class Root : public protocol::Root::Actor {
 protected:
  virtual Task<std::int64_t> fork() = 0;

 private:
  Task<void> run(protocol::Nothing, Reply<protocol::Number> reply) final {
    reply_.emplace(std::move(reply));
    expected_ = co_await fork();
    answer_when_complete();
  }
  Task<void> report(protocol::Number number) final {
    sum_ += number.value();
    ++reports_;
    answer_when_complete();
    return {};
  }
  void answer_when_complete() {
    if (reports_ == expected_) reply_->send({.value = sum_});
  }

  std::optional<Reply<protocol::Number>> reply_;
  std::int64_t expected_ = -1, reports_ = 0, sum_ = 0;
};

/// For actors that tell each other in a cycle: CAF's mailboxes have no bound at all.
inline SpawnOptions with_room() {
  SpawnOptions options;
  options.mailbox.messages = 1u << 20;
  return options;
}

template <class Made, class Program>
Task<Outcome> iterate(Node& node, Program program) {
  const double start = now_ns();
  auto root = co_await node.spawn<Made>(SpawnOptions{}, program);
  const auto answer = co_await root.run({}, until(no_deadline));
  const auto left = co_await node.close(10s);
  if (!left.empty())
    throw Error(Errc::deadline_exceeded, "end a Savina benchmark",
                std::to_string(left.size()) + " actors did not end");
  co_return Outcome{(now_ns() - start) / 1e9, answer.value()};
}

/// The runtime is made before, and gone when this returns: nothing polls beside a peer.
template <class Made, class Program>
Outcome timed(const Program& program) {
  Runtime::Options options;
  options.shards = 1;
  options.stall_threshold = Duration::zero();
  Runtime runtime(options);
  Node node(runtime);
  return runtime.run([&](Runtime&) { return iterate<Made>(node, program); });
}

}  // namespace hyperframes::bench::savina
