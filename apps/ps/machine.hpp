// What the processes of a cluster take from the machine they run on, beyond what the runtime gives:
// files before there is a runtime or where code blocks, chance, the calendar, and standard output.
//
//   hf::ps::Machine& machine = hf::ps::Machine::real();
//   hf::ps::WorkFolder folder("/data/ps0", "", machine);
//   machine.say("coordinator 127.0.0.1:6000\n");
//
// Programs use the real one, and it is the default everywhere. The simulator gives each simulated
// process one of its own, whose disk forgets what was not synced and whose chance is a seed. Files
// are as the system calls have them: results are values or negated error numbers. On any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::ps {

class Machine {
 public:
  static Machine& real() noexcept;
  virtual ~Machine() = default;

  virtual std::int64_t open(const std::string& path, int flags) = 0;
  virtual void close(std::int64_t file) noexcept = 0;
  virtual std::int64_t read(std::int64_t file, std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual std::int64_t write(std::int64_t file, std::uint64_t offset,
                             std::span<const std::byte> from) = 0;
  virtual std::int64_t truncate(std::int64_t file, std::uint64_t size) = 0;
  /// Of a file or of a folder.
  virtual std::int64_t sync(std::int64_t file) = 0;
  /// Until it is closed or the process ends; -EWOULDBLOCK while another process has it.
  virtual std::int64_t try_lock(std::int64_t file) = 0;
  virtual std::int64_t rename(const std::string& from, const std::string& to) = 0;
  /// With the folders above it; fine if it is there.
  virtual std::int64_t make_directories(const std::string& path) = 0;
  virtual std::int64_t list(const std::string& path, std::vector<std::string>& names) = 0;
  /// In bytes; -EISDIR for a folder.
  virtual std::int64_t size_of(const std::string& path) = 0;
  /// The SQLite VFS to open databases by; null: SQLite's own.
  virtual const char* database_files() const noexcept { return nullptr; }

  /// Not 0.
  virtual std::uint64_t random_number() = 0;
  /// Since 1970; may be wrong, and may go back.
  virtual std::uint64_t calendar_ns() = 0;
  /// What the process is known by there.
  virtual std::string process_id() = 0;
  /// To standard output, at once.
  virtual void say(std::string_view text) = 0;
};

/// Closes a machine's file when it goes.
class MachineFile {
 public:
  MachineFile(Machine& machine, const std::string& path, int flags)
      : machine_(machine), file_(machine.open(path, flags)) {}
  ~MachineFile() {
    if (file_ >= 0) machine_.close(file_);
  }
  MachineFile(const MachineFile&) = delete;
  MachineFile& operator=(const MachineFile&) = delete;
  /// Negative: the negated error number with which opening it failed.
  std::int64_t number() const noexcept { return file_; }

 private:
  Machine& machine_;
  const std::int64_t file_;
};

/// All that is in it; 0, or a negated error number.
std::int64_t read_all(Machine& machine, const std::string& path, std::string& text);

}  // namespace hyperframes::ps
