#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/message.hpp>

namespace hyperframes::net {
namespace {

using detail::load_little;
using detail::store_little;

// The envelope on the wire, by offset: u64 type id, target, source, correlation; i64 deadline; u64
// context; u32 reply room, metadata size, body size; u16 segment count; u8 kind, flags.
constexpr std::size_t at_target = 8, at_source = 16, at_correlation = 24, at_deadline = 32,
                      at_context = 40, at_room = 48, at_metadata = 52, at_body = 56,
                      at_segments = 60, at_kind = 62, at_flags = 63;

Error corrupt(std::string found) {
  return Error(Errc::corrupt, "read a message", std::move(found));
}

std::string over(const char* what, std::uint64_t size, std::uint64_t limit) {
  return std::string(what) + " " + std::to_string(size) + ", the limit is " + std::to_string(limit);
}

}  // namespace

Envelope answer_to(const Envelope& ask, MessageKind kind) noexcept {
  Envelope answer;
  answer.type_id = ask.type_id;
  answer.target = ask.source;
  answer.source = ask.target;
  answer.correlation = ask.correlation;
  answer.context = ask.context;
  answer.reply_room = ask.reply_room;
  answer.kind = kind;
  answer.link = ask.link;
  return answer;
}

void make_movable(Message& message) {
  const auto detach = [](Buffer& buffer) {
    if (!buffer.empty() && !buffer.unique()) buffer = buffer.proxy();
  };
  detach(message.metadata);
  detach(message.body);
  for (Buffer& segment : message.segments) detach(segment);
}

namespace wire {

std::uint64_t size_of(const Message& message) {
  const auto check = [](const char* what, std::size_t size, std::size_t limit) {
    if (size > limit)
      throw Error(Errc::too_large, "send a message", over(what, size, limit),
                  "put large data into segments, or split the message");
  };
  if (message.segments.empty() && message.metadata.empty() && message.body.size() <= max_body)
    return envelope_size + message.body.size();  // most messages
  check("the bytes of its metadata are", message.metadata.size(), max_metadata);
  check("the bytes of its body are", message.body.size(), max_body);
  check("the number of its segments is", message.segments.count(), max_segments);
  std::uint64_t end = envelope_size + message.segments.count() * sizeof(std::uint64_t);
  const auto add = [&end](std::size_t size) {
    if (size) end = align_part(end) + size;
  };
  add(message.metadata.size());
  add(message.body.size());
  for (const Buffer& segment : message.segments) add(segment.size());
  return end;
}

void encode_head(const Message& message, std::span<std::byte, envelope_size> into) noexcept {
  std::byte* at = into.data();
  const Envelope& envelope = message.envelope;
  store_little(at, envelope.type_id);
  store_little(at + at_target, envelope.target);
  store_little(at + at_source, envelope.source);
  store_little(at + at_correlation, envelope.correlation);
  // What has expired meanwhile is still sent, so that an ask gets its answer.
  const std::int64_t deadline = envelope.deadline_ns < 0 ? 1 : envelope.deadline_ns;
  store_little(at + at_deadline, static_cast<std::uint64_t>(deadline));
  store_little(at + at_context, envelope.context);
  store_little(at + at_room, envelope.reply_room);
  store_little(at + at_metadata, static_cast<std::uint32_t>(message.metadata.size()));
  store_little(at + at_body, static_cast<std::uint32_t>(message.body.size()));
  store_little(at + at_segments, static_cast<std::uint16_t>(message.segments.count()));
  at[at_kind] = static_cast<std::byte>(envelope.kind);
  at[at_flags] = static_cast<std::byte>(envelope.flags);
}

bool read_head(std::span<const std::byte, envelope_size> bytes, std::uint64_t total,
               MessageHead& head) noexcept {
  const std::byte* at = bytes.data();
  head.envelope.type_id = load_little<std::uint64_t>(at);
  head.envelope.target = load_little<std::uint64_t>(at + at_target);
  head.envelope.source = load_little<std::uint64_t>(at + at_source);
  head.envelope.correlation = load_little<std::uint64_t>(at + at_correlation);
  head.envelope.deadline_ns =
      static_cast<std::int64_t>(load_little<std::uint64_t>(at + at_deadline));
  head.envelope.context = load_little<std::uint64_t>(at + at_context);
  head.envelope.reply_room = load_little<std::uint32_t>(at + at_room);
  head.metadata_size = load_little<std::uint32_t>(at + at_metadata);
  head.body_size = load_little<std::uint32_t>(at + at_body);
  head.segment_count = load_little<std::uint16_t>(at + at_segments);
  head.envelope.kind = static_cast<MessageKind>(at[at_kind]);
  head.envelope.flags = static_cast<std::uint8_t>(at[at_flags]);
  return head.envelope.kind <= last_message_kind && head.envelope.deadline_ns >= 0 &&
         head.metadata_size <= max_metadata && head.body_size <= max_body &&
         head.segment_count <= max_segments && head.least_size() <= total;
}

Result<MessageHead> decode_head(std::span<const std::byte, envelope_size> bytes,
                                std::uint64_t total) {
  MessageHead head;
  if (read_head(bytes, total, head)) return head;
  if (head.envelope.kind > last_message_kind)
    return corrupt("its kind is " + std::to_string(static_cast<unsigned>(head.envelope.kind)) +
                   ", which this node does not know");
  if (head.envelope.deadline_ns < 0) return corrupt("its deadline is negative");
  if (head.metadata_size > max_metadata)
    return corrupt(over("the bytes of its metadata are", head.metadata_size, max_metadata));
  if (head.body_size > max_body)
    return corrupt(over("the bytes of its body are", head.body_size, max_body));
  if (head.segment_count > max_segments)
    return corrupt(over("the number of its segments is", head.segment_count, max_segments));
  return corrupt("its parts take at least " + std::to_string(head.least_size()) +
                 " bytes, it has " + std::to_string(total));
}

namespace {

/// `lengths` may be read if the prefix fits into the message.
template <class Part>
Result<Message> cut_parts(const MessageHead& head, std::uint64_t total, const std::byte* lengths,
                          const Part& part) {
  Message message;
  message.envelope = head.envelope;
  std::uint64_t end = head.prefix_size();
  bool fits = end <= total;
  const auto take = [&](std::uint64_t size, bool is_segment) -> Buffer {
    if (!size || !fits) return {};
    const std::uint64_t begin = align_part(end);
    fits = begin <= total && size <= total - begin;
    if (!fits) return {};
    end = begin + size;
    return part(begin, size, is_segment);
  };
  message.metadata = take(head.metadata_size, false);
  message.body = take(head.body_size, false);
  for (std::size_t i = 0; i < head.segment_count && fits; ++i)
    message.segments.push_back(
        take(load_little<std::uint64_t>(lengths + i * sizeof(std::uint64_t)), true));
  if (!fits || end != total)
    return corrupt("its parts do not add up to its " + std::to_string(total) + " bytes");
  return message;
}

}  // namespace

Result<Message> decode_parts(const MessageHead& head, Buffer rest) {
  const std::uint64_t total = envelope_size + rest.size();
  if (head.only_body(total)) {
    Message message;
    message.envelope = head.envelope;
    message.body = std::move(rest);
    return message;
  }
  return cut_parts(head, total, rest.data(), [&](std::uint64_t begin, std::uint64_t size, bool) {
    return rest.slice(begin - envelope_size, size);
  });
}

Result<Message> decode_scattered(
    const MessageHead& head, std::uint64_t total, const std::byte* lengths,
    const std::function<Buffer(std::uint64_t, std::uint64_t, bool)>& part) {
  return cut_parts(head, total, lengths, part);
}

Result<Message> decode(Buffer memory) {
  if (memory.size() < envelope_size) return corrupt("it is shorter than an envelope");
  auto head = decode_head(std::span<const std::byte, envelope_size>(memory.data(), envelope_size),
                          memory.size());
  if (!head) return head.error();
  memory.remove_prefix(envelope_size);
  return decode_parts(*head, std::move(memory));
}

}  // namespace wire
}  // namespace hyperframes::net
