#include <hyperframes/net/shm/lines.hpp>

#include <cassert>
#include <iterator>

namespace hyperframes::net::detail {

ShmLines::ShmLines(std::size_t bytes) {
  assert(bytes % line == 0);
  if (bytes) add(0, bytes);
}

void ShmLines::add(std::size_t offset, std::size_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
  free_ += bytes;
}

void ShmLines::remove(std::map<std::size_t, std::size_t>::iterator run) {
  free_ -= run->second;
  by_size_.erase({run->second, run->first});
  by_offset_.erase(run);
}

std::optional<std::size_t> ShmLines::take(std::size_t bytes) {
  if (bytes > free_) return std::nullopt;
  const std::size_t wanted = rounded(bytes);
  const auto found = by_size_.lower_bound({wanted, 0});
  if (found == by_size_.end()) return std::nullopt;
  const auto [size, offset] = *found;
  remove(by_offset_.find(offset));
  if (size != wanted) add(offset + wanted, size - wanted);
  return offset;
}

void ShmLines::give(std::size_t offset, std::size_t bytes) noexcept {
  std::size_t size = rounded(bytes);
  const auto after = by_offset_.lower_bound(offset);
  assert(after == by_offset_.end() || offset + size <= after->first);
  const auto before = after == by_offset_.begin() ? by_offset_.end() : std::prev(after);
  if (after != by_offset_.end() && after->first == offset + size) {
    size += after->second;
    remove(after);
  }
  if (before != by_offset_.end()) {
    assert(before->first + before->second <= offset);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      remove(before);
    }
  }
  add(offset, size);
}

}  // namespace hyperframes::net::detail
