#include <hyperframes/actors/protocol/names.hpp>

#include <algorithm>
#include <array>
#include <cctype>

namespace hyperframes::protocol {
namespace {

constexpr std::string_view keywords[] = {
    "alignas",  "alignof",  "and",       "asm",       "auto",        "bool",     "break",
    "case",     "catch",    "char",      "class",     "const",       "continue", "default",
    "delete",   "do",       "double",    "else",      "enum",        "explicit", "export",
    "extern",   "false",    "float",     "for",       "friend",      "goto",     "if",
    "inline",   "int",      "long",      "mutable",   "namespace",   "new",      "not",
    "operator", "or",       "private",   "protected", "public",      "register", "requires",
    "return",   "short",    "signed",    "sizeof",    "static",      "struct",   "switch",
    "template", "this",     "throw",     "true",      "try",         "typedef",  "typename",
    "union",    "unsigned", "using",     "virtual",   "void",        "volatile", "while",
    "xor",      "concept",  "constexpr", "consteval", "constinit",   "co_await", "co_return",
    "co_yield", "decltype", "noexcept",  "nullptr",   "thread_local"};

// Of TableView and of generated views.
constexpr std::string_view view_members[] = {"buffer",  "root",          "raw",       "verified",
                                             "type_id", "type_name",     "is_struct", "unverified",
                                             "known",   "release_buffer"};
// Of Actor and ActorRef, and of what is generated beside methods.
constexpr std::string_view actor_members[] = {
    "self",    "node",     "shard",    "stop",    "start",     "monitor", "spawn",
    "started", "stopping", "on_down",  "service", "id",        "valid",   "ask",
    "tell",    "try_tell", "is_local", "info",    "find",      "cell",    "scope",
    "restore", "snapshot", "link",     "unlink",  "trap_exits"};

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
