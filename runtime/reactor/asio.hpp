// The asio driver: readiness from epoll, for where io_uring is forbidden.
//
//   if (hf::has_asio_reactor()) reactor = hf::make_asio_reactor();   // on the shard's thread
//
// A loop of its own, for a shard that has a thread. Shards on the io_context of a program that runs
// on asio already are runtime/asio.hpp's. The kernel never holds memory of an operation, so
// cancelling one ends it at once; files are read and written on the Offload executor.
#pragma once

#include <cstddef>
#include <hyperframes/runtime/reactor.hpp>
#include <memory>

namespace hyperframes {

struct AsioReactorOptions {
  std::size_t receive_chunks =
      256;  ///< Memory for received streams: at most so many are out at once.
  std::size_t receive_chunk_bytes = 16 << 10;
  Duration deliver_time_limit = std::chrono::microseconds(500);  ///< After which a poll returns.
};

/// Whether this build has the driver: it is left out where asio was not found.
bool has_asio_reactor() noexcept;

/// Throws Errc::unsupported if the driver is not built, and the system's error (the open-files
/// limit, mostly) if its loop can't be made.
std::unique_ptr<Reactor> make_asio_reactor(AsioReactorOptions options = {});

}  // namespace hyperframes
