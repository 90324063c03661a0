// Free lists of small memory by size class, for one shard.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hyperframes::detail {

class FramePool;

/// Stands before every block, whoever allocated it.
struct alignas(16) FrameHeader {
  FramePool* owner;  ///< Null: straight from the heap.
  std::uint32_t size_class;
};

/// A free block; its link overlays the payload.
struct FreeFrame {
  FreeFrame* next;
};

/// Classes of 32 bytes up to 2 KiB; larger blocks go to the heap. Memory is taken in slabs and kept
/// until the pool ends. A pool whose blocks are still out is never freed (see `retire`).
class FramePool {
 public:
  static constexpr std::size_t step = 32, class_count = 64;
  static constexpr std::size_t largest = step * class_count;

  FramePool() = default;
  FramePool(const FramePool&) = delete;

  void* allocate(std::size_t size);
  /// A block of this pool, on the home shard.
  void release(FrameHeader* header) noexcept {
    auto* frame = reinterpret_cast<FreeFrame*>(header + 1);
    frame->next = free_[header->size_class];
    free_[header->size_class] = frame;
    --outstanding_;
  }
  /// A chain of blocks of this pool, linked by their payloads, from any thread.
  void take_back(FreeFrame* first, FreeFrame* last) noexcept;
  /// Called instead of the destructor: frees the pool, or leaves it and its slabs to the blocks
  /// that are still out.
  static void retire(FramePool* pool) noexcept;
  /// Blocks in use, here or elsewhere. On the home shard.
  std::size_t outstanding() noexcept {
    collect_returned();
    return outstanding_;
  }

 private:
  ~FramePool();
  void collect_returned() noexcept;
  void refill(std::size_t size_class);

  FreeFrame* free_[class_count + 1] = {};
  std::size_t outstanding_ = 0;
  std::vector<void*> slabs_;
  std::byte* slab_at_ = nullptr;
  std::byte* slab_end_ = nullptr;
  alignas(64) std::atomic<FreeFrame*> returned_{nullptr};
};

}  // namespace hyperframes::detail
