#include <hyperframes/net/shm/segment.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <iterator>
#include <optional>
#include <sstream>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace hyperframes::net::detail {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr std::size_t huge_page_bytes = 2u << 20;
constexpr std::uint64_t block_bytes = 512;  // of st_blocks

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Kernels before 6.3 don't know the flag, and some are set up to want it.
OwnDescriptor make_memfd(unsigned flags) noexcept {
  flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int made = ::memfd_create("hyperframes-shm", flags | MFD_NOEXEC_SEAL);
  if (made < 0 && errno == EINVAL) made = ::memfd_create("hyperframes-shm", flags);
  return OwnDescriptor(made);
}

std::string kernel_release() {
  utsname system{};
  return ::uname(&system) == 0 ? system.release : "";
}

/// 0, or the errno of what failed.
int allocate(int descriptor, std::size_t size) noexcept {
  // Beyond this limit the kernel sends a signal that ends the process.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) return EFBIG;
  if (::ftruncate(descriptor, static_cast<off_t>(size)) < 0) return errno;
  int result;
  do {
    result = ::fallocate(descriptor, 0, 0, static_cast<off_t>(size));
  } while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

Error no_memory(int failure, const std::string& tried, std::size_t size) {
  const std::string found = failure == EMFILE || failure == ENFILE
                                ? ""
                                : "the system refused " + std::to_string(size) + " bytes";
  const std::string remedy =
      failure == EMFILE || failure == ENFILE ? "raise the open-files limit (ulimit -n)"
      : failure == EFBIG                     ? "raise the file-size limit (ulimit -f)"
                         : "give the host or the container more memory, or use fewer shards";
  return Error::system(failure, tried, found, remedy);
}

std::optional<std::uint64_t> number_in(const std::string& text) {
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;  // "max", or there is no such file
  return value;
}

// Where there is too little the kernel refuses nothing: it kills.
void require_memory(std::size_t bytes, const std::string& tried) {
  if (std::string lack = lack_in_host(bytes, read_file("/proc/meminfo")); !lack.empty())
    throw Error(Errc::exhausted, tried, std::move(lack), "ask for less, or end what holds it");
  if (std::string lack = lack_in_cgroup(bytes, "/sys/fs/cgroup", read_file("/proc/self/cgroup"));
      !lack.empty())
    throw Error(Errc::exhausted, tried, std::move(lack),
                "raise memory.max of that cgroup (the container's memory limit)");
}

/// Memory that the kernel takes back rather than refuse somebody else.
std::uint64_t reclaimable(const std::string& statistics) {
  std::istringstream lines(statistics);
  std::string name;
  std::uint64_t value = 0, sum = 0;
  while (lines >> name >> value)
    if (name == "active_file" || name == "inactive_file" || name == "slab_reclaimable")
      sum += value;
  return sum;
}

}  // namespace

void OwnDescriptor::reset() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

bool seals_huge_pages(const std::string& release) {
  unsigned version = 0, revision = 0;
  if (std::sscanf(release.c_str(), "%u.%u", &version, &revision) != 2) return false;
  return version > 5 || (version == 5 && revision >= 13);
}

std::string lack_in_cgroup(std::size_t bytes, const std::string& root, const std::string& own) {
  const auto at = own.find("0::/");
  if (at == own.npos) return {};
  std::string path = own.substr(at + 3, own.find('\n', at) - at - 3);
  while (true) {
    if (path.ends_with('/')) path.pop_back();
    const std::string folder = root + path;
    const auto limit = number_in(read_file(folder + "/memory.max"));
    const auto used = number_in(read_file(folder + "/memory.current"));
    if (limit && used) {
      const std::uint64_t held =
          *used - std::min(*used, reclaimable(read_file(folder + "/memory.stat")));
      if (held > *limit || *limit - held < bytes)
        return "the memory cgroup " + (path.empty() ? "/" : path) + " may have " +
               std::to_string(*limit) + " bytes and holds " + std::to_string(held);
    }
    if (path.empty()) return {};
    path.resize(path.rfind('/'));
  }
}

std::string lack_in_host(std::size_t bytes, const std::string& memory) {
  const std::string name = "MemAvailable:";
  const auto at = memory.find(name);
  if (at == memory.npos) return {};
  const std::uint64_t available = std::strtoull(memory.c_str() + at + name.size(), nullptr, 10)
                                  << 10;
  if (bytes <= available) return {};
  return "the host has " + std::to_string(available) + " bytes available";
}

ShmSegment::~ShmSegment() {
  if (memory_) ::munmap(memory_, size_);
}

void ShmSegment::swap(ShmSegment& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(huge_, other.huge_);
}

// A forked child has no business there, and none of its writes reaches the peer.
void ShmSegment::map(int protection, const std::string& tried) {
  void* const memory =
      ::mmap(nullptr, size_, protection, MAP_SHARED | MAP_POPULATE, descriptor_.get(), 0);
  if (memory == MAP_FAILED)
    throw Error::system(errno, tried, "mapping " + std::to_string(size_) + " bytes failed",
                        "raise the limit of address space (ulimit -v), or use fewer shards");
  memory_ = static_cast<std::byte*>(memory);
  ::madvise(memory_, size_, MADV_DONTFORK);
}

ShmSegment ShmSegment::create(std::size_t bytes, bool huge_pages, const std::string& purpose) {
  ShmSegment segment;
  segment.size_ = bytes;
  const std::string tried =
      "allocate " + std::to_string(segment.size_) + " bytes of memory to " + purpose;
  if (huge_pages && segment.size_ % huge_page_bytes == 0 && seals_huge_pages(kernel_release())) {
    segment.descriptor_ = make_memfd(MFD_HUGETLB | MFD_HUGE_2MB);
    segment.huge_ = segment.descriptor_ && allocate(segment.descriptor(), segment.size_) == 0;
  }
  if (!segment.huge_) {
    require_memory(segment.size_, tried);
    segment.descriptor_ = make_memfd(0);
    if (!segment.descriptor_) throw no_memory(errno, tried, segment.size_);
    if (const int failure = allocate(segment.descriptor(), segment.size_))
      throw no_memory(failure, tried, segment.size_);
  }
  hyperframes::detail::pass_failpoint_now("shm-allocated");
  segment.map(PROT_READ | PROT_WRITE, tried);
  if (::fcntl(segment.descriptor(), F_ADD_SEALS, seals) < 0)
    throw Error(
        Errc::unsupported, tried,
        "the kernel does not seal memory against writers: " + std::system_category().message(errno),
        "use Linux 5.1 or newer");
  return segment;
}

namespace {

Error broken_promise(const std::string& tried, std::string found) {
  return Error(Errc::corrupt, tried, std::move(found),
               "the connection was closed; run the same release on both ends");
}

}  // namespace

ShmSegment ShmSegment::attach(OwnDescriptor descriptor, const ShmLayout& layout,
                              const std::string& tried) {
  if (auto fault = layout.fault(); !fault.empty()) throw broken_promise(tried, std::move(fault));
  return attach(std::move(descriptor), layout.bytes(), tried);
}

ShmSegment ShmSegment::attach(OwnDescriptor descriptor, std::size_t bytes,
                              const std::string& tried) {
  const auto refuse = [&](std::string found) -> void {
    throw broken_promise(tried, std::move(found));
  };
  const int found = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (found < 0) refuse("the descriptor that it passed is no memfd");
  if ((found & seals) != seals)
    refuse("its memory could change its size or be written by others: the seals are " +
           std::to_string(found) + " and not " + std::to_string(seals));
  ShmSegment segment;
  segment.size_ = bytes;
  struct stat status{};
  if (::fstat(descriptor.get(), &status) < 0) throw Error::system(errno, tried);
  if (static_cast<std::uint64_t>(status.st_size) != segment.size_)
    refuse("its memory has " + std::to_string(status.st_size) + " bytes instead of " +
           std::to_string(segment.size_));
  const auto allocated = static_cast<std::uint64_t>(status.st_blocks) * block_bytes;
  if (allocated < segment.size_)
    refuse("of its " + std::to_string(segment.size_) + " bytes of memory only " +
           std::to_string(allocated) + " are there");
  segment.huge_ = static_cast<std::size_t>(status.st_blksize) >= huge_page_bytes;
  segment.descriptor_ = std::move(descriptor);
  segment.map(PROT_READ, tried);
  segment.close_descriptor();
  return segment;
}

}  // namespace hyperframes::net::detail
