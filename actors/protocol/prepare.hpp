// The first of the generator's two steps: makes a schema acceptable to flatc.
//
//   auto copies = hyperframes::protocol::prepare("counter.fbs", {"include"}, "build/protocol");
//
// flatc refuses methods that take or return FlatBuffers structs, and attributes that the schema
// did not declare. So a copy of the schema (and of what it includes) is written, in which each
// method `Add(Increment):Value` takes and returns a table of its own that has those two types as
// its fields; flatc resolves their names, and the second step reads them from the reflection. Lines
// keep their numbers, and in_originals() turns what flatc says of the copies into the original's.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace hyperframes::protocol {

/// A fault in the schema, as text for whoever runs the build.
class SchemaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the table that stands for a method is called, after service and method.
inline constexpr const char* call_table_suffix = "__Call";

/// A schema, and the copy of it that flatc reads.
struct Copy {
  /// What stands in both, alike.
  struct Piece {
    std::size_t in_copy = 0, in_original = 0, size = 0;
  };
  std::filesystem::path original, path;
  std::string text;           ///< The copy's.
  std::vector<Piece> pieces;  ///< In order.

  /// Where a character of the copy, or what it stands for, is in the original.
  std::size_t original_of(std::size_t in_copy) const noexcept;
};

/// Writes the copies into `folder`, flat, under their own file names. The schema's comes first.
std::vector<Copy> prepare(const std::filesystem::path& schema,
                          const std::vector<std::filesystem::path>& include_folders,
                          const std::filesystem::path& folder);

/// flatc's messages, with the paths, lines and columns of the originals.
std::string in_originals(std::string message, const std::vector<Copy>& copies);

}  // namespace hyperframes::protocol
