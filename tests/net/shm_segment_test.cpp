// Memory that is passed to another process: all there, of one size, and nobody else's to write.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <hyperframes/net/shm/segment.hpp>
#include <hyperframes/runtime/error.hpp>
#include <iterator>

using namespace hyperframes::net::detail;
namespace hf = hyperframes;

namespace {

constexpr ShmLayout small{16, 4 << 10};

std::size_t descriptors() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

/// What is wrong with that descriptor as a peer's memory.
std::string objection(int descriptor, const ShmLayout& layout = small) {
  const std::size_t before = descriptors();
  try {
    ShmSegment::attach(OwnDescriptor(descriptor), layout, "attach");
  } catch (const hf::Error& error) {
    CHECK(error.is(hf::Errc::corrupt));
    CHECK(descriptors() == before - 1);  // it was closed
    return error.found();
  }
  return {};
}

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

int memfd(std::size_t size, int seals, bool allocated = true) {
  const int made = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(::ftruncate(made, static_cast<off_t>(size)) == 0);
  if (allocated) REQUIRE(::fallocate(made, 0, 0, static_cast<off_t>(size)) == 0);
  REQUIRE(::fcntl(made, F_ADD_SEALS, seals) == 0);
  return made;
}

constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

}  // namespace

TEST_CASE("what one end writes to its memory the other one sees, and can't write, cut or grow") {
  ShmSegment own = ShmSegment::create(small, true);
  CHECK(own.size() == small.bytes());
  CHECK((::fcntl(own.descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
  const int descriptor = ::dup(own.descriptor());
  const ShmSegment other = ShmSegment::attach(OwnDescriptor(::dup(descriptor)), small, "attach");
  own.close_descriptor();
  CHECK(own.descriptor() == -1);
  std::memset(own.memory(), 42, own.size());
  CHECK(other.memory() != own.memory());
  CHECK(std::memcmp(own.memory(), other.memory(), own.size()) == 0);

  CHECK(::mmap(nullptr, own.size(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) ==
        MAP_FAILED);
  CHECK(::write(descriptor, "x", 1) == -1);
  CHECK(::ftruncate(descriptor, 0) == -1);
  CHECK(::ftruncate(descriptor, 1 << 20) == -1);
  CHECK(::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
  CHECK(::fcntl(descriptor, F_ADD_SEALS, F_SEAL_WRITE) == -1);
  CHECK(::mprotect(other.memory(), other.size(), PROT_READ | PROT_WRITE) == -1);
  ::close(descriptor);
}

TEST_CASE("memory that breaks a promise is not attached, and the error says which") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  CHECK(has(objection(ends[0]), "no memfd"));
  ::close(ends[1]);
  CHECK(has(objection(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), "no memfd"));
  const std::size_t size = small.bytes();
  for (const int seal : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL})
    CHECK(has(objection(memfd(size, all_seals & ~seal)), "seals are"));
  CHECK(has(objection(memfd(size - 4096, all_seals)), "instead of"));
  CHECK(has(objection(memfd(size + 4096, all_seals)), "instead of"));
  CHECK(has(objection(memfd(size, all_seals, false)), "only 0 are there"));
  CHECK(has(objection(memfd(size, all_seals), ShmLayout{17, 4096}), "power of two"));
  CHECK(objection(memfd(size, all_seals)).empty());
}

TEST_CASE("more memory than there is is an error with its size, and leaves nothing behind") {
  const std::size_t before = descriptors();
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit low{1 << 20, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &low);
  std::string text;
  try {
    ShmSegment::create(ShmLayout(), false);
  } catch (const hf::Error& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  INFO(text);
  CHECK(has(text, "2097152 bytes"));
  CHECK(has(text, "ulimit -f"));
  CHECK(descriptors() == before);
}

TEST_CASE("huge pages are taken only where the kernel holds them to their seals") {
  for (const char* release : {"5.13.0", "5.13", "6.1.0-18-amd64", "10.0.1"})
    CHECK(seals_huge_pages(release));
  for (const char* release : {"5.12.19", "5.4.0-150-generic", "4.19.0", "", "unknown"})
    CHECK(!seals_huge_pages(release));
}

TEST_CASE("a child that forks off has none of the memory") {
  const ShmSegment own = ShmSegment::create(small, false);
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char present = 0;
    const int result = ::mincore(own.memory(), 4096, &present);
    ::_exit(result == -1 && errno == ENOMEM ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  own.memory()[0] = std::byte{1};
}

namespace {

/// A folder with the files of memory cgroups.
class Cgroups {
 public:
  Cgroups() : root_("cgroups_" + std::to_string(::getpid())) { std::filesystem::remove_all(root_); }
  ~Cgroups() { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const char* limit, const char* used, const char* statistics) {
    std::filesystem::create_directories(root_ + path);
    std::ofstream(root_ + path + "/memory.max") << limit << "\n";
    std::ofstream(root_ + path + "/memory.current") << used << "\n";
    std::ofstream(root_ + path + "/memory.stat") << statistics;
  }
  std::string lack(std::size_t bytes, const std::string& own) const {
    return lack_in_cgroup(bytes, root_, own);
  }

 private:
  std::string root_;
};

}  // namespace

TEST_CASE("memory that a cgroup would kill for is refused before it is taken") {
  Cgroups groups;
  groups.put("/a", "10000000", "9000000", "anon 5000000\ninactive_file 1000000\n");
  groups.put("/a/b", "max", "8000000", "anon 5000000\n");
  const std::string own = "0::/a/b\n";
  // What it holds of files would make way.
  CHECK(groups.lack(2'000'000, own).empty());
  const std::string lack = groups.lack(2'000'001, own);
  CHECK(has(lack, "cgroup /a "));
  CHECK(has(lack, "10000000"));
  CHECK(has(lack, "8000000"));
  // Where there are none, or none with a limit.
  CHECK(groups.lack(1u << 30, "0::/\n").empty());
  CHECK(groups.lack(1u << 30, "0::/elsewhere/deep\n").empty());
  CHECK(groups.lack(1u << 30, "12:memory:/old\n").empty());
  CHECK(groups.lack(1u << 30, "").empty());
  groups.put("", "1000", "0", "");  // as a container sees its own
  CHECK(has(groups.lack(1001, "0::/\n"), "cgroup / "));
}

TEST_CASE("memory that the host would kill somebody for is refused before it is taken") {
  const std::string memory =
      "MemTotal:    24000000 kB\nMemFree:  10 kB\nMemAvailable:    1000 kB\n";
  CHECK(lack_in_host(1'024'000, memory).empty());
  CHECK(has(lack_in_host(1'024'001, memory), "1024000 bytes available"));
  CHECK(lack_in_host(std::size_t{1} << 50, "").empty());  // it does not say
  // Nobody has so much; what asks for it takes nothing.
  try {
    (void)ShmSegment::create(std::size_t{1} << 45, false, "be refused");
    FAIL("32 TiB were allocated");
  } catch (const hf::Error& error) {
    CHECK(error.is(hf::Errc::exhausted));
    CHECK(has(error.what(), "bytes available"));
  }
}
