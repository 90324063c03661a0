// Links through memory that two processes of one host share.
//
//   auto provider = hf::net::make_shm_provider();
//   auto listener = provider->listen(hf::net::Endpoint::parse("shm://counter"));
//   auto transport = co_await provider->connect(hf::net::Endpoint::parse("shm://counter"),
//   hf::after(1s));
//
// Each byte is copied twice: by the sender into the shared memory, by the receiver out of it,
// before anything looks at it, since the peer can change what it wrote at any time. What lies in
// memory from Network::loan is not copied at all: the receiver has that memory mapped, reads it
// where it is, and says when it has done.
//
// A shard that is awake looks into the memory itself, in every turn; one that sleeps is woken
// through a Unix socket, whose end also says that the peer's process has ended (heartbeats say so
// where a child that it has forked lives on and holds the socket). Nothing has a name in the file
// system, so nothing is left when a process is killed.
//
// Both processes run as one user, under one kernel, and see the same network namespace; process
// namespaces may differ. On both of the system's drivers, not in the simulator.
#pragma once

#include <cstdint>
#include <hyperframes/net/transport.hpp>
#include <memory>

namespace hyperframes::net {

struct ShmOptions {
  /// What a link may have on its way in each direction, in bytes: whole lines of 64, from 4 KiB.
  /// With the default a direction takes 2 MiB, which each process allocates for each of its links.
  std::uint32_t data_bytes = 2028u << 10;
  /// Pieces on their way in each direction: a power of two from 16 to 65536.
  std::uint32_t descriptors = 1024;
  /// On huge pages where some are free (vm.nr_hugepages), and where 2 MiB divide the memory.
  bool huge_pages = true;
};

namespace detail {
class LoanArena;
}

/// `arena`: what it lends from; null: it copies all. Throws Errc::invalid_argument.
std::unique_ptr<TransportProvider> make_shm_provider(
    ShmOptions options = {}, std::shared_ptr<detail::LoanArena> arena = nullptr);

}  // namespace hyperframes::net
