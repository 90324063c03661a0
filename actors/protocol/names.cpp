#include <hyperframes/actors/protocol/names.hpp>

#include <algorithm>
#include <array>
#include <cctype>

namespace hyperframes::protocol {
namespace {

constexpr std::string_view keywords[] = {"alignas",       "alignof",     "and",
                                         "and_eq",        "asm",         "auto",
                                         "bitand",        "bitor",       "bool",
                                         "break",         "case",        "catch",
                                         "char",          "char8_t",     "char16_t",
                                         "char32_t",      "class",       "co_await",
                                         "co_return",     "co_yield",    "compl",
                                         "concept",       "const",       "const_cast",
                                         "consteval",     "constexpr",   "constinit",
                                         "continue",      "decltype",    "default",
                                         "delete",        "do",          "double",
                                         "dynamic_cast",  "else",        "enum",
                                         "explicit",      "export",      "extern",
                                         "false",         "float",       "for",
                                         "friend",        "goto",        "if",
                                         "inline",        "int",         "long",
                                         "mutable",       "namespace",   "new",
                                         "noexcept",      "not",         "not_eq",
                                         "nullptr",       "operator",    "or",
                                         "or_eq",         "private",     "protected",
                                         "public",        "register",    "reinterpret_cast",
                                         "requires",      "return",      "short",
                                         "signed",        "sizeof",      "static",
                                         "static_assert", "static_cast", "struct",
                                         "switch",        "template",    "this",
                                         "thread_local",  "throw",       "true",
                                         "try",           "typedef",     "typeid",
                                         "typename",      "union",       "unsigned",
                                         "using",         "virtual",     "void",
                                         "volatile",      "wchar_t",     "while",
                                         "xor",           "xor_eq"};

// Of TableView and of generated views.
constexpr std::string_view view_members[] = {"buffer",  "root",          "raw",       "verified",
                                             "type_id", "type_name",     "is_struct", "unverified",
                                             "known",   "release_buffer"};
// Of Actor and ActorRef, and of what is generated beside methods.
constexpr std::string_view actor_members[] = {
    "self",    "node",     "shard",    "stop",    "start",      "monitor",   "spawn",
    "started", "stopping", "on_down",  "service", "id",         "valid",     "ask",
    "tell",    "try_tell", "is_local", "info",    "find",       "cell",      "scope",
    "restore", "snapshot", "link",     "unlink",  "trap_exits", "reference", "destination"};

template <std::size_t N>
bool contains(const std::string_view (&list)[N], std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

}  // namespace

std::string snake_case(std::string_view name) {
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (std::isupper(c) && i > 0) {
      const bool after_small = std::islower(static_cast<unsigned char>(name[i - 1])) ||
                               std::isdigit(static_cast<unsigned char>(name[i - 1]));
      const bool before_small =
          i + 1 < name.size() && std::islower(static_cast<unsigned char>(name[i + 1]));
      if ((after_small || (before_small && name[i - 1] != '_'))) result += '_';
    }
    result += static_cast<char>(std::tolower(c));
  }
  return result;
}

std::string identifier(std::string_view name) {
  return std::string(name) + (contains(keywords, name) ? "_" : "");
}

std::string member(std::string_view name) {
  return contains(view_members, name) ? std::string(name) + "_" : identifier(name);
}

std::string method_name(std::string_view name) {
  const std::string snake = snake_case(name);
  return contains(actor_members, snake) ? snake + "_" : identifier(snake);
}

std::string method_tag(std::string_view name) {
  std::string result;
  bool upper = true;
  for (const char c : snake_case(name)) {
    if (c != '_')
      result += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = c == '_';
  }
  return result + "Method";
}

std::string scoped(std::string_view dotted) {
  std::string result;
  for (const char c : dotted) {
    if (c == '.') {
      result += "::";
    } else {
      result += c;
    }
  }
  return result;
}

std::string flatc_namespace(const Declared& declared) {
  const std::string outer = scoped(declared.namespace_());
  return outer.empty() ? "fb" : outer + "::fb";
}

std::string cpp_name(const Declared& declared) { return "::" + scoped(declared.full_name); }

std::string flatc_name(const Declared& declared) {
  return "::" + flatc_namespace(declared) + "::" + std::string(declared.name());
}

std::string stem(std::string_view file) { return std::string(file.substr(0, file.rfind('.'))); }

}  // namespace hyperframes::protocol
