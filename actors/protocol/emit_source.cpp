#include <hyperframes/actors/protocol/emit.hpp>

#include <fmt/format.h>

#include <hyperframes/actors/protocol/cpp_types.hpp>
#include <hyperframes/actors/protocol/names.hpp>
#include <set>

namespace hyperframes::protocol {
namespace {

class SourceEmitter {
 public:
  explicit SourceEmitter(const Schema& schema) : schema_(schema), types_(schema) {}

  std::string run() {
    find_what_needs_checks();
    preamble();
    for (const auto& value : schema_.enums)
      if (value.in_file) known_values(value);
    for (const int index : in_dependency_order(schema_, true, schema_.file)) structure(index);
    for (const int index : in_dependency_order(schema_, false, schema_.file)) table(index);
    for (const auto& service : schema_.services) this->service(service);
    return std::move(out_);
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<Arguments>(arguments)...);
    out_ += '\n';
  }

  void preamble() {
    line("// Made by hyperframes_protocol_generator from {}; changes are lost.", schema_.file);
    line("#include \"{}.hpp\"", schema_.file);
    line("");
    line("#include <hyperframes/actors/detail/build_table.hpp>");
    if (!schema_.services.empty()) line("#include <hyperframes/actors/detail/method.hpp>");
    line("");
  }

  /// A name as its definition spells it: after another type, `::` would be read as part of that.
  static std::string defined(const Declared& declared) { return scoped(declared.full_name); }
  /// Where the functions below find each other: beside flatc's types.
  void open(const Declared& declared) { line("namespace {} {{", flatc_namespace(declared)); }
  void close() { line("}}\n"); }

  // ---- values that a schema does not know -----------------------------------

  // An enum whose every value is allowed needs no check; nor does a type without such fields.
  bool enum_needs_check(int index) const { return !types_.enumeration(index).bit_flags; }
  bool field_needs_check(const Field& field) const {
    const Type& type = field.type;
    if (field.deprecated) return false;
    const Base base =
        type.base == Base::vector || type.base == Base::array ? type.element : type.base;
    if (base == Base::object) return checked_.contains(type.index);
    if (base == Base::union_type || base == Base::union_value) return true;
    return types_.is_enum(base, type.index) && enum_needs_check(type.index);
  }
  void find_what_needs_checks() {
    for (bool grew = true; grew;) {
      grew = false;
      for (std::size_t i = 0; i < schema_.objects.size(); ++i)
        for (const Field& field : schema_.objects[i].fields)
          if (field_needs_check(field)) grew |= checked_.insert(static_cast<int>(i)).second;
    }
  }

  void known_values(const Enum& value) {
    open(value);
    line("namespace {{");
    line("[[maybe_unused]] bool known({} value) noexcept {{", value.name());
    line("  switch (value) {{");
    for (const auto& entry : value.values)
      line("    case {}::{}: return true;", value.name(), identifier(entry.name));
    line("  }}");
    line("  return false;");
    line("}}");
    line("}}");
    close();
  }
  /// A call that says whether the value is known; enums of other files are checked by their names.
  std::string known(const Type& type, const std::string& value) const {
    const Enum& enumeration = types_.enumeration(type.index);
    if (enumeration.in_file) return fmt::format("known({})", value);
    std::string result = "(";
    for (const auto& entry : enumeration.values) {
      if (result.size() > 1) result += " || ";
      result += fmt::format("{} == {}::{}", value, flatc_name(enumeration), identifier(entry.name));
    }
    return result + ")";
  }

  // ---- structs --------------------------------------------------------------

  void structure(int index) {
    const Object& object = types_.object(index);
    line("bool {}::known() const noexcept {{", defined(object));
    if (checked_.contains(index)) {
      line("  using namespace {};", "::" + flatc_namespace(object));
      for (const Field& field : object.fields) {
        if (!field_needs_check(field)) continue;
        const std::string value = member(field.name) + "()";
        const Type& type = field.type;
        if (type.base == Base::array) {
          line("  for (const auto& element : {})", value);
          line("    if (!{}) return false;",
               type.element == Base::object ? "element.known()" : flatc_known(type, "element"));
        } else {
          line("  if (!{}) return false;",
               type.base == Base::object ? value + ".known()" : flatc_known(type, value));
        }
      }
    }
    line("  return true;");
    line("}}\n");
  }
  std::string flatc_known(const Type& type, const std::string& value) const {
    const Enum& enumeration = types_.enumeration(type.index);
    if (!enumeration.in_file) return known(type, value);
    return fmt::format("::{}::known({})", flatc_namespace(enumeration), value);
  }

  // ---- tables ---------------------------------------------------------------

  void table(int index) {
    const Object& object = types_.object(index);
    open(object);
    pack(object);
    unknown_value(index);
    close();
    const auto name = defined(object);
    line("{}::{}(const Fields& fields) {{", name, object.name());
    line(
        "  TableView::adopt(::hyperframes::detail::build_table([&](flatbuffers::FlatBufferBuilder& "
        "builder) "
        "{{");
    line("    builder.Finish(::{}::pack(builder, fields));", flatc_namespace(object));
    line("  }}));");
    line("}}\n");
    line("::hyperframes::Result<{0}> {0}::verified(::hyperframes::Buffer buffer) {{", name);
    line(
        "  return ::hyperframes::detail::verify_table<{}>(std::move(buffer), [](const auto& root) "
        "{{",
        name);
    line("    return ::{}::unknown_value(root);", flatc_namespace(object));
    line("  }});");
    line("}}\n");
  }

  void pack(const Object& object) {
    line("flatbuffers::Offset<{}> pack(flatbuffers::FlatBufferBuilder& builder,", object.name());
    line("                             const {}Fields& fields) {{", cpp_name(object));
    line("  static_cast<void>(fields);");
    for (const Field& field : object.fields)
      if (!field.deprecated) pack_child(object, field);
    line("  {}Builder table(builder);", object.name());
    for (const Field& field : object.fields)
      if (!field.deprecated) add(field);
    line("  return table.Finish();");
    line("}}\n");
  }

  void require(const Object& object, const Field& field, const std::string& condition) {
    if (!field.required) return;
    line("  if (!({})) ::hyperframes::detail::missing_field(\"{}\", \"{}\");", condition,
         object.full_name, field.name);
  }

  // What a table refers to must be in the buffer before the table is begun.
  void pack_child(const Object& object, const Field& field) {
    const Type& type = field.type;
    const std::string name = identifier(field.name), value = "fields." + name;
    const std::string variable = "child_" + field.name;
    if (type.base == Base::string) {
      line("  flatbuffers::Offset<flatbuffers::String> {};", variable);
      line("  {}{} = builder.CreateString({});",
           field.required ? "" : "if (!" + value + ".empty()) ", variable, value);
    } else if (type.base == Base::vector) {
      pack_vector(field, variable, value);
    } else if (type.base == Base::object && !types_.is_struct(type)) {
      const Object& child = types_.object(type.index);
      require(object, field, value);
      line("  flatbuffers::Offset<{}> {};", flatc_name(child), variable);
      line("  if ({0}) {1} = ::{2}::pack(builder, *{0});", value, variable, flatc_namespace(child));
    } else if (type.base == Base::union_value) {
      require(object, field, value + ".index() != 0");
      pack_union(field, variable, value);
    } else if (types_.is_struct(type)) {
      require(object, field, value);
    }
  }

  void pack_vector(const Field& field, const std::string& variable, const std::string& value) {
    const Type& type = field.type;
    std::string offset_type, create;
    const std::string element = types_.element(type);
    if (type.element == Base::string) {
      offset_type = "flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>";
      create = fmt::format("builder.CreateVectorOfStrings({})", value);
    } else if (type.element == Base::object && types_.object(type.index).is_struct) {
      const auto flatc = flatc_name(types_.object(type.index));
      offset_type = fmt::format("flatbuffers::Vector<const {}*>", flatc);
      create = fmt::format(
          "builder.CreateVectorOfStructs(reinterpret_cast<const {0}*>({1}.data()), {1}.size())",
          flatc, value);
    } else if (type.element == Base::object) {
      const Object& child = types_.object(type.index);
      offset_type = fmt::format("flatbuffers::Vector<flatbuffers::Offset<{}>>", flatc_name(child));
      create = fmt::format(
          "::hyperframes::detail::pack_all<{}>(builder, {}, [&](const auto& element) {{ return "
          "::{}::pack(builder, element); }})",
          flatc_name(child), value, flatc_namespace(child));
    } else {
      offset_type = fmt::format("flatbuffers::Vector<{}>", element);
      create = types_.is_enum(type.element, type.index)
                   ? fmt::format("::hyperframes::detail::pack_enums(builder, {})", value)
                   : fmt::format("builder.CreateVector({0}.data(), {0}.size())", value);
    }
    line("  flatbuffers::Offset<{}> {};", offset_type, variable);
    line("  {}{} = {};", field.required ? "" : "if (!" + value + ".empty()) ", variable, create);
  }

  void pack_union(const Field& field, const std::string& variable, const std::string& value) {
    const Enum& members = types_.enumeration(field.type.index);
    line("  flatbuffers::Offset<void> {};", variable);
    line("  auto {}_type = {}::NONE;", variable, flatc_name(members));
    std::size_t alternative = 0;
    for (const auto& entry : members.values) {
      if (entry.type.index < 0) continue;
      ++alternative;
      const Object& object = types_.object(entry.type.index);
      line("  if (const auto* held = std::get_if<{}>(&{})) {{", alternative, value);
      line("    {}_type = {}::{};", variable, flatc_name(members), identifier(entry.name));
      if (object.is_struct) {
        line("    {} = builder.CreateStruct(held->raw()).Union();", variable);
      } else {
        line("    if (*held) {} = ::{}::pack(builder, **held).Union();", variable,
             flatc_namespace(object));
      }
      line("  }}");
    }
  }

  void add(const Field& field) {
    const Type& type = field.type;
    const std::string name = identifier(field.name), value = "fields." + name;
    const std::string variable = "child_" + field.name;
    switch (type.base) {
      case Base::union_type: return;
      case Base::union_value:
        line("  if (!{}.IsNull()) {{", variable);
        line("    table.add_{}_type({}_type);", identifier(field.name), variable);
        line("    table.add_{}({});", name, variable);
        line("  }}");
        return;
      case Base::string:
      case Base::vector: line("  if (!{0}.IsNull()) table.add_{1}({0});", variable, name); return;
      case Base::object:
        if (types_.is_struct(type)) {
          line("  if ({0}) table.add_{1}(&{0}->raw());", value, name);
        } else {
          line("  if (!{0}.IsNull()) table.add_{1}({0});", variable, name);
        }
        return;
      default:
        if (field.optional) {
          line("  if ({0}) table.add_{1}(*{0});", value, name);
        } else {
          line("  table.add_{}({});", name, value);
        }
    }
  }

  void unknown_value(int index) {
    const Object& object = types_.object(index);
    line("const char* unknown_value(const {}& table) noexcept {{", object.name());
    line("  static_cast<void>(table);");
    if (checked_.contains(index))
      for (const Field& field : object.fields)
        if (field_needs_check(field)) check(object, field);
    line("  return nullptr;");
    line("}}\n");
  }

  void check(const Object& object, const Field& field) {
    const Type& type = field.type;
    const std::string value = "table." + identifier(field.name) + "()";
    const std::string label = object.full_name + "." + field.name;
    if (type.base == Base::object || type.base == Base::vector) {
      line("  if (const auto* held = {}) {{", value);
      const bool many = type.base == Base::vector;
      if (many) line("    for (const auto element : *held) {{");
      const std::string element = many ? "element" : "held";
      if (many && type.element != Base::object) {
        line("      if (!{}) return \"{}\";",
             flatc_known(type, fmt::format("static_cast<{}>(element)",
                                           flatc_name(types_.enumeration(type.index)))),
             label);
      } else if (types_.object(type.index).is_struct) {
        line("      if (!{}(*{}).known()) return \"{}\";", cpp_name(types_.object(type.index)),
             element, label);
      } else {
        line("      if (const char* inner = ::{}::unknown_value(*{})) return inner;",
             flatc_namespace(types_.object(type.index)), element);
      }
      if (many) line("    }}");
      line("  }}");
    } else if (type.base == Base::union_value) {
      check_union(field);
    } else if (field.optional) {
      line("  if (const auto held = {}; held && !{}) return \"{}\";", value,
           flatc_known(type, "*held"), label);
    } else {
      line("  if (!{}) return \"{}\";", flatc_known(type, value), label);
    }
  }

  void check_union(const Field& field) {
    for (const auto& entry : types_.enumeration(field.type.index).values) {
      if (entry.type.index < 0 || !checked_.contains(entry.type.index)) continue;
      const Object& object = types_.object(entry.type.index);
      line("  if (const auto* held = table.{}_as_{}())", identifier(field.name), entry.name);
      if (object.is_struct) {
        line("    if (!{}(*held).known()) return \"{}\";", cpp_name(object), object.full_name);
      } else {
        line("    if (const char* inner = ::{}::unknown_value(*held)) return inner;",
             flatc_namespace(object));
      }
    }
  }

  // ---- services -------------------------------------------------------------

  void service(const Service& service) {
    const std::string scope = defined(service);
    std::string list;
    for (const Method& method : service.methods) {
      const std::string tag = scope + "::" + method_tag(method.name);
      line("const ::hyperframes::detail::MethodInfo {}::info =", tag);
      line("    ::hyperframes::detail::make_{}method_info<{}>();",
           method.streaming.empty() ? "" : "stream_", tag);
      list += "&::" + tag + "::info, ";
    }
    line("namespace {{");
    line("constexpr const ::hyperframes::detail::MethodInfo* methods_of_{}[] = {{{}}};",
         service.name(), list);
    line("}}");
    line(
        "const ::hyperframes::detail::ServiceInfo {}::info{{\n    {}::service_id, "
        "{}::service_name, methods_of_{}}};\n",
        scope, scope, scope, service.name());
  }
  const Schema& schema_;
  CppTypes types_;
  std::set<int> checked_;  ///< Objects in which a value can be unknown.
  std::string out_;
};

}  // namespace

std::string emit_source(const Schema& schema) { return SourceEmitter(schema).run(); }

}  // namespace hyperframes::protocol
