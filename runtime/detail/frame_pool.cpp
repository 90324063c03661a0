#include <cassert>
#include <cstdlib>
#include <hyperframes/runtime/detail/current_pool.hpp>
#include <hyperframes/runtime/detail/frame_pool.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define HYPERFRAMES_FRAMES_ON_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HYPERFRAMES_FRAMES_ON_HEAP 1
#endif
#endif

namespace hyperframes::detail {

constinit thread_local FramePool* current_frame_pool = nullptr;

namespace {
constexpr std::size_t slab_size = 256 << 10;

// Under AddressSanitizer every frame is its own heap block, so that a use after its end is seen.
#ifdef HYPERFRAMES_FRAMES_ON_HEAP
constexpr bool pooled = false;
#else
constexpr bool pooled = true;
#endif

std::size_t stride_of(std::size_t size_class) noexcept {
  return sizeof(FrameHeader) + (size_class + 1) * FramePool::step;
}

void* allocate_from_heap(std::size_t size) {
  auto* header = static_cast<FrameHeader*>(std::malloc(sizeof(FrameHeader) + size));
  if (!header) throw std::bad_alloc();
  header->owner = nullptr;
  return header + 1;
}

}  // namespace

void* FramePool::allocate(std::size_t size) {
  if (size > largest) return allocate_from_heap(size);
  const std::size_t size_class = size == 0 ? 0 : (size - 1) / step;
  if (!free_[size_class]) refill(size_class);
  FreeFrame* frame = free_[size_class];
  free_[size_class] = frame->next;
  ++outstanding_;
  return frame;
}

void FramePool::refill(std::size_t size_class) {
  collect_returned();
  if (free_[size_class]) return;
  const std::size_t stride = stride_of(size_class);
  if (static_cast<std::size_t>(slab_end_ - slab_at_) < stride) {
    void* slab = std::aligned_alloc(64, slab_size);
    if (!slab) throw std::bad_alloc();
    slabs_.push_back(slab);
    slab_at_ = static_cast<std::byte*>(slab);
    slab_end_ = slab_at_ + slab_size;
  }
  // A few at a time: neighbours in memory are used together, and a rare class wastes little.
  for (int i = 0; i < 8 && static_cast<std::size_t>(slab_end_ - slab_at_) >= stride; ++i) {
    auto* header = new (slab_at_) FrameHeader{this, static_cast<std::uint32_t>(size_class)};
    slab_at_ += stride;
    auto* frame = reinterpret_cast<FreeFrame*>(header + 1);
    frame->next = free_[size_class];
    free_[size_class] = frame;
  }
}

void FramePool::take_back(FreeFrame* first, FreeFrame* last) noexcept {
  last->next = returned_.load(std::memory_order_relaxed);
  while (!returned_.compare_exchange_weak(last->next, first, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
}

void FramePool::collect_returned() noexcept {
  if (!returned_.load(std::memory_order_relaxed)) return;
  FreeFrame* frame = returned_.exchange(nullptr, std::memory_order_acquire);
  while (frame) {
    FreeFrame* next = frame->next;
    release(reinterpret_cast<FrameHeader*>(frame) - 1);
    frame = next;
  }
}

FramePool::~FramePool() {
  for (void* slab : slabs_) std::free(slab);
}

void FramePool::retire(FramePool* pool) noexcept {
  pool->collect_returned();
  // Blocks still held elsewhere keep the slabs: leaking them is the one safe answer.
  if (pool->outstanding_ == 0) delete pool;
}

void* pool_allocate(std::size_t size) {
  if constexpr (pooled) {
    if (FramePool* pool = current_frame_pool) return pool->allocate(size);
  }
  return allocate_from_heap(size);
}

void pool_release(void* block) noexcept {
  if (!block) return;
  FrameHeader* header = static_cast<FrameHeader*>(block) - 1;
  FramePool* const owner = header->owner;
  if (owner && owner == current_frame_pool) return owner->release(header);
  if (!owner) {
    std::free(header);
    return;
  }
  if (Shard* shard = Shard::current()) {
    shard->send_home(header);
  } else {
    auto* frame = static_cast<FreeFrame*>(block);
    owner->take_back(frame, frame);
  }
}

}  // namespace hyperframes::detail
