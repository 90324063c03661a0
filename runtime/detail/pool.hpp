// Size-class memory of a shard: coroutine frames and letters come from here.
#pragma once

#include <cstddef>

namespace hyperframes::detail {

/// From the current shard's free lists; off a shard, from the heap. Throws std::bad_alloc.
/// 16-byte aligned.
void* pool_allocate(std::size_t size);
/// On the home shard the block goes onto its free list. Elsewhere it joins a batch that travels
/// home at the end of the turn. Null is fine.
void pool_release(void* block) noexcept;

}  // namespace hyperframes::detail
