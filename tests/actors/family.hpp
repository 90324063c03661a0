// Children that say in a journal what becomes of them, and supervisors of theirs.
#pragma once

#include <hyperframes/actors/supervisor.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "support.hpp"

namespace actor_test {

inline int micros(hf::Time at) {
  return static_cast<int>(at.time_since_epoch() / std::chrono::microseconds(1));
}

struct Habits {
  hf::Duration starts_in{}, ends_in{};
  int bad_starts = 0;          ///< So many of its starts fail, the first one excepted,
  bool never_starts = false;   ///< or all.
  hf::Duration restarts_in{};  ///< As `starts_in`, for all starts but the first one.
  bool deaf = false;           ///< No cancellation interrupts a start.
};

/// Writes "+name" when it has started, "!name" when it crashes, "-name" when it ends in order.
class Worker final : public demo::OtherCounter::Actor {
 public:
  Worker(Journal* journal, std::string name, Habits habits)
      : journal_(journal), name_(std::move(name)), habits_(habits) {}
  ~Worker() override {
    if (begun_) --alive(name_);
  }

  hf::Task<void> started() override {
    begun_ = true;
    const int start = ++starts(name_);
    if (++alive(name_) > 1) write("two lives of ");
    const hf::Duration takes =
        start > 1 ? habits_.starts_in + habits_.restarts_in : habits_.starts_in;
    if (takes > hf::Duration::zero() && habits_.deaf) co_await hf::shielded(nap(takes));
    if (takes > hf::Duration::zero() && !habits_.deaf) co_await hf::sleep_for(takes);
    if (habits_.never_starts || (start > 1 && start <= 1 + habits_.bad_starts)) {
      write("?");
      throw std::runtime_error(name_ + " does not start");
    }
    write("+");
    journal_->numbers["start of " + name_] = micros(hf::Clock::now());
  }
  hf::Task<void> stopping() override {
    if (habits_.ends_in > hf::Duration::zero()) co_await hf::sleep_for(habits_.ends_in);
    write("-");
  }
  hf::Task<void> add(demo::Named request, hf::Reply<demo::Sum> reply) override {
    if (request.name() == "crash") {
      write("!");
      throw std::runtime_error(name_ + " is broken");
    }
    if (request.name() == "finish") {
      stop();
    } else if (request.name() == "wait") {
      co_await hf::sleep_for(std::chrono::milliseconds(request.delta()));
    }
    reply.send({.total = total_ += request.delta()});
  }

 private:
  static hf::Task<void> nap(hf::Duration span) { co_await hf::sleep_for(span); }
  int& starts(const std::string& name) { return journal_->numbers["starts of " + name]; }
  int& alive(const std::string& name) { return journal_->numbers["lives of " + name]; }
  void write(const std::string& what) { journal_->lines.push_back(what + name_); }

  Journal* journal_;
  std::string name_;
  Habits habits_;
  long total_ = 0;
  bool begun_ = false;
};

/// With room for many crashes, so that only tests of intensity meet it.
inline constexpr hf::RestartPolicy permanent{.kind = hf::Restart::permanent, .intensity = 20};
inline constexpr hf::RestartPolicy transient{.kind = hf::Restart::transient, .intensity = 20};
inline constexpr hf::RestartPolicy temporary{};

inline hf::SpawnOptions named(std::string name, hf::RestartPolicy restart = permanent,
                              unsigned shard = 0) {
  hf::SpawnOptions options;
  options.name = std::move(name);
  options.restart = restart;
  options.shard = shard;
  return options;
}

inline hf::ChildSpec worker(Journal& journal, hf::SpawnOptions options, Habits habits = {}) {
  const std::string name = options.name;
  return hf::child<Worker>(std::move(options), &journal, name, habits);
}

inline hf::ChildSpec supervisor(hf::SpawnOptions options, hf::Supervision plan) {
  return hf::child<hf::Supervisor>(std::move(options), std::move(plan));
}

inline std::string text(const Journal& journal) {
  std::string text;
  for (const std::string& line : journal.lines) text += (text.empty() ? "" : " ") + line;
  return text;
}

inline demo::OtherCounterRef ref(World& world, const std::string& name) {
  auto found = world.node.find<demo::OtherCounter>(name);
  return found ? *found : demo::OtherCounterRef();
}

/// What the worker of that name is worth by now; an error's code, negated, if it does not answer.
inline hf::Task<long> add(demo::OtherCounterRef worker, long delta) {
  const auto sum = co_await worker.add({.name = "add", .delta = delta});
  co_return sum.total();
}

inline hf::Task<void> tell(demo::OtherCounterRef worker, std::string what, long delta = 0) {
  co_await worker.tell_add({.name = std::move(what), .delta = delta});
}

/// Longer than anything takes that does not wait for good.
inline auto settle() { return hf::sleep_for(std::chrono::seconds(1)); }

/// Has one crash, and everything come to rest.
inline hf::Task<void> crash(World* world, std::string name) {
  co_await tell(ref(*world, name), "crash");
  co_await settle();
}

/// Virtual: what a test waits for at most.
inline hf::Within soon() { return hf::within(std::chrono::seconds(60)); }

}  // namespace actor_test
