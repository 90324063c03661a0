#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/reactor/asio.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <iterator>
#include <string>

#include "captured_log.hpp"

using namespace hyperframes;

namespace {

/// Makes a system call fail with `error` in this process from now on.
void deny(long call, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(99);
}

/// What `act` returns, or the text of what it throws, in a child process that `prepare` has
/// crippled; "no seccomp" where filters can't be set up.
std::string in_child(const std::function<void()>& prepare,
                     const std::function<std::string()>& act) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    std::string text;
    try {
      text = act();
    } catch (const Error& error) {
      text = error.what();
      if (error.is(Errc::unsupported)) text += " (unsupported)";
    } catch (const std::exception& error) {
      text = std::string("not an hf::Error: ") + error.what();
    }
    [[maybe_unused]] const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[512];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<std::size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 99) return "no seccomp";
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  return text;
}

/// The text of what starting a runtime throws there; "started" if it starts.
std::string start_after(const std::function<void()>& prepare, Driver driver = Driver::uring) {
  return in_child(prepare, [driver] {
    Runtime runtime({.shards = 2, .driver = driver});
    return std::string("started");
  });
}

// UndefinedBehaviorSanitizer opens a pipe to see whether an object's memory can be read, and takes
// the failure for a broken object.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define HYPERFRAMES_TEST_NEEDS_DESCRIPTORS 1
#endif
#endif
#ifdef HYPERFRAMES_TEST_NEEDS_DESCRIPTORS
constexpr bool needs_descriptors = true;
#else
constexpr bool needs_descriptors = false;
#endif

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("where io_uring is forbidden, the error names the sysctl, the filter and the remedy") {
  for (const int error : {EPERM, EACCES}) {
    const std::string text = start_after([error] { deny(SYS_io_uring_setup, error); });
    if (text == "no seccomp") SKIP("this process may not set up a seccomp filter");
    INFO(text);
    CHECK(has(text, "io_uring"));
    CHECK(has(text, "kernel.io_uring_disabled is "));
    CHECK(has(text, "seccomp"));
    CHECK(has(text, "(unsupported)"));
  }
}

TEST_CASE("a kernel without io_uring is named with the version that has it") {
  const std::string text = start_after([] { deny(SYS_io_uring_setup, ENOSYS); });
  if (text == "no seccomp") SKIP("this process may not set up a seccomp filter");
  INFO(text);
  CHECK(has(text, "Linux 6.0"));
  CHECK(has(text, "(unsupported)"));
}

TEST_CASE("too little lockable memory is an error with the current limit and the needed one") {
  for (const long call : {SYS_io_uring_setup, SYS_io_uring_register}) {
    const std::string text = start_after([call] {
      const rlimit limit{64 << 10, 64 << 10};
      ::setrlimit(RLIMIT_MEMLOCK, &limit);
      deny(call, ENOMEM);
    });
    if (text == "no seccomp") SKIP("this process may not set up a seccomp filter");
    INFO(text);
    CHECK(has(text, "the memlock limit is 64 KiB"));
    CHECK(has(text, "ulimit -l"));
    CHECK(has(text, "(unsupported)"));
  }
}

TEST_CASE("what a filter denies after the set-up is an error too, never an assert") {
  for (const int error : {EPERM, EINVAL, EOPNOTSUPP}) {
    const std::string text = start_after([error] { deny(SYS_io_uring_register, error); });
    if (text == "no seccomp") SKIP("this process may not set up a seccomp filter");
    INFO(text);
    CHECK_FALSE(has(text, "started"));
    CHECK_FALSE(has(text, "not an hf::Error"));
  }
}

TEST_CASE("too few descriptors for a start are an error that names the limit") {
  if (needs_descriptors) SKIP("the sanitizer itself needs descriptors");
  for (const Driver driver : {Driver::automatic, Driver::uring, Driver::asio}) {
    if (driver == Driver::asio && !has_asio_reactor()) continue;
    const auto few = [] {
      const rlimit limit{4, 4};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    };
    const std::string text = start_after(few, driver);
    INFO(text);
    CHECK_FALSE(has(text, "started"));
    CHECK(has(text, "ulimit -n"));
  }
}

namespace {

/// Bytes over a connection, a file, a timer, a blocking call and the other shard: all that a
/// runtime does.
Task<std::string> a_bit_of_everything(Runtime& runtime) {
  Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
  auto both = co_await when_all(Socket::connect(listener.address()), listener.accept());
  Socket near = std::move(std::get<0>(both)), far = std::move(std::get<1>(both));
  co_await near.send(Segments(Buffer::copy_of("over TCP")));
  Buffer chunk = co_await far.receive();
  const std::string name = "fallback_" + std::to_string(::getpid()) + ".tmp";
  co_await write_whole_file(name, Buffer::copy_of("in a file"));
  Buffer contents = co_await read_whole_file(name);
  co_await remove_file(name);
  co_await sleep_for(1ms);
  const unsigned other =
      co_await call_on(runtime.shard(1), [] { return Shard::current()->index(); });
  co_return std::string(chunk.text()) + ", " + std::string(contents.text()) + ", on shard " +
      std::to_string(other) + ", by " + std::string(Shard::current()->reactor().name());
}

/// Does all that on the driver that the runtime chooses, and tells what was logged.
std::string use_after(const std::function<void()>& prepare) {
  return in_child(prepare, [] {
    test::CapturedLog log;
    std::string text;
    {
      Runtime runtime({.shards = 2});
      text = runtime.run(&a_bit_of_everything);
    }
    return text + "\n" + log.text();
  });
}

std::size_t lines_of(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) count += c == '\n';
  return count;
}

}  // namespace

TEST_CASE("where io_uring is refused, asio takes over and the log says why, once") {
  if (!has_asio_reactor()) SKIP("this build has no asio driver");
  struct Refusal {
    long call;
    int error;
    std::string why;
  };
  const Refusal refusals[] = {
      {SYS_io_uring_setup, EPERM, "seccomp"},
      {SYS_io_uring_setup, ENOSYS, "this kernel has no io_uring"},
      {SYS_io_uring_setup, ENOMEM, "the memlock limit is"},
      {SYS_io_uring_register, EPERM, "seccomp"},
  };
  for (const auto& [call, error, why] : refusals) {
    const std::string text = use_after([&] { deny(call, error); });
    if (text == "no seccomp") SKIP("this process may not set up a seccomp filter");
    INFO(text);
    CHECK(text.starts_with("over TCP, in a file, on shard 1, by asio\n"));
    CHECK(has(text, "2 of 2 shards run on the asio driver"));
    CHECK(has(text, why));
    CHECK(lines_of(text) == 2);
  }
}

TEST_CASE("where io_uring works, it is the driver, and nothing is logged") {
  const std::string probe = start_after([] {});
  if (probe != "started") SKIP("io_uring can't be used here: " << probe);
  CHECK(use_after([] {}) == "over TCP, in a file, on shard 1, by uring\n");
}

TEST_CASE("a runtime that is told to use asio does") {
  if (!has_asio_reactor()) SKIP("this build has no asio driver");
  Runtime runtime({.shards = 2, .driver = Driver::asio});
  CHECK(runtime.run(&a_bit_of_everything) == "over TCP, in a file, on shard 1, by asio");
}

TEST_CASE("without an asio driver, the error says what would have taken over") {
  if (has_asio_reactor()) SKIP("this build has the asio driver");
  const std::string text = start_after([] { deny(SYS_io_uring_setup, EPERM); }, Driver::automatic);
  if (text == "no seccomp") SKIP("this process may not set up a seccomp filter");
  INFO(text);
  CHECK(has(text, "this build has none"));
  CHECK(has(text, "libasio-dev"));
}

TEST_CASE("a start with only some shards that fail leaves no thread and no descriptor") {
  if (needs_descriptors) SKIP("the sanitizer itself needs descriptors");
  // Room for one ring and its eventfd, not for those of eight.
  const std::string text = start_after([] {
    const rlimit limit{12, 12};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    try {
      Runtime runtime({.shards = 8});
    } catch (const Error&) {
    }
  });
  INFO(text);
  CHECK(text == "started");
}
