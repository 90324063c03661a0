// Where a call that comes from outside of all shards begins.
#pragma once

#include <hyperframes/actors/detail/send_waiter.hpp>

namespace hyperframes {
class Shard;

namespace detail {

class NodeShard;

/// The node's part on the actor's shard; for an actor of another process, on that whose link leads
/// to its shard. Null for an empty reference. From any thread.
NodeShard* home_part(const Destination& to) noexcept;
/// The shard itself.
Shard* home_shard(const Destination& to) noexcept;

}  // namespace detail
}  // namespace hyperframes
