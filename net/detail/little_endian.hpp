// Numbers as the wire has them, on any host.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hyperframes::net::detail {

/// std::byteswap for C++20; compilers turn it into one instruction.
template <std::unsigned_integral T>
constexpr T little(T value) noexcept {
  if constexpr (std::endian::native == std::endian::big) {
    T swapped = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      swapped = static_cast<T>(swapped << 8 | (value >> (8 * i) & 0xff));
    return swapped;
  }
  return value;
}

template <std::unsigned_integral T>
void store_little(std::byte* into, T value) noexcept {
  value = little(value);
  std::memcpy(into, &value, sizeof value);
}

template <std::unsigned_integral T>
T load_little(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return little(value);
}

}  // namespace hyperframes::net::detail
