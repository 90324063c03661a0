// The frame: the unit in which a link moves bytes, whatever carries them.
//
//   std::array<std::byte, hf::net::FrameHeader::size> bytes;
//   header.encode(bytes.data());
//   hf::net::FrameFault fault = hf::net::decode(bytes, {}, header);    // checks everything
//
// For links and for tools that read a capture; programs send messages through a Session.
//
// A frame is a header of 64 bytes and `length` bytes of payload. All numbers are little-endian:
//
//    0 u8  version     1 u8  kind      2 u8  lane        3 u8  flags      4 u32 channel
//    8 u64 message    16 u64 offset   24 u64 length     32 u64 total
//   40 u64 sequence   48 u64 acknowledgement            56 u32 zero      60 u32 CRC-32C of 0..59
//
// `channel` is 0 for the messages of the nodes themselves, such as their actors', and for all
// frames that are no data. `message` numbers the messages of a lane from 1; `offset` and `length`
// say which of its `total` bytes this frame carries. `sequence` numbers the frames of a link from 1
// (0: a frame that needs no acknowledgement), `acknowledgement` is the last one the sender of this
// frame has received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/lane.hpp>
#include <hyperframes/runtime/error.hpp>
#include <span>
#include <string_view>

namespace hyperframes::net {

/// Numbers are part of the wire protocol: append only.
enum class FrameKind : std::uint8_t {
  data = 1,         ///< Bytes of a message.
  announce = 2,     ///< `total` bytes are to come as `message`, once granted.
  grant = 3,        ///< `message` may be sent as a whole.
  refuse = 4,       ///< `message` can never be granted; the payload is a text that says why.
  withdraw = 5,     ///< The announced `message` will not be sent.
  credit = 6,       ///< `total` more bytes may be sent on this channel and lane. With the flag
                    ///< window, `message` on lane control is the sender's room for answers.
  acknowledge = 7,  ///< Nothing but its acknowledgement.
  heartbeat = 8,    ///< `message` is the sender's clock, to be sent back.
  heartbeat_reply = 9,
  close = 10,  ///< Only acknowledgements and heartbeats follow; the payload may say why.
  hello = 32,  ///< Handshake, each with a FlatBuffer as payload.
  challenge = 33,
  proof = 34,
  welcome = 35,
  reject = 36,
};
std::string_view name(FrameKind kind) noexcept;

/// Bits of `flags`; a frame with any other bit is refused.
namespace frame_flag {
inline constexpr std::uint8_t prepaid = 1;  ///< data: an answer in the room its ask has reserved.
inline constexpr std::uint8_t window = 2;   ///< credit: the window itself grows by `total`.
inline constexpr std::uint8_t known = prepaid | window;
}  // namespace frame_flag

/// The fields that the table above places; `decode` says what each kind may hold.
struct FrameHeader {
  static constexpr std::size_t size = 64;
  static constexpr std::uint8_t version = 1;

  FrameKind kind = FrameKind::data;
  Lane lane = Lane::control;
  std::uint8_t flags = 0;
  std::uint32_t channel = 0;
  std::uint64_t message = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t total = 0;
  std::uint64_t sequence = 0;
  std::uint64_t acknowledgement = 0;

  /// Writes 64 bytes, the checksum among them.
  void encode(std::byte* into) const noexcept;
  /// Without sequence, acknowledgement and checksum: `detail::finish_encoded` adds those.
  void encode_unfinished(std::byte* into) const noexcept;
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

/// What is wrong with 64 bytes that should be a header.
enum class FrameFault : std::uint8_t {
  none,
  version,  ///< Byte 0 is not the version this build speaks.
  checksum,
  kind,
  lane,
  flags,
  reserved,
  channel,   ///< A channel that was not opened.
  length,    ///< More payload than a frame of its kind may have.
  total,     ///< A message that is too short to be one, or larger than the limit.
  range,     ///< Offset and length lie outside the message, or no message is named.
  sequence,  ///< Missing where it is needed, or the other way round.
};
std::string_view name(FrameFault fault) noexcept;

/// What a reader accepts; in bytes.
struct FrameLimits {
  static constexpr std::uint64_t largest_handshake = 16u << 10;
  static constexpr std::uint64_t largest_text = 4u << 10;
  std::uint64_t payload_bytes = 16u << 20;               ///< Of one data frame.
  std::uint64_t message_bytes = std::uint64_t{1} << 40;  ///< Of one message.
  std::uint32_t channels = 1;                            ///< Channel numbers below this are open.
};

/// Reads and checks a header; never throws or allocates, whatever the bytes are. `into` holds
/// something only if there is no fault.
[[nodiscard]] FrameFault decode(std::span<const std::byte, FrameHeader::size> bytes,
                                const FrameLimits& limits, FrameHeader& into) noexcept;

/// The error for a fault, with what was found in the bytes: Errc::version_mismatch, corrupt, or
/// unauthenticated for what begins as TLS does.
Error frame_error(FrameFault fault, std::span<const std::byte, FrameHeader::size> bytes);

/// Whether frames of this kind count in a link's sequence: what a broken link has to send again.
bool is_sequenced(FrameKind kind) noexcept;

namespace detail {
/// For a header that is encoded already: its payload's length, its sequence, and the fields that
/// are known only when it leaves, with the checksum over all.
std::uint64_t encoded_length(const std::byte* header) noexcept;
std::uint64_t encoded_sequence(const std::byte* header) noexcept;
void finish_encoded(std::byte* header, std::uint64_t sequence,
                    std::uint64_t acknowledgement) noexcept;
}  // namespace detail

}  // namespace hyperframes::net
