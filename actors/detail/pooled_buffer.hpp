// Small buffers from a shard's size classes, for requests and replies.
#pragma once

#include <cstddef>
#include <hyperframes/runtime/buffer.hpp>

namespace hyperframes::detail {

/// `size` bytes with indeterminate contents, 16-byte aligned, outside every pool's quota: what they
/// belong to is bounded by mailboxes. Throws std::bad_alloc.
Buffer pooled_buffer(std::size_t size);

}  // namespace hyperframes::detail
