// A server's folder: its lock, its identity, the cluster that its data belongs to, and the
// parameter shards whose files it holds.
//
//   hf::ps::WorkFolder folder("/data/ps0", "");     // makes it if missing; throws if in use
//   folder.identity().node_id;                      // the same at each start
//   folder.incarnation();                           // higher at each start, also if clocks go back
//
// The lock is the kernel's (flock): it ends with the process, however that ends. Whoever holds it
// knows that no earlier process of this folder can still write. Blocks: for start-up.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/machine.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/runtime/task.hpp>
#include <mutex>
#include <set>
#include <span>
#include <string>

namespace hyperframes::ps {

class WorkFolder {
 public:
  struct Identity {
    std::string name;
    std::uint64_t node_id = 0;
  };

  /// `name`: of a new folder; empty makes one up. Throws already_exists if another process holds
  /// the lock, naming it, and not_found if it holds parameter shards and its identity is gone.
  /// `machine`, where the folder is, outlives it.
  WorkFolder(std::string path, const std::string& name, Machine& machine = Machine::real());
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  Machine& machine() const noexcept { return machine_; }
  const std::string& path() const noexcept { return path_; }
  const Identity& identity() const noexcept { return identity_; }
  /// Of this start: nanoseconds since 1970 if the clock is right, and always above the last one.
  std::uint64_t incarnation() const noexcept { return incarnation_; }
  /// Of the start before this one; 0 if there was none. An older copy of the folder has an older
  /// one.
  std::uint64_t previous_incarnation() const noexcept { return previous_incarnation_; }
  /// 0 until the server has joined one.
  std::uint64_t cluster() const noexcept { return cluster_; }
  /// Durable when it returns.
  void set_cluster(std::uint64_t cluster);
  /// Where a parameter shard's log is.
  std::string shard_folder(ShardId shard) const;
  /// Throws `not_found` for a shard that has begun here and whose files are gone: taken for a new
  /// one it would lose what was acknowledged.
  void require_files(std::span<const ShardId> shards) const;
  /// That this shard has files now; durable when it completes. From any core shard, and cheap
  /// after the first time: calls at the same time share their writes.
  Task<void> begin_shard(ShardId shard);

 private:
  class Lock {
   public:
    Lock(Machine& machine, const std::string& path);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Machine& machine_;
    std::int64_t file_ = -1;
  };
  void read_or_make_identity(const std::string& name);
  bool holds_data() const;
  std::int64_t has_file_of(const std::string& folder, std::uint64_t bytes) const;
  std::uint64_t read_number(const char* name) const;
  void write_number(const char* name, std::uint64_t number) const;
  std::string begun_file() const { return path_ + "/begun_shards"; }
  void read_begun();
  void write_begun(ShardId shard);

  Machine& machine_;
  std::string path_;
  Lock lock_;
  Identity identity_;
  std::uint64_t incarnation_ = 0, previous_incarnation_ = 0;
  std::uint64_t cluster_ = 0;
  std::mutex writing_;                // of the list of shards: one at a time
  mutable std::mutex mutex_;          // of the next two
  std::set<ShardId> begun_, wanted_;  // on disk, and what shall be
};

}  // namespace hyperframes::ps
