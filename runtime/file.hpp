// Files, without blocking the shard.
//
//   auto log = co_await hf::File::open("wal.0", hf::File::Mode::append_new);
//   co_await log.write_at(offset, std::move(record));
//   co_await log.sync();                                   // durable from here on
//
// One shard's. Errors name the path. Under the simulator the same calls reach its disk, which
// forgets what was not synced: a new file's *name* is durable only after `sync_directory` of its
// folder.
#pragma once

#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/task.hpp>
#include <string>
#include <vector>

namespace hyperframes {

class File {
 public:
  enum class Mode : std::uint8_t {
    read,          ///< Must exist.
    create,        ///< Read and write; made if missing, kept if there.
    create_empty,  ///< Read and write; made if missing, emptied if there.
    create_new,    ///< Read and write; must not exist (EEXIST).
  };

  File() noexcept = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  /// Closes without waiting; errors of a close are lost, so `close` where they matter.
  ~File();

  static Task<File> open(std::string path, Mode mode);
  bool is_open() const noexcept { return descriptor_ >= 0; }
  const std::string& path() const noexcept { return path_; }

  /// Fills `into` from `offset`; returns it cut to what was there (shorter only at the end).
  Task<Buffer> read_at(std::uint64_t offset, Buffer into);
  /// Reads exactly `size` bytes into a heap buffer, or throws Errc::corrupt naming where it ended.
  Task<Buffer> read_exactly(std::uint64_t offset, std::size_t size);
  /// Writes all of it. On failure a prefix may have been written.
  Task<void> write_at(std::uint64_t offset, Segments data);
  /// Makes the contents, and the size, durable.
  Task<void> sync();
  Task<std::uint64_t> size();
  Task<void> truncate(std::uint64_t size);
  Task<void> close();

 private:
  File(int descriptor, std::string path) noexcept;
  int descriptor_ = -1;
  bool of_system_ = false;  ///< A descriptor of this process, which any thread can close.
  std::string path_;
};

/// Replaces `to` atomically. Durable after `sync_directory` of the folder.
Task<void> rename_file(std::string from, std::string to);
/// A file or an empty folder; missing is an error (ENOENT).
Task<void> remove_file(std::string path);
/// With its parents; existing ones are fine.
Task<void> make_directory(std::string path);
/// The same, and the names of it and of its parents are durable: a power cut does not take the
/// folder away with all that was synced in it. Parents that may not be read are left to their
/// owner.
Task<void> make_durable_directory(std::string path);
/// Names, sorted, without "." and "..".
Task<std::vector<std::string>> list_directory(std::string path);
Task<void> sync_directory(std::string path);
/// Whole contents in one heap buffer. Errc::too_large over `limit` bytes.
Task<Buffer> read_whole_file(std::string path, std::size_t limit = std::size_t{1} << 30);
/// Written beside, synced, renamed over, folder synced: a reader sees the old file or the new one.
Task<void> write_whole_file(std::string path, Buffer contents);
Task<bool> file_exists(std::string path);

}  // namespace hyperframes
