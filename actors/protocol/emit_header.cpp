#include <hyperframes/actors/protocol/emit.hpp>

#include <fmt/format.h>

#include <hyperframes/actors/protocol/cpp_types.hpp>
#include <hyperframes/actors/protocol/names.hpp>

namespace hyperframes::protocol {
namespace {

class HeaderEmitter {
 public:
  explicit HeaderEmitter(const Schema& schema) : schema_(schema), types_(schema) {}

  std::string run() {
    preamble();
    for (const auto& value : schema_.enums)
      if (value.in_file) enumeration(value);
    for (const int index : in_dependency_order(schema_, true, schema_.file)) structure(index);
    const auto tables = in_dependency_order(schema_, false, schema_.file);
    for (const int index : tables) forward(types_.object(index));
    for (const int index : tables) table_fields(types_.object(index));
    for (const int index : tables) table_view(types_.object(index));
    for (const auto& service : schema_.services) this->service(service);
    return std::move(out_);
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<Arguments>(arguments)...);
    out_ += '\n';
  }
  void documentation(const std::vector<std::string>& lines, std::string_view indent) {
    for (const auto& text : lines) line("{}///{}", indent, text);
  }
  void open(const Declared& declared) {
    if (!declared.namespace_().empty()) line("namespace {} {{", scoped(declared.namespace_()));
  }
  void close(const Declared& declared) {
    if (!declared.namespace_().empty()) line("}}");
    line("");
  }

  void preamble() {
    line("// Made by hyperframes_protocol_generator from {}; changes are lost.", schema_.file);
    line("#pragma once");
    line("");
    line("#include \"{}_fb_generated.h\"", stem(schema_.file));
    if (const auto includes = schema_.includes.find(schema_.file);
        includes != schema_.includes.end())
      for (const auto& included : includes->second) line("#include \"{}.hpp\"", included);
    line("#include <array>");
    line("#include <concepts>");
    line("#include <cstdint>");
    line("#include <hyperframes/actors/detail/table_view.hpp>");
    if (!schema_.services.empty()) {
      line("#include <hyperframes/actors/actor.hpp>");
      line("#include <hyperframes/actors/inbox.hpp>");
      line("#include <hyperframes/actors/ref.hpp>");
      if (streams()) line("#include <hyperframes/actors/stream.hpp>");
    }
    line("#include <hyperframes/actors/nested.hpp>");
    line("#include <limits>");
    line("#include <optional>");
    line("#include <span>");
    line("#include <string>");
    line("#include <string_view>");
    line("#include <variant>");
    line("#include <vector>");
    line("");
  }

  void enumeration(const Enum& value) {
    open(value);
    documentation(value.documentation, "");
    line("using {} = {};", value.name(), flatc_name(value));
    close(value);
  }

  // ---- structs --------------------------------------------------------------

  std::string struct_field_type(const Field& field) const {
    if (field.type.base == Base::object) return types_.fields_name(field.type.index);
    return types_.field_type(field);
  }

  void structure(int index) {
    const Object& object = types_.object(index);
    const auto name = object.name();
    open(object);
    line("struct {}Fields {{", name);
    for (const Field& field : object.fields) {
      documentation(field.documentation, "  ");
      line("  {} {}{};", struct_field_type(field), identifier(field.name),
           field.type.base == Base::object ? "{}" : types_.field_default(field));
    }
    line("}};");
    line("");
    documentation(object.documentation, "");
    line("class {} {{", name);
    line(" public:");
    line("  using Fields = {}Fields;", name);
    identity(object);
    line("  {}() noexcept = default;", name);
    line("  {}(const Fields& fields) noexcept", name);
    line("      : value_({}) {{", struct_arguments(object));
    line("    static_cast<void>(fields);");
    line("  }}");
    line("  explicit {}(const {}& value) noexcept : value_(value) {{}}", name, flatc_name(object));
    line("  /// False if an enum in it has a value that the schema does not know.");
    line("  bool known() const noexcept;");
    line("  const {}& raw() const noexcept {{ return value_; }}", flatc_name(object));
    for (const Field& field : object.fields) struct_accessor(field);
    line("");
    line(" private:");
    line("  {} value_;", flatc_name(object));
    line("}};");
    line("static_assert(sizeof({}) == sizeof({}));", name, flatc_name(object));
    close(object);
  }

  std::string struct_arguments(const Object& object) const {
    std::string result;
    for (const Field& field : object.fields) {
      if (!result.empty()) result += ", ";
      const std::string member = "fields." + identifier(field.name);
      const Type& type = field.type;
      if (type.base == Base::object) {
        result += fmt::format("{}({}).raw()", cpp_name(types_.object(type.index)), member);
      } else if (type.base == Base::array && type.element == Base::object) {
        const auto flatc = flatc_name(types_.object(type.index));
        result += fmt::format(
            "flatbuffers::span<const {0}, {1}>(reinterpret_cast<const {0}*>({2}.data()), {1})",
            flatc, type.length, member);
      } else if (type.base == Base::array) {
        result += fmt::format("flatbuffers::span<const {0}, {1}>({2}.data(), {1})",
                              types_.scalar(type.element, type.index), type.length, member);
      } else {
        result += member;
      }
    }
    return result;
  }

  void struct_accessor(const Field& field) {
    documentation(field.documentation, "  ");
    const Type& type = field.type;
    const std::string name = member(field.name), raw = identifier(field.name);
    if (type.base == Base::object) {
      line("  {0} {1}() const noexcept {{ return {0}(value_.{2}()); }}",
           cpp_name(types_.object(type.index)), name, raw);
    } else if (type.base == Base::array) {
      const std::string element = types_.element(type);
      line("  std::span<const {0}, {1}> {2}() const noexcept {{", element, type.length, name);
      line(
          "    return std::span<const {0}, {1}>(reinterpret_cast<const "
          "{0}*>(value_.{2}()->Data()), "
          "{1});",
          element, type.length, raw);
      line("  }}");
    } else {
      line("  {} {}() const noexcept {{ return value_.{}(); }}",
           types_.scalar(type.base, type.index), name, raw);
    }
  }

  void identity(const Object& object) {
    line("  static constexpr std::uint64_t type_id = {:#018x}u;", id_of(object.full_name));
    line("  static constexpr const char* type_name = \"{}\";", object.full_name);
    line("  static constexpr bool is_struct = {};", object.is_struct);
  }

  // ---- tables ---------------------------------------------------------------

  void forward(const Object& object) {
    open(object);
    line("struct {}Fields;", object.name());
    line("class {};", object.name());
    close(object);
  }

  void table_fields(const Object& object) {
    open(object);
    line("struct {}Fields {{", object.name());
    for (const Field& field : object.fields) {
      if (field.deprecated || field.type.base == Base::union_type) continue;
      documentation(field.documentation, "  ");
      line("  {} {}{};", types_.field_type(field), identifier(field.name),
           types_.field_default(field));
    }
    line("}};");
    close(object);
    types_.set_complete(object);
  }

  void table_view(const Object& object) {
    const auto name = object.name();
    open(object);
    documentation(object.documentation, "");
    line("class {} : public ::hyperframes::detail::TableView {{", name);
    line(" public:");
    line("  using Fields = {}Fields;", name);
    identity(object);
    line("  {}() noexcept = default;", name);
    line("  /// Builds one, in memory of the current shard.");
    line("  {}(const Fields& fields);", name);
    line("  /// Takes over a finished buffer that came from outside, after verifying it.");
    line("  static ::hyperframes::Result<{}> verified(::hyperframes::Buffer buffer);", name);
    line("  /// Takes over a finished buffer that this process made.");
    line("  static {0} unverified(::hyperframes::Buffer buffer) noexcept {{", name);
    line("    {} view;", name);
    line("    view.TableView::adopt(std::move(buffer));");
    line("    return view;");
    line("  }}");
    line("  const {0}& root() const noexcept {{", flatc_name(object));
    line("    return *flatbuffers::GetRoot<{0}>(TableView::bytes());", flatc_name(object));
    line("  }}");
    for (const Field& field : object.fields)
      if (!field.deprecated) table_accessor(field);
    line("}};");
    close(object);
    line("namespace {} {{", flatc_namespace(object));
    line("flatbuffers::Offset<{}> pack(flatbuffers::FlatBufferBuilder& builder,", name);
    line("                             const {}Fields& fields);", cpp_name(object));
    line(
        "/// The field that holds an enum's or union's value which the schema does not know, or "
        "null.");
    line("const char* unknown_value(const {}& table) noexcept;", name);
    line("}}");
    line("");
  }

  void table_accessor(const Field& field) {
    documentation(field.documentation, "  ");
    const Type& type = field.type;
    const std::string name = member(field.name), raw = "root()." + identifier(field.name) + "()";
    switch (type.base) {
      case Base::string:
        line("  std::string_view {}() const noexcept {{", name);
        line("    const auto* text = {};", raw);
        line(
            "    return text ? std::string_view(text->data(), text->size()) : std::string_view();");
        line("  }}");
        return;
      case Base::vector: vector_accessor(field, name, raw); return;
      case Base::object:
        if (types_.is_struct(type)) {
          const auto view = cpp_name(types_.object(type.index));
          line("  std::optional<{}> {}() const noexcept {{", view, name);
          line("    const auto* value = {};", raw);
          line("    return value ? std::optional<{0}>({0}(*value)) : std::nullopt;", view);
          line("  }}");
        } else {
          line("  /// Null if absent.");
          line("  const {}* {}() const noexcept {{ return {}; }}",
               flatc_name(types_.object(type.index)), name, raw);
        }
        return;
      case Base::union_type:
        line("  {} {}() const noexcept {{ return {}; }}", cpp_name(types_.enumeration(type.index)),
             name, raw);
        return;
      case Base::union_value: union_accessors(field); return;
      default:
        if (field.optional) {
          const auto scalar = types_.scalar(type.base, type.index);
          line("  std::optional<{}> {}() const noexcept {{", scalar, name);
          line("    const auto value = {};", raw);
          line("    return value ? std::optional<{}>(*value) : std::nullopt;", scalar);
          line("  }}");
        } else {
          line("  {} {}() const noexcept {{ return {}; }}", types_.scalar(type.base, type.index),
               name, raw);
        }
    }
  }

  void vector_accessor(const Field& field, const std::string& name, const std::string& raw) {
    const Type& type = field.type;
    const bool of_tables = type.element == Base::object && !types_.object(type.index).is_struct;
    if (type.element == Base::string || of_tables) {
      const auto element = type.element == Base::string ? std::string("flatbuffers::String")
                                                        : flatc_name(types_.object(type.index));
      line("  /// Null if absent.");
      line("  const flatbuffers::Vector<flatbuffers::Offset<{}>>* {}() const noexcept {{", element,
           name);
      line("    return {};", raw);
      line("  }}");
      return;
    }
    line("  std::span<const {}> {}() const noexcept {{", types_.element(type), name);
    line("    return TableView::elements<{}>({});", types_.element(type), raw);
    line("  }}");
  }

  void union_accessors(const Field& field) {
    for (const auto& value : types_.enumeration(field.type.index).values) {
      if (value.type.index < 0) continue;
      const Object& object = types_.object(value.type.index);
      line("  /// Null if the union holds something else.");
      line("  const {}* {}_as_{}() const noexcept {{", flatc_name(object), identifier(field.name),
           snake_case(value.name));
      line("    return root().{}_as_{}();", identifier(field.name), value.name);
      line("  }}");
    }
  }

  // ---- services -------------------------------------------------------------

  std::string request(const Method& method) const {
    return cpp_name(types_.object(method.request));
  }
  std::string response(const Method& method) const {
    return cpp_name(types_.object(method.response));
  }
  bool streams() const {
    for (const auto& service : schema_.services)
      for (const Method& method : service.methods)
        if (!method.streaming.empty()) return true;
    return false;
  }
  static std::string tag(const Method& method) { return protocol::method_tag(method.name); }
  std::string answer(const Method& method) const {
    return method.response_segments
               ? fmt::format("::hyperframes::WithSegments<{}>", response(method))
               : response(method);
  }

  void service(const Service& service) {
    open(service);
    documentation(service.documentation, "");
    line("class {} {{", service.name());
    line(" public:");
    line("  class Actor;");
    line("  class Ref;");
    line("  using Inbox = ::hyperframes::Inbox<{}>;", service.name());
    line("  static constexpr std::uint64_t service_id = {:#018x}u;", id_of(service.full_name));
    line("  static constexpr const char* service_name = \"{}\";", service.full_name);
    line("  static const ::hyperframes::detail::ServiceInfo info;");
    line("  {}() = delete;", service.name());
    for (std::size_t i = 0; i < service.methods.size(); ++i) method_tag(service, i);
    line("}};");
    line("");
    actor(service);
    reference(service);
    line("using {0}Ref = {0}::Ref;", service.name());
    close(service);
  }

  void method_tag(const Service& service, std::size_t index) {
    const Method& method = service.methods[index];
    const std::string full_name = service.full_name + "." + method.name;
    line("");
    line("  struct {} {{", tag(method));
    line("    using Service = {};", service.name());
    line("    using Request = {};", request(method));
    line("    using Response = {};", response(method));
    line("    static constexpr std::uint64_t id = {:#018x}u;", id_of(full_name));
    line("    static constexpr const char* name = \"{}\";", full_name);
    line("    static constexpr std::uint16_t index = {};", index);
    line("    static constexpr bool interleaved = {}, oneway = {}, bulk = {};", method.interleaved,
         method.oneway, method.bulk);
    line("    static constexpr bool request_segments = {}, response_segments = {};",
         method.request_segments, method.response_segments);
    line("    static constexpr auto streaming = ::hyperframes::detail::StreamKind::{};",
         method.streaming.empty() ? "none" : method.streaming);
    line("    static const ::hyperframes::detail::MethodInfo info;");
    line("    template <class Actor, class Call>");
    line("    static ::hyperframes::Task<void> invoke(Actor& actor, Call&& call) {{");
    line("      return actor.{}({});", method_name(method.name), invoke_arguments(method));
    line("    }}");
    line("  }};");
  }

  static std::string invoke_arguments(const Method& method) {
    if (method.streaming == "server") return "std::move(call.request), std::move(call.writer)";
    if (method.streaming == "client") return "std::move(call.reader), std::move(call.reply)";
    if (method.streaming == "bidi") return "std::move(call.reader), std::move(call.writer)";
    std::string result = "std::move(call.request)";
    if (method.request_segments) result += ", std::move(call.segments)";
    if (!method.oneway) result += ", std::move(call.reply)";
    return result;
  }

  std::string parameters(const Method& method) const {
    const std::string in = request(method), out = response(method);
    if (method.streaming == "server")
      return fmt::format("{} request, ::hyperframes::StreamWriter<{}> writer", in, out);
    if (method.streaming == "client")
      return fmt::format(
          "::hyperframes::StreamReader<{}> reader, ::hyperframes::StreamReply<{}> reply", in, out);
    if (method.streaming == "bidi")
      return fmt::format(
          "::hyperframes::StreamReader<{}> reader, ::hyperframes::StreamWriter<{}> writer", in,
          out);
    std::string result = in + " request";
    if (method.request_segments) result += ", ::hyperframes::Segments segments";
    if (!method.oneway) result += fmt::format(", ::hyperframes::Reply<{}> reply", answer(method));
    return result;
  }

  void actor(const Service& service) {
    line("/// What an implementation derives from.");
    line("class {}::Actor : public ::hyperframes::Actor {{", service.name());
    line(" public:");
    line("  using Service = {};", service.name());
    for (const Method& method : service.methods) {
      documentation(method.documentation, "  ");
      line("  virtual ::hyperframes::Task<void> {}({}) = 0;", method_name(method.name),
           parameters(method));
    }
    line("");
    line(" protected:");
    line("  {}::Ref self() const noexcept;", service.name());
    line("");
    line(" private:");
    line("  const ::hyperframes::detail::ServiceInfo& service() const noexcept final {{");
    line("    return {}::info;", service.name());
    line("  }}");
    line("}};");
    line("");
  }

  void reference(const Service& service) {
    line("/// Reaches an actor of this service, wherever it runs.");
    line("class {}::Ref : public ::hyperframes::ActorRef {{", service.name());
    line(" public:");
    line("  using Service = {};", service.name());
    line("  Ref() noexcept = default;");
    line("  explicit Ref(const ::hyperframes::ActorRef& other) noexcept : ActorRef(other) {{}}");
    for (const Method& method : service.methods) {
      line("");
      const std::string name = method_name(method.name), method_tag = tag(method);
      if (!method.streaming.empty()) {
        documentation(method.documentation, "  ");
        open_stream(method, name);
        continue;
      }
      if (method.oneway) {
        call(method, "tell", fmt::format("::hyperframes::Tell<{}>", method_tag), name);
      } else {
        documentation(method.documentation, "  ");
        call(method, "ask", fmt::format("::hyperframes::Ask<{}>", method_tag), name);
        call(method, "tell", fmt::format("::hyperframes::Tell<{}>", method_tag),
             "tell_" + snake_case(method.name));
      }
      call(method, "try_tell", "bool", "try_" + snake_case(method.name));
    }
    line("}};");
    line("inline {0}::Ref {0}::Actor::self() const noexcept {{ return Ref(reference()); }}",
         service.name());
  }

  void open_stream(const Method& method, const std::string& name) {
    const std::string result = fmt::format("::hyperframes::OpenStream<{}>", tag(method));
    if (method.streaming != "server") {
      line("  {} {}(::hyperframes::StreamOptions options = {{}}) const {{", result, name);
      line("    return {{destination(), {{}}, options}};");
      line("  }}");
      return;
    }
    line("  {} {}(const {}Fields& request, ::hyperframes::StreamOptions options = {{}}) const {{",
         result, name, request(method));
    line("    return {{destination(), {}(request), options}};", request(method));
    line("  }}");
    line("  template <std::same_as<{}> Request>", request(method));
    line("  {} {}(Request request, ::hyperframes::StreamOptions options = {{}}) const {{", result,
         name);
    line("    return {{destination(), std::move(request), options}};");
    line("  }}");
  }

  // One overload takes the fields in braces, the other one a request that was built before.
  void call(const Method& method, std::string_view verb, const std::string& result,
            const std::string& name) {
    const std::string within = verb == "try_tell" ? "" : "within, ";
    std::string parameters, segments;
    if (method.request_segments) {
      parameters += ", ::hyperframes::Segments segments";
      segments = ", std::move(segments)";
    }
    if (!within.empty()) parameters += ", ::hyperframes::Within within = {}";
    line("  {} {}(const {}Fields& request{}) const {{", result, name, request(method), parameters);
    line("    return {}<{}>({}request{});", verb, tag(method), within, segments);
    line("  }}");
    line("  template <std::same_as<{}> Request>", request(method));
    line("  {} {}(Request request{}) const {{", result, name, parameters);
    line("    return {}<{}>({}std::move(request){});", verb, tag(method), within, segments);
    line("  }}");
  }

  const Schema& schema_;
  CppTypes types_;
  std::string out_;
};

}  // namespace

std::string emit_header(const Schema& schema) { return HeaderEmitter(schema).run(); }

}  // namespace hyperframes::protocol
