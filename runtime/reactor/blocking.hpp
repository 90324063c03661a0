// System calls that a driver can't do without blocking, run on the shard's Offload executor.
#pragma once

#include <hyperframes/runtime/reactor.hpp>

namespace hyperframes::detail {

/// Whether `kind` is one of them: folders, names, sizes, DNS.
bool is_blocking(Operation::Kind kind) noexcept;

/// Whether `kind` works on an open file or opens one: blocking as well where a driver has no files.
bool is_of_file(Operation::Kind kind) noexcept;

/// Runs `operation` on the current shard's offload executor and completes it on this shard, then
/// subtracts one from `in_flight`, which the caller has counted up and keeps alive.
void start_blocking(Operation* operation, std::size_t& in_flight) noexcept;

/// The call itself: the result, or a negated errno. Fills `names` and `addresses`.
std::int64_t run_blocking(Operation& operation) noexcept;

/// Gives `operation`'s final result to its owner and frees it. Without an owner, a descriptor that
/// it brought is closed by `reactor`.
void finish_operation(Operation* operation, std::int64_t result, Reactor& reactor) noexcept;

}  // namespace hyperframes::detail
