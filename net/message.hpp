// The one message of the whole system: an envelope, and what it carries.
//
//   hf::net::Message message;
//   message.envelope = {.type_id = id, .target = actor, .kind = hf::net::MessageKind::tell};
//   message.body = hf::Buffer::copy_of(bytes);   // a finished FlatBuffer or a fixed struct
//   message.segments.push_back(rows);            // travels apart, is never copied into the body
//
// Its buffers belong to one shard, as buffers do. Whoever sends it gives it away: nothing may write
// into its bytes until the peer has acknowledged them; into memory from Network::loan, which peers
// of this host read in place, until they have done with it.
//
// A received segment may lie in such memory of the peer's. It is mapped to be read only, so writing
// there is a SIGSEGV, and the peer could still change it: who checks something in it copies it
// first. Envelope, metadata and body are never lent.
//
// On the wire a message is its 64-byte envelope, one u64 length for each segment, then metadata,
// body and segments, each beginning at a multiple of 64 bytes from the start of the message. A
// received message lies in memory alike, so every part of it begins on a 64-byte boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/error.hpp>
#include <span>

namespace hyperframes::net {

/// Numbers are part of the wire protocol: append only.
enum class MessageKind : std::uint8_t {
  tell = 0,
  ask = 1,  ///< Is answered, exactly once, by a reply or a failure (also when it has expired).
  reply = 2,
  failure = 3,  ///< Answers an ask with an error.
  down = 4,     ///< A monitored actor ended.
  exit = 5,     ///< A linked actor ended.
  monitor = 6,
  demonitor = 7,
  link = 8,
  unlink = 9,
  stream = 10,  ///< Between the ends of a stream; `flags` say what.
};
inline constexpr MessageKind last_message_kind = MessageKind::stream;

/// What routing needs. Ids and flags mean what the layer above makes of them; `kind` and
/// `reply_room` are also read by the session.
struct Envelope {
  std::uint64_t type_id = 0;
  std::uint64_t target = 0;
  std::uint64_t source = 0;
  std::uint64_t correlation = 0;
  std::int64_t deadline_ns = 0;  ///< What remained when it was sent; 0: none.
  std::uint64_t context = 0;     ///< Free for the layer above (tracing, streams).
  /// In an ask, the bytes that the asker keeps free for the answer; a reply or failure repeats the
  /// number of its ask, and then needs no credit if it fits. 0 in an ask: the session's default.
  std::uint32_t reply_room = 0;
  MessageKind kind = MessageKind::tell;
  std::uint8_t flags = 0;
  /// Not in the envelope on the wire, but in the frames around it: the channel that it travels on;
  /// 0: none (net/channel/channel.hpp).
  std::uint32_t channel = 0;
  /// Not on the wire: the link that a received message came in by. An answer goes back by it, since
  /// there the room for it is kept, and what travels on a channel goes by it; of other messages it
  /// is ignored.
  std::uint32_t link = 0;
};

/// Movable and copyable; a copy shares the bytes. The limits are checked when it is sent
/// (Errc::too_large).
struct Message {
  Envelope envelope;
  Buffer metadata = {};    ///< At most 64 KiB.
  Buffer body = {};        ///< At most 1 GiB.
  Segments segments = {};  ///< At most 1,024 buffers; their sum may exceed 4 GiB.
};

/// The envelope of an answer to `ask`: to its source, under its correlation, with its reply room.
Envelope answer_to(const Envelope& ask, MessageKind kind = MessageKind::reply) noexcept;

/// Makes each buffer the sole reference to its bytes, without copying them, so that the message may
/// move to another shard. On the shard that the message belongs to.
void make_movable(Message& message);

/// How messages travel: for sessions, and for tools that read what they sent. None of it throws for
/// what a peer wrote; that is a Result, or false.
namespace wire {

inline constexpr std::size_t part_alignment = 64;
inline constexpr std::size_t envelope_size = 64;
inline constexpr std::size_t max_metadata = 64u << 10;
inline constexpr std::size_t max_body = 1u << 30;
inline constexpr std::size_t max_segments = 1024;

constexpr std::uint64_t align_part(std::uint64_t offset) noexcept {
  return (offset + part_alignment - 1) & ~std::uint64_t{part_alignment - 1};
}

/// The envelope as it travels, with the sizes of what follows it.
struct MessageHead {
  Envelope envelope;
  std::uint32_t metadata_size = 0;
  std::uint32_t body_size = 0;
  std::uint16_t segment_count = 0;

  /// Where the fixed part and the segment lengths end.
  std::uint64_t prefix_size() const noexcept {
    return envelope_size + std::uint64_t{segment_count} * sizeof(std::uint64_t);
  }
  /// What the message takes at least, whatever its segments are.
  std::uint64_t least_size() const noexcept {
    return prefix_size() + std::uint64_t{metadata_size} + std::uint64_t{body_size};
  }
  /// The body is all that follows the envelope of a message of `total` bytes.
  bool only_body(std::uint64_t total) const noexcept {
    return !metadata_size && !segment_count && envelope_size + body_size == total;
  }
};

/// The bytes `message` takes on the wire. Throws Errc::too_large, with the limit that it breaks.
std::uint64_t size_of(const Message& message);

/// Writes the 64 bytes of the envelope. The message was measured by `size_of`.
void encode_head(const Message& message, std::span<std::byte, envelope_size> into) noexcept;

/// Reads the fixed 64 bytes of a message of `total` bytes and checks them: kind, limits, and that
/// what they announce can fit. Errc::corrupt names the field. Allocates nothing but an error's
/// text.
Result<MessageHead> decode_head(std::span<const std::byte, envelope_size> bytes,
                                std::uint64_t total);

/// The same into `head`, for the path of every message; false leaves the reason to `decode_head`.
bool read_head(std::span<const std::byte, envelope_size> bytes, std::uint64_t total,
               MessageHead& head) noexcept;

/// Cuts what follows the envelope of a message into its parts, which share `rest`. Errc::corrupt if
/// they do not fill it exactly.
Result<Message> decode_parts(const MessageHead& head, Buffer rest);

/// The same for a message of `total` bytes that does not lie in one piece. `lengths`: those of its
/// segments. `part(begin, size, is_segment)` gives each part that is not empty, by where it begins
/// in the message.
Result<Message> decode_scattered(
    const MessageHead& head, std::uint64_t total, const std::byte* lengths,
    const std::function<Buffer(std::uint64_t, std::uint64_t, bool)>& part);

/// Cuts a whole message, which begins at the start of `memory`, into its parts. They share
/// `memory`.
Result<Message> decode(Buffer memory);

}  // namespace wire
}  // namespace hyperframes::net
