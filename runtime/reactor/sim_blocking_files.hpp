// The files of a simulated node for code that blocks: what runs on the offload executor, or before
// the runtime is there.
//
//   hf::SimBlockingFiles files(node);
//   const std::int64_t file = files.open("/data/identity", O_WRONLY | O_CREAT);   // or -errno
//   files.write(file, 0, bytes);
//   files.sync(file);
//
// The same disk as the tasks' with the same faults, of which each call is one operation; but a call
// takes no virtual time. It belongs to the process that runs when it is made: once that has
// crashed, or is about to at a disk operation, every call gives -EIO and changes nothing. Called on
// the world's thread.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/reactor.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes {

class SimNode;
namespace detail {
class SimInode;
struct SimHost;
}  // namespace detail

class SimBlockingFiles {
 public:
  /// The node is up, and outlives it.
  explicit SimBlockingFiles(SimNode& node);
  ~SimBlockingFiles();
  SimBlockingFiles(const SimBlockingFiles&) = delete;
  SimBlockingFiles& operator=(const SimBlockingFiles&) = delete;

  // All results are values, or negated error numbers.
  /// `flags` as open(2) has them. The result stands for the file until `close`.
  std::int64_t open(std::string_view path, int flags);
  void close(std::int64_t file) noexcept;
  std::int64_t read(std::int64_t file, std::uint64_t offset, std::span<std::byte> into);
  std::int64_t write(std::int64_t file, std::uint64_t offset, std::span<const std::byte> from);
  std::int64_t truncate(std::int64_t file, std::uint64_t size);
  std::int64_t size(std::int64_t file);
  /// Of a file or of a folder.
  std::int64_t sync(std::int64_t file);
  std::int64_t rename(std::string_view from, std::string_view to);
  std::int64_t remove(std::string_view path);
  /// With the folders above it; fine if it is there.
  std::int64_t make_directory(std::string_view path);
  std::int64_t list(std::string_view path, std::vector<std::string>& names);
  /// Whether there is a file or a folder; its size follows by `open`.
  bool exists(std::string_view path, bool* is_folder = nullptr);
  /// Since boot, on the clock of the node.
  Time now() const noexcept;

 private:
  struct Open {
    std::shared_ptr<detail::SimInode> inode;
    std::string path;
  };
  bool alive() const noexcept;
  /// 0, or what the operation fails with.
  int begin(Operation::Kind kind, std::string_view path);
  Open* find(std::int64_t file);
  std::int64_t note(Operation::Kind kind, std::int64_t result);

  detail::SimHost& host_;
  const std::uint64_t incarnation_;
  std::map<std::int64_t, Open> open_;
  bool gone_ = false;
};

}  // namespace hyperframes
