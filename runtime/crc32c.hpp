// The CRC-32C (Castagnoli) checksum that frames, logs and snapshots carry.
//
//   std::uint32_t sum = hf::crc32c(std::as_bytes(std::span(header)));
//   sum = hf::crc32c(std::as_bytes(std::span(body)), sum);  // goes on where the header ended
//   if (sum != stored) throw hf::Error(hf::Errc::corrupt, "read a record", "its checksum differs");
//
// It finds torn writes and flipped bits; it is no defence against somebody who forges bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hyperframes {

/// The checksum of `bytes`; with `seed`, the checksum of what `seed` is the checksum of, followed
/// by `bytes`. Any thread. Uses the processor's instruction where there is one.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

namespace detail {
/// The same value by tables alone; what `crc32c` runs on processors without the instruction.
std::uint32_t crc32c_software(std::span<const std::byte> bytes, std::uint32_t seed) noexcept;
}  // namespace detail

}  // namespace hyperframes
