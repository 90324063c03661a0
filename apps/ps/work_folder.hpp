// A server's folder: its lock, its identity, and the cluster that its data belongs to.
//
//   hf::ps::WorkFolder folder("/data/ps0", "");     // makes it if missing; throws if in use
//   folder.identity().node_id;                      // the same at each start
//   folder.incarnation();                           // higher at each start, also if clocks go back
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
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  const Identity& identity() const noexcept { return identity_; }
  /// Of this start: nanoseconds since 1970 if the clock is right, and always above the last one.
  std::uint64_t incarnation() const noexcept { return incarnation_; }
  /// 0 until the server has joined one.
  std::uint64_t cluster() const noexcept { return cluster_; }
  /// Durable when it returns.
  void set_cluster(std::uint64_t cluster);

 private:
  class Lock {
   public:
    explicit Lock(const std::string& path);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int descriptor_;
  };
  void read_or_make_identity(const std::string& name);
  std::uint64_t read_number(const char* name) const;
  void write_number(const char* name, std::uint64_t number) const;

  std::string path_;
  Lock lock_;
  Identity identity_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t cluster_ = 0;
};

}  // namespace hyperframes::ps
