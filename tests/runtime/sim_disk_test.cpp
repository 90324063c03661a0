#include <hyperframes/runtime/reactor/sim_disk.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <set>

using namespace hyperframes;

namespace {

constexpr std::size_t sector = 512;

std::string blocks(char letter, std::size_t count) { return std::string(count * sector, letter); }

Task<void> write_text(File& file, std::uint64_t offset, std::string text) {
  co_await file.write_at(offset, Segments(Buffer::copy_of(text)));
}

Task<void> create_synced(std::string path, std::string text) {
  File file = co_await File::open(path, File::Mode::create_empty);
  co_await write_text(file, 0, text);
  co_await file.sync();
  co_await file.close();
  co_await sync_directory("/");
}

/// The error number of `task`, or 0.
Task<int> error_of(Task<void> task) {
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    co_return error.code().value();
  }
  co_return 0;
}

}  // namespace

TEST_CASE("what was synced survives every power cut") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    world.run(node, 0, [](Runtime&) { return create_synced("/kept", blocks('k', 9)); });
    node.crash(SimCrash::power_cut());
    CHECK(node.disk().contents("/kept") == blocks('k', 9));
    node.restart();
    const std::string read = world.run(node, 0, [](Runtime&) -> Task<std::string> {
      Buffer contents = co_await read_whole_file("/kept");
      co_return std::string(contents.text());
    });
    CHECK(read == blocks('k', 9));
  }
}

TEST_CASE("a killed process leaves everything that it wrote") {
  SimWorld world({.seed = 2});
  SimNode& node = world.add_node();
  world.run(node, 0, [](Runtime&) -> Task<void> {
    File file = co_await File::open("/new", File::Mode::create_new);
    co_await write_text(file, 0, "unsynced");
  });
  node.crash(SimCrash::kill());
  CHECK(node.disk().contents("/new") == "unsynced");
}

TEST_CASE("an unsynced append is lost, kept or torn, as the seed says") {
  bool lost = false, kept = false, prefix = false, torn = false;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    world.run(node, 0, [](Runtime&) -> Task<void> {
      co_await create_synced("/log", blocks('a', 4));
      File file = co_await File::open("/log", File::Mode::create);
      for (std::size_t i = 0; i < 4; ++i)
        co_await write_text(file, (4 + 2 * i) * sector, blocks(static_cast<char>('b' + i), 2));
    });
    node.crash(SimCrash::power_cut());
    const auto found = node.disk().contents("/log");
    REQUIRE(found);
    // Whatever became of the rest, the synced part is whole and nothing appeared from nowhere.
    REQUIRE(found->size() >= 4 * sector);
    REQUIRE(found->size() <= 12 * sector);
    REQUIRE(found->starts_with(blocks('a', 4)));
    const std::string full =
        blocks('a', 4) + blocks('b', 2) + blocks('c', 2) + blocks('d', 2) + blocks('e', 2);
    bool only_ours = true;
    for (std::size_t i = 0; i < found->size(); ++i)
      only_ours &= (*found)[i] == full[i] || (*found)[i] == '\0';
    REQUIRE(only_ours);
    lost |= found->size() == 4 * sector;
    kept |= *found == full;
    prefix |= found->size() > 4 * sector && found->size() < full.size() && full.starts_with(*found);
    torn |= !full.starts_with(*found);
  }
  CHECK(lost);
  CHECK(kept);
  CHECK(prefix);
  CHECK(torn);
}

TEST_CASE("an unsynced overwrite leaves each sector old or new") {
  bool mixed = false;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    world.run(node, 0, [](Runtime&) -> Task<void> {
      co_await create_synced("/page", blocks('o', 8));
      File file = co_await File::open("/page", File::Mode::create);
      co_await write_text(file, 0, blocks('n', 8));
    });
    node.crash(SimCrash::power_cut());
    const auto found = node.disk().contents("/page");
    REQUIRE(found);
    REQUIRE(found->size() == 8 * sector);
    std::set<char> seen;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::string one = found->substr(i * sector, sector);
      REQUIRE((one == blocks('o', 1) || one == blocks('n', 1)));
      seen.insert(one[0]);
    }
    mixed |= seen.size() == 2;
  }
  CHECK(mixed);
}

TEST_CASE("a new name is durable only once its folder is synced") {
  bool lost = false, kept = false;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    world.run(node, 0, [](Runtime&) -> Task<void> {
      co_await make_directory("/data/deep");
      co_await sync_directory("/");
      co_await sync_directory("/data");
      File file = co_await File::open("/data/deep/a", File::Mode::create_new);
      co_await write_text(file, 0, "synced contents");
      co_await file.sync();
      co_await file.close();
    });
    node.crash(SimCrash::power_cut());
    const auto found = node.disk().contents("/data/deep/a");
    lost |= !found;
    kept |= found.has_value();
    if (found) CHECK(*found == "synced contents");
  }
  CHECK(lost);
  CHECK(kept);
}

TEST_CASE("a rename shows the old file or the new one after a power cut, never neither") {
  bool old_seen = false, new_seen = false;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    world.run(node, 0, [](Runtime&) -> Task<void> {
      co_await create_synced("/current", "old");
      File file = co_await File::open("/current.new", File::Mode::create_empty);
      co_await write_text(file, 0, "new");
      co_await file.sync();
      co_await rename_file("/current.new", "/current");
    });
    node.crash(SimCrash::power_cut());
    const auto found = node.disk().contents("/current");
    REQUIRE(found);
    REQUIRE((*found == "old" || *found == "new"));
    old_seen |= *found == "old";
    new_seen |= *found == "new";
  }
  CHECK(old_seen);
  CHECK(new_seen);
}

TEST_CASE("a whole file is replaced atomically, at whichever operation the power goes") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    for (std::uint64_t cut = 1; cut <= 7; ++cut) {
      INFO("seed " << seed << ", power cut at disk operation " << cut);
      SimWorld world({.seed = seed});
      SimNode& node = world.add_node();
      node.disk().put("/state", blocks('o', 3));
      node.crash_at_disk_operation(cut);
      auto pending = world.start(node, 0, [](Runtime&) {
        return write_whole_file("/state", Buffer::copy_of(blocks('n', 5)));
      });
      world.run_for(10s);
      const bool finished = node.is_up();
      node.crash(SimCrash::power_cut());
      const auto found = node.disk().contents("/state");
      REQUIRE(found);
      CHECK((*found == blocks('n', 5) || (!finished && *found == blocks('o', 3))));
    }
  }
}

TEST_CASE("a sync covers what was written before it began, and no more") {
  bool later_lost = false;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    node.disk().put("/log", "");
    world.run(node, 0, [](Runtime&) -> Task<void> {
      File file = co_await File::open("/log", File::Mode::create);
      co_await write_text(file, 0, blocks('1', 1));
      Scope scope;
      scope.spawn(file.sync());
      co_await yield();
      co_await write_text(file, 0, blocks('2', 1));
      co_await scope.join();
    });
    node.crash(SimCrash::power_cut());
    const auto found = node.disk().contents("/log");
    REQUIRE((found == blocks('1', 1) || found == blocks('2', 1)));
    later_lost |= found == blocks('1', 1);
  }
  CHECK(later_lost);
}

TEST_CASE("after a failed sync another sync does not save what the first lost") {
  bool lost = false;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    node.disk().put("/log", blocks('o', 1));
    node.disk().fail_next(Operation::Kind::sync, EIO, "/log");
    const int first = world.run(node, 0, [](Runtime&) -> Task<int> {
      File file = co_await File::open("/log", File::Mode::create);
      co_await write_text(file, 0, blocks('n', 1));
      const int error = co_await error_of(file.sync());
      co_await file.sync();  // says that all is well
      co_return error;
    });
    CHECK(first == EIO);
    node.crash(SimCrash::power_cut());
    lost |= node.disk().contents("/log") == blocks('o', 1);
  }
  CHECK(lost);
}

TEST_CASE("a full disk takes what fits and then says ENOSPC") {
  SimWorld world({.seed = 3});
  SimNode& node = world.add_node();
  node.disk().set_capacity(10'000);
  auto fill = [](Runtime&) -> Task<int> {
    File file = co_await File::open("/big", File::Mode::create_empty);
    co_return co_await error_of(write_text(file, 0, std::string(20'000, 'x')));
  };
  CHECK(world.run(node, 0, fill) == ENOSPC);
  CHECK(node.disk().contents("/big")->size() == 10'000);
  CHECK(node.disk().used_bytes() == 10'000);
  world.run(node, 0, [](Runtime&) -> Task<void> {
    co_await remove_file("/big");
    co_await sync_directory("/");  // until then a power cut could bring it back
  });
  CHECK(node.disk().used_bytes() == 0);
}

TEST_CASE("planned and random disk faults reach the caller with the path") {
  SimWorld world({.seed = 4});
  SimNode& node = world.add_node();
  node.disk().put("/data", "hello");
  node.disk().fail_next(Operation::Kind::read, EIO, "data");
  auto read = [](Runtime&) -> Task<std::string> {
    try {
      Buffer contents = co_await read_whole_file("/data");
      co_return std::string(contents.text());
    } catch (const Error& error) {
      co_return error.what();
    }
  };
  const std::string failed = world.run(node, 0, read);
  CHECK(failed.find("read '/data'") != std::string::npos);
  CHECK(world.run(node, 0, read) == "hello");
  node.disk().faults().write_error = 1;
  auto write = [](Runtime&) { return error_of(write_whole_file("/other", Buffer::copy_of("x"))); };
  CHECK(world.run(node, 0, write) == EIO);
}

TEST_CASE("a slow disk is slow and no more") {
  SimWorld world({.seed = 5});
  SimNode& node = world.add_node();
  node.disk().faults().slow = 1;
  node.disk().faults().slow_max = 10s;
  const Time before = world.now();
  world.run(node, 0, [](Runtime&) { return create_synced("/slow", "done"); });
  CHECK(world.now() - before > 1s);
  CHECK(node.disk().contents("/slow") == "done");
}

TEST_CASE("a log with a sync for each record loses none that was acknowledged, in 200 power cuts") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& node = world.add_node();
    node.disk().put("/log", "");
    std::size_t acknowledged = 0;
    node.crash_at_disk_operation(2 + world.random().below(40));
    world.start(node, 0, [&acknowledged](Runtime&) -> Task<void> {
      File file = co_await File::open("/log", File::Mode::create);
      for (std::size_t i = 0; i < 20; ++i) {
        co_await write_text(file, i * 700, std::string(700, static_cast<char>('A' + i)));
        co_await file.sync();
        ++acknowledged;
      }
    });
    world.run_for(60s);
    node.crash(SimCrash::power_cut());
    const auto found = node.disk().contents("/log");
    REQUIRE(found);
    REQUIRE(found->size() >= acknowledged * 700);
    for (std::size_t i = 0; i < acknowledged; ++i)
      CHECK(found->substr(i * 700, 700) == std::string(700, static_cast<char>('A' + i)));
  }
}
