// Streams between ends on one shard, on two shards, and in two processes.
#include <hyperframes/actors/stream.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/scope.hpp>

#include "cluster.hpp"
#include "flow.fbs.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;

namespace {

/// What the handlers did, seen from outside.
struct Seen {
  long written = 0, read = 0;
  int begun = 0, ended = 0;
  std::vector<std::string> ends;  ///< The error that each handler met, or "".
};

class Flow final : public flow::Flow::Actor {
 public:
  explicit Flow(Seen* seen) : seen_(*seen) {}

  Task<void> count(flow::Query query, hf::StreamWriter<flow::Item> writer) override {
    const Handler handler(seen_);
    try {
      for (long i = 0; query.count() < 0 || i < query.count(); ++i) {
        co_await writer.write({.value = query.from() + i});
        ++seen_.written;
      }
    } catch (const hf::Error& error) {
      note(error);
      throw;
    }
    finish_as(query.end(), writer);
    note();
  }
  Task<void> lines(flow::Query query, hf::StreamWriter<flow::Line> writer) override {
    const Handler handler(seen_);
    if (query.end() == "ladder") co_return co_await ladder(query.size(), std::move(writer));
    if (query.end() == "huge")
      co_return co_await huge(query.count(), query.size(), std::move(writer));
    const std::string text(static_cast<std::size_t>(query.size()), 'x');
    try {
      for (long i = 0; query.count() < 0 || i < query.count(); ++i) {
        co_await writer.write({.number = query.from() + i, .text = text}, hf::within(1h));
        ++seen_.written;
      }
    } catch (const hf::Error& error) {
      note(error);
      throw;
    }
    writer.finish();
    note();
  }
  Task<void> slow(flow::Query query, hf::StreamWriter<flow::Item> writer) override {
    if (query.end() == "throw") throw hf::Error(Errc::rejected, "slow", "enough", "ask for less");
    if (query.end() == "crash") throw std::runtime_error("a crash");
    if (query.end() == "helper") return leave_to_helper(std::move(writer));
    return slowly(query.count(), std::move(writer));
  }
  Task<void> load(hf::StreamReader<flow::Item> reader,
                  hf::StreamReply<flow::Summary> reply) override {
    const Handler handler(seen_);
    long count = 0, total = 0;
    try {
      while (auto item = co_await reader.read()) {
        ++seen_.read;
        ++count;
        total += item->value();
        if (item->value() == -1) break;      // enough
        if (item->value() == -2) co_return;  // without an answer
        if (item->value() == -3) throw hf::Error(Errc::rejected, "load", "a bad item", "skip it");
        if (item->value() == -4) co_await hf::sleep_for(1s);
      }
    } catch (const hf::Error& error) {
      note(error);
      throw;
    }
    reply.send({.count = count, .total = total});
    note();
  }
  Task<void> talk(hf::StreamReader<flow::Line> reader,
                  hf::StreamWriter<flow::Line> writer) override {
    const Handler handler(seen_);
    try {
      while (auto line = co_await reader.read()) {
        ++seen_.read;
        co_await writer.write({.number = line->number() + 1, .text = std::string(line->text())});
      }
    } catch (const hf::Error& error) {
      note(error);
      throw;
    }
    writer.finish();
    note();
  }
  Task<void> ping(flow::Item item, hf::Reply<flow::Item> reply) override {
    reply.send({.value = item.value()});
    return {};
  }
  Task<void> leave(flow::Item item, hf::Reply<flow::Nothing> reply) override {
    if (item.value()) throw std::runtime_error("a crash");
    stop();
    reply.send({});
    return {};
  }

 private:
  struct Handler {
    explicit Handler(Seen& seen) : seen(seen) { ++seen.begun; }
    ~Handler() { ++seen.ended; }
    Seen& seen;
  };
  void finish_as(std::string_view how, hf::StreamWriter<flow::Item>& writer) {
    if (how == "throw") throw hf::Error(Errc::rejected, "count", "enough", "ask for less");
    if (how == "crash") throw std::runtime_error("a crash");
    if (how == "fail") writer.fail(hf::Error(Errc::moved, "count", "gone", "look there"));
    if (how == "keep") kept_.push_back(std::move(writer));
    if (how.empty()) writer.finish();
  }
  static Task<void> slowly(long milliseconds, hf::StreamWriter<flow::Item> writer) {
    co_await hf::sleep_for(std::chrono::milliseconds(milliseconds));
    writer.finish();
  }
  static Task<void> leave_to_helper(hf::StreamWriter<flow::Item> writer) {
    co_await helper(std::move(writer));
  }
  static Task<void> helper(hf::StreamWriter<flow::Item> writer) {
    auto own = std::move(writer);
    co_await own.write({.value = 1});
    co_await hf::sleep_for(1ms);
    throw hf::Error(Errc::rejected, "slow", "enough", "ask for less");
  }
  /// Two small ones; one that gives up since it is too large for what is left; one that fits; and
  /// one that does not, but would once all is read.
  static Task<void> ladder(long window, hf::StreamWriter<flow::Line> writer) {
    const auto text = [window](long percent) {
      return std::string(static_cast<std::size_t>(window * percent / 100), 'x');
    };
    co_await writer.write({.number = 0, .text = text(20)});
    co_await writer.write({.number = 1, .text = text(20)});
    bool gave_up = false;
    try {
      co_await writer.write({.number = 2, .text = text(90)}, hf::within(10ms));
    } catch (const hf::Error& error) {
      gave_up = error.is(Errc::deadline_exceeded);
    }
    CHECK(gave_up);
    co_await writer.write({.number = 3, .text = text(4)}, hf::within(10ms));
    co_await writer.write({.number = 4, .text = text(60)}, hf::within(1h));
    writer.finish();
  }
  /// Large ones, so that they have to wait, and one that is too large.
  Task<void> huge(long count, long size, hf::StreamWriter<flow::Line> writer) {
    for (long i = 0; i < count; ++i)
      co_await writer.write({.number = i, .text = std::string(1'000'000, 'x')});
    try {
      co_await writer.write({.text = std::string(static_cast<std::size_t>(size), 'x')});
    } catch (const hf::Error& error) {
      note(error);
    }
    CHECK(!writer.writable());
    writer.finish();
  }
  void note() { seen_.ends.emplace_back(); }
  void note(const hf::Error& error) { seen_.ends.emplace_back(error.code().message()); }

  Seen& seen_;
  std::vector<hf::StreamWriter<flow::Item>> kept_;
};

enum class Placement { same_shard, other_shard, other_process };
constexpr Placement placements[] = {Placement::same_shard, Placement::other_shard,
                                    Placement::other_process};

/// A Flow somewhere, and a caller on the first shard of the client's two.
struct Stage {
  explicit Stage(Placement placement, std::uint64_t seed = 1,
                 std::size_t receive_budget_bytes = 128u << 20)
      : cluster(2, 2, seed, receive_budget_bytes) {
    const hf::SpawnOptions options{.name = "flow",
                                   .shard = placement == Placement::same_shard ? 0u : 1u};
    if (placement == Placement::other_process) {
      cluster.sim.run(cluster.server_machine, 0, [&](hf::Runtime&) -> Task<void> {
        co_await cluster.server->spawn<Flow>(options, &seen);
      });
    }
    cluster.run([&]() -> Task<void> {
      if (placement == Placement::other_process) {
        hf::RemoteNode remote = co_await cluster.client->connect(cluster.endpoint());
        flow = co_await remote.find<flow::Flow>("flow");
      } else {
        flow = co_await cluster.client->spawn<Flow>(options, &seen);
      }
    });
  }
  template <class Function>
  void run(Function function) {
    cluster.run([&]() -> Task<void> { co_await function(flow); });
  }
  std::string message(Errc code) const { return make_error_code(code).message(); }

  Log log;
  Seen seen;
  Cluster cluster;
  flow::FlowRef flow;
};

Task<std::error_code> read_outcome(hf::StreamReader<flow::Item>* reader) {
  try {
    co_await reader->read();
  } catch (const hf::Error& error) {
    co_return error.code();
  }
  co_return std::error_code();
}

/// Reads to the end, or the error.
template <class Message>
Task<std::error_code> drain(hf::StreamReader<Message>* reader, long* count) {
  try {
    while (auto message = co_await reader->read()) ++*count;
  } catch (const hf::Error& error) {
    co_return error.code();
  }
  co_return std::error_code();
}

}  // namespace

// ---- what goes through -------------------------------------------------------

TEST_CASE("a handler's stream arrives whole and in order, and ends once") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto items = co_await flow.count({.from = 5, .count = 10'000});
      long next = 5;
      bool in_order = true;
      while (auto item = co_await items.read()) in_order &= item->value() == next++;
      CHECK(in_order);
      CHECK(next == 10'005);
      for (int i = 0; i < 3; ++i) {
        auto more = co_await items.read();
        CHECK(!more);
      }
      auto none = co_await flow.count({.count = 0});
      auto nothing = co_await none.read();
      CHECK(!nothing);
    });
    CHECK(stage.seen.ends == std::vector<std::string>{"", ""});
  }
}

TEST_CASE("tables stream, and what was read of them stays when the stream is gone") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      std::vector<flow::Line> kept;
      {
        auto lines = co_await flow.lines({.count = 300, .size = 1000});
        while (auto line = co_await lines.read()) kept.push_back(std::move(*line));
      }
      REQUIRE(kept.size() == 300);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (kept[i].number() != static_cast<long>(i) || kept[i].text().size() != 1000)
          FAIL_CHECK("line " << i << " is damaged");
      }
    });
  }
}

TEST_CASE("a caller's stream is summed up by its answer") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto load = co_await flow.load();
      for (long i = 1; i <= 1000; ++i) co_await load.write({.value = i});
      const auto summary = co_await load.finish();
      CHECK(summary.count() == 1000);
      CHECK(summary.total() == 500'500);
      CHECK(!load.writable());
    });
  }
}

TEST_CASE("both sides of a stream talk at the same time, and end separately") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto talk = co_await flow.talk();
      for (long i = 0; i < 100; ++i) {
        co_await talk.writer.write({.number = i, .text = "hello"});
        auto answer = co_await talk.reader.read();
        REQUIRE(answer);
        CHECK(answer->number() == i + 1);
      }
      // Ahead of the answers, as far as both windows go.
      auto write = [](hf::StreamWriter<flow::Line> writer) -> Task<void> {
        for (long i = 0; i < 1000; ++i) co_await writer.write({.number = i});
        writer.finish();
      };
      hf::Scope scope;
      scope.spawn(write(std::move(talk.writer)));
      long answers = 0;
      CHECK(!co_await drain(&talk.reader, &answers));
      co_await scope.join();
      CHECK(answers == 1000);
    });
    CHECK(stage.seen.ends == std::vector<std::string>{""});
  }
}

TEST_CASE("an actor that is an inbox has streams, too") {
  World world;
  world.run([&]() -> Task<void> {
    auto body = [](flow::Flow::Inbox self) -> Task<void> {
      while (auto letter = co_await self.recv()) {
        if (auto call = letter.as<flow::Flow::CountMethod>()) {
          for (long i = 0; i < call->request.count(); ++i)
            co_await call->writer.write({.value = i});
          call->writer.finish();
        } else if (auto load = letter.as<flow::Flow::LoadMethod>()) {
          long count = 0;
          while (auto item = co_await load->reader.read()) ++count;
          load->reply.send({.count = count});
        }
      }
    };
    auto flow = co_await world.node.spawn<flow::Flow>("inbox", +body);
    auto items = co_await flow.count({.count = 100});
    long count = 0;
    CHECK(!co_await drain(&items, &count));
    CHECK(count == 100);
    auto load = co_await flow.load();
    co_await load.write({.value = 1});
    const auto summary = co_await load.finish();
    CHECK(summary.count() == 1);
    CHECK(co_await code_of<hf::Duplex<flow::Line, flow::Line>>(flow.talk()) == Errc::no_reply);
  });
}

// ---- credit ------------------------------------------------------------------

TEST_CASE("a slow reader holds up its writer, by messages, and nobody else") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto slow = co_await flow.count({.count = 300}, {.window = {.messages = 10}});
      long read = 0;
      for (bool more = true; more;) {
        co_await hf::sleep_for(10ms);
        CHECK(stage.seen.written <= read + 10);
        // Others are served meanwhile: asks, and other streams, of the same actor.
        const auto pong = co_await flow.ping({.value = read});
        CHECK(pong.value() == read);
        if (read % 50 == 0) {
          const long before = stage.seen.written;
          auto quick = co_await flow.count({.count = 100});
          long count = 0;
          CHECK(!co_await drain(&quick, &count));
          CHECK(count == 100);
          stage.seen.written = before;
        }
        auto item = co_await slow.read();
        more = item.has_value();
        read += more;
      }
      CHECK(read == 300);
    });
  }
}

TEST_CASE("a slow reader holds up its writer by bytes, however the sizes fall") {
  for (const Placement placement : placements) {
    for (const long size : {100L, 3000L, 6000L, 9000L, 20'000L}) {
      Stage stage(placement);
      stage.run([&](flow::FlowRef flow) -> Task<void> {
        auto slow = co_await flow.lines({.count = 50, .size = size}, {.window = {.bytes = 10'000}});
        long read = 0;
        for (bool more = true; more; read += more) {
          co_await hf::sleep_for(10ms);
          // One at least, also if it is larger than the window.
          CHECK(stage.seen.written <= read + std::max(1L, 10'000 / size));
          auto line = co_await slow.read();
          more = line.has_value();
        }
        CHECK(read == 50);
      });
    }
  }
}

TEST_CASE("a writer that gives up leaves no credit behind that the next one waits for") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto lines =
          co_await flow.lines({.size = 10'000, .end = "ladder"}, {.window = {.bytes = 10'000}});
      co_await hf::sleep_for(50ms);
      std::vector<long> numbers;
      while (auto line = co_await lines.read(hf::within(1s))) numbers.push_back(line->number());
      CHECK(numbers == std::vector<long>{0, 1, 3, 4});
    });
  }
}

TEST_CASE("a writer goes only so far ahead, however large a window a peer names") {
  Stage stage(Placement::other_process);
  stage.run([&](flow::FlowRef flow) -> Task<void> {
    auto items = co_await flow.count(
        {.count = -1}, {.window = {.messages = ~std::uint32_t{0}, .bytes = ~std::uint32_t{0}}});
    co_await hf::sleep_for(2s);
    const long ahead = stage.seen.written;
    CHECK(ahead > 1000);
    CHECK(ahead <= 65'536);
    for (int i = 0; i < 1000; ++i) co_await items.read();
    co_await hf::sleep_for(1s);
    CHECK(stage.seen.written > ahead);
    CHECK(stage.seen.written <= ahead + 1000);
  });
}

TEST_CASE("what a peer's streams wait for takes nothing of the connection's window") {
  Stage stage(Placement::other_process);
  stage.run([&](flow::FlowRef flow) -> Task<void> {
    // Together far more than a connection lends.
    std::vector<hf::StreamReader<flow::Line>> idle;
    for (int i = 0; i < 300; ++i)
      idle.push_back(co_await flow.lines({.count = -1, .size = 60'000}));
    co_await hf::sleep_for(1s);
    auto counter = co_await flow.ping({.value = 1}, hf::within(1s));
    CHECK(counter.value() == 1);
    auto quick = co_await flow.lines({.count = 200, .size = 60'000});
    long count = 0;
    CHECK(!co_await drain(&quick, &count));
    CHECK(count == 200);
  });
}

TEST_CASE("a write that finds no room in time is as if it had not been tried") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto load = co_await flow.load();
      co_await load.write({.value = -4});  // it sleeps now, a second
      long written = -4, count = 1;
      while (true) {
        const hf::Time begun = hf::Clock::now();
        bool late = false;
        try {
          co_await load.write({.value = 1}, hf::within(10ms));
          ++written;
          ++count;
        } catch (const hf::Error& error) {
          late = error.is(Errc::deadline_exceeded);
          CHECK(hf::Clock::now() - begun >= 10ms);
        }
        if (late) break;
      }
      CHECK(count >= 64);
      CHECK(count <= 66);
      CHECK(!load.try_write({.value = 1}));
      co_await hf::sleep_for(2s);
      CHECK(load.try_write({.value = 1}));
      const auto summary = co_await load.finish();
      CHECK(summary.count() == count + 1);
      CHECK(summary.total() == written + 1);
    });
  }
}

// ---- ends --------------------------------------------------------------------

TEST_CASE("an error of a handler reaches the reader after all that was written before") {
  const std::pair<std::string, Errc> cases[] = {{"throw", Errc::rejected},
                                                {"fail", Errc::moved},
                                                {"drop", Errc::cancelled},
                                                {"crash", Errc::actor_down}};
  for (const Placement placement : placements) {
    for (const auto& [how, code] : cases) {
      Stage stage(placement);
      stage.run([&](flow::FlowRef flow) -> Task<void> {
        auto items = co_await flow.count({.count = 3, .end = how});
        co_await hf::sleep_for(10ms);
        long count = 0;
        CHECK(co_await drain(&items, &count) == code);
        CHECK(count == 3);
        CHECK(co_await drain(&items, &count) == code);  // then and ever after
      });
    }
  }
}

TEST_CASE("what a peer can never take fails its stream, at both ends, and no other") {
  for (const long before : {0L, 5L}) {
    Stage stage(Placement::other_process, 1, 8u << 20);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto lines = co_await flow.lines({.count = before, .size = 7'000'000, .end = "huge"},
                                       {.window = {.bytes = 64u << 20}});
      auto talk = co_await flow.talk();
      co_await hf::sleep_for(1s);
      long count = 0;
      CHECK(co_await drain(&lines, &count) == Errc::too_large);
      CHECK(count == before);
      std::error_code code;
      try {
        co_await talk.writer.write({.text = std::string(7'000'000, 'x')});
      } catch (const hf::Error& error) {
        code = error.code();
      }
      CHECK(code == Errc::too_large);
      CHECK(!talk.writer.writable());
      CHECK(co_await drain(&talk.reader, &count) == Errc::too_large);
      const auto pong = co_await flow.ping({.value = 1});
      CHECK(pong.value() == 1);
    });
    const std::string too_large = stage.message(Errc::too_large);
    CHECK(stage.seen.ends == std::vector<std::string>{too_large, too_large});
  }
}

TEST_CASE("the error of a handler that is no coroutine, or left its writer to one, is told") {
  const std::pair<std::string, Errc> cases[] = {
      {"throw", Errc::rejected}, {"helper", Errc::rejected}, {"crash", Errc::actor_down}};
  for (const Placement placement : placements) {
    for (const auto& [how, code] : cases) {
      Stage stage(placement);
      stage.run([&](flow::FlowRef flow) -> Task<void> {
        auto items = co_await flow.slow({.end = how});
        long count = 0;
        CHECK(co_await drain(&items, &count) == code);
        CHECK(count == (how == "helper" ? 1 : 0));
      });
    }
  }
}

TEST_CASE("the error of a handler reaches the other ends of streams that it had opened") {
  struct Opener final : demo::OtherCounter::Actor {
    explicit Opener(flow::FlowRef flow) : flow(flow) {}
    Task<void> add(demo::Named, hf::Reply<demo::Sum>) override {
      auto load = co_await flow.load();
      co_await load.write({.value = 1});
      co_await hf::sleep_for(1ms);
      throw hf::Error(Errc::rejected, "add", "enough", "ask for less");
    }
    flow::FlowRef flow;
  };
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto opener = co_await stage.cluster.client->spawn<Opener>("opener", flow);
      CHECK(co_await code_of<demo::Sum>(opener.add({})) == Errc::rejected);
      co_await hf::sleep_for(10ms);
    });
    CHECK(stage.seen.ends == std::vector<std::string>{stage.message(Errc::rejected)});
  }
}

TEST_CASE("a handler's error crosses with code and texts") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto items = co_await flow.count({.count = 0, .end = "throw"});
      std::string text;
      try {
        co_await items.read();
      } catch (const hf::Error& error) {
        text = error.tried() + "|" + error.found() + "|" + error.remedy();
      }
      CHECK(text == "count|enough|ask for less");
    });
  }
}

TEST_CASE("a reader that cancels, or is dropped, ends the handler in every state") {
  // Before the first read, in the middle of much, while the writer waits for room.
  for (const Placement placement : placements) {
    for (const int state : {0, 1, 2}) {
      for (const bool drop : {false, true}) {
        Stage stage(placement);
        stage.run([&](flow::FlowRef flow) -> Task<void> {
          {
            auto items = co_await flow.count({.count = -1});
            if (state == 1)
              for (int i = 0; i < 1000; ++i) co_await items.read();
            if (state == 2) co_await hf::sleep_for(10ms);
            if (!drop) {
              items.cancel();
              CHECK(co_await read_outcome(&items) == Errc::cancelled);
            }
          }
          co_await hf::sleep_for(10ms);
        });
        CHECK(stage.seen.ended == 1);
        CHECK(stage.seen.ends == std::vector<std::string>{stage.message(Errc::cancelled)});
      }
    }
  }
}

TEST_CASE("a reader that cancels after the end troubles nobody") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto items = co_await flow.count({.count = 3});
      co_await hf::sleep_for(10ms);
      items.cancel();
      co_await hf::sleep_for(10ms);
      auto again = co_await flow.count({.count = 3});
      long count = 0;
      CHECK(!co_await drain(&again, &count));
      CHECK(count == 3);
    });
    CHECK(stage.seen.ends == std::vector<std::string>{"", ""});
  }
}

TEST_CASE("a caller that fails its stream, or drops it, ends the handler's reads") {
  for (const Placement placement : placements) {
    for (const bool drop : {false, true}) {
      for (const int items : {0, 10}) {
        Stage stage(placement);
        stage.run([&](flow::FlowRef flow) -> Task<void> {
          {
            auto load = co_await flow.load();
            for (int i = 0; i < items; ++i) co_await load.write({.value = 1});
            if (!drop) load.fail(hf::Error(Errc::corrupt, "load", "the source is broken"));
          }
          co_await hf::sleep_for(10ms);
        });
        CHECK(stage.seen.read == items);
        CHECK(stage.seen.ends ==
              std::vector<std::string>{stage.message(drop ? Errc::cancelled : Errc::corrupt)});
      }
    }
  }
}

TEST_CASE("a handler that stops reading early still answers, and stops the writer") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto load = co_await flow.load();
      co_await load.write({.value = -1});
      co_await hf::sleep_for(10ms);
      CHECK(!load.writable());
      CHECK(co_await code_of<void>([](auto* load) -> Task<void> {
              co_await load->write({.value = 1});
            }(&load)) == Errc::cancelled);
      const auto summary = co_await load.finish();
      CHECK(summary.count() == 1);
    });
  }
}

TEST_CASE("a handler that answers no stream, or throws, gives its caller the error") {
  for (const Placement placement : placements) {
    for (const long value : {-2L, -3L}) {
      Stage stage(placement);
      stage.run([&](flow::FlowRef flow) -> Task<void> {
        auto load = co_await flow.load();
        co_await load.write({.value = value});
        CHECK(co_await code_of<flow::Summary>(load.finish()) ==
              (value == -2 ? Errc::cancelled : Errc::rejected));
      });
    }
  }
}

TEST_CASE("a writer that waits for room is woken by whatever ends the stream") {
  for (const Placement placement : placements) {
    for (const int how : {0, 1, 2}) {  // the reader's end, this end's, the coroutine's
      Stage stage(placement);
      stage.run([&](flow::FlowRef flow) -> Task<void> {
        auto talk = co_await flow.talk();
        hf::StreamWriter<flow::Line> writer = std::move(talk.writer);
        std::error_code code;
        auto write = [](hf::StreamWriter<flow::Line>* writer, std::error_code* code) -> Task<void> {
          try {
            while (true) co_await writer->write({.text = std::string(10'000, 'x')}, hf::within(1h));
          } catch (const hf::Error& error) {
            *code = error.code();
          }
        };
        hf::Scope scope;
        scope.spawn(write(&writer, &code));
        co_await hf::sleep_for(100ms);
        CHECK(!code);
        if (how == 0) talk.reader.cancel();  // the handler can't write, and stops reading
        if (how == 1) writer = {};
        if (how == 2) scope.cancel();
        co_await scope.join();
        CHECK(code == Errc::cancelled);
        talk.reader.cancel();
        writer = {};
        co_await hf::sleep_for(10ms);
      });
      CHECK(stage.seen.begun == 1);
      CHECK(stage.seen.ended == 1);
    }
  }
}

TEST_CASE("a reader that waits is woken when its end is dropped, and reads nothing twice") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto items = co_await flow.count({.count = 2, .end = "keep"});
      long count = 0;
      std::error_code code;
      auto read = [](hf::StreamReader<flow::Item>* items, long* count,
                     std::error_code* code) -> Task<void> { *code = co_await drain(items, count); };
      hf::Scope scope;
      scope.spawn(read(&items, &count, &code));
      co_await hf::sleep_for(10ms);
      CHECK(count == 2);
      CHECK(co_await read_outcome(&items) == Errc::invalid_argument);  // somebody reads already
      items.cancel();
      co_await scope.join();
      CHECK(code == Errc::cancelled);
    });
  }
}

TEST_CASE("a read has a deadline if it is given one, and what comes later stays for the next") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto talk = co_await flow.talk();
      for (int i = 0; i < 10; ++i) {
        std::error_code code;
        try {
          co_await talk.reader.read(hf::within(1ms));
        } catch (const hf::Error& error) {
          code = error.code();
        }
        CHECK(code == Errc::deadline_exceeded);
      }
      co_await talk.writer.write({.number = 1});
      co_await hf::sleep_for(10ms);
      auto answer = co_await talk.reader.read(hf::within(1ms));
      REQUIRE(answer);
      CHECK(answer->number() == 2);
    });
  }
}

TEST_CASE("at a stream's deadline both of its ends fail") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      const hf::Time begun = hf::Clock::now();
      auto items =
          co_await flow.count({.count = -1}, {.deadline = begun + 20ms, .window = {.messages = 4}});
      co_await items.read();
      co_await hf::sleep_for(50ms);
      long count = 1;
      CHECK(co_await drain(&items, &count) == Errc::deadline_exceeded);
      CHECK(count <= 8);
      auto kept =
          co_await flow.count({.count = 1, .end = "keep"}, {.deadline = hf::Clock::now() + 20ms});
      CHECK(co_await drain(&kept, &count) == Errc::deadline_exceeded);
      CHECK(hf::Clock::now() - begun >= 70ms);
      CHECK(hf::Clock::now() - begun < 200ms);
      auto load = co_await flow.load({.deadline = hf::Clock::now() + 100ms});
      co_await hf::sleep_for(200ms);
      CHECK(!load.writable());
      CHECK(co_await code_of<flow::Summary>(load.finish()) == Errc::deadline_exceeded);
      co_await hf::sleep_for(10ms);
    });
    const std::string late = stage.message(Errc::deadline_exceeded);
    CHECK(stage.seen.ends == std::vector<std::string>{late, "", late});
  }
}

TEST_CASE("an actor that stops or crashes ends the streams that it holds, with the reason") {
  for (const Placement placement : placements) {
    for (const long crash : {0L, 1L}) {
      Stage stage(placement);
      stage.run([&](flow::FlowRef flow) -> Task<void> {
        auto kept = co_await flow.count({.count = 1, .end = "keep"});
        auto waiting = co_await flow.count({.count = -1});
        auto load = co_await flow.load();
        co_await hf::sleep_for(10ms);
        co_await code_of<flow::Nothing>(flow.leave({.value = crash}));
        co_await hf::sleep_for(10ms);
        long count = 0;
        CHECK(co_await drain(&kept, &count) == Errc::actor_down);
        CHECK(count == 1);
        const auto code = co_await drain(&waiting, &count);
        const bool told = code == Errc::actor_down || code == Errc::cancelled;
        CHECK(told);
        CHECK(!load.writable());
      });
      CHECK(stage.seen.begun == 3);
      CHECK(stage.seen.ended == 3);
    }
  }
}

// ---- openings ----------------------------------------------------------------

TEST_CASE("an opening fails as an ask does") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      using Items = hf::StreamReader<flow::Item>;
      // The actor is busy with a stream that holds it.
      auto slow = co_await flow.slow({.count = 1000});
      CHECK(co_await code_of<Items>(flow.count({.count = 1}, {.within = hf::within(10ms)})) ==
            Errc::deadline_exceeded);
      long count = 0;
      CHECK(!co_await drain(&slow, &count));
      const demo::CounterRef wrong(flow);
      const flow::FlowRef empty;
      CHECK(co_await code_of<Items>(empty.count({})) == Errc::invalid_argument);
      co_await flow.leave({});
      co_await hf::sleep_for(10ms);
      CHECK(co_await code_of<Items>(flow.count({})) == Errc::actor_down);
    });
    CHECK(stage.seen.begun == 0);
  }
}

TEST_CASE("whoever gives an opening up, at whatever moment, leaves no handler behind") {
  for (const Placement placement : placements) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      int opened = 0;
      for (int step = 0; step < 200; ++step) {
        const hf::Within within = hf::within(step * 10us);
        try {
          auto items = co_await flow.count({.count = -1}, {.within = within});
          ++opened;
        } catch (const hf::Error& error) {
          CHECK(error.is(Errc::deadline_exceeded));
        }
        try {
          auto load = co_await flow.load({.within = within});
          ++opened;
        } catch (const hf::Error& error) {
          CHECK(error.is(Errc::deadline_exceeded));
        }
      }
      CHECK(opened > 0);
      co_await hf::sleep_for(1s);
      CHECK(stage.seen.begun >= opened);
    });
    CHECK(stage.seen.begun == stage.seen.ended);
  }
}

TEST_CASE("a stream opened in a handler lasts no longer than the ask that is handled") {
  struct Opener final : demo::OtherCounter::Actor {
    Opener(flow::FlowRef flow, std::error_code* code) : flow(flow), code(code) {}
    Task<void> add(demo::Named, hf::Reply<demo::Sum> reply) override {
      auto items = co_await flow.count({.count = 1, .end = "keep"});
      co_await items.read();
      *code = co_await read_outcome(&items);
      reply.send({});
    }
    flow::FlowRef flow;
    std::error_code* code;
  };
  for (const Placement placement : placements) {
    Stage stage(placement);
    std::error_code code;
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto opener = co_await stage.cluster.client->spawn<Opener>("opener", flow, &code);
      co_await code_of<demo::Sum>(opener.add({}, hf::within(100ms)));
      co_await hf::sleep_for(10ms);
    });
    CHECK(code == Errc::deadline_exceeded);
  }
}

TEST_CASE("a node that ends at any moment of an opening leaves its caller an error, and no end") {
  for (const unsigned shard : {0u, 1u}) {
    for (int steps = 0; steps < 60; ++steps) {
      Seen seen;
      hf::SimWorld sim(hf::SimWorld::Options{.seed = 1});
      hf::SimNode& machine = sim.add_node({.shards = 2});
      auto node = std::make_unique<hf::Node>(machine.runtime());
      bool begun = false;
      std::error_code code;
      auto talking = sim.start(machine, 0, [&](hf::Runtime&) -> Task<void> {
        const hf::SpawnOptions options{.shard = shard};
        auto flow = co_await node->spawn<Flow>(options, &seen);
        begun = true;
        try {
          auto talk = co_await flow.talk();
          while (true) co_await talk.reader.read();
        } catch (const hf::Error& error) {
          code = error.code();
        }
      });
      while (!begun) sim.run_for(100ns);
      for (int step = 0; step < steps; ++step) sim.run_for(100ns);
      node.reset();
      sim.wait(talking);
      const bool told = code == Errc::shutting_down || code == Errc::actor_down;
      CHECK(told);
      CHECK(seen.begun == seen.ended);
    }
  }
}

// ---- peers -------------------------------------------------------------------

TEST_CASE("when the handler's process is killed, the caller's ends say so, in every state") {
  Stage stage(Placement::other_process);
  auto reading = stage.cluster.sim.start(
      stage.cluster.client_machine, 0, [&](hf::Runtime&) -> Task<std::error_code> {
        auto items = co_await stage.flow.count({.count = 3, .end = "keep"});
        long count = 0;
        const auto code = co_await drain(&items, &count);
        CHECK(count == 3);
        CHECK(co_await read_outcome(&items) == Errc::peer_lost);
        co_return code;
      });
  auto writing = stage.cluster.sim.start(
      stage.cluster.client_machine, 1, [&](hf::Runtime&) -> Task<std::error_code> {
        auto load = co_await stage.flow.load();
        std::error_code code;
        try {
          co_await load.write({.value = -4});
          while (true) co_await load.write({.value = 1}, hf::within(1h));
        } catch (const hf::Error& error) {
          code = error.code();
        }
        CHECK(co_await code_of<flow::Summary>(load.finish()) == Errc::peer_lost);
        co_return code;
      });
  auto idle = stage.cluster.sim.start(stage.cluster.client_machine, 0,
                                      [&](hf::Runtime&) -> Task<std::error_code> {
                                        auto load = co_await stage.flow.load();
                                        while (load.writable()) co_await hf::sleep_for(100ms);
                                        co_return co_await code_of<flow::Summary>(load.finish());
                                      });
  stage.cluster.sim.run_for(100ms);
  stage.cluster.server_machine.crash(hf::SimCrash::kill());
  CHECK(stage.cluster.sim.wait(reading) == Errc::peer_lost);
  CHECK(stage.cluster.sim.wait(writing) == Errc::peer_lost);
  CHECK(stage.cluster.sim.wait(idle) == Errc::peer_lost);
}

TEST_CASE("when the caller's process is killed, or loses its power, its handlers end") {
  for (const bool power : {false, true}) {
    Stage stage(Placement::other_process);
    for (const unsigned shard : {0u, 1u}) {
      static_cast<void>(stage.cluster.sim.start(
          stage.cluster.client_machine, shard, [&](hf::Runtime&) -> Task<void> {
            auto items = co_await stage.flow.count({.count = -1});
            auto load = co_await stage.flow.load();
            auto talk = co_await stage.flow.talk();
            co_await hf::sleep_for(1h);
          }));
    }
    stage.cluster.sim.run_for(100ms);
    CHECK(stage.seen.begun == 6);
    CHECK(stage.seen.ended == 0);
    stage.cluster.client_machine.crash(power ? hf::SimCrash::power_cut() : hf::SimCrash::kill());
    stage.cluster.sim.run_for(60s);
    CHECK(stage.seen.ended == 6);
    for (const auto& end : stage.seen.ends) {
      const bool told =
          end == stage.message(Errc::peer_lost) || end == stage.message(Errc::deadline_exceeded);
      CHECK(told);
    }
  }
}

TEST_CASE("an opening that still waited when its caller's process died leaves no handler behind") {
  Stage stage(Placement::other_process);
  for (const unsigned shard : {0u, 1u}) {
    static_cast<void>(stage.cluster.sim.start(
        stage.cluster.client_machine, shard, [&](hf::Runtime&) -> Task<void> {
          auto slow = co_await stage.flow.slow({.count = 60'000});
          co_await hf::sleep_for(1h);
        }));
    static_cast<void>(stage.cluster.sim.start(
        stage.cluster.client_machine, shard, [&](hf::Runtime&) -> Task<void> {
          co_await hf::sleep_for(10ms);
          auto load = co_await stage.flow.load({.within = hf::within(1h)});
          co_await hf::sleep_for(1h);
        }));
  }
  stage.cluster.sim.run_for(100ms);
  CHECK(stage.seen.begun == 0);
  stage.cluster.client_machine.crash(hf::SimCrash::kill());
  stage.cluster.sim.run_for(600s);
  CHECK(stage.seen.begun == 2);
  CHECK(stage.seen.ended == 2);
}

namespace {

/// Keeps all that it is sent, so that its sender gets no room back.
struct Hoarder final : hf::net::MessageHandler {
  void on_message(hf::net::Session&, hf::net::Lane, hf::net::Message message) noexcept override {
    hoard.push_back(std::move(message));
  }
  std::vector<hf::net::Message> hoard;
};

}  // namespace

TEST_CASE("a peer that asks without end, and takes no answers, is let go, and nobody else") {
  Log log;
  Hoarder hoarder;
  Stage stage(Placement::other_process);
  auto& sim = stage.cluster.sim;
  hf::SimNode& machine = sim.add_node({.name = "hoarder"});
  auto& hoarding =
      machine.emplace<hf::net::Network>(machine.runtime(), network(machine, sim), hoarder);
  const long sent = sim.run(machine, 0, [&](hf::Runtime&) -> Task<long> {
    const auto session =
        co_await hoarding.connect(stage.cluster.endpoint(), hf::Clock::now() + 10s);
    long sent = 0;
    while (session->up() && sent < 300'000) {
      hf::net::Message message;
      message.envelope.kind = hf::net::MessageKind::stream;
      message.envelope.target = 7;  // what is no end, and each time is told so
      message.envelope.source = 7;
      try {
        co_await session->send(std::move(message));
      } catch (const hf::Error&) {
        break;
      }
      ++sent;
    }
    co_await hf::sleep_for(10s);
    CHECK(!session->up());
    co_return sent;
  });
  CHECK(sent > 1000);
  CHECK(sent < 300'000);
  sim.run(machine, 0, [&](hf::Runtime&) -> Task<void> {
    hoarder.hoard.clear();
    co_return;
  });
  stage.run([&](flow::FlowRef flow) -> Task<void> {
    const auto pong = co_await flow.ping({.value = 3});
    CHECK(pong.value() == 3);
  });
}

TEST_CASE("a peer that writes more than it may, or no messages at all, ends its own stream only") {
  for (const bool garbage : {false, true}) {
    Stage stage(Placement::other_process);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto talk = co_await flow.talk();
      auto other = co_await flow.talk();
      // What the library never sends: frames to each number that may be in use.
      const auto session = stage.cluster.client->network().sessions().at(0);
      const std::uint64_t on_shard = std::uint64_t{1} << 52;
      for (std::uint64_t slot = 0; slot < 2; ++slot) {
        for (int i = 0; i < (garbage ? 1 : 1000); ++i) {
          hf::net::Message message;
          message.envelope.kind = hf::net::MessageKind::stream;
          message.envelope.flags = 0;  // data
          message.envelope.target = on_shard | std::uint64_t{1} << 28 | slot;
          message.envelope.source = 1;
          message.body = garbage ? hf::Buffer::copy_of("this is no table")
                                 : flow::Line({.number = i}).buffer();
          co_await session->send(std::move(message));
        }
      }
      co_await hf::sleep_for(100ms);
      long count = 0;
      CHECK(co_await drain(&talk.reader, &count) ==
            (garbage ? Errc::verification_failed : Errc::corrupt));
      co_await other.writer.write({.number = 1});
      auto answer = co_await other.reader.read(hf::within(1s));
      REQUIRE(answer);
      CHECK(answer->number() == 2);
      const auto pong = co_await flow.ping({.value = 3});
      CHECK(pong.value() == 3);
      other.writer.finish();
      co_await hf::sleep_for(10ms);
    });
    CHECK(stage.seen.ends ==
          std::vector<std::string>{
              stage.message(garbage ? Errc::verification_failed : Errc::corrupt), ""});
    CHECK(stage.seen.ended == 2);
  }
}

TEST_CASE("frames that make no sense are refused, and nothing else is lost") {
  Stage stage(Placement::other_process);
  stage.run([&](flow::FlowRef flow) -> Task<void> {
    const auto session = stage.cluster.client->network().sessions().at(0);
    for (unsigned op = 0; op < 256; ++op) {
      hf::net::Message message;
      message.envelope.kind = hf::net::MessageKind::stream;
      message.envelope.flags = static_cast<std::uint8_t>(op);
      message.envelope.target = std::uint64_t{op} << 52 | std::uint64_t{op} << 28 | op;
      message.envelope.source = ~std::uint64_t{op};
      message.envelope.context = ~std::uint64_t{0};
      message.body = hf::Buffer::copy_of("noise");
      co_await session->send(std::move(message));
    }
    auto items = co_await flow.count({.count = 100});
    long count = 0;
    CHECK(!co_await drain(&items, &count));
    CHECK(count == 100);
  });
}

namespace {

/// The function, in this file, whose line the chain ends at.
std::string waits_in(const hf::AwaitChain& chain) {
  REQUIRE(!chain.places.empty());
  CHECK(chain.places.back().file == "stream_test.cpp");
  return std::string(chain.places.back().function);
}

std::string handler_waits_in(const hf::NodeReport& report) {
  const auto flow = std::ranges::find(report.actors, "flow", &hf::ActorReport::name);
  REQUIRE(flow != report.actors.end());
  REQUIRE(flow->turns.size() == 1);
  return waits_in(flow->turns[0].chain);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Task<void> open_slow(flow::FlowRef flow) { co_await flow.slow({.count = 1}); }

}  // namespace

TEST_CASE("a report shows the lines at which a stream's handler waits for room and for items") {
  for (const Placement placement : {Placement::same_shard, Placement::other_shard}) {
    Stage stage(placement);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      hf::Node& node = *stage.cluster.client;
      {
        auto items = co_await flow.count({.count = -1}, {.window = {.messages = 4}});
        co_await hf::sleep_for(1s);
        const auto report = co_await node.inspect();
        CHECK(contains(handler_waits_in(report), "count("));
      }
      co_await hf::sleep_for(1s);
      auto load = co_await flow.load();
      co_await hf::sleep_for(1s);
      const auto report = co_await node.inspect();
      CHECK(contains(handler_waits_in(report), "load("));
    });
  }
}

TEST_CASE("a dump shows the lines at which callers wait for a stream to begin and for its items") {
  Stage stage(Placement::other_shard);
  stage.run([&](flow::FlowRef flow) -> Task<void> {
    hf::Scope scope;
    auto held = co_await flow.slow({.count = 3'600'000});  // nothing else begins meanwhile
    long count = 0;
    scope.spawn([](hf::StreamReader<flow::Item>* reader, long* count) -> Task<void> {
      co_await drain(reader, count);
    }(&held, &count));
    scope.spawn(open_slow(flow));
    co_await hf::sleep_for(1s);
    const std::string dump = hf::Shard::current()->dump();
    CHECK(contains(dump, "drain("));
    CHECK(contains(dump, "open_slow("));
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const hf::Error&) {
    }
  });
}

TEST_CASE("streams do the same twice from one seed") {
  const auto trace = [] {
    Stage stage(Placement::other_process, 7);
    stage.run([&](flow::FlowRef flow) -> Task<void> {
      auto items = co_await flow.count({.count = 500}, {.window = {.messages = 7}});
      long count = 0;
      CHECK(!co_await drain(&items, &count));
    });
    return stage.cluster.sim.trace_hash();
  };
  CHECK(trace() == trace());
}
