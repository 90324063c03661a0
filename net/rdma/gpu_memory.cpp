#include <hyperframes/net/rdma/gpu_memory.hpp>

#include <cerrno>
#include <cstring>
#include <hyperframes/runtime/error.hpp>
#include <span>
#include <string>

namespace hyperframes::net::detail {
namespace {

// The kernel's rule for dma-bufs; larger pages of a GPU are multiples of it.
constexpr std::uint64_t page = 4096;

void check(const GpuMemory& memory, const std::string& tried) {
  if (memory.bytes == 0) throw Error(Errc::invalid_argument, tried, "there are none");
  if (memory.dma_buf >= 0 && memory.address % page != memory.offset % page)
    throw Error(Errc::invalid_argument, tried,
                "the address is " + std::to_string(memory.address % page) +
                    " bytes into a page, and its offset in the dma-buf " +
                    std::to_string(memory.offset % page),
                "give the offset from where the range begins that the dma-buf was made of");
}

std::string remedy_for(int failure) {
  return failure == ENOMEM || failure == ENOSPC
             ? "register less at a time, or see whether the GPU's BAR is as large as its memory: "
               "'hyperframes doctor', group gpu"
             : "modprobe nvidia_peermem, or use NVIDIA's open kernel modules on Linux 5.12 or "
               "newer: 'hyperframes doctor', group gpu";
}

}  // namespace

// A descriptor that is none is looked at by those who would take one.
bool takes_dma_bufs(VerbsDevice& device) noexcept {
  int failure = 0;
  (void)device.register_shared({.descriptor = -1, .offset = 0, .bytes = page, .address = 0}, false,
                               failure);
  return failure == EBADF;
}

std::unique_ptr<VerbsMemory> register_gpu_memory(VerbsDevice& device, const GpuMemory& memory,
                                                 bool writable) {
  const std::string tried =
      "register " + std::to_string(memory.bytes) + " bytes of a GPU with " + device.name();
  check(memory, tried);
  int shared_failure = 0, failure = 0;
  if (memory.dma_buf >= 0) {
    auto shared = device.register_shared(
        {memory.dma_buf, memory.offset, memory.bytes, memory.address}, writable, shared_failure);
    if (shared) return shared;
  }
  const std::span<std::byte> range(reinterpret_cast<std::byte*>(memory.address), memory.bytes);
  if (auto registered = device.register_memory(range, writable, failure)) return registered;
  const std::string by_dma_buf =
      memory.dma_buf < 0 ? "it has no dma-buf"
                         : std::string("by its dma-buf: ") + std::strerror(shared_failure);
  // By its address it can't be anywhere but with the module; a dma-buf may be short of room.
  const bool has_way = memory.dma_buf >= 0 && shared_failure != EOPNOTSUPP;
  const int number = has_way ? shared_failure : failure;
  throw Error::system(number, tried, by_dma_buf + "; by its address: " + std::strerror(failure),
                      remedy_for(number));
}

}  // namespace hyperframes::net::detail
