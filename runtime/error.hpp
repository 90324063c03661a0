// What went wrong, what was tried, and what to do about it.
//
//   throw hf::Error(hf::Errc::exhausted, "allocate 1 MiB from pool 'recv'",
//                   "63 of 64 MiB are in use", "raise its quota or release buffers sooner");
//
// Every operation of this project throws `hf::Error`. Where failure is ordinary, a `try_` form
// returns `hf::Result<T>` instead. Handlers ask `error.is(hf::Errc::exhausted)`, or for what the
// system said `error.code() == std::errc::no_space_on_device`. An error may cross the wire: code
// and texts are kept. docs/reference/errors.md has a section for each code.
#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

namespace hyperframes {

/// The conditions that are this project's own. Those of the system keep their errno in
/// `std::generic_category()`. Numbers are part of the wire protocol: append, never renumber.
enum class Errc : int {
  cancelled = 1,             ///< The awaiting scope was cancelled.
  deadline_exceeded = 2,     ///< Not finished by its deadline. Whether it took effect is unknown.
  closed = 3,                ///< The channel, socket or mailbox was closed, here or by the peer.
  exhausted = 4,             ///< A bounded resource (pool, ring, table) is full.
  too_large = 5,             ///< Larger than a limit; the text names both.
  corrupt = 6,               ///< Bytes from a peer or a file do not follow their format.
  rejected = 7,              ///< A peer refused us; the text names the check that failed.
  unreachable = 8,           ///< No transport and no address worked; the text lists each.
  peer_lost = 9,             ///< The peer's process died or went silent.
  not_found = 10,            ///< No such actor, table, file or key.
  already_exists = 11,       ///< The name is taken.
  overloaded = 12,           ///< A mailbox whose policy is not to wait is full.
  unknown_type = 13,         ///< A message type id that the receiver does not know.
  verification_failed = 14,  ///< A FlatBuffer from outside did not verify.
  actor_down = 15,           ///< The actor stopped before it answered.
  no_reply = 16,             ///< A `Reply` was dropped unanswered.
  would_deadlock = 17,       ///< An ask that waits on itself.
  fenced = 18,               ///< A newer owner exists; this one must stop writing.
  moved = 19,                ///< The key belongs elsewhere under a newer map.
  invalid_argument = 20,     ///< A flag, option or parameter is out of range.
  unsupported = 21,          ///< Not available on this kernel, build or driver.
  version_mismatch = 22,     ///< The text names both versions.
  unauthenticated = 23,      ///< A key or certificate is missing or wrong.
  shutting_down = 24,        ///< The runtime is stopping and takes no new work.
  internal = 25,             ///< A bug in this project.
};

/// "hyperframes": the category of Errc.
const std::error_category& error_category() noexcept;
inline std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}
/// The code's name as it stands in the documentation, such as "deadline_exceeded"; "unknown_error"
/// for a number that this build does not know, such as a newer peer's.
std::string_view name(Errc code) noexcept;

}  // namespace hyperframes

template <>
struct std::is_error_code_enum<hyperframes::Errc> : std::true_type {};

namespace hyperframes {

class Error : public std::system_error {
 public:
  /// `tried`: the operation and what it was done to. `found`: what stood in its way.
  /// `remedy`: what the reader can do; may be empty where nothing helps.
  Error(std::error_code code, std::string tried, std::string found = {}, std::string remedy = {});

  /// From `errno` or a negated kernel result: in std::generic_category(), so it compares with
  /// std::errc.
  static Error system(int error_number, std::string tried, std::string found = {},
                      std::string remedy = {});

  /// "TRIED: FOUND [CODE]; REMEDY".
  const char* what() const noexcept override { return text_.c_str(); }
  const std::string& tried() const noexcept { return tried_; }
  const std::string& found() const noexcept { return found_; }
  const std::string& remedy() const noexcept { return remedy_; }
  bool is(Errc code) const noexcept { return this->code() == make_error_code(code); }

 private:
  std::string tried_, found_, remedy_, text_;
};

/// A value or an `Error`, and either converts to it. `value()` throws the error. `*` and `->` are
/// for after a check: without a value they throw std::bad_variant_access, as `error()` does with
/// one. References that it returns live as long as it does: keep the Result, not `try_x().error()`.
template <class T>
class [[nodiscard]] Result {
  using Stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

 public:
  Result()
    requires std::is_void_v<T>
      : state_(std::in_place_index<0>) {}
  template <class U = Stored>
    requires(!std::is_void_v<T> && std::is_constructible_v<Stored, U &&> &&
             !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U&& value) : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  const Error& error() const { return std::get<1>(state_); }

  std::add_lvalue_reference_t<T> value() & {
    throw_if_error();
    if constexpr (!std::is_void_v<T>) return std::get<0>(state_);
  }
  T value() && {
    throw_if_error();
    if constexpr (!std::is_void_v<T>) return std::move(std::get<0>(state_));
  }
  Stored& operator*() & { return std::get<0>(state_); }
  Stored* operator->() { return &std::get<0>(state_); }

 private:
  void throw_if_error() const {
    if (!has_value()) throw std::get<1>(state_);
  }
  std::variant<Stored, Error> state_;
};

}  // namespace hyperframes

namespace hf = hyperframes;
