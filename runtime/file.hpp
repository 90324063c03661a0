// Files, without blocking the shard.
//
//   hf::File log = co_await hf::File::open("wal.0", hf::File::Mode::create_new);
//   co_await log.write_at(offset, std::move(record));      // a Buffer, or Segments
//   co_await log.sync();                                   // its bytes are durable from here on
//
// A File is used on the shard that opened it; its operations may overlap. All are awaited on a
// shard and throw the system's error, with the path: compare `error.code()` with std::errc. None
// takes a deadline: see with_deadline. A cancelled one waits until the system has let go of its
// memory; a write may have taken place in part then.
//
// A new file's *name* is durable only after `sync_directory` of its folder. Under the simulator the
// same calls reach its disk, which forgets what was not synced.
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
    create_new,    ///< Read and write; must not exist (std::errc::file_exists).
  };

  /// None is open: only `is_open`, `path`, `close` and assignment make sense.
  File() noexcept = default;
  File(File&& other) noexcept;
  /// Swaps: what this had open is closed with `other`.
  File& operator=(File&& other) noexcept;
  /// Closes without waiting; errors of a close are lost, so `close` where they matter.
  ~File();

  /// What it makes has mode 0644, less the process's umask.
  static Task<File> open(std::string path, Mode mode);
  bool is_open() const noexcept { return descriptor_ >= 0; }
  const std::string& path() const noexcept { return path_; }

  /// Fills `into` from `offset`; returns it cut to what was there (shorter only at the end).
  Task<Buffer> read_at(std::uint64_t offset, Buffer into);
  /// Reads exactly `size` bytes into a heap buffer, or throws Errc::corrupt naming where it ended.
  Task<Buffer> read_exactly(std::uint64_t offset, std::size_t size);
  /// Writes all of it. On failure, also for want of space, a prefix may have been written.
  Task<void> write_at(std::uint64_t offset, Segments data);
  /// Makes the contents, and the size, durable.
  Task<void> sync();
  /// In bytes.
  Task<std::uint64_t> size();
  /// Cuts it, or makes it longer with zeros.
  Task<void> truncate(std::uint64_t size);
  /// No other operation of it may be under way. Takes place also in a cancelled chain; after it,
  /// and when none is open, it does nothing.
  Task<void> close();

 private:
  File(int descriptor, std::string path) noexcept;
  int descriptor_ = -1;
  bool of_system_ = false;  ///< A descriptor of this process, which any thread can close.
  std::string path_;
};

/// Replaces `to` atomically, within a file system. Durable after `sync_directory` of the folder.
Task<void> rename_file(std::string from, std::string to);
/// A file or an empty folder; missing is an error (std::errc::no_such_file_or_directory).
Task<void> remove_file(std::string path);
/// With its parents; existing ones are fine.
Task<void> make_directory(std::string path);
/// The same, and the names of it and of its parents are durable: a power cut does not take the
/// folder away with all that was synced in it. Parents that may not be read are left to their
/// owner.
Task<void> make_durable_directory(std::string path);
/// Names, sorted, without "." and "..".
Task<std::vector<std::string>> list_directory(std::string path);
/// Names that were made, replaced or removed in that folder are durable from here on.
Task<void> sync_directory(std::string path);
/// Whole contents in one heap buffer. Errc::too_large over `limit` bytes (1 GiB), Errc::corrupt if
/// it shrinks meanwhile. Files whose size the system does not know, as in /proc, come out empty.
Task<Buffer> read_whole_file(std::string path, std::size_t limit = std::size_t{1} << 30);
/// Written beside (PATH.new), synced, renamed over, folder synced: a reader sees the old file or
/// the new one. One at a time for each path.
Task<void> write_whole_file(std::string path, Buffer contents);
/// Whether something has that name, a folder too. It is opened for reading: what may not be read
/// throws, and a named pipe waits for its writer.
Task<bool> file_exists(std::string path);

}  // namespace hyperframes
