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
#include <map>
#include <optional>

#include "../../runtime/captured_log.hpp"

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

/// Reads the log and takes it over, as a shard that recovers does.
Task<std::unique_ptr<ShardLog>> open_log(LogOptions options, std::uint64_t from,
                                         ShardLog::Replay replay) {
  auto log = co_await ShardLog::read(std::move(options), from, std::move(replay));
  co_await log->begin();
  co_return log;
}

/// Opens the log, appends `count` records, waits until the last is durable.
Task<std::vector<std::uint64_t>> write_some(LogOptions options, std::uint64_t from, int count) {
  std::vector<std::uint64_t> replayed;
  auto log =
      co_await open_log(options, from, [&](auto, std::uint64_t lsn) { replayed.push_back(lsn); });
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

/// Folders and files as they are, with what the files hold.
std::map<std::string, std::string> contents_of(const Folder& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path)) {
    std::string& text = found[entry.path().string()];
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  return found;
}

std::optional<Error> refusal_of(Runtime& runtime, LogOptions options, std::uint64_t from) {
  try {
    run(runtime, options, from, 0);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
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
    auto log = co_await open_log(options, 1, [](auto, auto) {});
    co_await log->drop_before(10);
  });
  CHECK(segments_in(folder).size() < before);
  CHECK(run(runtime, options, 10, 0).size() == 9);
}

TEST_CASE("a log that does not go with the snapshot is refused, and stays as it was") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-other");
  for (int i = 0; i < 3; ++i) run(runtime, options_for(folder), 1, 3);
  const auto last = segments_in(folder).back();
  std::filesystem::resize_file(last, std::filesystem::file_size(last) - 5);
  const auto before = contents_of(folder);
  auto error = refusal_of(runtime, options_for(folder, 2), 1000);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(), ContainsSubstring("record 8") && ContainsSubstring("999"));
  CHECK_THAT(error->what(), ContainsSubstring("--checkpoint_dir"));
  CHECK(contents_of(folder) == before);

  LogOptions other = options_for(folder, 2);
  other.shard = 5;
  error = refusal_of(runtime, other, 5);
  REQUIRE(error.has_value());
  CHECK_THAT(error->what(), ContainsSubstring("shard 4, not 5"));
  CHECK(contents_of(folder) == before);

  CHECK(run(runtime, options_for(folder, 2), 1, 0) ==
        std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a log is changed once it is taken over, and not while it is read") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-read");
  for (int i = 0; i < 3; ++i) run(runtime, options_for(folder), 1, 3);
  const auto last = segments_in(folder).back();
  std::filesystem::resize_file(last, std::filesystem::file_size(last) - 5);
  const auto before = contents_of(folder);
  std::vector<std::uint64_t> replayed;
  runtime.run([&](Runtime&) -> Task<void> {
    auto log = co_await ShardLog::read(options_for(folder, 2), 5,
                                       [&](auto, std::uint64_t lsn) { replayed.push_back(lsn); });
    CHECK(log->next_lsn() == 9);
    CHECK(contents_of(folder) == before);
    co_await log->begin();
    CHECK(log->stats().segments == 3);
  });
  CHECK(replayed == std::vector<std::uint64_t>{5, 6, 7, 8});
  CHECK_FALSE(std::filesystem::exists(before.begin()->first + "/segment-0000000000000001.log"));
  CHECK(run(runtime, options_for(folder, 2), 5, 0) == replayed);
}

TEST_CASE("a segment under another's name is refused, and so is a log that lacks its beginning") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-renamed");
  for (int i = 0; i < 2; ++i) run(runtime, options_for(folder), 1, 3);
  const auto first = segments_in(folder).front();
  const auto renamed = first.parent_path() / "segment-0000000000000002.log";
  std::filesystem::rename(first, renamed);
  auto error = refusal_of(runtime, options_for(folder), 2);
  REQUIRE(error.has_value());
  CHECK_THAT(error->what(),
             ContainsSubstring(renamed) && ContainsSubstring("begins with record 1"));
  error = refusal_of(runtime, options_for(folder), 1);
  REQUIRE(error.has_value());
  CHECK_THAT(error->what(), ContainsSubstring("its oldest record is 2") &&
                                ContainsSubstring("no snapshot") &&
                                ContainsSubstring("--checkpoint_dir"));
  std::filesystem::rename(renamed, first);
  CHECK(run(runtime, options_for(folder), 1, 0).size() == 6);
}

TEST_CASE("empty segments that owners left one after the other do no harm") {
  Runtime runtime({.shards = 1});
  Folder folder("hf-shard-log-empty");
  run(runtime, options_for(folder), 1, 3);
  run(runtime, options_for(folder), 1, 0);
  const auto empty = segments_in(folder).back();
  const auto copy = [&](const char* token, std::uintmax_t bytes) {
    const auto to = folder.path / token / empty.filename();
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::copy_file(empty, to);
    std::filesystem::resize_file(to, bytes);
  };
  // As if those owners had ended between making theirs and removing the one before, by a power cut.
  copy("token-0000000000000002", 0);
  copy("token-0000000000000003", 7);
  std::filesystem::resize_file(empty, 0);
  std::filesystem::resize_file(empty, segment_header_bytes);  // zeros
  CHECK(run(runtime, options_for(folder, 4), 4, 2).empty());
  CHECK(segments_in(folder).size() == 1);
  CHECK(run(runtime, options_for(folder, 4), 4, 0) == std::vector<std::uint64_t>{4, 5});
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
    auto log = co_await open_log(options_for(folder), 1, [](auto, auto) {});
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
    auto log = co_await open_log(options, 1, [](auto, auto) {});
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
  *log = co_await open_log(options, 1, [&](auto, std::uint64_t lsn) { replayed.push_back(lsn); });
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

namespace {

constexpr const char* torn_segment = "/log/token-0000000000000002/segment-0000000000000004.log";

LogOptions owned_by(std::uint64_t token) {
  LogOptions options = on_simulated_disk();
  options.token = token;
  return options;
}

/// Two owners' segments on the disk: records 1 to 3, then 4 to 6 of which the last may be torn, and
/// then perhaps an empty segment.
void write_two_owners(SimWorld& world, SimNode& node, bool torn) {
  for (std::uint64_t token = 1; token <= 2; ++token) {
    auto& log = node.emplace<std::unique_ptr<ShardLog>>();
    world.run(node, 0, [&](Runtime&) { return reopen(&log, owned_by(token)); });
    for (int i = 0; i < 3; ++i)
      CHECK(world.run(node, 0, [&](Runtime&) { return append_one(&log); }));
  }
  if (torn) {
    const std::string whole = node.disk().contents(torn_segment).value();
    node.disk().put(torn_segment, whole.substr(0, whole.size() - 5));
  } else {
    auto& log = node.emplace<std::unique_ptr<ShardLog>>();
    world.run(node, 0, [&](Runtime&) { return reopen(&log, owned_by(2)); });
  }
  node.disk().sync_all();
}

Task<std::vector<std::uint64_t>> take_over(std::unique_ptr<ShardLog>* log, std::uint64_t from) {
  std::vector<std::uint64_t> replayed;
  *log = co_await open_log(owned_by(3), from,
                           [&](auto, std::uint64_t lsn) { replayed.push_back(lsn); });
  co_return replayed;
}

/// Ends the process in place of that disk operation of the taking over; false if there is none.
bool end_while_taken_over(SimWorld& world, SimNode& node, std::uint64_t operation, SimCrash how) {
  auto& log = node.emplace<std::unique_ptr<ShardLog>>();
  node.crash_at_disk_operation(operation, how);
  auto running = world.start(node, 0, [&](Runtime&) { return take_over(&log, 5); });
  REQUIRE(world.run_until([&] { return !node.is_up() || running.done(); }, 60s));
  return !node.is_up();
}

}  // namespace

TEST_CASE("a log reads alike for the next one wherever the taking over of it was cut short") {
  test::CapturedLog quiet;
  const bool torn = GENERATE(true, false);
  const bool power_cut = GENERATE(true, false);
  const SimCrash how = power_cut ? SimCrash::power_cut() : SimCrash::kill();
  const auto expected = torn ? std::vector<std::uint64_t>{5} : std::vector<std::uint64_t>{5, 6};
  std::uint64_t operations = 0;
  for (std::uint64_t operation = 1, cut = 1; cut; ++operation) {
    for (std::uint64_t seed = 1; seed <= (power_cut ? 8 : 1); ++seed) {
      INFO((torn ? "a torn end, " : "an empty segment, ")
           << (power_cut ? "power cut" : "kill") << " at operation " << operation << ", seed "
           << seed);
      SimWorld world({.seed = seed});
      SimNode& node = world.add_node();
      write_two_owners(world, node, torn);
      cut = end_while_taken_over(world, node, operation, how);
      if (!cut) break;
      node.restart();
      auto& log = node.emplace<std::unique_ptr<ShardLog>>();
      REQUIRE(world.run(node, 0, [&](Runtime&) { return take_over(&log, 5); }) == expected);
      REQUIRE(world.run(node, 0, [&](Runtime&) { return append_one(&log); }));
      node.crash(SimCrash::power_cut());
      node.restart();
      auto& again = node.emplace<std::unique_ptr<ShardLog>>();
      auto more = expected;
      more.push_back(expected.back() + 1);
      REQUIRE(world.run(node, 0, [&](Runtime&) { return take_over(&again, 5); }) == more);
      operations = operation;
    }
  }
  CHECK(operations > 10);
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
      auto log = co_await open_log(options, 1, [](auto, auto) {});
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
