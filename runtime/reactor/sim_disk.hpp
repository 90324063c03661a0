// A simulated node's disk, as tests see it: its faults, and its contents without going through a
// task.
//
//   node.disk().faults().sync_error = 0.01;                     // one fsync in a hundred fails
//   node.disk().fail_next(hf::Operation::Kind::write, EIO, "wal");
//   std::optional<std::string> found = node.disk().contents("/data/wal.0");
//
// It survives the node's crashes. A crash with `lose_unsynced` leaves of each file and folder what
// was synced, and of the rest a seeded part: none, all, a prefix that ends in a torn write, or
// scattered sectors; a file's new size and its new contents may be separated. Names are durable
// after `sync_directory` of their folder alone. After a failed sync, what it covered counts as
// clean but never reached the disk.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/reactor.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes {
class SimBlockingFiles;
class SimNode;
namespace detail {
class SimFileSystem;
struct SimHost;
}  // namespace detail

class SimDisk {
 public:
  /// How long operations take: each between its two values, plus the bytes at the given rate.
  struct Timing {
    Duration transfer_min = 20us, transfer_max = 120us;  ///< read, write
    Duration sync_min = 200us, sync_max = 4ms;
    Duration name_min = 10us, name_max = 200us;  ///< open, rename, list, ...
    std::uint64_t bytes_per_second = 1'000'000'000;
  };
  /// Probabilities, of each operation.
  struct Faults {
    double read_error = 0, write_error = 0, sync_error = 0;  ///< EIO
    double short_transfer = 0.02;  ///< A read or write moves fewer bytes than it could.
    double slow = 0;               ///< An operation takes up to `slow_max` longer.
    Duration slow_max = 2s;
  };

  ~SimDisk();
  SimDisk(const SimDisk&) = delete;
  SimDisk& operator=(const SimDisk&) = delete;

  Faults& faults() noexcept { return faults_; }
  Timing& timing() noexcept { return timing_; }
  /// Writes that would take more fail with ENOSPC, after what still fits. A removed file takes its
  /// room until its folder is synced.
  void set_capacity(std::uint64_t bytes) noexcept;
  std::uint64_t used_bytes() const noexcept;
  /// The next `count` operations of `kind` on paths that contain `path_part` fail with `error`.
  void fail_next(Operation::Kind kind, int error, std::string path_part = {}, unsigned count = 1);
  /// What `fail_next` still had before it.
  void forget_planned() noexcept { planned_.clear(); }

  /// Operations done so far, over all crashes.
  std::uint64_t operation_count() const noexcept { return operation_count_; }

  /// What a program would read now; nothing if there is no such file.
  std::optional<std::string> contents(std::string_view path) const;
  /// Replaces a file, with its folders, and makes it all durable.
  void put(std::string_view path, std::string_view contents);
  /// Makes everything durable, as a clean shutdown would.
  void sync_all();

 private:
  friend class SimBlockingFiles;
  friend class SimNode;
  friend class SimWorld;
  friend struct detail::SimHost;
  struct Planned {
    Operation::Kind kind;
    int error;
    std::string path_part;
    unsigned count;
  };
  SimDisk();

  std::unique_ptr<detail::SimFileSystem> files_;
  Faults faults_;
  Timing timing_;
  std::vector<Planned> planned_;
  std::uint64_t operation_count_ = 0;
};

}  // namespace hyperframes
