#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <cstring>
#include <hyperframes/net/channel/codec.hpp>
#include <hyperframes/net/message.hpp>

#include "channel_generated.h"

namespace hyperframes::net::detail {
namespace {

Error malformed(std::string what, std::string found) {
  return Error(Errc::corrupt, "read " + std::move(what), std::move(found),
               "run the same release on both ends");
}

Buffer finished(flatbuffers::FlatBufferBuilder& builder) {
  return Buffer::copy_of(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())));
}

/// A copy, on a boundary that suits FlatBuffers, and its root table; null if that does not verify.
template <class Table>
class Verified {
 public:
  /// Flat tables: anything deeper or wider than `most_tables` is none of ours.
  Verified(std::span<const std::byte> bytes, std::size_t limit, std::size_t most_tables) {
    // The length before all else: the verifier trusts that it is one.
    if (bytes.size() < 8 || bytes.size() > limit) return;
    memory_.resize((bytes.size() + 7) / 8);
    auto* copy = reinterpret_cast<std::uint8_t*>(memory_.data());
    std::memcpy(copy, bytes.data(), bytes.size());
    flatbuffers::Verifier verifier(copy, bytes.size(), 4,
                                   static_cast<flatbuffers::uoffset_t>(most_tables));
    if (verifier.VerifyBuffer<Table>(nullptr)) table_ = flatbuffers::GetRoot<Table>(copy);
  }
  explicit operator bool() const noexcept { return table_; }
  const Table* operator->() const noexcept { return table_; }

 private:
  std::vector<std::uint64_t> memory_;
  const Table* table_ = nullptr;
};

}  // namespace

std::string key_fault(std::string_view key) {
  if (key.empty()) return "a key is empty";
  if (key.size() > longest_key)
    return "a key has " + std::to_string(key.size()) + " characters, the limit is " +
           std::to_string(longest_key);
  for (const char c : key) {
    const bool fine =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    if (!fine) return "a key holds something else than small letters, digits, '_', '-' and '.'";
  }
  return {};
}

Buffer encode_metadata(const MessageType* named, const Metadata& metadata) {
  if (!named && metadata.empty()) return {};
  if (metadata.size() > Metadata::most_entries)
    throw Error(Errc::too_large, "send a message",
                "its metadata has " + std::to_string(metadata.size()) + " entries, the limit is " +
                    std::to_string(Metadata::most_entries),
                "put data into the body or into segments");
  flatbuffers::FlatBufferBuilder builder(256);
  std::vector<flatbuffers::Offset<fb::MetadataEntry>> entries;
  entries.reserve(metadata.size());
  for (const auto& [key, text] : metadata) {
    const auto key_at = builder.CreateString(key);
    const auto text_at = builder.CreateString(text);
    entries.push_back(fb::CreateMetadataEntry(builder, key_at, text_at));
  }
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::MetadataEntry>>> entries_at;
  if (!entries.empty()) entries_at = builder.CreateVector(entries);
  flatbuffers::Offset<flatbuffers::String> name_at;
  if (named) name_at = builder.CreateString(named->name().data(), named->name().size());
  builder.Finish(fb::CreateMetadata(builder, name_at, entries_at));
  return finished(builder);
}

Buffer encode_opening(const std::vector<std::string>& keys) {
  flatbuffers::FlatBufferBuilder builder(256);
  builder.Finish(fb::CreateOpening(builder, builder.CreateVectorOfStrings(keys)));
  return finished(builder);
}

Result<ReadMetadata> decode_metadata(std::span<const std::byte> bytes) {
  const Verified<fb::Metadata> table(bytes, wire::max_metadata, Metadata::most_entries + 1);
  if (!table) return malformed("a message's metadata", "it does not verify");
  ReadMetadata read;
  if (const auto* name = table->type_name()) {
    auto type = MessageType::try_parse({name->c_str(), name->size()});
    if (!type) return malformed("a message's type", type.error().what());
    read.type = std::move(*type);
  }
  if (!table->entries()) return read;
  if (table->entries()->size() > Metadata::most_entries)
    return malformed("a message's metadata", "it has too many entries");
  for (const fb::MetadataEntry* entry : *table->entries()) {
    const std::string_view key(entry->key()->c_str(), entry->key()->size());
    if (std::string fault = key_fault(key); !fault.empty())
      return malformed("a message's metadata", std::move(fault));
    if (read.metadata.find(key))
      return malformed("a message's metadata", "it has the key '" + std::string(key) + "' twice");
    read.metadata.set(std::string(key), entry->text()->str());
  }
  return read;
}

Result<std::vector<std::string>> decode_opening(std::span<const std::byte> bytes) {
  constexpr std::size_t limit = 2 * most_keys * (longest_key + 16);
  const Verified<fb::Opening> table(bytes, limit, 1);
  if (!table) return malformed("the opening of a channel", "it does not verify");
  std::vector<std::string> keys;
  if (!table->keys()) return keys;
  if (table->keys()->size() > most_keys)
    return malformed("the opening of a channel", "it declares too many keys");
  for (const flatbuffers::String* key : *table->keys()) {
    if (std::string fault = key_fault({key->c_str(), key->size()}); !fault.empty())
      return malformed("the opening of a channel", std::move(fault));
    keys.push_back(key->str());
  }
  std::ranges::sort(keys);
  const auto twice = std::ranges::unique(keys);
  keys.erase(twice.begin(), twice.end());
  return keys;
}

}  // namespace hyperframes::net::detail
