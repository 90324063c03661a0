// The first of the generator's two steps: makes a schema acceptable to flatc.
//
//   auto files = hyperframes::protocol::prepare("counter.fbs", {"include"}, "build/protocol");
//
// flatc refuses methods that take or return FlatBuffers structs, and attributes that the schema
// did not declare. So a copy of the schema (and of what it includes) is written, in which each
// method `Add(Increment):Value` takes and returns a table of its own that has those two types as
// its fields; flatc resolves their names, and the second step reads them from the reflection. Lines
// keep their numbers, so that flatc's messages fit the original.
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

/// Writes the copies into `folder`, flat, under their own file names. Returns the originals read.
std::vector<std::filesystem::path> prepare(
    const std::filesystem::path& schema, const std::vector<std::filesystem::path>& include_folders,
    const std::filesystem::path& folder);

}  // namespace hyperframes::protocol
