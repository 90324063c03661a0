// Little-endian bytes for the log, the snapshot and everything else of the parameter server that
// outlives a process.
//
//   detail::put(out, std::uint32_t{7});                       // appends 4 bytes
//   detail::ByteReader reader(bytes, "read a snapshot header");
//   auto seven = reader.get<std::uint32_t>();                 // throws `corrupt` past the end
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <hyperframes/runtime/error.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hyperframes::ps {

using Bytes = std::vector<std::byte>;

namespace detail {

// Arrays of numbers are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little, "the file formats are little-endian");

template <class T>
concept Plain = std::is_arithmetic_v<T>;

template <Plain T>
void put(Bytes& out, std::type_identity_t<T> value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), from, from + sizeof value);
}

template <Plain T>
void put_array(Bytes& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

inline void put_text(Bytes& out, std::string_view text) {
  put<std::uint32_t>(out, static_cast<std::uint32_t>(text.size()));
  put_array<char>(out, text);
}

template <Plain T>
void store(std::byte* to, std::type_identity_t<T> value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

template <Plain T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Reads numbers off the front of `bytes`; whatever is short throws `corrupt` with `tried`.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string_view tried)
      : bytes_(bytes), tried_(tried) {}

  template <Plain T>
  T get() {
    return load<T>(take(sizeof(T)).data());
  }
  /// Appends `count` numbers. The bytes are seen to be there before anything is allocated.
  template <Plain T>
  void get_array(std::uint64_t count, std::vector<T>& out) {
    if (count > left() / sizeof(T)) fail_short(count * sizeof(T));
    const auto from = take(static_cast<std::size_t>(count) * sizeof(T));
    const std::size_t before = out.size();
    out.resize(before + static_cast<std::size_t>(count));
    if (count != 0) std::memcpy(out.data() + before, from.data(), from.size());
  }
  std::string get_text(std::size_t max_bytes) {
    const auto length = get<std::uint32_t>();
    if (length > max_bytes) fail("a text of " + std::to_string(length) + " bytes");
    const auto from = take(length);
    return std::string(reinterpret_cast<const char*>(from.data()), from.size());
  }
  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) fail_short(count);
    const auto front = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return front;
  }
  std::size_t left() const noexcept { return bytes_.size(); }
  void expect_end() {
    if (left() != 0) fail(std::to_string(left()) + " bytes too many");
  }
  [[noreturn]] void fail(std::string found) const {
    throw Error(Errc::corrupt, std::string(tried_), std::move(found));
  }

 private:
  [[noreturn]] void fail_short(std::uint64_t needed) const {
    fail("it ends " + std::to_string(left()) + " bytes on where " + std::to_string(needed) +
         " are needed");
  }
  std::span<const std::byte> bytes_;
  std::string_view tried_;
};

}  // namespace detail
}  // namespace hyperframes::ps
