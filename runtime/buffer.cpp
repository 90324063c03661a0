#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>

namespace hyperframes {
namespace {

// Header and memory in one allocation; the memory starts on a cache line.
constexpr std::size_t header_size = (sizeof(detail::Block) + 63) / 64 * 64;

// Pools keep few of the largest blocks, so most of these are new ones: to have the kernel bring
// them in page by page would take longer than to copy into them.
constexpr std::size_t huge_page = 2u << 20, least_huge = 2 * huge_page;

/// Null if the system has no memory.
void* allocate_lines(std::size_t size) noexcept {
  if (size < least_huge) return std::aligned_alloc(64, size);
  void* memory = nullptr;
  if (::posix_memalign(&memory, huge_page, size) != 0) return nullptr;
  // Where there are no huge pages it goes without.
  ::madvise(memory, size / huge_page * huge_page, MADV_HUGEPAGE);
  return memory;
}

/// Null if the system has no memory.
detail::Block* allocate_block(std::size_t capacity) noexcept {
  void* memory = capacity > SIZE_MAX - header_size - 63
                     ? nullptr
                     : allocate_lines((header_size + capacity + 63) / 64 * 64);
  if (!memory) return nullptr;
  auto* block = new (memory) detail::Block();
  block->data = static_cast<std::byte*>(memory) + header_size;
  block->capacity = capacity;
  return block;
}

void free_block(detail::Block* block) noexcept {
  block->~Block();
  std::free(block);
}

std::string attempt(std::size_t size, const std::string& pool) {
  return "allocate " + std::to_string(size) + " bytes from pool '" + pool + "'";
}

std::atomic_ref<std::uint32_t> shared_count(detail::Block* block) noexcept {
  return std::atomic_ref<std::uint32_t>(block->references);
}

}  // namespace

namespace detail {

void retain(Block* block) noexcept {
  if (block->atomic_count) {
    shared_count(block).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (block->references == 1) block->holder = Shard::current();
  assert(block->holder == Shard::current() && "references on two shards: send a proxy");
  ++block->references;
}

// Whoever else had a reference has let go of it for good, and of the memory before that.
bool is_sole(const Block* block) noexcept {
  if (!block->atomic_count) return block->references == 1;
  return shared_count(const_cast<Block*>(block)).load(std::memory_order_acquire) == 1;
}

void release(Block* block) noexcept {
  if (block->atomic_count) {
    if (shared_count(block).fetch_sub(1, std::memory_order_acq_rel) == 1) block->dispose(block);
    return;
  }
  if (block->references > 1) {
    assert(block->holder == Shard::current() && "references on two shards: send a proxy");
    --block->references;
  } else if (block->home == Shard::current()) {
    block->references = 0;
    block->dispose(block);
  } else {
    block->home->take_back(block);
  }
}

}  // namespace detail

Buffer Buffer::heap(std::size_t size) {
  detail::Block* block = allocate_block(size);
  if (!block) throw std::bad_alloc();
  block->atomic_count = true;
  block->dispose = &free_block;
  return adopt(block, block->data, size);
}

Buffer Buffer::copy_of(std::span<const std::byte> bytes) {
  Buffer buffer = heap(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

Buffer Buffer::slice(std::size_t offset, std::size_t size) const noexcept {
  assert(offset <= size_ && size <= size_ - offset);
  if (block_) detail::retain(block_);
  return adopt(block_, data_ + offset, size);
}

Buffer Buffer::proxy() const {
  if (!block_ || block_->atomic_count) return *this;
  struct Proxy : detail::Block {
    Buffer parent;
  };
  auto* block = new Proxy;
  block->kind = block_->kind;
  block->home = Shard::current();  // where its parent is counted, which need not be its home
  assert(block->home);
  block->data = data_;
  block->capacity = size_;
  block->parent = *this;
  block->dispose = [](detail::Block* self) noexcept { delete static_cast<Proxy*>(self); };
  return adopt(block, data_, size_);
}

void Buffer::resize_down(std::size_t size) noexcept {
  assert(size <= size_);
  size_ = size;
}

void Buffer::remove_prefix(std::size_t count) noexcept {
  assert(count <= size_);
  data_ += count;
  size_ -= count;
}

void Segments::remove_prefix(std::size_t count) noexcept {
  assert(count <= bytes_);
  bytes_ -= count;
  std::size_t whole = 0;
  while (whole < list_.size() && count >= list_[whole].size()) count -= list_[whole++].size();
  list_.erase(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(whole));
  if (count) list_.front().remove_prefix(count);
}

Buffer Segments::flatten() const {
  Buffer result = Buffer::heap(bytes_);
  std::byte* at = result.data();
  for (const Buffer& buffer : list_) {
    if (buffer.size()) std::memcpy(at, buffer.data(), buffer.size());
    at += buffer.size();
  }
  return result;
}

// Classes: 256, 384, 512, 768, 1024, … so that rounding wastes at most half of the need.
std::size_t BufferPool::class_of(std::size_t size) noexcept {
  if (size <= 256) return 0;
  const int width = std::bit_width(size - 1);  // 2^(width-1) < size <= 2^width
  const std::size_t middle = std::size_t{3} << (width - 2);
  return static_cast<std::size_t>(2 * (width - 8) - (size <= middle ? 1 : 0));
}

std::size_t BufferPool::class_size(std::size_t index) noexcept {
  const std::size_t power = std::size_t{256} << ((index + 1) / 2);
  return index % 2 ? power / 4 * 3 : power;
}

BufferPool::BufferPool(Shard& home, Options options) : home_(home), options_(std::move(options)) {}

BufferPool::~BufferPool() {
  assert(outstanding_ == 0 && "every buffer comes home before its shard ends");
  for (detail::Block* list : free_lists_) {
    while (list) free_block(std::exchange(list, list->next));
  }
}

bool BufferPool::fits(std::size_t size) const noexcept {
  return class_size(class_of(size)) <= options_.quota_bytes - used_;
}

bool BufferPool::fits_ever(std::size_t size) const noexcept {
  return size <= class_size(class_count - 1) && class_size(class_of(size)) <= options_.quota_bytes;
}

Error BufferPool::exhausted(std::size_t size) const {
  return Error(
      Errc::exhausted, attempt(size, options_.name),
      std::to_string(used_) + " of " + std::to_string(options_.quota_bytes) + " bytes are in use",
      "release buffers sooner or raise the pool's quota");
}

Error BufferPool::too_large(std::size_t size) const {
  return Error(Errc::too_large, attempt(size, options_.name),
               "the pool's quota is " + std::to_string(options_.quota_bytes) + " bytes",
               "raise it above the size of the largest message");
}

Error BufferPool::refused(std::size_t size) const {
  return Error(Errc::exhausted, attempt(size, options_.name), "the system has no memory left",
               "give the process more memory, or the pool a smaller quota");
}

detail::Block* BufferPool::take(std::size_t size) noexcept {
  if (detail::planted("pool-memory")) return nullptr;
  const std::size_t index = class_of(size);
  detail::Block* block = free_lists_[index];
  if (block) {
    free_lists_[index] = block->next;
    free_ -= block->capacity;
    block->references = 1;
    block->next = nullptr;
  } else {
    block = allocate_block(class_size(index));
    if (!block) return nullptr;
    block->home = &home_;
    block->pool = this;
    block->dispose = &BufferPool::dispose;
  }
  block->charged = block->capacity;
  used_ += block->charged;
  ++outstanding_;
  return block;
}

void BufferPool::dispose(detail::Block* block) noexcept {
  BufferPool& pool = *block->pool;
  pool.used_ -= block->charged;
  --pool.outstanding_;
  if (pool.free_ + block->capacity <= pool.options_.keep_bytes) {
    detail::Block*& list = pool.free_lists_[class_of(block->capacity)];
    block->next = list;
    list = block;
    pool.free_ += block->capacity;
  } else {
    free_block(block);
  }
  pool.wake_waiters();
}

void BufferPool::enqueue(AllocateAwaiter& waiter) noexcept {
  waiters_.push_back(waiter);
  home_.memory_waiters_.store(home_.memory_waiters_.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
}

void BufferPool::dequeued() noexcept {
  home_.memory_waiters_.store(home_.memory_waiters_.load(std::memory_order_relaxed) - 1,
                              std::memory_order_relaxed);
}

void BufferPool::wake_waiters() noexcept {
  while (!waiters_.empty() && fits(waiters_.front().size_)) {
    AllocateAwaiter& waiter = waiters_.front();
    detail::Block* const block = take(waiter.size_);
    waiter.refused_ = !block;
    if (block) waiter.result_ = Buffer::adopt(block, block->data, waiter.size_);
    waiter.wake();
    dequeued();
  }
}

Result<Buffer> BufferPool::try_allocate(std::size_t size) {
  // Those who wait come first.
  if (!fits_ever(size)) return too_large(size);
  const bool room = waiters_.empty() && fits(size);
  if (room) {
    if (detail::Block* const block = take(size)) return Buffer::adopt(block, block->data, size);
  }
  ++exhausted_count_;
  return room ? refused(size) : exhausted(size);
}

BufferPool::AllocateAwaiter BufferPool::allocate(std::size_t size, Time deadline) {
  return AllocateAwaiter(*this, size, deadline);
}

bool BufferPool::AllocateAwaiter::await_ready() {
  if (!pool_.fits_ever(size_)) throw pool_.too_large(size_);
  if (!pool_.waiters_.empty() || !pool_.fits(size_)) return false;
  detail::Block* const block = pool_.take(size_);
  refused_ = !block;
  if (block) result_ = Buffer::adopt(block, block->data, size_);
  return true;
}

Buffer BufferPool::AllocateAwaiter::await_resume() {
  if (refused_ || (promise() && outcome() == Outcome::timed_out)) {
    ++pool_.exhausted_count_;
    throw refused_ ? pool_.refused(size_) : pool_.exhausted(size_);
  }
  if (promise()) throw_unless_woken("allocate from a buffer pool");
  return std::move(result_);
}

// Whoever stood behind it may need less.
void BufferPool::AllocateAwaiter::left(Waiter& self) noexcept {
  BufferPool& pool = static_cast<AllocateAwaiter&>(self).pool_;
  pool.dequeued();
  pool.wake_waiters();
}

BufferPool::Usage BufferPool::usage() const noexcept {
  return {used_, options_.quota_bytes, free_, waiters_.size(), exhausted_count_};
}

}  // namespace hyperframes
