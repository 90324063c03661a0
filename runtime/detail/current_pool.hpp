// The frame pool of the shard whose turn this thread runs: what each allocation of a frame looks
// at.
#pragma once

#include <hyperframes/runtime/detail/frame_pool.hpp>

namespace hyperframes::detail {

/// Null off a shard. Only CurrentShard sets it, and only the pool's own functions, which never
/// suspend, read it.
extern constinit thread_local FramePool* current_frame_pool;

}  // namespace hyperframes::detail
