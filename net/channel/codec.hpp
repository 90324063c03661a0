// How channels read and write what stands in a message's metadata and in the opening of a channel.
//
//   hf::Buffer bytes = encode_metadata(&type, metadata);         // with the name of the type
//   Result<ReadMetadata> read = decode_metadata(bytes.bytes());  // verified, and copied out
#pragma once

#include <cstddef>
#include <hyperframes/net/channel/message_type.hpp>
#include <hyperframes/net/channel/metadata.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/error.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::net::detail {

inline constexpr std::size_t most_keys = 256, longest_key = 64;

/// What is wrong with a key that a program or a peer declares, or nothing.
std::string key_fault(std::string_view key);

/// Empty if there is nothing to say. `named`: the type whose name goes along, or null. Throws
/// Errc::too_large for more than Metadata::most_entries.
Buffer encode_metadata(const MessageType* named, const Metadata& metadata);
Buffer encode_opening(const std::vector<std::string>& keys);

struct ReadMetadata {
  std::optional<MessageType> type;
  Metadata metadata;
};
/// Of bytes that may be anything: Errc::corrupt says what is wrong. They may lie anywhere, and may
/// change meanwhile without harm: they are copied out before they are looked at.
Result<ReadMetadata> decode_metadata(std::span<const std::byte> bytes);
/// The keys, sorted and each once.
Result<std::vector<std::string>> decode_opening(std::span<const std::byte> bytes);

}  // namespace hyperframes::net::detail
