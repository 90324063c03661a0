// Which parts of a piece of memory are free, in lines of 64 bytes.
//
//   ShmLines lines(64u << 20);
//   std::optional<std::size_t> offset = lines.take(size);     // nullopt: no run is that long
//   lines.give(*offset, size);
//
// The smallest run that is long enough is cut, and runs that touch are joined at once; both take
// O(log n) for n runs. A run is never longer than what lies free side by side: memory of many
// sizes, given back in another order, may have enough free bytes and no run for them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace hyperframes::net::detail {

class ShmLines {
 public:
  static constexpr std::size_t line = 64;

  /// All of it is free. Whole lines.
  explicit ShmLines(std::size_t bytes);

  /// A size of 0 takes a line.
  std::optional<std::size_t> take(std::size_t bytes);
  /// What `take` gave for that size.
  void give(std::size_t offset, std::size_t bytes) noexcept;

  std::size_t free_bytes() const noexcept { return free_; }
  std::size_t longest_run() const noexcept {
    return by_size_.empty() ? 0 : by_size_.rbegin()->first;
  }
  std::size_t runs() const noexcept { return by_size_.size(); }
  static constexpr std::size_t rounded(std::size_t bytes) noexcept {
    return bytes == 0 ? line : (bytes + line - 1) / line * line;
  }

 private:
  void add(std::size_t offset, std::size_t bytes);
  void remove(std::map<std::size_t, std::size_t>::iterator run);

  std::map<std::size_t, std::size_t> by_offset_;           // bytes of each free run
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // bytes, offset
  std::size_t free_ = 0;
};

}  // namespace hyperframes::net::detail
