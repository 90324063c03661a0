#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/frame.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/runtime/crc32c.hpp>

// A stream of frames, each header under a checksum that is made right, so that the checks behind it
// are reached; what a data frame carries is decoded as a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hyperframes::net;
  while (size >= FrameHeader::size) {
    std::byte bytes[FrameHeader::size];
    std::memcpy(bytes, data, sizeof bytes);
    data += sizeof bytes;
    size -= sizeof bytes;
    FrameHeader header;
    const FrameLimits limits;
    (void)decode(bytes, limits, header);
    bytes[0] = std::byte{FrameHeader::version};
    detail::store_little(bytes + 60, hyperframes::crc32c({bytes, 60}));
    const FrameFault fault = decode(bytes, limits, header);
    if (fault != FrameFault::none) {
      (void)frame_error(fault, bytes);
      continue;
    }
    if (header.length > limits.payload_bytes) std::abort();
    // What was accepted is written again as it was.
    std::byte again[FrameHeader::size];
    header.encode(again);
    if (std::memcmp(bytes, again, sizeof bytes) != 0) std::abort();
    if (header.kind != FrameKind::data) continue;
    const std::size_t length = header.length < size ? header.length : size;
    auto message = wire::decode(
        hyperframes::Buffer::copy_of({reinterpret_cast<const std::byte*>(data), length}));
    data += length;
    size -= length;
    if (!message) continue;
    std::size_t sum = message->metadata.size() + message->body.size();
    for (const auto& segment : message->segments) sum += segment.size();
    if (sum > length) std::abort();
  }
  return 0;
}
