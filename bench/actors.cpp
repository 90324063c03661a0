// Figures of actors in one process: messages on one shard and across two, starting, memory.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <echo.fbs.hpp>
#include <fstream>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <memory>
#include <vector>

#include "floors.hpp"
#include "harness.hpp"
#if HYPERFRAMES_BENCH_CAF
#include "peers/caf.hpp"
#endif

namespace hyperframes::bench {
namespace {

constexpr int messages = 1'000'000;
constexpr int window = 256;

/// Its handlers need not wait, so they are plain functions, as CAF's are: they have no frame.
class EchoActor : public protocol::Echo::Actor {
 protected:
  Task<void> add(protocol::Number number, Reply<protocol::Number> reply) override {
    reply.send({.value = number.value() + 1});
    return {};
  }
  Task<void> count(protocol::Number number) override {
    sum_ += number.value();
    return {};
  }
  Task<void> say(protocol::Text text, Reply<protocol::Text> reply) override {
    reply.send(std::move(text));
    return {};
  }
  Task<void> note(protocol::Text text) override {
    sum_ += static_cast<std::int64_t>(text.text().size());
    return {};
  }
  std::int64_t sum_ = 0;
};

/// What a handler that may wait costs.
class CoroutineEcho final : public EchoActor {
  Task<void> count(protocol::Number number) override {
    sum_ += number.value();
    co_return;
  }
};

/// A runtime with a node, and echoes on shard 0 and one on shard 1.
struct Place {
  explicit Place(unsigned shards) : runtime(options(shards)), node(runtime) {
    here = runtime.run([this](Runtime&) { return spawn<EchoActor>(0); });
    coroutine = runtime.run([this](Runtime&) { return spawn<CoroutineEcho>(0); });
    if (shards > 1) there = runtime.run([this](Runtime&) { return spawn<EchoActor>(1); });
  }
  static Runtime::Options options(unsigned shards) {
    Runtime::Options options;
    options.shards = shards;
    options.pin_threads = true;
    options.shard.spin_always = true;
    options.stall_threshold = Duration::zero();
    return options;
  }
  template <class Made>
  Task<protocol::EchoRef> spawn(unsigned shard) {
    SpawnOptions options;
    options.shard = shard;
    co_return co_await node.spawn<Made>(std::move(options));
  }
  Runtime runtime;
  Node node;
  protocol::EchoRef here, coroutine, there;
};

/// Made on first use and closed in the end, so that only the benches that need it pay for its
/// threads.
class Places {
 public:
  Place& of(unsigned shards) {
    auto& place = shards == 1 ? one_ : two_;
    auto& other = shards == 1 ? two_ : one_;
    other.reset();  // its shards would poll beside this one's
    if (!place) place = std::make_unique<Place>(shards);
    return *place;
  }
  /// So that no shard polls beside a peer.
  void close() {
    one_.reset();
    two_.reset();
  }

 private:
  std::unique_ptr<Place> one_, two_;
};

// ---- The floor: a coroutine that waits on an intrusive queue of pooled letters
// -------------------

struct BareLetter {
  BareLetter* next = nullptr;
  std::int64_t value = 0;
};

class BareInbox {
 public:
  void push(BareLetter* letter) noexcept {
    letter->next = nullptr;
    *(head_ ? &tail_->next : &head_) = letter;
    tail_ = letter;
    if (waiting_) std::exchange(waiting_, nullptr)->schedule();
  }
  struct Awaiter {
    BareInbox& inbox;
    bool await_ready() const noexcept { return inbox.head_ != nullptr; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      inbox.waiting_ = &handle.promise();
    }
    BareLetter* await_resume() noexcept {
      BareLetter* letter = inbox.head_;
      inbox.head_ = letter->next;
      return letter;
    }
  };
  Awaiter receive() noexcept { return {*this}; }

 private:
  BareLetter* head_ = nullptr;
  BareLetter* tail_ = nullptr;
  hyperframes::detail::PromiseBase* waiting_ = nullptr;
};

BareLetter* make_letter(std::int64_t value) {
  auto* letter = new (hyperframes::detail::pool_allocate(sizeof(BareLetter))) BareLetter;
  letter->value = value;
  return letter;
}

Task<void> bare_counter(BareInbox& inbox, BareInbox& back, int count, bool answer_each) {
  std::int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    BareLetter* letter = co_await inbox.receive();
    sum += letter->value;
    if (answer_each || i % window == window - 1) {
      letter->value = sum;
      back.push(letter);
    } else {
      hyperframes::detail::pool_release(letter);
    }
  }
}

Task<double> bare_round(bool answer_each) {
  BareInbox inbox, back;
  constexpr int count = messages / window * window;
  Scope scope;
  scope.spawn(bare_counter(inbox, back, count, answer_each));
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    inbox.push(make_letter(i));
    if (answer_each || i % window == window - 1) {
      BareLetter* letter = co_await back.receive();
      hyperframes::detail::pool_release(letter);
    }
  }
  const double took = now_ns() - start;
  co_await scope.join();
  co_return took / count;
}

// ---- The subjects
// --------------------------------------------------------------------------------

Task<double> one_way_structs(protocol::EchoRef echo) {
  constexpr int count = messages / window * window;
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    co_await echo.count({.value = i});
    if (i % window == window - 1) co_await echo.add({.value = i});
  }
  co_return (now_ns() - start) / count;
}

Task<double> one_way_tables(protocol::EchoRef echo) {
  constexpr int count = messages / window * window;
  protocol::Text::Fields fields;
  fields.text = std::string(32, 'x');
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    co_await echo.note(fields);
    if (i % window == window - 1) co_await echo.add({.value = i});
  }
  co_return (now_ns() - start) / count;
}

Task<double> round_trip_structs(protocol::EchoRef echo, int count) {
  const double start = now_ns();
  for (int i = 0; i < count; ++i) co_await echo.add({.value = i});
  co_return (now_ns() - start) / count;
}

Task<double> round_trip_tables(protocol::EchoRef echo, int count) {
  protocol::Text::Fields fields;
  fields.text = std::string(32, 'x');
  const double start = now_ns();
  for (int i = 0; i < count; ++i) co_await echo.say(fields);
  co_return (now_ns() - start) / count;
}

Task<double> spawn_and_join(Node& node) {
  constexpr int count = 100'000;
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    auto echo = co_await node.spawn<EchoActor>(SpawnOptions{});
    node.stop(echo);
    co_await node.join(echo);
  }
  co_return (now_ns() - start) / count;
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

Task<double> idle_bytes(Node& node, int count) {
  std::vector<protocol::EchoRef> echoes;
  echoes.reserve(static_cast<std::size_t>(count));
  ::malloc_trim(0);  // what earlier rounds have freed would be used again, and not be seen
  const double before = resident_bytes();
  for (int i = 0; i < count; ++i) echoes.push_back(co_await node.spawn<EchoActor>(SpawnOptions{}));
  const double after = resident_bytes();
  for (auto& echo : echoes) node.stop(echo);
  for (auto& echo : echoes) co_await node.join(echo);
  co_return (after - before) / count;
}

double idle_actor_bytes() {
  Place place(1);
  return place.runtime.run([&place](Runtime&) { return idle_bytes(place.node, 1'000'000); });
}

#if HYPERFRAMES_BENCH_CAF
std::optional<Rival> caf(std::shared_ptr<Places> places, std::function<double(unsigned)> measure,
                         double goal) {
  return Rival{"CAF " + caf_peer::version() + ", best of 1 and 2 workers",
               [places, measure] {
                 places->close();
                 return std::min(measure(1), measure(2));
               },
               goal};
}
#else
std::optional<Rival> caf(std::shared_ptr<Places>, std::function<double(unsigned)>, double) {
  return std::nullopt;
}
namespace caf_peer {
double one_way_ns(unsigned, unsigned) { return 0; }
double round_trip_ns(unsigned, unsigned) { return 0; }
double spawn_join_ns(unsigned) { return 0; }
double idle_actor_bytes(unsigned) { return 0; }
}  // namespace caf_peer
#endif

}  // namespace

void add_actor_rows(Runner& runner) {
#if !HYPERFRAMES_BENCH_CAF
  runner.leave_out("CAF", "libcaf-dev, of version 0.17, was not found when this was configured");
#endif
  auto places = std::make_shared<Places>();
  const auto add = [&runner, places](Row row) {
    row.finish = [places] { places->close(); };
    runner.add(std::move(row));
  };
  auto on_one = [places](auto function) {
    return [places, function] {
      Place& place = places->of(1);
      return place.runtime.run([&](Runtime&) { return function(place); });
    };
  };
  auto bare = [places](bool answer_each) {
    return [places, answer_each] {
      return places->of(1).runtime.run([=](Runtime&) { return bare_round(answer_each); });
    };
  };
  const std::string on =
      "typed dispatch, bounds, deadlines and counters are on; handlers are plain functions";
  add({.group = "actors",
       .name = "one-way struct message, one shard",
       .unit = "ns",
       .subject = on_one([](Place& place) { return one_way_structs(place.here); }),
       .peer = caf(
           places, [](unsigned threads) { return caf_peer::one_way_ns(threads, 8); }, 0.125),
       .floor = {{"a bare coroutine inbox", bare(false), 4}},
       .note = on});
  add({.group = "actors",
       .name = "one-way struct message to a coroutine, one shard",
       .unit = "ns",
       .subject = on_one([](Place& place) { return one_way_structs(place.coroutine); }),
       .peer = caf(
           places, [](unsigned threads) { return caf_peer::one_way_ns(threads, 8); }, 0),
       .floor = {{"a bare coroutine inbox", bare(false), 0}},
       .note = "the same with a handler that may wait, so each call of it has a frame"});
  add({.group = "actors",
       .name = "round trip of structs, one shard",
       .unit = "ns",
       .subject = on_one([](Place& place) { return round_trip_structs(place.here, messages); }),
       .peer = caf(
           places, [](unsigned threads) { return caf_peer::round_trip_ns(threads, 8); }, 0.125),
       .floor = {{"a bare coroutine inbox", bare(true), 4}},
       .note = on});
  add({.group = "actors",
       .name = "one-way small table, one shard",
       .unit = "ns",
       .subject = on_one([](Place& place) { return one_way_tables(place.here); }),
       .peer = caf(
           places, [](unsigned threads) { return caf_peer::one_way_ns(threads, 32); }, 0.25),
       .note = "32 bytes of text, built with FlatBuffers for each message"});
  add({.group = "actors",
       .name = "round trip of small tables, one shard",
       .unit = "ns",
       .subject = on_one([](Place& place) { return round_trip_tables(place.here, messages); }),
       .peer = caf(
           places, [](unsigned threads) { return caf_peer::round_trip_ns(threads, 32); }, 0.25),
       .note = "32 bytes of text, built for each request; the answer is what came"});
  add({.group = "actors",
       .name = "cross-shard round trip, polling",
       .unit = "ns",
       .subject =
           [places] {
             Place& place = places->of(2);
             return place.runtime.run(
                 [&](Runtime&) { return round_trip_structs(place.there, messages / 10); });
           },
       .floor = {{"a bare cache line between two threads", bare_cache_line_round_trip, 2.5}},
       .note = "an ask to an actor on the other shard"});
  add({.group = "actors",
       .name = "spawn and join",
       .unit = "ns",
       .subject = on_one([](Place& place) { return spawn_and_join(place.node); }),
       .peer =
           caf(places, [](unsigned threads) { return caf_peer::spawn_join_ns(threads); }, 0.25)});
  add({.group = "actors",
       .name = "resident memory of an idle actor",
       .unit = "bytes",
       .subject = idle_actor_bytes,
       .peer = caf(
           places, [](unsigned) { return caf_peer::idle_actor_bytes(100'000); }, 0),
       .floor = {{"the bound", [] { return 512.0; }, 1}},
       .rounds = 1,
       .note = "with its mailbox, over a million of them; the peer 100,000, of which a "
               "million take minutes to end"});
}

}  // namespace hyperframes::bench
