// The machine of a simulated process: its files lie on the node's disk, its chance is the world's
// seed, its calendar is virtual, and SQLite works on the same disk.
//
//   SimMachine& machine = node.emplace<SimMachine>(node, seed, calendar_offset);
//   ps::WorkFolder folder("/ps", "ps-0", machine);
#pragma once

#include <functional>
#include <hyperframes/apps/ps/machine.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/reactor/sim_blocking_files.hpp>
#include <hyperframes/runtime/reactor/sim_random.hpp>
#include <memory>
#include <string>

namespace hyperframes::sim::detail {

class SqliteFiles;

class SimMachine final : public ps::Machine {
 public:
  /// Of the process that runs on `node` now. `calendar_offset` is added to its calendar.
  SimMachine(SimNode& node, std::uint64_t seed, Duration calendar_offset,
             std::function<void(std::string_view)> said);
  ~SimMachine() override;

  SimRandom& random() noexcept { return random_; }

  std::int64_t open(const std::string& path, int flags) override;
  void close(std::int64_t file) noexcept override;
  std::int64_t read(std::int64_t file, std::uint64_t offset, std::span<std::byte> into) override;
  std::int64_t write(std::int64_t file, std::uint64_t offset,
                     std::span<const std::byte> from) override;
  std::int64_t truncate(std::int64_t file, std::uint64_t size) override;
  std::int64_t sync(std::int64_t file) override;
  std::int64_t try_lock(std::int64_t file) override;
  std::int64_t rename(const std::string& from, const std::string& to) override;
  std::int64_t make_directories(const std::string& path) override;
  std::int64_t list(const std::string& path, std::vector<std::string>& names) override;
  std::int64_t size_of(const std::string& path) override;
  const char* database_files() const noexcept override;
  std::uint64_t random_number() override;
  std::uint64_t calendar_ns() override;
  std::string process_id() override;
  void say(std::string_view text) override;

 private:
  SimBlockingFiles files_;
  SimRandom random_;
  Duration calendar_offset_;
  std::function<void(std::string_view)> said_;
  std::string process_id_;
  std::unique_ptr<SqliteFiles> sqlite_;
};

}  // namespace hyperframes::sim::detail
