// Counts, for each thread, the locks of the standard library that it holds.
#pragma once

#include <source_location>

namespace hyperframes::detail {

#ifdef NDEBUG
inline void enter_blocking_section() noexcept {}
inline void leave_blocking_section() noexcept {}
inline void check_may_suspend(const std::source_location&) noexcept {}
#else
void enter_blocking_section() noexcept;
void leave_blocking_section() noexcept;
/// Called at every co_await. Aborts with its line if this thread holds such a lock.
void check_may_suspend(const std::source_location& where) noexcept;
#endif

}  // namespace hyperframes::detail
