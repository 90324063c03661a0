#include <hyperframes/apps/ps/pages.hpp>

#include <hyperframes/runtime/error.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

namespace hyperframes::ps::detail {

Pages::Pages(std::size_t bytes, std::string_view purpose) {
  const std::size_t size = (bytes + huge_page_bytes - 1) & ~(huge_page_bytes - 1);
  const std::size_t mapped = size + huge_page_bytes;
  void* at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw Error::system(errno,
                        "map " + std::to_string(mapped >> 20) + " MiB to " + std::string(purpose),
                        "the kernel gives no more memory",
                        "raise the memory or address-space limit (ulimit -v, the cgroup's "
                        "memory.max), or spread the table over more servers");
  // mmap aligns to a small page only: map too much and give the ragged ends back.
  auto* begin = static_cast<std::byte*>(at);
  const std::size_t skip = -reinterpret_cast<std::uintptr_t>(at) & (huge_page_bytes - 1);
  if (skip != 0) ::munmap(begin, skip);
  ::munmap(begin + skip + size, mapped - skip - size);
  data_ = begin + skip;
  size_ = size;
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void Pages::prefer_huge(std::size_t offset) noexcept {
  if (offset < size_) ::madvise(data_ + offset, size_ - offset, MADV_HUGEPAGE);
}

}  // namespace hyperframes::ps::detail
