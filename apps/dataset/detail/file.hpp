// Files read by position and written so that a name never stands for half a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace hyperframes::dataset::detail {

/// A file open for reading. read_at() may be called from several threads at once.
class InputFile {
 public:
  /// Throws the system's error, `not_found` where there is no such file.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const noexcept { return size_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  /// Fills `out` from `offset`; throws `corrupt` where the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole file; throws `too_large` above `limit_bytes`.
std::string read_text(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// Writes `path` anew: under another name, synced, then renamed.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> parts);

}  // namespace hyperframes::dataset::detail
