#include <hyperframes/actors/protocol/emit.hpp>

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <functional>
#include <hyperframes/actors/protocol/names.hpp>

namespace hyperframes::protocol {
namespace {

std::string_view schema_name(Base base) {
  constexpr std::string_view names[] = {"bool", "byte", "ubyte", "short", "ushort", "int",
                                        "uint", "long", "ulong", "float", "double", "string"};
  return names[static_cast<std::size_t>(base)];
}

std::string flatc_dotted(const Declared& declared) {
  const auto outer = declared.namespace_();
  return fmt::format("{}{}fb.{}", outer, outer.empty() ? "" : ".", declared.name());
}

std::string element_name(const Schema& schema, Base base, int index) {
  if (base == Base::object) return flatc_dotted(schema.objects[static_cast<std::size_t>(index)]);
  if (base == Base::union_value || base == Base::union_type || (index >= 0 && base < Base::string))
    return flatc_dotted(schema.enums[static_cast<std::size_t>(index)]);
  return std::string(schema_name(base));
}

std::string type_name(const Schema& schema, const Type& type) {
  if (type.base == Base::vector) return "[" + element_name(schema, type.element, type.index) + "]";
  if (type.base == Base::array)
    return fmt::format("[{}:{}]", element_name(schema, type.element, type.index), type.length);
  return element_name(schema, type.base, type.index);
}

std::string default_of(const Field& field) {
  const Base base = field.type.base;
  if (base >= Base::string) return "";
  if (field.optional) return " = null";
  if (base == Base::float32 || base == Base::float64) {
    if (std::isnan(field.default_real)) return " = nan";
    if (std::isinf(field.default_real)) return field.default_real > 0 ? " = inf" : " = -inf";
    return fmt::format(" = {}", field.default_real);
  }
  if (base == Base::boolean) return field.default_integer ? " = true" : " = false";
  if (base == Base::uint64)
    return fmt::format(" = {}", static_cast<std::uint64_t>(field.default_integer));
  return fmt::format(" = {}", field.default_integer);
}

void emit_documentation(std::string& out, const std::vector<std::string>& lines,
                        std::string_view indent) {
  for (const auto& line : lines) out += fmt::format("{}///{}\n", indent, line);
}

void open_namespace(std::string& out, const Declared& declared) {
  const auto outer = declared.namespace_();
  out += fmt::format("namespace {}{}fb;\n", outer, outer.empty() ? "" : ".");
}

void emit_enum(std::string& out, const Schema& schema, const Enum& value) {
  open_namespace(out, value);
  emit_documentation(out, value.documentation, "");
  if (value.is_union) {
    out += fmt::format("union {} {{", value.name());
    for (const auto& member : value.values) {
      if (member.type.index < 0) continue;  // NONE
      out += fmt::format(" {}:{} = {},", member.name,
                         element_name(schema, Base::object, member.type.index), member.value);
    }
  } else {
    out += fmt::format("enum {}:{}{} {{", value.name(), schema_name(value.underlying),
                       value.bit_flags ? " (bit_flags)" : "");
    for (const auto& entry : value.values) {
      const auto bits = static_cast<std::uint64_t>(entry.value);
      if (value.bit_flags) {
        out += fmt::format(" {} = {},", entry.name, std::countr_zero(bits));
      } else if (value.underlying == Base::uint64) {
        out += fmt::format(" {} = {},", entry.name, bits);
      } else {
        out += fmt::format(" {} = {},", entry.name, entry.value);
      }
    }
  }
  out += " }\n";
}

void emit_object(std::string& out, const Schema& schema, const Object& object) {
  open_namespace(out, object);
  emit_documentation(out, object.documentation, "");
  out += fmt::format("{} {}{} {{\n", object.is_struct ? "struct" : "table", object.name(),
                     object.is_struct ? fmt::format(" (force_align: {})", object.alignment) : "");
  for (const Field& field : object.fields) {
    if (field.type.base == Base::union_type) continue;  // comes with the union itself
    emit_documentation(out, field.documentation, "  ");
    std::string attributes;
    if (field.deprecated) attributes += ", deprecated";
    if (field.required) attributes += ", required";
    if (field.key) attributes += ", key";
    if (!attributes.empty()) attributes = " (" + attributes.substr(2) + ")";
    out += fmt::format("  {}:{}{}{};\n", field.name, type_name(schema, field.type),
                       object.is_struct ? "" : default_of(field), attributes);
  }
  out += "}\n";
}

}  // namespace

std::vector<int> in_dependency_order(const Schema& schema, bool structs, const std::string& file) {
  std::vector<int> order;
  std::vector<bool> seen(schema.objects.size());
  std::function<void(int)> visit = [&](int index) {
    const auto at = static_cast<std::size_t>(index);
    const Object& object = schema.objects[at];
    if (seen[at] || object.is_struct != structs || object.file != file) return;
    seen[at] = true;
    for (const Field& field : object.fields)
      if (field.type.base == Base::object || field.type.element == Base::object)
        visit(field.type.index);
    order.push_back(index);
  };
  for (std::size_t i = 0; i < schema.objects.size(); ++i) visit(static_cast<int>(i));
  return order;
}

std::string emit_flatc_schema(const Schema& schema, const std::string& file) {
  std::string out;
  if (const auto includes = schema.includes.find(file); includes != schema.includes.end())
    for (const auto& included : includes->second)
      out += fmt::format("include \"{}_fb.fbs\";\n", stem(included));
  for (const auto& value : schema.enums)
    if (!value.is_union && value.file == file) emit_enum(out, schema, value);
  for (const int index : in_dependency_order(schema, true, file))
    emit_object(out, schema, schema.objects[static_cast<std::size_t>(index)]);
  for (const auto& value : schema.enums)
    if (value.is_union && value.file == file) emit_enum(out, schema, value);
  for (const auto& object : schema.objects)
    if (!object.is_struct && object.file == file) emit_object(out, schema, object);
  return out;
}

}  // namespace hyperframes::protocol
