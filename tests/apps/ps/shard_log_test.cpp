#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/apps/ps/shard_log.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/runtime.hpp>

using namespace hyperframes;
using namespace hyperframes::ps;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A folder of the test's own, empty at first and removed at the end.
struct Folder {
  explicit Folder(const char* name) : path(std::filesystem::temp_directory_path() / name) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

LogOptions options_for(const Folder& folder, std::uint64_t token = 1) {
  LogOptions options;
  options.folder = folder.path;
  options.shard = 4;
  options.token = token;
  return options;
}

Bytes record(std::uint64_t lsn, std::uint64_t synced) {
  Bytes out;
  const std::uint64_t id = lsn * 3;
  const float value = static_cast<float>(lsn);
  append_push(out, {.lsn = lsn, .synced_lsn = synced, .table = 1},
              {.key = PushKey::leased(0, 0, static_cast<std::uint32_t>(lsn)),
               .width = 1,
               .count = 1,
               .ids = reinterpret_cast<const std::byte*>(&id),
               .values = reinterpret_cast<const std::byte*>(&value)});
  return out;
}

/// Opens the log, appends `count` records, waits until the last is durable.
Task<std::vector<std::uint64_t>> write_some(LogOptions options, std::uint64_t from, int count) {
  std::vector<std::uint64_t> replayed;
  auto log = co_await ShardLog::open(options, from,
                                     [&](auto, std::uint64_t lsn) { replayed.push_back(lsn); });
  Scope scope;
  scope.spawn(log->run());
  Event durable;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t lsn = log->next_lsn();
    log->append(lsn, record(lsn, log->stats().durable_lsn));
    if (i + 1 == count) log->when_durable(lsn, [&](const Error*) { durable.set(); });
  }
  if (count) co_await durable.wait();
  scope.cancel();
  try {
    co_await scope.join();
  } catch (const Error& error) {
    if (!error.is(Errc::cancelled)) throw;
  }
  co_return replayed;
}

std::vector<std::uint64_t> run(Runtime& runtime, LogOptions options, std::uint64_t from,
                               int count) {
  return runtime.run([=](Runtime&) { return write_some(options, from, count); });
}

std::vector<std::filesystem::path> segments_in(const Folder& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path))
    if (entry.is_regular_file()) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

}  // namespace

TEST_CASE("what was durable is replayed in order by the next owner") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-replay");
  CHECK(run(runtime, options_for(folder), 1, 5).empty());
  CHECK(run(runtime, options_for(folder), 1, 3) == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
  CHECK(run(runtime, options_for(folder, 2), 1, 0).size() == 8);
  CHECK(run(runtime, options_for(folder, 2), 7, 0) == std::vector<std::uint64_t>{7, 8});
}

TEST_CASE("a stale owner is refused once a newer one has written") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-fenced");
  run(runtime, options_for(folder, 5), 1, 1);
  try {
    run(runtime, options_for(folder, 4), 1, 1);
    FAIL("the stale owner was let in");
  } catch (const Error& error) {
    CHECK(error.is(Errc::fenced));
    CHECK_THAT(error.what(), ContainsSubstring("token 5"));
  }
}

TEST_CASE("segments are closed when full, and dropped once a snapshot holds them") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-segments");
  LogOptions options = options_for(folder);
  options.segment_bytes = 300;
  for (int i = 0; i < 6; ++i) run(runtime, options, 1, 3);
  const auto before = segments_in(folder).size();
  CHECK(before >= 6);
  runtime.run([&](Runtime&) -> Task<void> {
    auto log = co_await ShardLog::open(options, 1, [](auto, auto) {});
    co_await log->drop_before(10);
  });
  CHECK(segments_in(folder).size() < before);
  CHECK(run(runtime, options, 10, 0).size() == 9);
}

TEST_CASE("a torn end is cut off, and the log goes on behind it") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-torn");
  run(runtime, options_for(folder), 1, 4);
  const auto last = segments_in(folder).back();
  std::filesystem::resize_file(last, std::filesystem::file_size(last) - 5);
  CHECK(run(runtime, options_for(folder), 1, 2).size() == 3);
  CHECK(run(runtime, options_for(folder), 1, 0) == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
}

TEST_CASE("a missing segment is reported, not skipped") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-missing");
  for (int i = 0; i < 3; ++i) run(runtime, options_for(folder), 1, 2);
  std::filesystem::remove(segments_in(folder)[1]);
  CHECK_THROWS_AS(run(runtime, options_for(folder), 1, 0), Error);
}

TEST_CASE("many records become durable with few syncs") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-group");
  const auto syncs = runtime.run([&](Runtime&) -> Task<std::uint64_t> {
    auto log = co_await ShardLog::open(options_for(folder), 1, [](auto, auto) {});
    Scope scope;
    scope.spawn(log->run());
    for (int i = 0; i < 1000; ++i) log->append(log->next_lsn(), record(log->next_lsn(), 0));
    co_await log->flush();
    const std::uint64_t syncs = log->stats().syncs;
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const Error&) {
    }
    co_return syncs;
  });
  CHECK(syncs <= 3);
}

TEST_CASE("a disk that fails ends the log and tells everyone who waits") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-fails");
  LogOptions options = options_for(folder);
  options.segment_bytes = 100;  // every write begins a new segment
  const auto told = runtime.run([&](Runtime&) -> Task<std::vector<std::string>> {
    auto log = co_await ShardLog::open(options, 1, [](auto, auto) {});
    Scope scope;
    scope.spawn(log->run());
    log->append(1, record(1, 0));
    co_await log->flush();
    std::filesystem::remove_all(folder.path);  // so the next segment can't be made
    std::vector<std::string> told;
    log->append(2, record(2, 1));
    log->when_durable(2, [&](const Error* error) { told.push_back(error ? error->what() : ""); });
    try {
      co_await scope.join();
    } catch (const Error& error) {
      told.push_back(error.what());
    }
    try {
      log->append(3, record(3, 1));
    } catch (const Error& error) {
      told.push_back(error.what());
    }
    co_return told;
  });
  REQUIRE(told.size() == 3);
  for (const auto& text : told) CHECK_THAT(text, ContainsSubstring("segment-"));
}

namespace {

LogOptions on_simulated_disk(Durability durability = Durability::push) {
  LogOptions options;
  options.folder = "/log";
  options.durability = durability;
  return options;
}

/// Appends one record to the log and returns what became of it: durable, or the log's failure.
Task<bool> append_one(std::unique_ptr<ShardLog>* log) {
  Scope scope;
  scope.spawn((*log)->run());
  Event told;
  bool durable = false;
  const std::uint64_t lsn = (*log)->next_lsn();
  (*log)->append(lsn, record(lsn, (*log)->stats().durable_lsn));
  (*log)->when_durable(lsn, [&](const Error* failure) {
    durable = failure == nullptr;
    told.set();
  });
  co_await told.wait();
  scope.cancel();
  try {
    co_await scope.join();
  } catch (const Error&) {
  }
  co_return durable;
}

Task<std::vector<std::uint64_t>> reopen(std::unique_ptr<ShardLog>* log, LogOptions options) {
  std::vector<std::uint64_t> replayed;
  *log = co_await ShardLog::open(options, 1,
                                 [&](auto, std::uint64_t lsn) { replayed.push_back(lsn); });
  co_return replayed;
}

}  // namespace

TEST_CASE("what a killed process wrote and did not sync is durable once it was replayed") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  SimWorld world({.seed = seed});
  SimNode& node = world.add_node();
  const auto open = [&] {
    auto& log = node.emplace<std::unique_ptr<ShardLog>>();
    return std::pair(&log, world.run(node, 0, [&](Runtime&) {
      return reopen(&log, on_simulated_disk(Durability::none));
    }));
  };
  auto [log, none] = open();
  CHECK(none.empty());
  CHECK(world.run(node, 0, [log = log](Runtime&) { return append_one(log); }));
  node.crash(SimCrash::kill());
  node.restart();
  // It is replayed, so whoever pushes it again is told that it is there.
  CHECK(open().second == std::vector<std::uint64_t>{1});
  node.crash(SimCrash::power_cut());
  node.restart();
  CHECK(open().second == std::vector<std::uint64_t>{1});
}

TEST_CASE("what a failed sync left in memory alone is durable once it was replayed") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  SimWorld world({.seed = seed});
  SimNode& node = world.add_node();
  auto& first = node.emplace<std::unique_ptr<ShardLog>>();
  world.run(node, 0, [&](Runtime&) { return reopen(&first, on_simulated_disk()); });
  CHECK(world.run(node, 0, [&](Runtime&) { return append_one(&first); }));
  node.disk().fail_next(Operation::Kind::sync, EIO, "segment");
  CHECK_FALSE(world.run(node, 0, [&](Runtime&) { return append_one(&first); }));
  // The shard starts again in the same process, and reads what the kernel still shows it.
  auto& second = node.emplace<std::unique_ptr<ShardLog>>();
  const auto replayed =
      world.run(node, 0, [&](Runtime&) { return reopen(&second, on_simulated_disk()); });
  node.crash(SimCrash::power_cut());
  node.restart();
  auto& third = node.emplace<std::unique_ptr<ShardLog>>();
  CHECK(world.run(node, 0, [&](Runtime&) { return reopen(&third, on_simulated_disk()); }) ==
        replayed);
}

TEST_CASE("only what was synced counts as durable, whenever pushes are answered") {
  for (const Durability durability : {Durability::interval, Durability::none}) {
    SimWorld world({.seed = 5});
    SimNode& node = world.add_node();
    auto& log = node.emplace<std::unique_ptr<ShardLog>>();
    world.run(node, 0, [&](Runtime&) { return reopen(&log, on_simulated_disk(durability)); });
    CHECK(world.run(node, 0, [&](Runtime&) { return append_one(&log); }));
    CHECK(log->stats().durable_lsn == 0);
    world.run(node, 0, [&](Runtime&) { return log->finish(); });
    CHECK(log->stats().durable_lsn == 1);
  }
}

TEST_CASE("interval syncs what it answered before within its span, none leaves it to the kernel") {
  for (const Durability durability : {Durability::interval, Durability::none}) {
    INFO(name(durability));
    SimWorld world({.seed = 6});
    SimNode& node = world.add_node();
    auto& log = node.emplace<std::unique_ptr<ShardLog>>();
    LogOptions options = on_simulated_disk(durability);
    options.interval = 300ms;
    world.run(node, 0, [&](Runtime&) { return reopen(&log, options); });
    auto running = world.start(node, 0, [&](Runtime&) { return log->run(); });
    std::uint64_t answered = 0;
    world.run(node, 0, [&](Runtime&) {
      return co_invoke([&]() -> Task<void> {
        for (int i = 0; i < 5; ++i) {
          const std::uint64_t lsn = log->next_lsn();
          log->append(lsn, record(lsn, log->stats().durable_lsn));
          log->when_durable(lsn, [&](const Error* failure) { answered += failure == nullptr; });
        }
        co_return;
      });
    });
    world.run_for(100ms);
    CHECK(answered == 5);
    CHECK(log->stats().syncs <= 1);
    world.run_for(400ms);
    CHECK(log->stats().durable_lsn == (durability == Durability::interval ? 5 : 0));
    world.run(node, 0, [&](Runtime&) { return log->flush(); });
    CHECK(log->stats().durable_lsn == 5);
    CHECK_FALSE(running.done());
  }
}

TEST_CASE("who appends too much waits until it is written, and learns when that can't be") {
  SimWorld world({.seed = 7});
  SimNode& node = world.add_node();
  auto& log = node.emplace<std::unique_ptr<ShardLog>>();
  LogOptions options = on_simulated_disk();
  options.pending_bytes = 2 * record(1, 0).size();
  world.run(node, 0, [&](Runtime&) { return reopen(&log, options); });
  auto running = world.start(node, 0, [&](Runtime&) { return log->run(); });
  const auto fill = [&](int records) {
    return co_invoke([&log, records]() -> Task<void> {
      for (int i = 0; i < records; ++i) {
        CHECK(log->has_room() == (i < 2));
        log->append(log->next_lsn(), record(log->next_lsn(), 0));
      }
      CHECK_FALSE(log->has_room());
      co_await log->room();
      CHECK(log->has_room());
    });
  };
  world.run(node, 0, [&](Runtime&) { return fill(3); });
  node.disk().fail_next(Operation::Kind::write, ENOSPC, "segment");
  world.run(node, 0, [&](Runtime&) {
    return co_invoke([&]() -> Task<void> {
      for (int i = 0; i < 3; ++i) log->append(log->next_lsn(), record(log->next_lsn(), 0));
      // The batch was taken to be written; what comes behind it waits for room that never comes.
      std::string failure;
      try {
        while (true) {
          co_await log->room();
          log->append(log->next_lsn(), record(log->next_lsn(), 0));
        }
      } catch (const Error& error) {
        failure = error.what();
      }
      CHECK_THAT(failure, ContainsSubstring("segment"));
    });
  });
  CHECK_THROWS_WITH(world.wait(running), ContainsSubstring("segment"));
}

TEST_CASE("reading again hands out all that is synced, or says what is missing") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-again");
  LogOptions options = options_for(folder);
  options.segment_bytes = 200;
  for (int i = 0; i < 4; ++i) run(runtime, options, 1, 5);
  const auto read = [&](bool damaged) {
    return runtime.run([&, damaged](Runtime&) -> Task<std::vector<std::uint64_t>> {
      auto log = co_await ShardLog::open(options, 1, [](auto, auto) {});
      if (damaged) std::filesystem::remove(segments_in(folder)[2]);
      std::vector<std::uint64_t> seen;
      co_await log->read_again(7, [&](auto, std::uint64_t lsn) { seen.push_back(lsn); });
      co_return seen;
    });
  };
  const auto seen = read(false);
  REQUIRE(seen.size() == 14);
  CHECK((seen.front() == 7 && seen.back() == 20));
  CHECK(std::ranges::is_sorted(seen));
  CHECK_THROWS_AS(read(true), Error);
}
