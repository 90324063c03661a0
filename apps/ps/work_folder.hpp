// A server's folder: its lock and its identity.
//
//   hf::ps::WorkFolder folder("/data/ps0", "");     // makes it if missing; throws if another runs
//   there folder.identity().node_id;                      // the same at each start
//
// The lock is the kernel's (flock): it ends with the process, however that ends. Whoever holds it
// knows that no earlier process of this folder can still write. Blocks: for start-up.
#pragma once

#include <cstdint>
#include <string>

namespace hyperframes::ps {

class WorkFolder {
 public:
  struct Identity {
    std::string name;
    std::uint64_t node_id = 0;
  };

  /// `name`: of a new folder; empty makes one up. Throws already_exists if another process holds
  /// the lock, naming it.
  WorkFolder(std::string path, const std::string& name);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  const Identity& identity() const noexcept { return identity_; }

 private:
  void lock();
  void read_or_make_identity(const std::string& name);

  std::string path_;
  Identity identity_;
  int lock_descriptor_ = -1;
};

}  // namespace hyperframes::ps
