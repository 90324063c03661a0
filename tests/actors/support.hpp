// A node on simulated shards, in virtual time, and an actor that does what tests need.
#pragma once

#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "counter.fbs.hpp"

namespace actor_test {

using namespace std::chrono_literals;

struct DeadLetters {
  std::vector<hf::DeadLetter> letters;
  hf::Node::Options options() {
    hf::Node::Options options;
    options.on_dead_letter = [this](const hf::DeadLetter& letter) { letters.push_back(letter); };
    return options;
  }
};

/// One simulated machine with one node.
struct World {
  explicit World(unsigned shards = 1, hf::Node::Options options = {}, std::uint64_t seed = 1)
      : sim(hf::SimWorld::Options{.seed = seed}),
        machine(sim.add_node({.shards = shards})),
        node(machine.emplace<hf::Node>(machine.runtime(), std::move(options))) {}

  /// Runs `function()`, which returns a Task, on a shard, in virtual time.
  template <class Function>
  auto run(Function function, unsigned shard = 0) {
    return sim.run(machine, shard,
                   [function = std::move(function)](hf::Runtime&) mutable { return function(); });
  }
  std::uint64_t metric(std::string_view name) {
    for (const auto& sample : machine.runtime().collect_metrics())
      if (sample.name == name) return sample.value;
    return 0;
  }

  hf::SimWorld sim;
  hf::SimNode& machine;
  hf::Node& node;
};

/// Keeps what is logged while it lives, instead of printing it.
struct Log {
  Log() {
    hf::log::set_sink(
        [this](hf::log::Level, std::string_view text) { text_ += std::string(text) + "\n"; });
  }
  ~Log() { hf::log::set_sink({}); }
  const std::string& text() const { return text_; }
  bool has(std::string_view part) const { return text_.find(part) != std::string::npos; }

 private:
  std::string text_;
};

/// What happened in actors, seen from outside; outlives them.
struct Journal {
  std::vector<std::string> lines;
  int started = 0, destroyed = 0;
  std::map<std::string, int> numbers;
};

class Counter final : public demo::Counter::Actor {
 public:
  explicit Counter(Journal* journal = nullptr, long total = 0) : journal_(journal), total_(total) {}
  ~Counter() override {
    if (journal_) ++journal_->destroyed;
  }

  hf::Task<void> started() override {
    if (journal_) ++journal_->started;
    return {};
  }
  hf::Task<void> on_down(hf::Down down) override {
    write("down " + down.name + " " + std::string(hf::name(down.reason)));
    co_return;
  }

  hf::Task<void> add(demo::Increment request, hf::Reply<demo::Total> reply) override {
    reply.send({.total = total_ += request.delta()});
    co_return;
  }
  hf::Task<void> add_named(demo::Named request, hf::Reply<demo::Sum> reply) override {
    total_ += request.delta();
    reply.send({.total = total_, .note = "for " + std::string(request.name())});
    co_return;
  }
  hf::Task<void> add_slowly(demo::Increment request, hf::Reply<demo::Total> reply) override {
    write("begin " + std::to_string(request.delta()));
    co_await hf::sleep_for(std::chrono::milliseconds(request.delta()));
    write("end " + std::to_string(request.delta()));
    reply.send({.total = total_ += request.delta()});
  }
  hf::Task<void> add_beside(demo::Increment request, hf::Reply<demo::Total> reply) override {
    return add_slowly(request, std::move(reply));
  }
  hf::Task<void> note(demo::Increment request) override {
    write("note " + std::to_string(request.delta()));
    total_ += request.delta();
    co_return;
  }
  hf::Task<void> keep(demo::Increment request, hf::Reply<demo::Total> reply) override {
    kept_.emplace_back(request.delta(), std::move(reply));
    co_return;
  }
  hf::Task<void> release(demo::Nothing, hf::Reply<demo::Nothing> reply) override {
    for (auto& [delta, waiting] : kept_) waiting.send({.total = total_ += delta});
    kept_.clear();
    reply.send({});
    co_return;
  }
  hf::Task<void> forget(demo::Nothing, hf::Reply<demo::Nothing>) override { co_return; }
  hf::Task<void> refuse(demo::Named request, hf::Reply<demo::Total>) override {
    throw hf::Error(hf::Errc::invalid_argument, "add for " + std::string(request.name()),
                    "it is refused", "ask another one");
    co_return;
  }
  hf::Task<void> crash(demo::Named request, hf::Reply<demo::Nothing>) override {
    throw std::logic_error(std::string(request.name()));
    co_return;
  }
  hf::Task<void> echo(demo::Named request, hf::Segments segments,
                      hf::Reply<hf::WithSegments<demo::Sum>> reply) override {
    reply.send({.total = request.delta(), .note = std::string(request.name())},
               std::move(segments));
    co_return;
  }

 private:
  void write(std::string line) {
    if (journal_) journal_->lines.push_back(std::move(line));
  }
  Journal* journal_;
  long total_;
  std::vector<std::pair<long, hf::Reply<demo::Total>>> kept_;
};

/// The code of the error that a task ends with.
template <class T>
hf::Task<std::error_code> code_of(hf::Task<T> task) {
  try {
    co_await std::move(task);
  } catch (const hf::Error& error) {
    co_return error.code();
  }
  co_return std::error_code();
}

}  // namespace actor_test
