#include <hyperframes/actors/detail/pooled_buffer.hpp>

#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>

namespace hyperframes::detail {

Buffer pooled_buffer(std::size_t size) {
  Shard* shard = Shard::current();
  if (!shard) return Buffer::heap(size);
  void* memory = pool_allocate(sizeof(Block) + size);
  auto* block = new (memory) Block();
  block->home = shard;
  block->data = static_cast<std::byte*>(memory) + sizeof(Block);
  block->capacity = size;
  block->dispose = [](Block* self) noexcept { pool_release(self); };
  return Buffer::adopt(block, block->data, size);
}

}  // namespace hyperframes::detail
