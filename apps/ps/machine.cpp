#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <hyperframes/apps/ps/machine.hpp>
#include <random>

namespace hyperframes::ps {
namespace {

std::int64_t result_of(std::int64_t result) noexcept { return result < 0 ? -errno : result; }
std::int64_t result_of(const std::error_code& failure) noexcept { return -failure.value(); }
int descriptor(std::int64_t file) noexcept { return static_cast<int>(file); }

class RealMachine final : public Machine {
  std::int64_t open(const std::string& path, int flags) override {
    return result_of(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  }
  void close(std::int64_t file) noexcept override { ::close(descriptor(file)); }
  std::int64_t read(std::int64_t file, std::uint64_t offset, std::span<std::byte> into) override {
    return result_of(
        ::pread(descriptor(file), into.data(), into.size(), static_cast<off_t>(offset)));
  }
  std::int64_t write(std::int64_t file, std::uint64_t offset,
                     std::span<const std::byte> from) override {
    return result_of(
        ::pwrite(descriptor(file), from.data(), from.size(), static_cast<off_t>(offset)));
  }
  std::int64_t truncate(std::int64_t file, std::uint64_t size) override {
    return result_of(::ftruncate(descriptor(file), static_cast<off_t>(size)));
  }
  std::int64_t sync(std::int64_t file) override { return result_of(::fsync(descriptor(file))); }
  std::int64_t try_lock(std::int64_t file) override {
    return result_of(::flock(descriptor(file), LOCK_EX | LOCK_NB));
  }
  std::int64_t rename(const std::string& from, const std::string& to) override {
    return result_of(std::rename(from.c_str(), to.c_str()));
  }
  std::int64_t make_directories(const std::string& path) override {
    std::error_code failure;
    std::filesystem::create_directories(path, failure);
    return result_of(failure);
  }
  std::int64_t list(const std::string& path, std::vector<std::string>& names) override {
    std::error_code failure;
    std::filesystem::directory_iterator at(path, failure);
    for (; !failure && at != std::filesystem::directory_iterator(); at.increment(failure))
      names.push_back(at->path().filename().string());
    return result_of(failure);
  }
  std::int64_t size_of(const std::string& path) override {
    struct stat found{};
    if (::stat(path.c_str(), &found) != 0) return -errno;
    return S_ISDIR(found.st_mode) ? -EISDIR : static_cast<std::int64_t>(found.st_size);
  }
  std::uint64_t random_number() override {
    std::random_device source;
    std::uint64_t number = 0;
    while (number == 0) number = std::uint64_t{source()} << 32 | source();
    return number;
  }
  std::uint64_t calendar_ns() override {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::system_clock::now().time_since_epoch())
                                          .count());
  }
  std::string process_id() override { return std::to_string(::getpid()); }
  void say(std::string_view text) override {
    fmt::print("{}", text);
    std::fflush(stdout);
  }
};

}  // namespace

Machine& Machine::real() noexcept {
  static RealMachine machine;
  return machine;
}

std::int64_t read_all(Machine& machine, const std::string& path, std::string& text) {
  const MachineFile file(machine, path, O_RDONLY);
  if (file.number() < 0) return file.number();
  std::byte chunk[4096];
  while (true) {
    const std::int64_t size = machine.read(file.number(), text.size(), chunk);
    if (size <= 0) return size;
    text.append(reinterpret_cast<const char*>(chunk), static_cast<std::size_t>(size));
  }
}

}  // namespace hyperframes::ps
