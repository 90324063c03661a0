// Counted slices of pooled memory: what moves through channels, files and sockets.
//
//   hf::Buffer page = co_await pool.allocate(64 << 10);   // suspends while the quota is used up
//   hf::Buffer head = page.slice(0, 16);                  // shares the same memory
//   segments.push_back(std::move(page));                  // moves, copies no bytes
//
// The count is a plain integer, so all references to a block are on one shard. A buffer may move to
// another shard only as the sole reference (`unique()`), and be copied and sliced there; to keep
// one here and send one there, send `proxy()`. The last release on a shard that is not the block's
// home travels home in a batch. Buffers made off a shard (`Buffer::copy_of` on a plain thread)
// count atomically and may go anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <hyperframes/runtime/time.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyperframes {

class Shard;
class BufferPool;

/// Where memory lies. `device` memory must not be touched by the CPU.
enum class MemoryKind : std::uint8_t { host, pinned, device };

namespace detail {

/// The header of pooled memory. `dispose` frees header and memory, on the home shard.
struct Block {
  std::uint32_t references = 1;
  MemoryKind kind = MemoryKind::host;
  bool atomic_count = false;
  Shard* home = nullptr;
  Shard* holder = nullptr;  ///< Where its references are while there are several.
  BufferPool* pool = nullptr;
  std::byte* data = nullptr;
  std::size_t capacity = 0;
  std::size_t charged = 0;  ///< What the pool's quota was charged, in bytes.
  Block* next = nullptr;    ///< Link while it travels home or waits on a free list.
  void (*dispose)(Block*) noexcept = nullptr;
};
void release(Block* block) noexcept;
void retain(Block* block) noexcept;
bool is_sole(const Block* block) noexcept;

}  // namespace detail

/// Some bytes of a block, and a share of its count. As with a shared pointer, copying shares the
/// bytes and a const Buffer still gives writable ones. Default-made, moved from or reset it is
/// empty. Blocks begin on a 64-byte boundary.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(const Buffer& other) noexcept
      : block_(other.block_), data_(other.data_), size_(other.size_) {
    if (block_) detail::retain(block_);
  }
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (block_) detail::release(block_);
  }

  /// A heap block outside every quota, holding a copy. For small things and tests. On any thread;
  /// std::bad_alloc if the system has no memory.
  static Buffer copy_of(std::span<const std::byte> bytes);
  static Buffer copy_of(std::string_view text) {
    return copy_of(std::as_bytes(std::span(text.data(), text.size())));
  }
  /// The same with indeterminate contents.
  static Buffer heap(std::size_t size);
  /// For pools and drivers: takes over `block`'s reference.
  static Buffer adopt(detail::Block* block, std::byte* data, std::size_t size) noexcept {
    Buffer buffer;
    buffer.block_ = block;
    buffer.data_ = data;
    buffer.size_ = size;
    return buffer;
  }

  /// Lets go of the memory now.
  void reset() noexcept {
    if (block_) detail::release(std::exchange(block_, nullptr));
    data_ = nullptr;
    size_ = 0;
  }

  /// Good while this Buffer, or another one of the block, exists.
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }
  MemoryKind kind() const noexcept { return block_ ? block_->kind : MemoryKind::host; }
  /// True if no other Buffer shares the block.
  bool unique() const noexcept { return block_ && detail::is_sole(block_); }
  /// True if it may be copied and released on any thread.
  bool counts_atomically() const noexcept { return !block_ || block_->atomic_count; }

  /// The same memory from `offset`, `size` bytes long. Both lie within this buffer.
  Buffer slice(std::size_t offset, std::size_t size) const noexcept;
  /// A sole reference to the same bytes, to be moved to another shard. On a shard.
  Buffer proxy() const;
  /// Drops the end; `size` is not above the size it has.
  void resize_down(std::size_t size) noexcept;
  /// Drops the beginning; `count` is at most the size.
  void remove_prefix(std::size_t count) noexcept;

 private:
  detail::Block* block_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A short list of buffers, in order. What a message's data is made of. Copies share the buffers'
/// memory, and belong to one shard as they do.
class Segments {
 public:
  Segments() noexcept = default;
  /// Not explicit: what takes Segments takes a Buffer too.
  Segments(Buffer only) { push_back(std::move(only)); }

  void push_back(Buffer buffer) {
    bytes_ += buffer.size();
    list_.push_back(std::move(buffer));
  }
  std::size_t size_bytes() const noexcept { return bytes_; }
  std::size_t count() const noexcept { return list_.size(); }
  bool empty() const noexcept { return list_.empty(); }
  /// May be moved out or written into; a buffer's size must not be changed in here, since
  /// `size_bytes` would not follow.
  Buffer& operator[](std::size_t index) noexcept { return list_[index]; }
  const Buffer& operator[](std::size_t index) const noexcept { return list_[index]; }
  auto begin() noexcept { return list_.begin(); }
  auto end() noexcept { return list_.end(); }
  auto begin() const noexcept { return list_.begin(); }
  auto end() const noexcept { return list_.end(); }
  void clear() noexcept {
    list_.clear();
    bytes_ = 0;
  }
  /// Drops the first `count` bytes, buffer by buffer; at most size_bytes().
  void remove_prefix(std::size_t count) noexcept;
  /// One contiguous heap buffer with the same bytes: a copy, for code that can't take a list.
  Buffer flatten() const;

 private:
  std::vector<Buffer> list_;
  std::size_t bytes_ = 0;
};

/// Memory under a quota, for one shard: each has Shard::send_pool() and Shard::receive_pool(), and
/// actors and programs may make more. All calls on that shard. Blocks are kept by size class
/// (powers of two from 256 bytes and the midpoints between them) and reused; the quota is charged
/// the class's size, at most half more than what was asked for.
class BufferPool {
 public:
  struct Options {
    std::string name = {};                ///< Stands in every error.
    std::size_t quota_bytes = 64u << 20;  ///< Handed out and not yet released.
    std::size_t keep_bytes = 16u << 20;   ///< Free memory kept for reuse.
  };
  struct Usage {
    std::size_t used_bytes;  ///< Charged to the quota now.
    std::size_t quota_bytes;
    std::size_t free_bytes;       ///< Kept for reuse.
    std::size_t waiting;          ///< Coroutines that wait for room.
    std::size_t exhausted_count;  ///< Allocations that failed for want of room, so far.
  };

  BufferPool(Shard& home, Options options);
  /// On its shard, when all its buffers have been released and nobody waits.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// `size` bytes with indeterminate contents, or Errc::exhausted with the pool's name, size and
  /// need; Errc::too_large if it could never fit.
  Result<Buffer> try_allocate(std::size_t size);

  class AllocateAwaiter;
  /// Suspends, first come first served, until the quota has room or `deadline` has passed
  /// (Errc::exhausted). Throws Errc::too_large at once if `size` is over the whole quota, and
  /// Errc::exhausted if the system has no memory. Cancelled while it waits, Errc::cancelled.
  [[nodiscard]] AllocateAwaiter allocate(std::size_t size, Time deadline = no_deadline);

  /// Linear in who waits.
  Usage usage() const noexcept;
  const std::string& name() const noexcept { return options_.name; }

 private:
  friend void detail::release(detail::Block*) noexcept;
  static constexpr std::size_t class_count = 64;
  static std::size_t class_of(std::size_t size) noexcept;
  static std::size_t class_size(std::size_t index) noexcept;
  static void dispose(detail::Block* block) noexcept;
  /// Null if the system has no memory.
  detail::Block* take(std::size_t size) noexcept;
  bool fits(std::size_t size) const noexcept;
  bool fits_ever(std::size_t size) const noexcept;
  void enqueue(AllocateAwaiter& waiter) noexcept;
  void dequeued() noexcept;
  void wake_waiters() noexcept;
  Error exhausted(std::size_t size) const;
  Error too_large(std::size_t size) const;
  Error refused(std::size_t size) const;

  Shard& home_;
  Options options_;
  std::size_t used_ = 0;
  std::size_t free_ = 0;
  std::size_t outstanding_ = 0;
  std::size_t exhausted_count_ = 0;
  detail::Block* free_lists_[class_count] = {};
  detail::List<AllocateAwaiter> waiters_;
};

class BufferPool::AllocateAwaiter : public detail::Waiter {
 public:
  AllocateAwaiter(BufferPool& pool, std::size_t size, Time deadline) noexcept
      : Waiter(deadline, Errc::exhausted, &AllocateAwaiter::left), pool_(pool), size_(size) {}
  ~AllocateAwaiter() { leave(); }
  bool await_ready();
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    if (!begin(handle.promise())) return false;
    pool_.enqueue(*this);
    return true;
  }
  Buffer await_resume();

 private:
  friend class BufferPool;
  static void left(Waiter& self) noexcept;
  BufferPool& pool_;
  std::size_t size_;
  Buffer result_;
  bool refused_ = false;
};

}  // namespace hyperframes
