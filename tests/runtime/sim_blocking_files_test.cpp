#include <hyperframes/runtime/reactor/sim_blocking_files.hpp>

#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <optional>
#include <string>

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::int64_t write_file(hf::SimBlockingFiles& files, const std::string& path,
                        const std::string& text, bool sync) {
  const auto file = files.open(path, O_WRONLY | O_CREAT);
  if (file < 0) return file;
  std::int64_t result = files.write(file, 0, bytes_of(text));
  if (result >= 0 && sync) result = files.sync(file);
  files.close(file);
  return result;
}

std::int64_t sync_folder(hf::SimBlockingFiles& files, const std::string& path) {
  const auto folder = files.open(path, O_RDONLY | O_DIRECTORY);
  if (folder < 0) return folder;
  const auto result = files.sync(folder);
  files.close(folder);
  return result;
}

}  // namespace

TEST_CASE("what a blocking program writes lies on the node's disk, beside what tasks write") {
  hf::SimWorld world;
  hf::SimNode& node = world.add_node();
  hf::SimBlockingFiles files(node);
  CHECK(files.make_directory("/a/b") == 0);
  CHECK(write_file(files, "/a/b/c", "hello", true) >= 0);
  CHECK(node.disk().contents("/a/b/c") == "hello");
  CHECK(files.rename("/a/b/c", "/a/b/d") == 0);
  std::vector<std::string> names;
  CHECK(files.list("/a/b", names) == 0);
  CHECK(names == std::vector<std::string>{"d"});
  CHECK(files.open("/a/b/c", O_RDONLY) == -ENOENT);
  const auto file = files.open("/a/b/d", O_RDONLY);
  std::byte into[16];
  CHECK(files.read(file, 1, into) == 4);
  CHECK(files.size(file) == 5);
  files.close(file);
  CHECK(files.size(file) == -EBADF);
}

TEST_CASE("a blocking program keeps what it synced, file and name, and may lose the rest") {
  std::size_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    hf::SimWorld world({.seed = seed});
    hf::SimNode& node = world.add_node();
    hf::SimBlockingFiles files(node);
    files.make_directory("/w");
    sync_folder(files, "/");
    write_file(files, "/w/synced", "synced", true);
    sync_folder(files, "/w");
    write_file(files, "/w/not", "not synced", false);
    node.crash(hf::SimCrash::power_cut());
    CHECK(node.disk().contents("/w/synced") == "synced");
    lost += node.disk().contents("/w/not") != "not synced";
  }
  CHECK(lost > 0);
}

TEST_CASE("a blocking program meets the disk's faults, and its crash points") {
  hf::SimWorld world;
  hf::SimNode& node = world.add_node();
  std::optional<hf::SimBlockingFiles> files(node);
  node.disk().fail_next(hf::Operation::Kind::sync, EIO, "/one");
  CHECK(write_file(*files, "/one", "1", true) == -EIO);
  CHECK(write_file(*files, "/one", "1", true) == 0);
  node.disk().set_capacity(node.disk().used_bytes());
  CHECK(write_file(*files, "/two", "2", false) == -ENOSPC);
  node.disk().set_capacity(1 << 20);

  node.crash_at_disk_operation(2, hf::SimCrash::kill());  // the write behind the open
  CHECK(write_file(*files, "/three", "3", false) == -EIO);
  CHECK(write_file(*files, "/four", "4", false) == -EIO);
  CHECK(node.is_up());  // until the caller has returned
  world.run_for(std::chrono::milliseconds(1));
  CHECK_FALSE(node.is_up());
  CHECK(node.disk().contents("/three") == "");
  CHECK_FALSE(node.disk().contents("/four"));
  node.restart();
  CHECK(write_file(*files, "/five", "5", false) == -EIO);  // of the process that is gone
  files.emplace(node);
  CHECK(write_file(*files, "/five", "5", false) == 1);
}
