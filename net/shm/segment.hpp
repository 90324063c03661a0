// The memory of one end of a shared-memory link: written by its owner, read by the peer, gone with
// the last of the two processes, whatever ends them.
//
//   ShmSegment own = ShmSegment::create(layout, true);              // blocks: on the offload
//   send_descriptor(own.descriptor());
//   ShmSegment peer = ShmSegment::attach(received, layout, "attach the memory of shm://counter");
//
// It is a memfd: it has no name, so nothing can be left under /dev/shm, and a full /dev/shm is
// nothing to it. All of it is allocated before it is used, so that a lack of memory is an error
// here and not a SIGBUS later. Its seals keep it so: nobody can change its size, and nobody but its
// owner, who has mapped it already, can write it or cut holes into it. A peer's segment is taken
// only with those seals, and if all of it is there.
#pragma once

#include <cstddef>
#include <hyperframes/net/shm/ring.hpp>
#include <string>
#include <utility>

namespace hyperframes::net::detail {

/// Closes a descriptor of this process.
class OwnDescriptor {
 public:
  explicit OwnDescriptor(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  OwnDescriptor(OwnDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnDescriptor() { reset(); }
  void reset() noexcept;
  int get() const noexcept { return descriptor_; }
  int release() noexcept { return std::exchange(descriptor_, -1); }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

class ShmSegment {
 public:
  ShmSegment() noexcept = default;
  ShmSegment(ShmSegment&& other) noexcept { swap(other); }
  ShmSegment& operator=(ShmSegment&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ShmSegment();

  /// On huge pages if `huge_pages` and there are any free. Blocks while pages are allocated. Throws
  /// with the size, what refused it, and the limit that stands in the way.
  static ShmSegment create(const ShmLayout& layout, bool huge_pages) {
    return create(layout.bytes(), huge_pages, "share with a peer");
  }
  /// Of so many bytes, whole pages. `purpose`: completes "memory to", for errors.
  static ShmSegment create(std::size_t bytes, bool huge_pages, const std::string& purpose);
  /// Maps a peer's, to read. Throws Errc::corrupt that says which promise it breaks.
  static ShmSegment attach(OwnDescriptor descriptor, const ShmLayout& layout,
                           const std::string& tried);
  static ShmSegment attach(OwnDescriptor descriptor, std::size_t bytes, const std::string& tried);

  /// Null: there is none.
  std::byte* memory() const noexcept { return memory_; }
  std::size_t size() const noexcept { return size_; }
  bool on_huge_pages() const noexcept { return huge_; }
  /// To be passed to the peer; -1 once closed. The memory stays.
  int descriptor() const noexcept { return descriptor_.get(); }
  void close_descriptor() noexcept { descriptor_.reset(); }

 private:
  void swap(ShmSegment& other) noexcept;
  void map(int protection, const std::string& tried);

  OwnDescriptor descriptor_;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  bool huge_ = false;
};

/// Whether a kernel of that release holds memory on huge pages to its seals: one that does not lets
/// the peer write what is sealed against that. `release`: as uname(2) tells it.
bool seals_huge_pages(const std::string& release);

/// What the memory cgroup of this process, or one above it, still has room for: the kernel kills a
/// process that allocates more. `root` is where the cgroups are mounted, `own` the text of
/// /proc/self/cgroup. Empty if `bytes` fit, or what stands in the way.
std::string lack_in_cgroup(std::size_t bytes, const std::string& root, const std::string& own);
/// The same of the host, where the kernel may kill somebody else. `memory`: the text of
/// /proc/meminfo.
std::string lack_in_host(std::size_t bytes, const std::string& memory);

}  // namespace hyperframes::net::detail
