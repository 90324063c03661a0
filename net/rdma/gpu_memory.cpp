#include <hyperframes/net/rdma/gpu_memory.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/runtime/error.hpp>
#include <span>
#include <string>

namespace hyperframes::net::detail {
namespace {

// The kernel's rule: a device's pages are set up from where the range begins in one.
void check(const GpuMemory& memory, const std::string& tried) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (memory.bytes == 0) throw Error(Errc::invalid_argument, tried, "there are none");
  if (memory.dma_buf >= 0 && memory.address % page != memory.offset % page)
    throw Error(Errc::invalid_argument, tried,
                "the address is " + std::to_string(memory.address % page) +
                    " bytes into a page, and its offset in the dma-buf " +
                    std::to_string(memory.offset % page),
                "give the offset from where the range begins that the dma-buf was made of");
}

std::string remedy_for_dma_buf(int failure) {
  if (failure == EBADF || failure == EINVAL)
    return "give a descriptor, an offset and a size that belong to one allocation";
  return "register less at a time, or see whether the GPU's BAR is as large as its memory: "
         "'hyperframes doctor', group gpu";
}

std::string remedy_for_address(int failure) {
  if (failure == ENOMEM)
    return "the limit of locked memory is " + memlock_limit() +
           ": ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit file; or see "
           "whether the GPU's BAR is as large as its memory: 'hyperframes doctor', group gpu";
  return "modprobe nvidia_peermem, or use NVIDIA's open kernel modules on Linux 5.12 or newer: "
         "'hyperframes doctor', group gpu";
}

}  // namespace

bool takes_dma_bufs(VerbsDevice& device) noexcept {
  int failure = 0;
  (void)device.register_shared({.descriptor = -1, .offset = 0, .bytes = 1, .address = 0}, false,
                               failure);
  return failure != EOPNOTSUPP;
}

std::unique_ptr<VerbsMemory> register_gpu_memory(VerbsDevice& device, const GpuMemory& memory,
                                                 bool writable) {
  const std::string tried =
      "register " + std::to_string(memory.bytes) + " bytes of a GPU with " + device.name();
  check(memory, tried);
  int by_dma_buf = EOPNOTSUPP, by_address = 0;
  if (memory.dma_buf >= 0) {
    auto shared = device.register_shared(
        {memory.dma_buf, memory.offset, memory.bytes, memory.address}, writable, by_dma_buf);
    if (shared) return shared;
  }
  const std::span<std::byte> range(reinterpret_cast<std::byte*>(memory.address), memory.bytes);
  if (auto registered = device.register_memory(range, writable, by_address)) return registered;
  if (by_dma_buf == 0) by_dma_buf = EIO;
  if (by_address == 0) by_address = EIO;
  const std::string found =
      (memory.dma_buf < 0 ? "it has no dma-buf"
                          : std::string("by its dma-buf: ") + std::strerror(by_dma_buf)) +
      "; by its address: " + std::strerror(by_address);
  // Where dma-bufs are taken the address fails for want of the module, which nobody needs there.
  if (by_dma_buf != EOPNOTSUPP)
    throw Error::system(by_dma_buf, tried, found, remedy_for_dma_buf(by_dma_buf));
  throw Error::system(by_address, tried, found, remedy_for_address(by_address));
}

}  // namespace hyperframes::net::detail
