#include <hyperframes/runtime/crc32c.hpp>

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hyperframes {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78u;  // reflected
[[maybe_unused]] constexpr std::size_t lane_bytes = 1024;

/// tables[k][b]: the effect of byte b that has k more bytes behind it.
constexpr auto make_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? polynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b)
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}
constexpr auto tables = make_tables();

#if defined(__x86_64__)
/// shift[i][b]: what byte i of a checksum, of value b, becomes after `lane_bytes` zero bytes. A
/// checksum is linear, so a whole one moves by the exclusive or of four entries.
constexpr auto make_shift() {
  std::array<std::uint32_t, 32> of_bit{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < lane_bytes; ++i) crc = (crc >> 8) ^ tables[0][crc & 0xff];
    of_bit[bit] = crc;
  }
  std::array<std::array<std::uint32_t, 256>, 4> shift{};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t b = 0; b < 256; ++b)
      for (std::size_t bit = 0; bit < 8; ++bit)
        if ((b >> bit) & 1) shift[i][b] ^= of_bit[8 * i + bit];
  return shift;
}
constexpr auto shift = make_shift();
#endif

std::uint64_t load_little(const std::byte* from) noexcept {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

#if defined(__x86_64__)
std::uint32_t shift_by_lane(std::uint32_t crc) noexcept {
  return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^
         shift[3][crc >> 24];
}

// The instruction takes three cycles but one can start each cycle: three lanes run side by side
// and are joined at the end.
__attribute__((target("sse4.2"))) std::uint32_t crc32c_hardware(std::span<const std::byte> bytes,
                                                                std::uint32_t seed) noexcept {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t crc = ~seed;
  while (left >= 3 * lane_bytes) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < lane_bytes; i += 8) {
      crc = _mm_crc32_u64(crc, load_little(at + i));
      second = _mm_crc32_u64(second, load_little(at + lane_bytes + i));
      third = _mm_crc32_u64(third, load_little(at + 2 * lane_bytes + i));
    }
    crc = shift_by_lane(static_cast<std::uint32_t>(crc)) ^ second;
    crc = shift_by_lane(static_cast<std::uint32_t>(crc)) ^ third;
    at += 3 * lane_bytes;
    left -= 3 * lane_bytes;
  }
  for (; left >= 8; left -= 8, at += 8) crc = _mm_crc32_u64(crc, load_little(at));
  auto crc32 = static_cast<std::uint32_t>(crc);
  if (left >= 4) {
    std::uint32_t word;
    std::memcpy(&word, at, sizeof word);
    crc32 = _mm_crc32_u32(crc32, word);
    left -= 4, at += 4;
  }
  for (; left > 0; --left, ++at) crc32 = _mm_crc32_u8(crc32, static_cast<unsigned char>(*at));
  return ~crc32;
}
#endif

}  // namespace

std::uint32_t detail::crc32c_software(std::span<const std::byte> bytes,
                                      std::uint32_t seed) noexcept {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~seed;
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = load_little(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left > 0; --left, ++at)
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2");
  if (hardware) [[likely]]
    return crc32c_hardware(bytes, seed);
#endif
  return detail::crc32c_software(bytes, seed);
}

}  // namespace hyperframes
