// Savina's benchmarks of messages alone.
#include <memory>
#include <vector>

#include "actors.hpp"
#include "kernels.hpp"
#include "root.hpp"

namespace hyperframes::bench::savina {
namespace {

// ---- ping-pong --------------------------------------------------------------------------------

class Ponger final : public protocol::Ponger::Actor {
  Task<void> ping(protocol::Number number, Reply<protocol::Number> reply) override {
    reply.send({.value = number.value() + 1});
    return {};
  }
};

class Pinger final : public protocol::Starter::Actor {
 public:
  Pinger(PingPong program, protocol::Root::Ref root, protocol::Ponger::Ref ponger)
      : program_(program), root_(root), ponger_(ponger) {}

 private:
  Task<void> begin(protocol::Nothing) override {
    std::int64_t value = 0;
    for (std::int64_t i = 0; i < program_.round_trips; ++i) {
      const auto pong = co_await ponger_.ping({.value = value});
      value = pong.value();
    }
    co_await root_.report({.value = value});
  }
  PingPong program_;
  protocol::Root::Ref root_;
  protocol::Ponger::Ref ponger_;
};

class PingPongRoot final : public Root {
 public:
  explicit PingPongRoot(PingPong program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto ponger = co_await spawn<Ponger>(SpawnOptions{});
    auto pinger = co_await spawn<Pinger>(SpawnOptions{}, program_, self(), ponger);
    co_await pinger.begin({});
    co_return 1;
  }
  PingPong program_;
};

// ---- counting ---------------------------------------------------------------------------------

class Counter final : public protocol::Counter::Actor {
  Task<void> increment(protocol::Number number) override {
    total_ += number.value();
    return {};
  }
  Task<void> retrieve(protocol::Nothing, Reply<protocol::Number> reply) override {
    reply.send({.value = total_});
    return {};
  }
  std::int64_t total_ = 0;
};

class CountingRoot final : public Root {
 public:
  explicit CountingRoot(Counting program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto counter = co_await spawn<Counter>(SpawnOptions{});
    for (std::int64_t i = 0; i < program_.increments; ++i) co_await counter.increment({.value = 1});
    const auto total = co_await counter.retrieve({});
    co_await self().report({.value = total.value()});
    co_return 1;
  }
  Counting program_;
};

// ---- fork-join, throughput --------------------------------------------------------------------

class Forked final : public protocol::Forked::Actor {
 public:
  Forked(std::int64_t messages, protocol::Root::Ref root) : messages_(messages), root_(root) {}

 private:
  Task<void> work(protocol::Angle angle) override {
    sum_ += fork_work(angle.value());
    if (++count_ < messages_) return {};
    return root_.report({.value = count_});
  }
  std::int64_t messages_, count_ = 0;
  double sum_ = 0;
  protocol::Root::Ref root_;
};

class ForkJoinRoot final : public Root {
 public:
  explicit ForkJoinRoot(ForkJoinThroughput program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    std::vector<protocol::Forked::Ref> actors;
    for (std::int64_t i = 0; i < program_.actors; ++i)
      actors.push_back(co_await spawn<Forked>(SpawnOptions{}, program_.messages_each, self()));
    for (std::int64_t i = 0; i < program_.messages_each; ++i)
      for (const auto& actor : actors) co_await actor.work({.value = fork_angle});
    co_return program_.actors;
  }
  ForkJoinThroughput program_;
};

// ---- fork-join, create ------------------------------------------------------------------------

class ShortLived final : public protocol::Forked::Actor {
 public:
  explicit ShortLived(protocol::Root::Ref root) : root_(root) {}

 private:
  Task<void> work(protocol::Angle angle) override {
    result_ = fork_work(angle.value());
    co_await root_.report({.value = result_ >= 0});
    stop();
  }
  double result_ = 0;
  protocol::Root::Ref root_;
};

class ForkJoinCreateRoot final : public Root {
 public:
  explicit ForkJoinCreateRoot(ForkJoinCreate program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    for (std::int64_t i = 0; i < program_.actors; ++i) {
      auto actor = co_await node().spawn<ShortLived>(SpawnOptions{}, self());
      co_await actor.work({.value = fork_angle});
    }
    co_return program_.actors;
  }
  ForkJoinCreate program_;
};

// ---- thread ring ------------------------------------------------------------------------------

class RingNode final : public protocol::Ring::Actor {
 public:
  explicit RingNode(protocol::Ring::Ref next) : next_(next) {}

 private:
  Task<void> pass(protocol::Number hops) override {
    co_await next_.pass({.value = hops.value() + 1});
  }
  protocol::Ring::Ref next_;
};

/// Closes the ring when the token first comes, and ends it when it has gone round often enough.
class FirstRingNode final : public protocol::Ring::Actor {
 public:
  FirstRingNode(ThreadRing program, protocol::Root::Ref root) : program_(program), root_(root) {}

 private:
  Task<void> pass(protocol::Number hops) override {
    if (!next_) co_await close_ring();
    if (hops.value() == program_.messages()) {
      co_await root_.report({.value = hops.value()});
    } else {
      co_await next_.pass({.value = hops.value() + 1});
    }
  }
  Task<void> close_ring() {
    next_ = self();
    for (std::int64_t i = 1; i < program_.actors; ++i)
      next_ = co_await spawn<RingNode>(SpawnOptions{}, next_);
  }
  ThreadRing program_;
  protocol::Root::Ref root_;
  protocol::Ring::Ref next_;
};

class ThreadRingRoot final : public Root {
 public:
  explicit ThreadRingRoot(ThreadRing program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto first = co_await spawn<FirstRingNode>(SpawnOptions{}, program_, self());
    co_await first.pass({.value = 0});
    co_return 1;
  }
  ThreadRing program_;
};

// ---- chameneos --------------------------------------------------------------------------------

/// Tells each of two that come the colour of the other one.
class Mall final : public protocol::Mall::Actor {
 public:
  explicit Mall(std::int64_t meetings) : left_(meetings) {}

 private:
  Task<void> meet(protocol::Number colour, Reply<protocol::Number> reply) override {
    if (left_ == 0) {
      reply.send({.value = faded});
    } else if (!waiting_) {
      waiting_.emplace(std::move(reply));
      colour_ = colour.value();
    } else {
      --left_;
      waiting_->send({.value = colour.value()});
      reply.send({.value = colour_});
      waiting_.reset();
    }
    return {};
  }
  std::int64_t left_, colour_ = 0;
  std::optional<Reply<protocol::Number>> waiting_;
};

class Chameneo final : public protocol::Starter::Actor {
 public:
  Chameneo(std::int64_t colour, protocol::Mall::Ref mall, protocol::Root::Ref root)
      : colour_(colour), mall_(mall), root_(root) {}

 private:
  Task<void> begin(protocol::Nothing) override {
    std::int64_t meetings = 0;
    for (;;) {
      const auto other = co_await mall_.meet({.value = colour_}, until(no_deadline));
      if (other.value() == faded) break;
      colour_ = complement(colour_, other.value());
      ++meetings;
    }
    co_await root_.report({.value = meetings});
  }
  std::int64_t colour_;
  protocol::Mall::Ref mall_;
  protocol::Root::Ref root_;
};

class ChameneosRoot final : public Root {
 public:
  explicit ChameneosRoot(Chameneos program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto mall = co_await spawn<Mall>(SpawnOptions{}, program_.meetings);
    for (std::int64_t i = 0; i < program_.chameneos; ++i) {
      auto chameneo = co_await spawn<Chameneo>(SpawnOptions{}, i % 3, mall, self());
      co_await chameneo.begin({});
    }
    co_return program_.chameneos;
  }
  Chameneos program_;
};

// ---- big --------------------------------------------------------------------------------------

using Peers = std::vector<protocol::Peer::Ref>;

class Peer final : public protocol::Peer::Actor {
 public:
  Peer(std::int64_t index, std::int64_t pings, std::shared_ptr<const Peers> peers,
       protocol::Root::Ref root)
      : index_(index), pings_(pings), peers_(std::move(peers)), root_(root) {}

 private:
  Task<void> begin(protocol::Nothing) override {
    const auto count = static_cast<std::int64_t>(peers_->size());
    Random random(static_cast<std::uint64_t>(index_));
    std::int64_t pongs = 0;
    for (std::int64_t i = 0; i < pings_; ++i) {
      const std::int64_t other = (index_ + 1 + random.below(count - 1)) % count;
      const auto pong = co_await (*peers_)[static_cast<std::size_t>(other)].ping({.value = i});
      pongs += pong.value() == i;
    }
    co_await root_.report({.value = pongs});
  }
  Task<void> ping(protocol::Number number, Reply<protocol::Number> reply) override {
    reply.send({.value = number.value()});
    return {};
  }
  std::int64_t index_, pings_;
  std::shared_ptr<const Peers> peers_;
  protocol::Root::Ref root_;
};

class BigRoot final : public Root {
 public:
  explicit BigRoot(Big program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto peers = std::make_shared<Peers>();
    for (std::int64_t i = 0; i < program_.actors; ++i)
      peers->push_back(co_await spawn<Peer>(SpawnOptions{}, i, program_.pings_each,
                                            std::shared_ptr<const Peers>(peers), self()));
    for (const auto& peer : *peers) co_await peer.begin({});
    co_return program_.actors;
  }
  Big program_;
};

}  // namespace

Outcome run(const PingPong& program) { return timed<PingPongRoot>(program); }
Outcome run(const Counting& program) { return timed<CountingRoot>(program); }
Outcome run(const ForkJoinThroughput& program) { return timed<ForkJoinRoot>(program); }
Outcome run(const ForkJoinCreate& program) { return timed<ForkJoinCreateRoot>(program); }
Outcome run(const ThreadRing& program) { return timed<ThreadRingRoot>(program); }
Outcome run(const Chameneos& program) { return timed<ChameneosRoot>(program); }
Outcome run(const Big& program) { return timed<BigRoot>(program); }

}  // namespace hyperframes::bench::savina
