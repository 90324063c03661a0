// A GPU's memory, registered with an RDMA device, so that the device reaches it where it lies.
//
//   const GpuMemory memory{.address = at, .bytes = size, .dma_buf = fd, .offset = at - base};
//   auto registered = register_gpu_memory(device->verbs(), memory, true);   // blocks
//   registered->key();                                // for requests that name addresses of it
//
// A device can be led there in two ways, and a host may have either, both or none:
//
//  - The GPU's driver shares an allocation with other drivers by a descriptor, a dma-buf. Linux
//    5.12, rdma-core 34, the card's driver, and of NVIDIA's the open kernel modules. CUDA gives the
//    descriptor for a range that begins and ends with pages (cuMemGetHandleForAddressRange), so the
//    memory that is meant begins somewhere in it: that is `offset`.
//  - A kernel module that knows both drivers (nvidia_peermem) makes the GPU's addresses ones that
//    can be registered as the host's can.
//
// The first is tried first, since what it registers can't be freed under the device. Either is
// slow, and takes room of the GPU's BAR: register an allocation once, and use parts of it.
#pragma once

#include <cstdint>
#include <hyperframes/net/rdma/verbs.hpp>
#include <memory>

namespace hyperframes::net::detail {

struct GpuMemory {
  std::uint64_t address = 0;  ///< As the GPU's driver has it. Requests name bytes by it.
  std::uint64_t bytes = 0;
  int dma_buf = -1;  ///< Stays the caller's, who may close it afterwards. -1: there is none.
  std::uint64_t offset = 0;  ///< Where in that `address` is.
};

/// Whether the library, the kernel and the device's driver take dma-bufs, found by offering a
/// descriptor that is none. Asks the kernel.
bool takes_dma_bufs(VerbsDevice& device) noexcept;

/// `writable`: by peers too, that get its key. The memory outlives what is returned. Throws
/// Errc::invalid_argument if it is empty, or address and offset are at different places of a page;
/// else the system's error, with what became of either way. Blocks.
std::unique_ptr<VerbsMemory> register_gpu_memory(VerbsDevice& device, const GpuMemory& memory,
                                                 bool writable);

}  // namespace hyperframes::net::detail
