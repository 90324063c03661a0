// What generated code builds and verifies tables with. Only generated sources include it: it names
// FlatBuffers' types.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstring>
#include <hyperframes/actors/detail/pooled_buffer.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/error.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace hyperframes::detail {

/// Limits for tables from outside the process.
inline constexpr unsigned max_table_depth = 32;
inline constexpr unsigned max_tables = 1'000'000;

/// `fill(builder)` finishes one table. Its bytes are copied into memory of the current shard.
template <class Fill>
Buffer build_table(Fill&& fill) {
  // Kept between calls for its memory; the call neither suspends nor nests.
  static thread_local flatbuffers::FlatBufferBuilder builder;
  struct Clear {
    ~Clear() {
      if (builder.GetSize() > (64u << 10)) {
        builder = flatbuffers::FlatBufferBuilder();
      } else {
        builder.Clear();
      }
    }
  } clear;
  fill(builder);
  Buffer buffer = pooled_buffer(builder.GetSize());
  std::memcpy(buffer.data(), builder.GetBufferPointer(), builder.GetSize());
  return buffer;
}

[[noreturn]] inline void missing_field(const char* table, const char* field) {
  throw Error(Errc::invalid_argument, std::string("build a ") + table,
              std::string("its required field '") + field + "' is not set");
}

template <class Table, class Fields, class Pack>
auto pack_all(flatbuffers::FlatBufferBuilder& builder, const std::vector<Fields>& all, Pack pack) {
  std::vector<flatbuffers::Offset<Table>> offsets;
  offsets.reserve(all.size());
  for (const auto& element : all) offsets.push_back(pack(element));
  return builder.CreateVector(offsets);
}

template <class Enum>
auto pack_enums(flatbuffers::FlatBufferBuilder& builder, const std::vector<Enum>& all) {
  using Underlying = std::underlying_type_t<Enum>;
  const auto offset =
      builder.CreateVector(reinterpret_cast<const Underlying*>(all.data()), all.size());
  return flatbuffers::Offset<flatbuffers::Vector<Enum>>(offset.o);
}

inline Error not_verified(const char* type, const std::string& found) {
  return Error(Errc::verification_failed, std::string("read a ") + type + " from a peer", found,
               "check that both ends use compatible versions of its schema");
}

/// Checks a table from outside. `unknown_value(root)` names a field with a value that the schema
/// does not know, or is null.
template <class View, class UnknownValue>
Result<View> verify_table(Buffer buffer, UnknownValue unknown_value) {
  using Root = std::remove_cvref_t<decltype(std::declval<const View&>().root())>;
  const auto* data = reinterpret_cast<const std::uint8_t*>(buffer.data());
  if (buffer.size() < sizeof(flatbuffers::uoffset_t))
    return not_verified(View::type_name,
                        "its " + std::to_string(buffer.size()) + " bytes are too few");
  if (buffer.size() >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return not_verified(View::type_name,
                        "its " + std::to_string(buffer.size()) + " bytes are too many");
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) {
    Buffer aligned = pooled_buffer(buffer.size());
    std::memcpy(aligned.data(), buffer.data(), buffer.size());
    buffer = std::move(aligned);
    data = reinterpret_cast<const std::uint8_t*>(buffer.data());
  }
  flatbuffers::Verifier verifier(data, buffer.size(), max_table_depth, max_tables);
  if (!verifier.VerifyBuffer<Root>(nullptr))
    return not_verified(View::type_name, "its bytes do not follow the FlatBuffers format");
  if (const char* field = unknown_value(*flatbuffers::GetRoot<Root>(data)))
    return not_verified(View::type_name, std::string("field ") + field +
                                             " has a value that the schema does not know");
  return View::unverified(std::move(buffer));
}

}  // namespace hyperframes::detail
