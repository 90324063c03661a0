// Defined in every build: a program with assertions may link a library without, whose headers have
// nothing here to call.
#undef NDEBUG

#include <cstdio>
#include <cstdlib>
#include <hyperframes/runtime/detail/blocking_section.hpp>

namespace hyperframes::detail {
namespace {
thread_local int held = 0;
}

[[gnu::noinline]] void enter_blocking_section() noexcept { ++held; }
[[gnu::noinline]] void leave_blocking_section() noexcept { --held; }

[[gnu::noinline]] void check_may_suspend(const std::source_location& where) noexcept {
  if (held == 0) return;
  std::fprintf(stderr,
               "%s:%u: co_await while a BlockingSection holds a standard mutex: the thread runs "
               "other coroutines meanwhile, and may deadlock on it; use hf::Mutex\n",
               where.file_name(), static_cast<unsigned>(where.line()));
  std::abort();
}
}  // namespace hyperframes::detail
