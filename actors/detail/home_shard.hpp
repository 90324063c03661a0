// Where a call that comes from outside of all shards begins.
#pragma once

#include <hyperframes/actors/detail/send_waiter.hpp>

namespace hyperframes {
class Shard;

namespace detail {

/// The shard of the actor; for one in another process, that whose link leads to its shard. Null for
/// an empty reference. From any thread.
Shard* home_shard(const Destination& to) noexcept;

}  // namespace detail
}  // namespace hyperframes
