#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/error.hpp>
#include <random>
#include <string_view>
#include <vector>

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

TEST_CASE("crc32c gives the values that RFC 3720 lists") {
  std::array<std::byte, 32> bytes{};
  CHECK(hf::crc32c(bytes) == 0x8a9136aau);
  bytes.fill(std::byte{0xff});
  CHECK(hf::crc32c(bytes) == 0x62a8ab43u);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  CHECK(hf::crc32c(bytes) == 0x46dd794eu);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(31 - i);
  CHECK(hf::crc32c(bytes) == 0x113fdb5cu);
  CHECK(hf::crc32c(bytes_of("123456789")) == 0xe3069283u);
}

TEST_CASE("crc32c of nothing is the seed") {
  CHECK(hf::crc32c({}) == 0);
  CHECK(hf::crc32c({}, 0x12345678u) == 0x12345678u);
}

TEST_CASE("crc32c by instruction equals crc32c by tables at every length and offset") {
  const auto bytes = random_bytes(20'000, 1);
  for (std::size_t offset = 0; offset < 9; ++offset)
    for (std::size_t length : {0, 1, 7, 8, 9, 63, 64, 1023, 3071, 3072, 3073, 6144, 9217, 19'000}) {
      const auto part = std::span(bytes).subspan(offset, length);
      REQUIRE(hf::crc32c(part, 77) == hf::detail::crc32c_software(part, 77));
    }
}

TEST_CASE("crc32c of two parts chained equals crc32c of the whole") {
  const auto bytes = random_bytes(10'000, 2);
  const std::span<const std::byte> whole(bytes);
  for (std::size_t cut : {0, 1, 8, 100, 3072, 4097, 9999, 10'000})
    CHECK(hf::crc32c(whole.subspan(cut), hf::crc32c(whole.first(cut))) == hf::crc32c(whole));
}

TEST_CASE("crc32c notices every single flipped bit of a record") {
  auto bytes = random_bytes(300, 3);
  const auto before = hf::crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    CHECK(hf::crc32c(bytes) != before);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}
