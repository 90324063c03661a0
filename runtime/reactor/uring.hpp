// The io_uring driver.
//
//   auto reactor = hf::make_uring_reactor();     // on the thread that will run the shard
//
// One ring a shard, set up for a single issuer whose completions run when it asks for them.
// Received streams come from a ring of provided buffers, so that an idle connection holds none.
#pragma once

#include <hyperframes/runtime/reactor.hpp>
#include <memory>

namespace hyperframes {

struct UringOptions {
  unsigned entries = 1024;        ///< Submissions queued before the kernel is entered.
  unsigned receive_chunks = 256;  ///< Provided buffers; a power of two.
  std::size_t receive_chunk_bytes = 16 << 10;
  Duration deliver_time_limit = std::chrono::microseconds(500);  ///< After which a poll returns.
};

/// Throws Errc::unsupported with the setting that forbids it and the value it needs: a sysctl, a
/// seccomp filter, the memlock limit, or a kernel before 6.0.
std::unique_ptr<Reactor> make_uring_reactor(UringOptions options = {});

}  // namespace hyperframes
