#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/work_folder.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <map>
#include <vector>

#include "temporary_folder.hpp"

using namespace hyperframes;
using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

namespace {

template <class Function>
Error thrown_by(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(Errc::internal, "nothing was thrown");
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

namespace {

/// The real machine, and a list of what is synced there.
class Listed final : public Machine {
 public:
  std::vector<std::string> synced;

  std::int64_t open(const std::string& path, int flags) override {
    const auto file = real().open(path, flags);
    if (file >= 0) paths_[file] = path;
    return file;
  }
  void close(std::int64_t file) noexcept override { real().close(file); }
  std::int64_t read(std::int64_t file, std::uint64_t offset, std::span<std::byte> into) override {
    return real().read(file, offset, into);
  }
  std::int64_t write(std::int64_t file, std::uint64_t offset,
                     std::span<const std::byte> from) override {
    return real().write(file, offset, from);
  }
  std::int64_t truncate(std::int64_t file, std::uint64_t size) override {
    return real().truncate(file, size);
  }
  std::int64_t sync(std::int64_t file) override {
    synced.push_back(paths_[file]);
    return real().sync(file);
  }
  std::int64_t try_lock(std::int64_t file) override { return real().try_lock(file); }
  std::int64_t rename(const std::string& from, const std::string& to) override {
    return real().rename(from, to);
  }
  std::int64_t make_directories(const std::string& path) override {
    return real().make_directories(path);
  }
  std::int64_t list(const std::string& path, std::vector<std::string>& names) override {
    return real().list(path, names);
  }
  std::int64_t size_of(const std::string& path) override { return real().size_of(path); }
  std::uint64_t random_number() override { return 7; }
  std::uint64_t calendar_ns() override { return calendar; }
  std::string process_id() override { return "1"; }
  void say(std::string_view) override {}
  std::uint64_t calendar = 1000;

 private:
  std::map<std::int64_t, std::string> paths_;
};

}  // namespace

TEST_CASE("the names of a work folder, and of those above it, are durable before what lies in it") {
  TemporaryFolder folder;
  Listed machine;
  const WorkFolder work(folder.file("a/b"), "", machine);
  const auto place = [&](const std::string& path) {
    return std::ranges::find(machine.synced, path) - machine.synced.begin();
  };
  const auto first_file = std::ranges::find_if(
      machine.synced, [](const std::string& path) { return path.ends_with(".new"); });
  REQUIRE(first_file != machine.synced.end());
  for (const std::string& above : {folder.path().string(), folder.file("a")})
    CHECK(place(above) < first_file - machine.synced.begin());
}

TEST_CASE("a work folder's identity and starts come from its machine") {
  TemporaryFolder folder;
  Listed machine;
  {
    const WorkFolder first(folder.file("w"), "", machine);
    CHECK(first.identity().node_id == 7);
    CHECK(first.incarnation() == 1000);
  }
  machine.calendar = 900;  // set back
  const WorkFolder second(folder.file("w"), "", machine);
  CHECK(second.incarnation() == 1001);
}

TEST_CASE("a work folder keeps its identity and its cluster") {
  TemporaryFolder folder;
  const std::string path = folder.file("server");
  std::uint64_t node_id = 0;
  {
    WorkFolder first(path, "a");
    CHECK(first.identity().name == "a");
    CHECK(first.cluster() == 0);
    node_id = first.identity().node_id;
    first.set_cluster(77);
    CHECK(first.cluster() == 77);
  }
  WorkFolder again(path, "");
  CHECK(again.identity().name == "a");
  CHECK(again.identity().node_id == node_id);
  CHECK(again.cluster() == 77);
}

TEST_CASE("an incarnation is higher than the one before, whatever the clock says") {
  TemporaryFolder folder;
  const std::string path = folder.file("server");
  const auto clock =
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  std::uint64_t last = 0;
  for (int start = 0; start < 3; ++start) {
    WorkFolder here(path, "a");
    CHECK(here.incarnation() > last);
    CHECK(here.incarnation() >= static_cast<std::uint64_t>(clock));
    last = here.incarnation();
  }
  // As if the last start had seen a clock that was far ahead.
  const std::uint64_t ahead = last + (std::uint64_t{1} << 61);
  write(path + "/incarnation", std::to_string(ahead) + "\n");
  CHECK(WorkFolder(path, "a").incarnation() == ahead + 1);
  CHECK(WorkFolder(path, "a").incarnation() == ahead + 2);
}

TEST_CASE("a shard that has begun must have its files, however it lost them") {
  TemporaryFolder folder;
  const std::string path = folder.file("server");
  const std::vector<ShardId> all{0, 1, 2, 3};
  Runtime runtime({.shards = 2});
  {
    WorkFolder here(path, "a");
    here.require_files(all);
    for (const ShardId shard : all) {
      std::filesystem::create_directories(here.shard_folder(shard) + "/token-1");
      write(here.shard_folder(shard) + "/token-1/segment", std::string(64, 'x'));
    }
    // As an older version left it: nothing is known of these, and nothing is missing.
    std::filesystem::remove_all(here.shard_folder(3));
    here.require_files(all);
    runtime.run([&](Runtime&) -> Task<void> {
      std::vector<Task<void>> tasks;
      for (const ShardId shard : {2u, 0u, 2u}) tasks.push_back(here.begin_shard(shard));
      co_await when_all(std::move(tasks));
    });
    runtime.run([&](Runtime&) { return here.begin_shard(0); });
  }
  std::filesystem::remove_all(path + "/shard-0001");
  WorkFolder again(path, "");
  again.require_files(all);
  const auto refused = [&](const std::string& gone) {
    if (!gone.empty()) std::filesystem::remove_all(gone);
    const Error error = thrown_by([&] { again.require_files(all); });
    INFO(error.what());
    CHECK(error.is(Errc::not_found));
    CHECK(error.found().find("shard-0002") != std::string::npos);
    CHECK(error.remedy().find("--accept_loss") != std::string::npos);
  };
  std::filesystem::resize_file(again.shard_folder(2) + "/token-1/segment", 63);
  refused({});
  refused(again.shard_folder(2) + "/token-1/segment");
  refused(again.shard_folder(2) + "/token-1");
  refused(again.shard_folder(2));
}

TEST_CASE("a work folder that is in use, is another's or is damaged is refused with what to do") {
  TemporaryFolder folder;
  const std::string path = folder.file("server");
  {
    WorkFolder here(path, "a");
    CHECK(thrown_by([&] { WorkFolder(path, "a"); }).is(Errc::already_exists));
  }
  CHECK(thrown_by([&] { WorkFolder(path, "b"); }).is(Errc::invalid_argument));
  for (const char* file : {"incarnation", "cluster", "begun_shards", "identity.json"}) {
    for (const char* text : {"", "x", "0", "-1", "12 34"}) {
      if (std::string(file) == "begun_shards" && std::string(text) != "x") continue;
      write(path + "/" + file, text);
      const auto error = thrown_by([&] { WorkFolder(path, "a"); });
      INFO(file << ": " << text << "; " << error.what());
      CHECK(error.is(Errc::corrupt));
      CHECK(std::string(error.what()).find(file) != std::string::npos);
      CHECK(!error.remedy().empty());
    }
    std::filesystem::remove(path + "/" + file);
  }
}

TEST_CASE("a folder that holds a server's data and not its identity gets no new one") {
  TemporaryFolder folder;
  const std::string path = folder.file("server");
  const auto refused = [&] {
    std::filesystem::remove(path + "/identity.json");
    const Error error = thrown_by([&] { WorkFolder(path, ""); });
    INFO(error.what());
    CHECK(error.is(Errc::not_found));
    CHECK(error.found().find("identity.json") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(path + "/identity.json"));
  };
  std::filesystem::create_directories(path + "/shard-0003");
  refused();
  std::filesystem::remove(path + "/shard-0003");
  WorkFolder(path, "").set_cluster(7);
  refused();
}

TEST_CASE("a work folder knows its last start, which an older copy of it does not") {
  TemporaryFolder folder;
  const std::string path = folder.file("server"), copy = folder.file("copy");
  std::uint64_t first = 0;
  {
    const WorkFolder here(path, "a");
    CHECK(here.previous_incarnation() == 0);
    first = here.incarnation();
  }
  std::filesystem::copy(path, copy, std::filesystem::copy_options::recursive);
  std::uint64_t second = 0;
  {
    const WorkFolder here(path, "a");
    CHECK(here.previous_incarnation() == first);
    second = here.incarnation();
  }
  CHECK(WorkFolder(path, "a").previous_incarnation() == second);
  CHECK(WorkFolder(copy, "a").previous_incarnation() == first);
}

TEST_CASE("a file of the work folder that can't be read is no missing file") {
  TemporaryFolder folder;
  const std::string path = folder.file("server");
  const std::uint64_t node_id = WorkFolder(path, "a").identity().node_id;
  for (const std::string file : {"identity.json", "incarnation", "cluster", "begun_shards"}) {
    const std::string at = path + "/" + file, away = at + ".away";
    const bool was_there = std::filesystem::exists(at);
    if (was_there) std::filesystem::rename(at, away);
    std::filesystem::create_symlink(file, at);  // to itself: even root can't open that
    const auto error = thrown_by([&] { WorkFolder(path, "a"); });
    INFO(error.what());
    CHECK(error.code() == std::errc::too_many_symbolic_link_levels);
    CHECK(std::string(error.what()).find(file) != std::string::npos);
    CHECK(!error.remedy().empty());
    CHECK(std::filesystem::is_symlink(at));
    std::filesystem::remove(at);
    if (was_there) std::filesystem::rename(away, at);
  }
  CHECK(WorkFolder(path, "a").identity().node_id == node_id);
}
