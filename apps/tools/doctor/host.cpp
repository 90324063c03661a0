#include <hyperframes/apps/tools/doctor/host.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <hyperframes/apps/tools/doctor/card.hpp>
#include <hyperframes/runtime/reactor/asio.hpp>
#include <hyperframes/runtime/reactor/uring.hpp>

namespace hyperframes::tools::doctor {
namespace {

/// What the kernel says before any driver looks at it: io_uring_setup(2) with nothing asked for.
int number_of_refusal() {
  alignas(8) std::array<std::byte, 512> parameters{};  // larger than the kernel's struct
  const long file = ::syscall(SYS_io_uring_setup, 2u, parameters.data());
  if (file < 0) return errno;
  ::close(static_cast<int>(file));
  return 0;
}

std::optional<UringRefusal> try_io_uring() {
  try {
    (void)make_uring_reactor();
    return std::nullopt;
  } catch (const Error& error) {
    return UringRefusal{error, number_of_refusal()};
  }
}

/// With `file` closed whatever happens.
std::optional<Error> try_memory_of(int file) {
  constexpr off_t size = 2 << 20;
  std::optional<Error> refusal;
  const auto refused = [](const char* tried) { return Error::system(errno, tried); };
  void* memory = MAP_FAILED;
  if (::ftruncate(file, size) != 0)
    refusal = refused("give shared memory its size");
  else if (::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    refusal = refused("seal shared memory");
  else if (memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
           memory == MAP_FAILED)
    refusal = refused("map shared memory");
  if (memory != MAP_FAILED) ::munmap(memory, size);
  ::close(file);
  return refusal;
}

std::optional<Error> try_shared_memory() {
  const int file = ::memfd_create("hyperframes-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return Error::system(errno, "make shared memory (memfd_create)");
  return try_memory_of(file);
}

std::optional<Space> space_of(const std::string& folder) {
  struct statvfs space{};
  if (::statvfs(folder.c_str(), &space) != 0) return std::nullopt;
  return Space{static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize,
               static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize};
}

std::optional<ClockState> clock_state() {
  timex state{};  // sets nothing
  const int answer = ::adjtimex(&state);
  if (answer < 0) return std::nullopt;
  return ClockState{answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0,
                    static_cast<std::uint64_t>(state.maxerror)};
}

double clock_read_ns() {
  using Steady = std::chrono::steady_clock;
  constexpr int reads = 2000;
  const auto begin = Steady::now();
  auto last = begin;
  for (int i = 0; i < reads; ++i) last = Steady::now();
  return std::chrono::duration<double, std::nano>(last - begin).count() / reads;
}

std::optional<int> refuses_opening(const std::string& path) {
  if (::access(path.c_str(), R_OK | W_OK) == 0) return std::nullopt;
  return errno;
}

}  // namespace

Host this_host() {
  Host host;
  host.probes = {.try_io_uring = try_io_uring,
                 .try_shared_memory = try_shared_memory,
                 .space_of = space_of,
                 .rings_of = rings_of,
                 .queues_of = queues_of,
                 .pause_of = pause_of,
                 .priorities_of = priorities_of,
                 .clock_state = clock_state,
                 .clock_read_ns = clock_read_ns,
                 .refuses_opening = refuses_opening,
                 .has_asio = has_asio_reactor()};
  return host;
}

}  // namespace hyperframes::tools::doctor
