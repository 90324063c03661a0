#include <hyperframes/actors/protocol/cpp_types.hpp>

#include <fmt/format.h>

#include <cmath>
#include <hyperframes/actors/protocol/names.hpp>
#include <limits>

namespace hyperframes::protocol {
namespace {

std::string integer_literal(Base base, std::int64_t value) {
  if (base == Base::uint64) return fmt::format("{}u", static_cast<std::uint64_t>(value));
  if (value == std::numeric_limits<std::int64_t>::min()) return "(-9223372036854775807 - 1)";
  return fmt::format("{}", value);
}

std::string real_literal(Base base, double value) {
  const char* type = base == Base::float32 ? "float" : "double";
  if (std::isnan(value)) return fmt::format("std::numeric_limits<{}>::quiet_NaN()", type);
  if (std::isinf(value))
    return fmt::format("{}std::numeric_limits<{}>::infinity()", value < 0 ? "-" : "", type);
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return base == Base::float32 ? text + "f" : text;
}

}  // namespace

std::string CppTypes::scalar(Base base, int index) const {
  if (is_enum(base, index)) return cpp_name(enumeration(index));
  constexpr const char* names[] = {"bool",          "std::int8_t",  "std::uint8_t",  "std::int16_t",
                                   "std::uint16_t", "std::int32_t", "std::uint32_t", "std::int64_t",
                                   "std::uint64_t", "float",        "double"};
  return names[static_cast<std::size_t>(base)];
}

std::string CppTypes::fields_name(int index) const { return cpp_name(object(index)) + "Fields"; }

std::string CppTypes::element(const Type& type) const {
  if (type.element == Base::string) return "std::string";
  if (type.element == Base::object)
    return object(type.index).is_struct ? cpp_name(object(type.index)) : fields_name(type.index);
  // std::vector<bool> has no contiguous memory.
  if (type.element == Base::boolean && type.base == Base::vector) return "std::uint8_t";
  return scalar(type.element, type.index);
}

std::string CppTypes::variant(const Enum& value) const {
  std::string result = "std::variant<std::monostate";
  for (const auto& member : value.values) {
    if (member.type.index < 0) continue;
    result += object(member.type.index).is_struct
                  ? ", " + cpp_name(object(member.type.index))
                  : fmt::format(", ::hyperframes::Nested<{}>", fields_name(member.type.index));
  }
  return result + ">";
}

std::string CppTypes::field_type(const Field& field) const {
  const Type& type = field.type;
  switch (type.base) {
    case Base::string: return "std::string";
    case Base::vector: {
      // Tables that contain each other can't all be complete first.
      const bool waits = type.element == Base::object && object(type.index).in_file &&
                         !object(type.index).is_struct && !complete_.contains(&object(type.index));
      return fmt::format("{}<{}>", waits ? "::hyperframes::NestedVector" : "std::vector",
                         element(type));
    }
    case Base::array: return fmt::format("std::array<{}, {}>", element(type), type.length);
    case Base::union_value: return variant(enumeration(type.index));
    case Base::object:
      if (is_struct(type)) return fmt::format("std::optional<{}>", cpp_name(object(type.index)));
      return fmt::format("::hyperframes::Nested<{}>", fields_name(type.index));
    default:
      if (field.optional) return fmt::format("std::optional<{}>", scalar(type.base, type.index));
      return scalar(type.base, type.index);
  }
}

std::string CppTypes::field_default(const Field& field) const {
  const Base base = field.type.base;
  if (base >= Base::string || field.optional) return "{}";
  if (is_enum(base, field.type.index))
    return fmt::format(" = static_cast<{}>({})", scalar(base, field.type.index),
                       integer_literal(base, field.default_integer));
  if (base == Base::float32 || base == Base::float64)
    return " = " + real_literal(base, field.default_real);
  if (base == Base::boolean) return field.default_integer ? " = true" : " = false";
  return " = " + integer_literal(base, field.default_integer);
}

}  // namespace hyperframes::protocol
