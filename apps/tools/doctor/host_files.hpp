// What the kernel says of this host under /proc and /sys, or of another one in a copy of these.
//
//   HostFiles files("/");
//   files.read("proc/sys/kernel/osrelease");             // "6.1.0-28-amd64"
//   files.resolve("sys/class/net/eth0/device");          // "sys/devices/pci0000:00/0000:00:03.0"
//
// Paths are relative to the root. What is missing, or must not be read, is empty: nothing throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools::doctor {

class HostFiles {
 public:
  explicit HostFiles(std::filesystem::path root = "/");

  /// The file without white space at its end; at most its first MiB.
  std::optional<std::string> read(const std::string& path) const;
  /// Its lines; none where there is no file.
  std::vector<std::string> lines(const std::string& path) const;
  /// The whole number, decimal, that the file is.
  std::optional<std::int64_t> number(const std::string& path) const;
  /// The value behind "KEY:" on a line of its own, as /proc/self/status has them.
  std::optional<std::string> field(const std::string& path, std::string_view key) const;
  /// Names in a folder, numbers in them by their value: eth2 before eth10.
  std::vector<std::string> list(const std::string& path) const;
  bool exists(const std::string& path) const;
  /// Where links lead, again relative to the root.
  std::optional<std::string> resolve(const std::string& path) const;

 private:
  std::filesystem::path root_;
};

/// Decimal, all of it.
std::optional<std::int64_t> read_whole(std::string_view text);
/// Words between spaces and tabs.
std::vector<std::string> words_of(std::string_view text);
std::string_view trimmed(std::string_view text);
/// "0-3,8" as numbers; what is none is left out.
std::vector<unsigned> read_list(std::string_view text);
/// The other way: "0-3,8".
std::string list_text(const std::vector<unsigned>& numbers);
/// By powers of two, as limits and buffers are set: "512 B", "64 KiB", "23.5 GiB".
std::string binary_text(std::uint64_t bytes);

}  // namespace hyperframes::tools::doctor
