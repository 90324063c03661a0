#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/reactor/uring.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <optional>
#include <thread>

#include "captured_log.hpp"

using namespace hyperframes;

namespace {

/// One shard on io_uring whose turns the test calls.
class Ring {
 public:
  explicit Ring(UringOptions options = {}) {
    std::vector<std::unique_ptr<Reactor>> reactors;
    reactors.push_back(make_uring_reactor(options));
    runtime_ = std::make_unique<Runtime>(Runtime::Options{.shards = 1}, std::move(reactors),
                                         make_thread_offload(1));
  }
  Shard& shard() { return runtime_->shard(0); }
  Reactor& reactor() { return shard().reactor(); }
  template <class Function>
  decltype(auto) on_shard(Function function) {
    CurrentShard here(shard());
    return function();
  }
  /// Turns until nothing is in flight; false if that does not come.
  bool settle() {
    for (int i = 0; i < 2000 && reactor().in_flight() > 0; ++i) {
      shard().turn();
      if (reactor().in_flight() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return reactor().in_flight() == 0;
  }
  void end() { runtime_.reset(); }

 private:
  std::unique_ptr<Runtime> runtime_;
};

/// Waits for one operation, outside of any task.
struct Owner final : Completion {
  void on_complete(Operation&, std::int64_t got, bool more) noexcept override {
    result = got;
    ended = !more;
    ++calls;
    if (act) act();
  }
  std::optional<std::int64_t> result;
  bool ended = false;
  int calls = 0;
  std::function<void()> act;
};

struct Ends {
  Ends() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) == 0); }
  ~Ends() {
    ::close(both[0]);
    ::close(both[1]);
  }
  int both[2];
};

Operation* receive_from(int descriptor, Completion& owner, std::size_t size = 16) {
  Operation* operation = Operation::create(Operation::Kind::receive, descriptor);
  operation->memory.push_back(Buffer::heap(size));
  operation->owner = &owner;
  return operation;
}

std::string contents_of(const char* path) {
  const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
  char bytes[256];
  const auto size = ::read(descriptor, bytes, sizeof bytes);
  ::close(descriptor);
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

/// Address space without memory behind it: pages come as they are touched.
struct Reserved : detail::Block {
  explicit Reserved(std::size_t size) {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    data = static_cast<std::byte*>(memory);
    capacity = size;
    atomic_count = true;
    dispose = [](Block* block) noexcept {
      ::munmap(block->data, block->capacity);
      delete static_cast<Reserved*>(block);
    };
  }
};

Buffer reserved(std::size_t size) {
  auto* block = new Reserved(size);
  return Buffer::adopt(block, block->data, size);
}

constexpr std::size_t four_gib = std::size_t{4} << 30;

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("more operations than the submission queue has room for all end") {
  Ring ring({.entries = 4});
  std::vector<Ends> ends(100);
  std::vector<Owner> owners(100);
  ring.on_shard([&] {
    for (std::size_t i = 0; i < ends.size(); ++i)
      ring.reactor().start(receive_from(ends[i].both[0], owners[i]));
  });
  for (auto& end : ends) REQUIRE(::write(end.both[1], "hello", 5) == 5);
  CHECK(ring.settle());
  for (auto& owner : owners) CHECK(owner.result == 5);
}

TEST_CASE("more cancellations than the submission queue has room for all end") {
  Ring ring({.entries = 4});
  Ends ends;
  std::vector<Owner> owners(100);
  ring.on_shard([&] {
    std::vector<Operation*> started;
    for (auto& owner : owners) started.push_back(receive_from(ends.both[0], owner));
    for (Operation* operation : started) ring.reactor().start(operation);
    for (Operation* operation : started) ring.reactor().cancel(operation);
  });
  CHECK(ring.settle());
  for (auto& owner : owners) CHECK(owner.result == -ECANCELED);
}

TEST_CASE("operations that the kernel refuses to take end with its error") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    Ring ring({.entries = 4});
    Ends ends;
    std::vector<Owner> owners(20);
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{4, filter};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      ::_exit(99);
    ring.on_shard([&] {
      for (auto& owner : owners) ring.reactor().start(receive_from(ends.both[0], owner));
    });
    bool good = ring.settle();
    for (auto& owner : owners) good = good && owner.result == -EPERM && owner.calls == 1;
    ring.end();
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
    SKIP("this process may not set up a seccomp filter");
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a descriptor's number may be another file's as soon as it is closed") {
  Ring ring;
  for (const char* name : {"uring_test_first.tmp", "uring_test_other.tmp"})
    ::close(::open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const int first = ::open("uring_test_first.tmp", O_RDWR | O_CLOEXEC);
  const int other = ::open("uring_test_other.tmp", O_RDWR | O_CLOEXEC);
  ring.on_shard([&] {
    Operation* operation = Operation::create(Operation::Kind::write, first);
    operation->memory.push_back(Buffer::copy_of("meant for the first"));
    ring.reactor().start(operation);
    ring.reactor().close_now(first);
    REQUIRE(::dup2(other, first) == first);
  });
  CHECK(ring.settle());
  CHECK(contents_of("uring_test_other.tmp").empty());
  ::close(first);
  ::close(other);
  ::unlink("uring_test_first.tmp");
  ::unlink("uring_test_other.tmp");
}

TEST_CASE("the driver says when a poll may hand over or deliver something, and only then") {
  Ring ring;
  Ends ends;
  Owner owner;
  ring.shard().turn();
  CHECK_FALSE(ring.reactor().has_news());
  ring.on_shard([&] { ring.reactor().start(receive_from(ends.both[0], owner)); });
  CHECK(ring.reactor().has_news());
  ring.shard().turn();
  CHECK_FALSE(ring.reactor().has_news());
  REQUIRE(::write(ends.both[1], "hello", 5) == 5);
  CHECK(ring.reactor().has_news());
  ring.shard().turn();
  CHECK(owner.result == 5);
  CHECK_FALSE(ring.reactor().has_news());
}

TEST_CASE("slow owners of completions hold a turn up by one of them, not by all") {
  Ring ring;
  std::vector<Ends> ends(50);
  std::vector<Owner> owners(50);
  int told = 0;
  for (auto& owner : owners)
    owner.act = [&] {
      ++told;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
  ring.on_shard([&] {
    for (std::size_t i = 0; i < ends.size(); ++i)
      ring.reactor().start(receive_from(ends[i].both[0], owners[i]));
    ring.reactor().poll();
  });
  for (auto& end : ends) REQUIRE(::write(end.both[1], "hello", 5) == 5);
  ring.shard().turn();
  CHECK(told <= 1);
  CHECK(ring.settle());
  CHECK(told == 50);
}

TEST_CASE("an owner of a completion that gets stuck is reported as a stall") {
  test::CapturedLog log;
  Runtime runtime({.shards = 1, .stall_threshold = 20ms});
  Ends ends;
  Owner owner;
  std::atomic<bool> done{false};
  owner.act = [&] {
    for (int i = 0; i < 5000 && runtime.stall_count() == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    done = true;
  };
  runtime.on_every_shard(
      [&](Shard& shard) { shard.reactor().start(receive_from(ends.both[0], owner)); });
  REQUIRE(::write(ends.both[1], "hello", 5) == 5);
  while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(runtime.stall_count() >= 1);
  CHECK(log.text().find("shard 0 has been in one turn for") != std::string::npos);
}

TEST_CASE("who waits for an operation outside of any task is told when the runtime stops") {
  Ends ends;
  Owner receiving, streaming;
  Runtime runtime({.shards = 1});
  runtime.on_every_shard([&](Shard& shard) {
    shard.reactor().start(receive_from(ends.both[0], receiving));
    Operation* stream = Operation::create(Operation::Kind::receive_stream, ends.both[1]);
    stream->owner = &streaming;
    shard.reactor().start(stream);
  });
  CHECK(runtime.stop(1s).clean);
  CHECK(receiving.result == -ECANCELED);
  CHECK(receiving.ended);
  CHECK(streaming.ended);
  // What is begun now is too late, and ends as well.
  Owner late;
  runtime.on_every_shard(
      [&](Shard& shard) { shard.reactor().start(receive_from(ends.both[0], late)); });
  runtime.on_every_shard([](Shard&) {});
  CHECK(late.result == -ECANCELED);
}

TEST_CASE("memory that the kernel does not let go of is kept, and the runtime ends") {
  const int faults = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  uffdio_api api{};
  api.api = UFFD_API;
  if (faults < 0 || ::ioctl(faults, UFFDIO_API, &api) != 0)
    SKIP("this process may not handle page faults, so no operation can be made to hang");
  // A read hangs in the kernel for as long as nobody gives it the page that it writes to.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  test::CapturedLog log;
  auto* block = new Reserved(page);
  static std::atomic<bool> gone;
  gone = false;
  block->dispose = [](detail::Block*) noexcept { gone = true; };
  uffdio_register watched{};
  watched.range = {reinterpret_cast<std::uintptr_t>(block->data), page};
  watched.mode = UFFDIO_REGISTER_MODE_MISSING;
  REQUIRE(::ioctl(faults, UFFDIO_REGISTER, &watched) == 0);
  // Whoever waits for the kernel here would wait for this.
  std::atomic<bool> over{false}, gave_up{false};
  uffdio_zeropage give{};
  give.range = watched.range;
  std::thread releaser([&] {
    for (int i = 0; i < 20'000 && !over; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gave_up = !over;
    ::ioctl(faults, UFFDIO_ZEROPAGE, &give);
  });
  {
    Runtime runtime({.shards = 1});
    Buffer into = Buffer::adopt(block, block->data, page);
    runtime.on_every_shard([&](Shard& shard) {
      shard.spawn(co_invoke([into = std::move(into)]() -> Task<void> {
        File file = co_await File::open("/proc/self/status", File::Mode::read);
        co_await file.read_at(0, into);
      }));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK_FALSE(runtime.stop(10ms).clean);
  }
  over = true;
  CHECK_FALSE(gone);
  releaser.join();
  CHECK_FALSE(gave_up);
  CHECK(log.text().find("read a file '/proc/") != std::string::npos);
  ::close(faults);
}

TEST_CASE("a buffer of 4 GiB is sent and received like any other") {
  Runtime runtime({.shards = 1, .stop_deadline = 100ms});
  auto sends = [](Runtime&) -> Task<std::size_t> {
    Ends ends;
    Socket near = Socket::adopt(::dup(ends.both[0]), {});
    Socket far = Socket::adopt(::dup(ends.both[1]), {});
    Scope scope;
    scope.spawn(near.send(Segments(reserved(four_gib))));
    Buffer chunk;
    try {
      chunk = co_await far.receive(after(timing().scaled(2s)));
    } catch (const Error&) {
    }
    scope.cancel();
    try {
      co_await scope.join();
    } catch (const Error&) {
    }
    co_return chunk.size();
  };
  CHECK(runtime.run(sends) > 0);
  auto receives = [](Runtime&) -> Task<std::string> {
    Ends ends;
    Socket far = Socket::adopt(::dup(ends.both[1]), {});
    try {
      co_await with_deadline(far.receive_exactly(reserved(four_gib)), after(50ms));
    } catch (const Error& error) {
      co_return error.is(Errc::deadline_exceeded) ? "waits" : error.what();
    }
    co_return "filled";
  };
  CHECK(runtime.run(receives) == "waits");
}

TEST_CASE("files and listeners that end off the shards are closed") {
  Runtime runtime({.shards = 1});
  const std::size_t before = open_descriptors();
  {
    File file;
    Listener listener;
    runtime.run([&](Runtime&) -> Task<void> {
      file = co_await File::open("uring_test_file.tmp", File::Mode::create);
      listener = Listener::bind(*Address::parse("127.0.0.1", 0));
    });
    CHECK(open_descriptors() == before + 2);
  }
  CHECK(open_descriptors() == before);
  ::unlink("uring_test_file.tmp");
}
