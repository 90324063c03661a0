#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/frame.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/runtime/crc32c.hpp>

namespace hyperframes::net {
namespace {

using detail::load_little;
using detail::store_little;

constexpr std::size_t at_length = 24, at_sequence = 40, at_acknowledgement = 48, at_reserved = 56,
                      at_checksum = 60;

bool is_handshake(FrameKind kind) noexcept {
  return kind >= FrameKind::hello && kind <= FrameKind::reject;
}

bool is_known(std::uint8_t kind) noexcept {
  return (kind >= 1 && kind <= 10) || is_handshake(static_cast<FrameKind>(kind));
}

FrameFault check_sizes(const FrameHeader& header, const FrameLimits& limits) noexcept {
  using enum FrameKind;
  switch (header.kind) {
    case data:
      if (header.length == 0 || header.length > limits.payload_bytes) return FrameFault::length;
      if (header.total < wire::envelope_size || header.total > limits.message_bytes)
        return FrameFault::total;
      if (header.offset > header.total || header.length > header.total - header.offset)
        return FrameFault::range;
      return header.message ? FrameFault::none : FrameFault::range;
    case announce:
      if (header.length) return FrameFault::length;
      if (header.total < wire::envelope_size || header.total > limits.message_bytes)
        return FrameFault::total;
      return header.message ? FrameFault::none : FrameFault::range;
    case credit:
      if (header.length) return FrameFault::length;
      return header.total && header.total <= limits.message_bytes ? FrameFault::none
                                                                  : FrameFault::total;
    case grant:
    case withdraw:
      if (header.length) return FrameFault::length;
      return header.message ? FrameFault::none : FrameFault::range;
    case refuse:
      if (header.length > FrameLimits::largest_text) return FrameFault::length;
      return header.message ? FrameFault::none : FrameFault::range;
    case close:
      return header.length <= FrameLimits::largest_text ? FrameFault::none : FrameFault::length;
    case hello:
    case challenge:
    case proof:
    case welcome:
    case reject:
      return header.length && header.length <= FrameLimits::largest_handshake ? FrameFault::none
                                                                              : FrameFault::length;
    default: return header.length ? FrameFault::length : FrameFault::none;
  }
}

}  // namespace

std::string_view name(FrameKind kind) noexcept {
  using enum FrameKind;
  switch (kind) {
    case data: return "data";
    case announce: return "announce";
    case grant: return "grant";
    case refuse: return "refuse";
    case withdraw: return "withdraw";
    case credit: return "credit";
    case acknowledge: return "acknowledge";
    case heartbeat: return "heartbeat";
    case heartbeat_reply: return "heartbeat_reply";
    case close: return "close";
    case hello: return "hello";
    case challenge: return "challenge";
    case proof: return "proof";
    case welcome: return "welcome";
    case reject: return "reject";
  }
  return "unknown";
}

bool is_sequenced(FrameKind kind) noexcept {
  using enum FrameKind;
  return kind != acknowledge && kind != heartbeat && kind != heartbeat_reply && !is_handshake(kind);
}

std::string_view name(FrameFault fault) noexcept {
  constexpr std::string_view names[] = {"none",   "version", "checksum", "kind",
                                        "lane",   "flags",   "reserved", "channel",
                                        "length", "total",   "range",    "sequence"};
  return names[static_cast<std::size_t>(fault)];
}

void FrameHeader::encode(std::byte* into) const noexcept {
  encode_unfinished(into);
  detail::finish_encoded(into, sequence, acknowledgement);
}

void FrameHeader::encode_unfinished(std::byte* into) const noexcept {
  into[0] = std::byte{version};
  into[1] = static_cast<std::byte>(kind);
  into[2] = static_cast<std::byte>(lane);
  into[3] = static_cast<std::byte>(flags);
  store_little(into + 4, channel);
  store_little(into + 8, message);
  store_little(into + 16, offset);
  store_little(into + at_length, length);
  store_little(into + 32, total);
  store_little(into + at_reserved, std::uint32_t{0});
}

FrameFault decode(std::span<const std::byte, FrameHeader::size> bytes, const FrameLimits& limits,
                  FrameHeader& into) noexcept {
  const std::byte* at = bytes.data();
  if (at[0] != std::byte{FrameHeader::version}) return FrameFault::version;
  if (load_little<std::uint32_t>(at + at_checksum) != crc32c({at, at_checksum}))
    return FrameFault::checksum;
  if (!is_known(static_cast<std::uint8_t>(at[1]))) return FrameFault::kind;
  if (static_cast<std::size_t>(at[2]) >= lane_count) return FrameFault::lane;
  if (static_cast<std::uint8_t>(at[3]) & ~frame_flag::known) return FrameFault::flags;
  if (load_little<std::uint32_t>(at + at_reserved)) return FrameFault::reserved;

  // Straight into place: a header of its own to copy from would cost more than all the checks.
  FrameHeader& header = into;
  header.kind = static_cast<FrameKind>(at[1]);
  header.lane = static_cast<Lane>(at[2]);
  header.flags = static_cast<std::uint8_t>(at[3]);
  header.channel = load_little<std::uint32_t>(at + 4);
  header.message = load_little<std::uint64_t>(at + 8);
  header.offset = load_little<std::uint64_t>(at + 16);
  header.length = load_little<std::uint64_t>(at + at_length);
  header.total = load_little<std::uint64_t>(at + 32);
  header.sequence = load_little<std::uint64_t>(at + at_sequence);
  header.acknowledgement = load_little<std::uint64_t>(at + at_acknowledgement);

  const bool has_channel = header.channel != 0;
  if (header.channel >= limits.channels || (has_channel && header.kind != FrameKind::data))
    return FrameFault::channel;
  if (is_sequenced(header.kind) != (header.sequence != 0)) return FrameFault::sequence;
  return check_sizes(header, limits);
}

Error frame_error(FrameFault fault, std::span<const std::byte, FrameHeader::size> bytes) {
  const std::byte* at = bytes.data();
  const std::string tried = "read a frame header";
  // The head of a TLS record that begins a handshake.
  if (at[0] == std::byte{22} && at[1] == std::byte{3})
    return Error(Errc::unauthenticated, tried,
                 "the other end speaks TLS, and this one does not encrypt",
                 "give both nodes the same key file, or both certificates of one authority");
  if (fault == FrameFault::version)
    return Error(
        Errc::version_mismatch, tried,
        "it has version " + std::to_string(static_cast<unsigned>(at[0])) +
            ", this node speaks version " + std::to_string(FrameHeader::version),
        "run the same release on both ends, and check that the port is a Hyperframes port");
  if (fault == FrameFault::checksum)
    return Error(
        Errc::corrupt, tried, "its checksum is wrong",
        "what is on the other end does not speak this protocol, or the bytes were damaged");
  const auto number = [&](std::size_t offset) {
    return std::to_string(load_little<std::uint64_t>(at + offset));
  };
  return Error(Errc::corrupt, tried,
               "its " + std::string(name(fault)) + " is out of range: kind " +
                   std::to_string(static_cast<unsigned>(at[1])) + ", lane " +
                   std::to_string(static_cast<unsigned>(at[2])) + ", flags " +
                   std::to_string(static_cast<unsigned>(at[3])) + ", channel " +
                   std::to_string(load_little<std::uint32_t>(at + 4)) + ", message " + number(8) +
                   ", offset " + number(16) + ", length " + number(24) + ", total " + number(32) +
                   ", sequence " + number(40));
}

namespace detail {

std::uint64_t encoded_length(const std::byte* header) noexcept {
  return load_little<std::uint64_t>(header + at_length);
}

std::uint64_t encoded_sequence(const std::byte* header) noexcept {
  return load_little<std::uint64_t>(header + at_sequence);
}

void finish_encoded(std::byte* header, std::uint64_t sequence,
                    std::uint64_t acknowledgement) noexcept {
  store_little(header + at_sequence, sequence);
  store_little(header + at_acknowledgement, acknowledgement);
  store_little(header + at_checksum, crc32c({header, at_checksum}));
}

}  // namespace detail
}  // namespace hyperframes::net
