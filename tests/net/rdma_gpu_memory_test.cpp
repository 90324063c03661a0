// A GPU's memory as an RDMA device sees it: no GPU is needed, only what its driver would give.
#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <hyperframes/net/rdma/gpu_memory.hpp>
#include <string>
#include <system_error>

#include "error_of.hpp"
#include "fake_verbs.hpp"
#include "rdma_ends.hpp"
#include "support.hpp"

using namespace net_test;
using net::detail::GpuMemory;
using net::detail::register_gpu_memory;
using net::detail::takes_dma_bufs;

namespace {

// 1 MiB, of which an allocation that begins 64 KiB before was given as a dma-buf.
constexpr GpuMemory some{
    .address = 0x7f0000210000, .bytes = 1 << 20, .dma_buf = 5, .offset = 64 << 10};

}  // namespace

TEST_CASE("a GPU's memory is registered by its dma-buf, at its offset, under its own address") {
  FakeVerbs verbs;
  const auto device = verbs.open("fake0");
  CHECK(takes_dma_bufs(*device));
  CHECK(verbs.counts().memories == 0);
  const auto memory = register_gpu_memory(*device, some, true);
  REQUIRE(memory);
  const auto shared = verbs.counts().last_shared;
  CHECK(shared.descriptor == 5);
  CHECK(shared.offset == 64 << 10);
  CHECK(shared.bytes == 1 << 20);
  CHECK(shared.address == 0x7f0000210000);
  CHECK(verbs.is_landing({reinterpret_cast<const std::byte*>(some.address + 4096), 512}));
}

TEST_CASE("where no dma-buf is taken a GPU's memory is registered by its address") {
  FakeVerbs verbs;
  const auto device = verbs.open("fake0");
  verbs.set([](auto& faults) { faults.shared = EOPNOTSUPP; });
  CHECK_FALSE(takes_dma_bufs(*device));
  CHECK(register_gpu_memory(*device, some, false));
  verbs.set([](auto& faults) { faults.shared = 0; });
  const int asked = verbs.counts().shared_registrations;
  CHECK(asked == 2);
  auto without = some;
  without.dma_buf = -1;
  CHECK(register_gpu_memory(*device, without, false));
  CHECK(verbs.counts().shared_registrations == asked);
}

TEST_CASE("a GPU's memory that can't be registered says what became of both ways, and what helps") {
  FakeVerbs verbs;
  const auto device = verbs.open("fake0");
  const auto refused = [&](int shared, int by_address, GpuMemory memory = some) {
    verbs.set([=](auto& faults) {
      faults.shared = shared;
      faults.registration = by_address;
    });
    return error_of([&] { (void)register_gpu_memory(*device, memory, false); });
  };
  const auto none = refused(EOPNOTSUPP, EFAULT);
  CHECK(none.code() == std::errc::bad_address);
  CHECK(has(none.tried(), "register 1048576 bytes of a GPU with fake0"));
  CHECK(none.found() == "by its dma-buf: Operation not supported; by its address: Bad address");
  CHECK(has(none.remedy(), "modprobe nvidia_peermem"));
  const auto full = refused(ENOMEM, EFAULT);
  CHECK(full.code() == std::errc::not_enough_memory);
  CHECK(has(full.remedy(), "BAR"));
  CHECK(has(refused(EINVAL, EFAULT).remedy(), "belong to one allocation"));
  CHECK(has(refused(EOPNOTSUPP, ENOMEM).remedy(), "the limit of locked memory is "));
  auto without = some;
  without.dma_buf = -1;
  CHECK(refused(0, EFAULT, without).found() == "it has no dma-buf; by its address: Bad address");
  CHECK(verbs.counts().memories == 0);
}

TEST_CASE("a GPU's memory that makes no sense is refused before a device is asked") {
  FakeVerbs verbs;
  const auto device = verbs.open("fake0");
  auto memory = some;
  memory.offset += 8;
  const auto shifted = error_of([&] { (void)register_gpu_memory(*device, memory, false); });
  CHECK(shifted.is(hf::Errc::invalid_argument));
  CHECK(has(shifted.found(), "0 bytes into a page, and its offset in the dma-buf 8"));
  memory = some;
  memory.bytes = 0;
  CHECK(error_of([&] {
          (void)register_gpu_memory(*device, memory, false);
        }).is(hf::Errc::invalid_argument));
  CHECK(verbs.counts().shared_registrations == 0);
}

// A software device takes no dma-buf, and any of the host's addresses: as with nvidia_peermem.
TEST_CASE("a real device says whether it takes dma-bufs, and registers by the address if not",
          "[device]") {
  if (Over::verbs()) return;
  auto& library = net::detail::system_verbs();
  const auto device = library.open(library.devices().at(0));
  net::detail::VerbsLimits limits;
  REQUIRE(device->limits(limits) == 0);
  if (limits.emulated) CHECK_FALSE(takes_dma_bufs(*device));
  constexpr std::size_t bytes = 1 << 20;
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  GpuMemory memory{.address = reinterpret_cast<std::uint64_t>(at), .bytes = bytes};
  CHECK(register_gpu_memory(*device, memory, true)->key() != 0);
  memory.dma_buf = STDERR_FILENO;  // which is none
  CHECK(register_gpu_memory(*device, memory, true)->key() != 0);
  CHECK(::munmap(at, bytes) == 0);
}
