// A schema as the generator works on it, read from flatc's reflection output.
//
//   auto schema = hyperframes::protocol::read_schema("counter.bfbs", "counter.fbs");
//   for (const auto& service : schema.services) emit(schema, service);
//
// Holds everything that the file and its includes declare; `in_file` says what is its own. The
// tables that `prepare` put in place of methods are resolved and gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::protocol {

enum class Base : std::uint8_t {
  boolean,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  string,
  object,
  union_value,
  union_type,
  vector,
  array,
  none
};

struct Type {
  Base base = Base::none;
  Base element = Base::none;  ///< Of a vector or array.
  int index = -1;             ///< Into `objects`, or into `enums` (also of scalars).
  std::uint16_t length = 0;   ///< Of an array.
};

struct Field {
  std::string name;
  Type type;
  std::uint16_t id = 0;
  std::uint16_t offset = 0;  ///< In a struct: bytes from its start.
  std::int64_t default_integer = 0;
  double default_real = 0;
  bool deprecated = false, required = false, optional = false, key = false;
  std::vector<std::string> documentation;
};

struct Declared {
  std::string full_name;  ///< With its namespace, separated by dots.
  std::vector<std::string> documentation;
  std::string file;  ///< File name of the schema that declares it.
  bool in_file = false;

  std::string_view name() const;        ///< Without the namespace.
  std::string_view namespace_() const;  ///< "a.b", or empty.
};

struct Object : Declared {
  bool is_struct = false;
  int alignment = 1;
  int size = 0;
  std::vector<Field> fields;  ///< By id.
};

struct EnumValue {
  std::string name;
  std::int64_t value = 0;
  Type type;  ///< Of a union's member.
  std::vector<std::string> documentation;
};

struct Enum : Declared {
  bool is_union = false;
  bool bit_flags = false;
  Base underlying = Base::int32;
  std::vector<EnumValue> values;
};

struct Method {
  std::string name;
  int request = -1, response = -1;  ///< Into `objects`.
  bool interleaved = false, oneway = false, bulk = false;
  bool request_segments = false, response_segments = false;
  std::string streaming;  ///< "server", "client", "bidi", or empty.
  std::vector<std::string> documentation;
};

struct Service : Declared {
  std::vector<Method> methods;
};

struct Schema {
  std::string file;  ///< File name of the schema.
  /// What each file includes, by file name.
  std::map<std::string, std::vector<std::string>> includes;
  std::vector<Object> objects;
  std::vector<Enum> enums;
  std::vector<Service> services;
};

/// Reads flatc's output for the schema of that file name. Throws SchemaError, in words for its
/// author, where this generator does not support what the schema asks for.
Schema read_schema(const std::filesystem::path& reflection, const std::string& file);

/// The number by which a type, method or service is known on the wire: FNV-1a of its full name.
std::uint64_t id_of(std::string_view full_name);

}  // namespace hyperframes::protocol
