// SQLite on a simulated disk: a VFS over SimBlockingFiles, with what SQLite's own one for Unix
// syncs and promises, so that torn writes and lost names hit the database as they would there.
//
//   SqliteFiles vfs("node-0", files, seed);
//   sqlite3_open_v2("/ps/coordinator.db", &database, flags, vfs.name());
//
// No locks: a simulated node runs one process. No shared memory: databases are opened with
// locking_mode = EXCLUSIVE, for which a write-ahead log needs none.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/reactor/sim_blocking_files.hpp>
#include <memory>
#include <string>

namespace hyperframes::sim::detail {

class SqliteFiles {
 public:
  /// `files` outlives it. No two of one name at a time.
  SqliteFiles(std::string name, SimBlockingFiles& files, std::uint64_t seed);
  ~SqliteFiles();
  SqliteFiles(const SqliteFiles&) = delete;
  SqliteFiles& operator=(const SqliteFiles&) = delete;
  const char* name() const noexcept;

  /// SQLite's own random numbers, which are the process's, begin anew.
  static void seed_chance(std::uint64_t seed);

 private:
  struct Vfs;
  std::unique_ptr<Vfs> vfs_;
};

}  // namespace hyperframes::sim::detail
