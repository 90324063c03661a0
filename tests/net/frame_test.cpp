#include <array>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/frame.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <random>
#include <string>
#include <vector>

using namespace hf::net;
using Bytes = std::array<std::byte, FrameHeader::size>;

namespace {

FrameHeader a_data_frame() {
  FrameHeader header;
  header.kind = FrameKind::data;
  header.lane = Lane::bulk;
  header.message = 9;
  header.offset = 1 << 20;
  header.length = 4096;
  header.total = 5u << 20;
  header.sequence = 77;
  header.acknowledgement = 76;
  return header;
}

Bytes encoded(const FrameHeader& header) {
  Bytes bytes;
  header.encode(bytes.data());
  return bytes;
}

/// The fault of a data frame in which `change` altered bytes under a checksum that is right.
template <class Change>
FrameFault fault_after(Change change) {
  Bytes bytes = encoded(a_data_frame());
  change(bytes.data());
  hf::net::detail::store_little(bytes.data() + 60, hf::crc32c({bytes.data(), 60}));
  FrameHeader header;
  return decode(bytes, FrameLimits(), header);
}

template <class T>
FrameFault fault_of_field(std::size_t offset, T value) {
  return fault_after([&](std::byte* at) { hf::net::detail::store_little(at + offset, value); });
}

}  // namespace

TEST_CASE("a frame header is the same after encoding and decoding") {
  const FrameHeader header = a_data_frame();
  const Bytes bytes = encoded(header);
  FrameHeader read;
  REQUIRE(decode(bytes, FrameLimits(), read) == FrameFault::none);
  CHECK(read == header);
}

TEST_CASE("a frame header has each field where the protocol says") {
  FrameHeader header = a_data_frame();
  header.flags = frame_flag::prepaid;
  header.channel = 0x04030201;
  const Bytes bytes = encoded(header);
  const unsigned expected[] = {1, 1, 2, 1, 1, 2, 3, 4, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10};
  for (std::size_t i = 0; i < std::size(expected); ++i)
    CHECK(static_cast<unsigned>(bytes[i]) == expected[i]);
  CHECK(hf::net::detail::load_little<std::uint64_t>(&bytes[24]) == 4096);
  CHECK(hf::net::detail::load_little<std::uint64_t>(&bytes[32]) == 5u << 20);
  CHECK(hf::net::detail::load_little<std::uint64_t>(&bytes[40]) == 77);
  CHECK(hf::net::detail::load_little<std::uint64_t>(&bytes[48]) == 76);
  CHECK(hf::net::detail::load_little<std::uint32_t>(&bytes[60]) == hf::crc32c({bytes.data(), 60}));
}

TEST_CASE("a frame header with any bit flipped is refused") {
  const Bytes good = encoded(a_data_frame());
  FrameHeader header;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK(decode(bytes, FrameLimits(), header) != FrameFault::none);
  }
}

TEST_CASE("a frame header with a field out of range is refused by the name of that field") {
  CHECK(fault_of_field(0, std::uint8_t{2}) == FrameFault::version);
  CHECK(fault_of_field(1, std::uint8_t{0}) == FrameFault::kind);
  CHECK(fault_of_field(1, std::uint8_t{11}) == FrameFault::kind);
  CHECK(fault_of_field(1, std::uint8_t{37}) == FrameFault::kind);
  CHECK(fault_of_field(2, std::uint8_t{3}) == FrameFault::lane);
  CHECK(fault_of_field(3, std::uint8_t{4}) == FrameFault::flags);
  CHECK(fault_of_field(4, std::uint32_t{1}) == FrameFault::channel);
  CHECK(fault_of_field(8, std::uint64_t{0}) == FrameFault::range);
  CHECK(fault_of_field(40, std::uint64_t{0}) == FrameFault::sequence);
  CHECK(fault_of_field(56, std::uint32_t{1}) == FrameFault::reserved);
}

TEST_CASE("only data has a channel, and only one below the limit") {
  FrameHeader header = a_data_frame(), read;
  header.channel = 9;
  FrameLimits limits;
  CHECK(decode(encoded(header), limits, read) == FrameFault::channel);
  limits.channels = 9;
  CHECK(decode(encoded(header), limits, read) == FrameFault::channel);
  limits.channels = 10;
  REQUIRE(decode(encoded(header), limits, read) == FrameFault::none);
  CHECK(read.channel == 9);
  header.kind = FrameKind::credit;
  header.length = 0;
  CHECK(decode(encoded(header), limits, read) == FrameFault::channel);
}

TEST_CASE("a frame header with a garbage length is refused before anything depends on it") {
  CHECK(fault_of_field(24, std::uint64_t{0}) == FrameFault::length);
  CHECK(fault_of_field(24, (16u << 20) + std::uint64_t{1}) == FrameFault::length);
  CHECK(fault_of_field(24, ~std::uint64_t{0}) == FrameFault::length);
  CHECK(fault_of_field(32, std::uint64_t{63}) == FrameFault::total);
  CHECK(fault_of_field(32, ~std::uint64_t{0}) == FrameFault::total);
  CHECK(fault_of_field(16, std::uint64_t{5u << 20}) == FrameFault::range);
  // An offset whose sum with the length overflows.
  CHECK(fault_of_field(16, ~std::uint64_t{0} - 100) == FrameFault::range);
}

TEST_CASE("a frame about a message names one") {
  for (const FrameKind kind : {FrameKind::data, FrameKind::announce, FrameKind::grant,
                               FrameKind::refuse, FrameKind::withdraw}) {
    INFO(name(kind));
    FrameHeader header = a_data_frame();
    header.kind = kind;
    header.offset = 0;
    if (kind != FrameKind::data) header.length = 0;
    CHECK(decode(encoded(header), FrameLimits(), header) == FrameFault::none);
    header.message = 0;
    CHECK(decode(encoded(header), FrameLimits(), header) == FrameFault::range);
  }
}

TEST_CASE("a frame of a kind without payload may not have one") {
  for (const FrameKind kind : {FrameKind::announce, FrameKind::grant, FrameKind::withdraw,
                               FrameKind::credit, FrameKind::acknowledge, FrameKind::heartbeat}) {
    FrameHeader header = a_data_frame();
    header.kind = kind;
    header.offset = 0;
    if (kind == FrameKind::acknowledge || kind == FrameKind::heartbeat) header.sequence = 0;
    header.length = 0;
    CHECK(decode(encoded(header), FrameLimits(), header) == FrameFault::none);
    header.length = 1;
    CHECK(decode(encoded(header), FrameLimits(), header) == FrameFault::length);
  }
}

TEST_CASE("a handshake frame is small, and never counted") {
  FrameHeader header;
  header.kind = FrameKind::hello;
  header.length = FrameLimits::largest_handshake;
  CHECK(decode(encoded(header), FrameLimits(), header) == FrameFault::none);
  header.length += 1;
  CHECK(decode(encoded(header), FrameLimits(), header) == FrameFault::length);
  header.length = 10;
  header.sequence = 1;
  CHECK(decode(encoded(header), FrameLimits(), header) == FrameFault::sequence);
}

TEST_CASE("a frame of another version gives an error that names both versions") {
  Bytes bytes = encoded(a_data_frame());
  bytes[0] = std::byte{7};
  FrameHeader header;
  const FrameFault fault = decode(bytes, FrameLimits(), header);
  const hf::Error error = frame_error(fault, bytes);
  CHECK(error.is(hf::Errc::version_mismatch));
  CHECK(error.found().find("version 7") != std::string::npos);
  CHECK(error.found().find("version 1") != std::string::npos);
}

TEST_CASE("random bytes are never a frame header") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FrameHeader header;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes;
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    if (round % 2) bytes[0] = std::byte{FrameHeader::version};
    REQUIRE(decode(bytes, FrameLimits(), header) != FrameFault::none);
  }
}
