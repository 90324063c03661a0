#include <cstdint>
#include <cstdlib>
#include <hyperframes/net/channel/codec.hpp>
#include <hyperframes/net/channel/message_type.hpp>

// The first byte picks what the rest is: metadata of a message, the opening of a channel, a type's
// name, or a pattern. What is accepted survives another trip, and keeps the rules.
namespace {

using namespace hyperframes::net;

void same(bool is) {
  if (!is) std::abort();
}

void read_metadata(std::span<const std::byte> bytes) {
  auto kept = detail::decode_metadata(bytes);
  if (!kept) return;
  same(kept->metadata.size() <= Metadata::most_entries);
  for (const auto& [key, text] : kept->metadata) same(detail::key_fault(key).empty());
  const MessageType* const type = kept->type ? &*kept->type : nullptr;
  const hyperframes::Buffer again = detail::encode_metadata(type, kept->metadata);
  if (again.empty()) return same(!type && kept->metadata.empty());
  auto other = detail::decode_metadata(again.bytes());
  same(other && other->metadata == kept->metadata && other->type == kept->type);
}

void read_opening(std::span<const std::byte> bytes) {
  auto keys = detail::decode_opening(bytes);
  if (!keys) return;
  same(keys->size() <= detail::most_keys);
  same(detail::decode_opening(detail::encode_opening(*keys).bytes()).value() == *keys);
}

void read_type(std::string_view name) {
  auto type = MessageType::try_parse(name);
  if (!type) return;
  same(type->name() == name && name.size() <= MessageType::longest_name);
  same(TypeFilter(*type).matches(*type) && TypeFilter().matches(*type));
  const std::string module(name.substr(0, name.find('.')));
  same(TypeFilter(module + ".*").matches(*type));
}

void read_pattern(std::string_view pattern) {
  static const MessageType type("ml.splitter.batch");
  try {
    (void)TypeFilter(pattern).matches(type);
  } catch (const hyperframes::Error&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: read_metadata(bytes); break;
    case 1: read_opening(bytes); break;
    case 2: read_type(text); break;
    default: read_pattern(text);
  }
  return 0;
}
