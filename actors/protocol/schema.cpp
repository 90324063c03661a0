#include <hyperframes/actors/protocol/schema.hpp>

#include <flatbuffers/reflection_generated.h>

#include <algorithm>
#include <fstream>
#include <hyperframes/actors/protocol/names.hpp>
#include <hyperframes/actors/protocol/prepare.hpp>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace hyperframes::protocol {
namespace {

Base base_of(reflection::BaseType type) {
  using reflection::BaseType;
  switch (type) {
    case BaseType::UType: return Base::union_type;
    case BaseType::Bool: return Base::boolean;
    case BaseType::Byte: return Base::int8;
    case BaseType::UByte: return Base::uint8;
    case BaseType::Short: return Base::int16;
    case BaseType::UShort: return Base::uint16;
    case BaseType::Int: return Base::int32;
    case BaseType::UInt: return Base::uint32;
    case BaseType::Long: return Base::int64;
    case BaseType::ULong: return Base::uint64;
    case BaseType::Float: return Base::float32;
    case BaseType::Double: return Base::float64;
    case BaseType::String: return Base::string;
    case BaseType::Vector: return Base::vector;
    case BaseType::Obj: return Base::object;
    case BaseType::Union: return Base::union_value;
    case BaseType::Array: return Base::array;
    default: return Base::none;
  }
}

Type type_of(const reflection::Type* type) {
  if (!type) return {};
  return {base_of(type->base_type()), base_of(type->element()), type->index(),
          type->fixed_length()};
}

using Strings = flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>;
std::vector<std::string> lines_of(const Strings* lines) {
  std::vector<std::string> result;
  if (lines)
    for (const auto* line : *lines) result.push_back(line->str());
  return result;
}

using Attributes = flatbuffers::Vector<flatbuffers::Offset<reflection::KeyValue>>;
/// Null if the attribute is not there.
const flatbuffers::String* attribute(const Attributes* attributes, const char* name) {
  if (!attributes) return nullptr;
  const auto* entry = attributes->LookupByKey(name);
  return entry ? entry->value() : nullptr;
}

template <class Source>
void read_declared(const Source& source, const std::string& file, Declared& into) {
  into.full_name = source.name()->str();
  into.documentation = lines_of(source.documentation());
  if (source.declaration_file()) {
    into.file = std::filesystem::path(source.declaration_file()->str()).filename().string();
    into.in_file = into.file == file;
  }
}

Field read_field(const reflection::Field& source, const std::string& owner) {
  Field field;
  field.name = source.name()->str();
  field.type = type_of(source.type());
  field.id = source.id();
  field.offset = source.offset();
  field.default_integer = source.default_integer();
  field.default_real = source.default_real();
  field.deprecated = source.deprecated();
  field.required = source.required();
  field.optional = source.optional();
  field.key = source.key();
  field.documentation = lines_of(source.documentation());
  const auto refuse = [&](const char* what) {
    throw SchemaError("field " + field.name + " of " + owner + " " + what);
  };
  if (attribute(source.attributes(), "nested_flatbuffer"))
    refuse("is a nested buffer, which protocols do not allow; use a table or segments");
  if (attribute(source.attributes(), "flexbuffer"))
    refuse("is a flexbuffer, which protocols do not allow; use a table or segments");
  const Base element = field.type.element;
  if (field.type.base == Base::vector &&
      (element == Base::union_value || element == Base::union_type))
    refuse("is a vector of unions; put the union into a table and use a vector of that");
  return field;
}

Object read_object(const reflection::Object& source, const std::string& file) {
  Object object;
  read_declared(source, file, object);
  object.is_struct = source.is_struct();
  object.alignment = source.minalign();
  object.size = source.bytesize();
  for (const auto* field : *source.fields())
    object.fields.push_back(read_field(*field, object.full_name));
  std::ranges::sort(object.fields, {}, &Field::id);
  return object;
}

Enum read_enum(const reflection::Enum& source, const std::string& file) {
  Enum result;
  read_declared(source, file, result);
  result.is_union = source.is_union();
  result.bit_flags = attribute(source.attributes(), "bit_flags") != nullptr;
  result.underlying = type_of(source.underlying_type()).base;
  for (const auto* value : *source.values()) {
    result.values.push_back({value->name()->str(), value->value(), type_of(value->union_type()),
                             lines_of(value->documentation())});
    if (result.is_union && result.values.back().type.base == Base::string)
      throw SchemaError("union " + result.full_name +
                        " has a string as member; put the string into a table");
  }
  return result;
}

int call_type(const Object& call, const char* field, const std::string& method) {
  for (const Field& candidate : call.fields) {
    if (candidate.name != field) continue;
    if (candidate.type.base == Base::object) return candidate.type.index;
    break;
  }
  throw SchemaError("the " + std::string(field) + " of " + method +
                    " is neither a table nor a struct");
}

void check_streaming(const Method& method, const std::string& full_name,
                     const Attributes* attributes) {
  if (method.streaming != "server" && method.streaming != "client" && method.streaming != "bidi")
    throw SchemaError(full_name + " has streaming: \"" + method.streaming +
                      "\"; it must be \"server\", \"client\" or \"bidi\"");
  if (attribute(attributes, "oneway"))
    throw SchemaError(full_name + " streams, and is oneway; take one of both away");
  if (attribute(attributes, "segments"))
    throw SchemaError(full_name +
                      " streams, and has segments, which streams do not carry; put the data into a "
                      "table, or use a method without streaming");
}

Method read_method(const reflection::RPCCall& source, const Schema& schema,
                   const std::string& service) {
  Method method;
  method.name = source.name()->str();
  method.documentation = lines_of(source.documentation());
  const std::string full_name = service + "." + method.name;
  const auto call =
      std::ranges::find(schema.objects, source.request()->name()->str(), &Object::full_name);
  method.request = call_type(*call, "request", full_name);
  method.response = call_type(*call, "response", full_name);

  const auto* attributes = source.attributes();
  if (const auto* streaming = attribute(attributes, "streaming")) {
    method.streaming = streaming->str();
    if (method.streaming == "none") method.streaming.clear();
    if (!method.streaming.empty()) check_streaming(method, full_name, attributes);
  }
  method.interleaved = attribute(attributes, "interleaved");
  method.oneway = attribute(attributes, "oneway");
  method.bulk = attribute(attributes, "bulk");
  if (const auto* segments = attribute(attributes, "segments")) {
    const std::string which = segments->str();
    if (which != "request" && which != "reply" && which != "both")
      throw SchemaError(full_name + " has segments: \"" + which +
                        "\"; it must be \"request\", \"reply\" or \"both\"");
    method.request_segments = which != "reply";
    method.response_segments = which != "request" && !method.oneway;
  }
  return method;
}

/// A method is up to three functions of its Ref, and one of the actor's.
void check_method_names(const Service& service) {
  std::map<std::string, std::string> methods;  // by function
  for (const Method& method : service.methods) {
    std::vector<std::string> functions = {method_name(method.name)};
    if (method.streaming.empty()) {
      functions.push_back("try_" + snake_case(method.name));
      if (!method.oneway) functions.push_back("tell_" + snake_case(method.name));
    }
    for (const std::string& function : functions) {
      const auto [entry, is_new] = methods.try_emplace(function, method.name);
      if (!is_new)
        throw SchemaError("methods " + entry->second + " and " + method.name + " of " +
                          service.full_name + " would both be " + function +
                          "() in C++; rename one of them");
    }
  }
}

void check_ids(const Schema& schema) {
  std::map<std::uint64_t, std::string> names;
  const auto add = [&](const std::string& name) {
    const auto [entry, is_new] = names.try_emplace(id_of(name), name);
    if (is_new) return;
    if (entry->second == name)
      throw SchemaError("a table or struct and a service are both called " + name +
                        "; rename one of them");
    throw SchemaError(name + " and " + entry->second +
                      " have the same type id; rename one of them");
  };
  for (const auto& object : schema.objects) add(object.full_name);
  for (const auto& service : schema.services) {
    add(service.full_name);
    for (const auto& method : service.methods) add(service.full_name + "." + method.name);
  }
}

/// What is generated beside what the schema declares must not be called like that. Flat and scoped
/// names are all that C++ sees.
void check_generated_names(const Schema& schema) {
  std::map<std::string, std::string> declared;
  for (const auto& object : schema.objects) declared.emplace(object.full_name, object.full_name);
  for (const auto& value : schema.enums) declared.emplace(value.full_name, value.full_name);
  for (const auto& service : schema.services)
    declared.emplace(service.full_name, service.full_name);
  const auto check = [&](const std::string& owner, const char* suffix) {
    if (!declared.contains(owner + suffix)) return;
    throw SchemaError(owner + suffix + " is what is made for " + owner +
                      " in C++; rename one of them");
  };
  for (const auto& object : schema.objects) check(object.full_name, "Fields");
  for (const auto& service : schema.services) check(service.full_name, "Ref");
}

/// Generated code says hf:: and hyperframes::, which are the library's.
void check_namespaces(const Schema& schema) {
  const auto check = [](const Declared& declared) {
    if (!declared.in_file) return;
    const std::string_view all = declared.full_name;
    const auto outermost = all.substr(0, all.find('.'));
    if (outermost == "hf")
      throw SchemaError("the namespace hf, in which " + declared.full_name +
                        " is, is a name of the library; choose another");
  };
  for (const auto& object : schema.objects) check(object);
  for (const auto& value : schema.enums) check(value);
  for (const auto& service : schema.services) check(service);
}

// Indexes refer past the tables that stand for methods, so those stay, but belong to no file.
void hide_call_tables(Schema& schema) {
  const std::string_view suffix = call_table_suffix;
  for (auto& object : schema.objects) {
    if (!std::string_view(object.full_name).ends_with(suffix)) continue;
    object.in_file = false;
    object.file.clear();
  }
}

}  // namespace

std::string_view Declared::name() const {
  const std::string_view all = full_name;
  const auto dot = all.rfind('.');
  return dot == std::string_view::npos ? all : all.substr(dot + 1);
}

std::string_view Declared::namespace_() const {
  const std::string_view all = full_name;
  const auto dot = all.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : all.substr(0, dot);
}

std::uint64_t id_of(std::string_view full_name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : full_name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

Schema read_schema(const std::filesystem::path& reflection, const std::string& file) {
  std::ifstream stream(reflection, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  const std::string bytes = text.str();
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (!reflection::VerifySchemaBuffer(verifier))
    throw SchemaError(reflection.string() + " is not flatc's binary schema");
  const reflection::Schema& source = *reflection::GetSchema(bytes.data());

  Schema schema;
  schema.file = file;
  for (const auto* object : *source.objects()) schema.objects.push_back(read_object(*object, file));
  for (const auto* value : *source.enums()) schema.enums.push_back(read_enum(*value, file));
  if (source.services()) {
    for (const auto* entry : *source.services()) {
      Service service;
      read_declared(*entry, file, service);
      if (!service.in_file) continue;
      for (const auto* call : *entry->calls())
        service.methods.push_back(read_method(*call, schema, service.full_name));
      schema.services.push_back(std::move(service));
    }
  }
  if (source.fbs_files()) {
    for (const auto* entry : *source.fbs_files()) {
      auto& includes =
          schema.includes[std::filesystem::path(entry->filename()->str()).filename().string()];
      if (!entry->included_filenames()) continue;
      for (const auto* included : *entry->included_filenames())
        includes.push_back(std::filesystem::path(included->str()).filename().string());
    }
  }
  check_ids(schema);
  check_generated_names(schema);
  check_namespaces(schema);
  for (const Service& service : schema.services) check_method_names(service);
  hide_call_tables(schema);
  return schema;
}

}  // namespace hyperframes::protocol
