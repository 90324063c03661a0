// Where a coroutine waits: the lines from whoever started it down to the one it is suspended on.
//
//   std::puts(chain.to_string().c_str());   // "serve() (main.cpp:12) > read() (io.cpp:40)"
//   if (!chain.places.empty()) show(chain.places.back());     // the line that it waits on
//   if (chain.ready) std::puts("it has been woken, and waits for its turn");
//
// Every co_await records its line, in release builds too. A chain is a copy, bounded in size: it
// says what it leaves out, and may be kept, moved to other threads and printed later.
#pragma once

#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes {

namespace detail {
class PromiseBase;
}

/// The line of one co_await. Its text is part of the program's code: valid while that is loaded.
struct AwaitPlace {
  std::string_view function;  ///< As the compiler spells it: "hf::Task<void> Store::load(int)".
  std::string_view file;      ///< Without its folders.
  unsigned line = 0;

  AwaitPlace() = default;
  explicit AwaitPlace(const std::source_location& where);
  /// "Store::load(int) (store.cpp:41)".
  std::string to_string() const;
};

struct AwaitChain {
  static constexpr std::size_t most_places = 32;
  static constexpr std::size_t most_branches = 8;
  static constexpr unsigned most_levels = 4;  ///< Of branches in branches.

  /// Outermost first. Empty: the coroutine has not begun.
  std::vector<AwaitPlace> places;
  std::size_t places_left_out = 0;  ///< Between the first and the second half of `places`.
  /// The tasks that the last place waits for side by side (Scope, when_all).
  std::vector<AwaitChain> branches;
  std::size_t branches_left_out = 0;
  bool ready = false;  ///< The last one is ready to go on.

  /// How many there are in all, those of the branches too.
  std::size_t place_count() const noexcept;
  /// In one line.
  std::string to_string() const;
};

namespace detail {
/// What the coroutine `first`, and what it awaits, waits for. On its shard.
AwaitChain chain_of(const PromiseBase* first, unsigned level = 0);
}  // namespace detail

}  // namespace hyperframes
