#include "layout_rules.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace hyperframes::layout {
namespace {

namespace fs = std::filesystem;

struct Include {
  std::size_t line;
  std::string target;  // as written, or relative to the root when it lies in the tree
  bool quoted;
  bool in_tree;
};

struct SourceFile {
  std::string path;  // relative to the root
  std::string text;
  std::string code;  // of C++ files: the text with comments and literals blanked
  std::vector<Include> includes;
};

using Tree = std::map<std::string, SourceFile>;
using Violations = std::vector<Violation>;

bool starts_with_any(std::string_view text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.starts_with(prefix); });
}

std::string first_folder(std::string_view path) {
  return std::string(path.substr(0, path.find('/')));
}

bool is_header(std::string_view path) { return path.ends_with(".hpp"); }

bool is_source(std::string_view path) {
  return is_header(path) || path.ends_with(".cpp") || path.ends_with(".cu");
}

// ---- Which folder may include which
// --------------------------------------------------------------

// A folder's own headers are always open to it.
const std::map<std::string, std::set<std::string>>& layers_below() {
  static const std::map<std::string, std::set<std::string>> below = {
      {"runtime", {}},
      {"net", {"runtime"}},
      {"gpu", {"runtime"}},
      {"actors", {"net", "runtime"}},
      {"apps", {"actors", "net", "runtime", "gpu"}},
      {"examples", {"apps", "actors", "net", "runtime", "gpu"}},
      {"bench", {"apps", "actors", "net", "runtime", "gpu"}},
      {"tests", {"apps", "actors", "net", "runtime", "gpu", "examples", "bench"}},
  };
  return below;
}

bool is_layer(const std::string& folder) { return layers_below().contains(folder); }

// Tests of a layer see what that layer sees: tests/net includes no actors.
bool may_include(std::string_view from, std::string_view to) {
  const std::string to_layer = first_folder(to);
  std::string layer = first_folder(from);
  if (layer == to_layer) return true;
  if (layer == "tests") {
    const std::string tested = first_folder(from.substr(std::string_view("tests/").size()));
    if (tested == to_layer) return true;
    if (is_layer(tested)) layer = tested;
  }
  return layers_below().at(layer).contains(to_layer);
}

// ---- Third-party headers
// -------------------------------------------------------------------------

struct Family {
  std::string name;
  std::vector<std::string> headers;  // beginnings of the include
  std::vector<std::string> allowed;  // beginnings of the paths that may reach it
};

// What only one folder may meet, however many headers lie between.
const std::vector<Family>& fenced_families() {
  static const std::vector<Family> families = {
      {"CUDA", {"cuda", "cublas", "cusparse", "curand", "nvml", "nvrtc", "nccl"}, {"gpu/"}},
      {"verbs", {"infiniband/", "rdma/"}, {"net/rdma/"}},
      {"liburing", {"liburing", "linux/io_uring.h"}, {"runtime/reactor/uring"}},
      {"asio",
       {"asio.hpp", "asio/", "boost/asio"},
       {"runtime/reactor/asio", "runtime/asio", "actors/asio", "examples/asio"}},
  };
  return families;
}

// The language's own headers have no dot; of the rest the C library's and the kernel's are known.
bool is_system_header(const std::string& include) {
  static const std::vector<std::string> folders = {"sys/",   "linux/",  "arpa/", "netinet/",
                                                   "net/if", "netdb.h", "bits/", "asm/"};
  static const std::set<std::string> files = {
      "dlfcn.h",  "emmintrin.h", "errno.h",     "fcntl.h",    "ifaddrs.h",   "immintrin.h",
      "limits.h", "netdb.h",     "nmmintrin.h", "poll.h",     "pthread.h",   "sched.h",
      "signal.h", "spawn.h",     "stdint.h",    "stdlib.h",   "string.h",    "time.h",
      "unistd.h", "ucontext.h",  "cxxabi.h",    "execinfo.h", "smmintrin.h", "x86intrin.h"};
  return (include.find('.') == std::string::npos && include.find('/') == std::string::npos) ||
         include.starts_with("sanitizer/") || starts_with_any(include, folders) ||
         files.contains(include);
}

// The headers that an asio program includes name asio's types.
bool is_asio_adapter(std::string_view path) {
  return path == "runtime/asio.hpp" || path == "actors/asio.hpp";
}

// Private headers may name third-party types; nothing public may reach them.
bool is_public_header(std::string_view path) {
  static const std::set<std::string> layers = {"runtime", "net", "gpu", "actors", "apps"};
  return is_header(path) && layers.contains(first_folder(path)) &&
         path.find("/detail/") == std::string_view::npos && !path.ends_with("_detail.hpp") &&
         !starts_with_any(path, fenced_families()[0].allowed) &&
         !path.starts_with("runtime/reactor/uring") && !path.starts_with("net/rdma/") &&
         !path.starts_with("runtime/reactor/asio_") && !is_asio_adapter(path);
}

// ---- Reading
// -------------------------------------------------------------------------------------

// The length of the comment or literal that begins at `at`, or 0.
std::size_t literal_length(const std::string& text, std::size_t at) {
  const auto until = [&](const std::string& close, std::size_t from) {
    const std::size_t end = text.find(close, from);
    return (end == std::string::npos ? text.size() : end + close.size()) - at;
  };
  if (text.compare(at, 2, "//") == 0) return std::min(text.find('\n', at), text.size()) - at;
  if (text.compare(at, 2, "/*") == 0) return until("*/", at + 2);
  if (text.compare(at, 2, "R\"") == 0) {
    const std::size_t open = std::min(text.find('(', at), text.size());
    return until(")" + text.substr(at + 2, open - at - 2) + "\"", open);
  }
  const bool digit_separator =
      at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
  if (text[at] != '"' && (text[at] != '\'' || digit_separator)) return 0;
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != text[at] && text[end] != '\n')
    end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size()) - at;
}

// `text` with comments and literals blanked; the lines stay where they are.
std::string code_of(const std::string& text) {
  std::string code = text;
  for (std::size_t at = 0; at < code.size();) {
    const std::size_t length = literal_length(text, at);
    for (std::size_t i = at; i < at + length; ++i)
      if (code[i] != '\n') code[i] = ' ';
    at += std::max<std::size_t>(length, 1);
  }
  return code;
}

// Quoted includes are looked for beside the file first, as the compiler does.
Include resolve(const SourceFile& file, const fs::path& root, std::size_t line, bool quoted,
                const std::string& written) {
  const std::string prefix = "hyperframes/";
  if (written.starts_with(prefix)) return {line, written.substr(prefix.size()), quoted, true};
  if (quoted) {
    const fs::path beside = (fs::path(file.path).parent_path() / written).lexically_normal();
    if (fs::exists(root / beside)) return {line, beside.generic_string(), quoted, true};
  }
  return {line, written, quoted, false};
}

// A line that stands in a comment or a string is none of the code's, so includes no file.
void read_includes(SourceFile& file, const fs::path& root) {
  static const std::regex include_line(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  static const std::regex directive(R"(^\s*#\s*include)");
  std::istringstream lines(file.text);
  std::istringstream codes(file.code);
  std::string text;
  std::string code;
  for (std::size_t line = 1; std::getline(lines, text) && std::getline(codes, code); ++line) {
    std::smatch match;
    if (!std::regex_search(code, directive) || !std::regex_search(text, match, include_line))
      continue;
    file.includes.push_back(resolve(file, root, line, match[1] == "\"", match[2]));
  }
}

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

Tree read_tree(const fs::path& root) {
  static const std::set<std::string> skipped = {".git", "build", "data", ".cache"};
  Tree tree;
  for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
    if (skipped.contains(it->path().filename().string())) {  // .git is a file in a work tree
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || it->is_symlink()) continue;
    SourceFile file;
    file.path = it->path().lexically_relative(root).generic_string();
    file.text = read_file(it->path());
    if (is_source(file.path)) {
      file.code = code_of(file.text);
      read_includes(file, root);
    }
    tree.emplace(file.path, std::move(file));
  }
  return tree;
}

// ---- Rules
// ---------------------------------------------------------------------------------------

void check_layers(const SourceFile& file, Violations& found) {
  if (!is_layer(first_folder(file.path))) return;
  for (const Include& include : file.includes) {
    if (!include.in_tree || may_include(file.path, include.target)) continue;
    found.push_back({file.path, include.line,
                     "'" + first_folder(file.path) + "' may not include " + include.target});
  }
}

// Walks what `file` includes, directly or through headers of the tree, and gives `visit` each
// include from outside the tree with the chain of headers that leads to it.
void walk_includes(const Tree& tree, const SourceFile& file,
                   const std::function<void(const Include& first, const std::string& outside,
                                            const std::string& chain)>& visit) {
  for (const Include& first : file.includes) {
    std::set<std::string> seen = {file.path};
    std::function<void(const Include&, const std::string&)> walk = [&](const Include& include,
                                                                       const std::string& chain) {
      const auto target = include.in_tree ? tree.find(include.target) : tree.end();
      if (target == tree.end()) {
        if (!include.in_tree) visit(first, include.target, chain);
        return;
      }
      if (!seen.insert(include.target).second) return;
      for (const Include& next : target->second.includes)
        walk(next, chain + " through " + include.target);
    };
    walk(first, "");
  }
}

void check_fences(const Tree& tree, const SourceFile& file, Violations& found) {
  static const std::set<std::string> fenced = {"runtime", "net",  "gpu",
                                               "actors",  "apps", "examples"};
  if (!fenced.contains(first_folder(file.path))) return;
  walk_includes(tree, file,
                [&](const Include& first, const std::string& outside, const std::string& chain) {
                  for (const Family& family : fenced_families()) {
                    if (!starts_with_any(outside, family.headers)) continue;
                    if (starts_with_any(file.path, family.allowed)) continue;
                    found.push_back({file.path, first.line,
                                     "only " + family.allowed.front() + " may include " +
                                         family.name + ": <" + outside + ">" + chain});
                  }
                });
}

void check_public_header(const Tree& tree, const SourceFile& file, Violations& found) {
  if (!is_public_header(file.path)) return;
  walk_includes(
      tree, file, [&](const Include& first, const std::string& outside, const std::string& chain) {
        // A protocol is made from its schema in the user's own build.
        if (is_system_header(outside) || outside.ends_with(".fbs.hpp")) return;
        found.push_back({file.path, first.line,
                         "a public header may not include third-party <" + outside + ">" + chain});
      });
}

void check_include_form(const Tree& tree, const SourceFile& file, Violations& found) {
  const std::string folder = first_folder(file.path);
  if (!is_layer(folder)) return;
  for (const Include& include : file.includes) {
    if (include.quoted && folder != "tests" && folder != "bench" && include.in_tree)
      found.push_back({file.path, include.line,
                       "write <hyperframes/" + include.target + ">, not a quoted include"});
    if (include.in_tree && !tree.contains(include.target))
      found.push_back({file.path, include.line, "there is no " + include.target + " in the tree"});
  }
}

void check_header_form(const SourceFile& file, Violations& found) {
  if (!is_header(file.path)) return;
  if (!file.text.starts_with("//"))
    found.push_back({file.path, 1, "a header opens with a comment that says what it is for"});
  if (file.text.find("\n#pragma once\n") == std::string::npos)
    found.push_back({file.path, 0, "a header has #pragma once on a line of its own"});
}

void check_file_name(const SourceFile& file, Violations& found) {
  if (!is_source(file.path)) return;
  const std::string name = fs::path(file.path).filename().string();
  const bool snake_case = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_' || c == '.';
  });
  if (!snake_case) found.push_back({file.path, 0, "file names are snake_case"});
}

void check_cycles(const Tree& tree, Violations& found) {
  std::map<std::string, int> state;  // 1: on the path, 2: done
  std::function<void(const SourceFile&)> visit = [&](const SourceFile& file) {
    state[file.path] = 1;
    for (const Include& include : file.includes) {
      const auto target = include.in_tree ? tree.find(include.target) : tree.end();
      if (target == tree.end()) continue;
      if (state[include.target] == 1)
        found.push_back({file.path, include.line, "include cycle through " + include.target});
      else if (state[include.target] == 0)
        visit(target->second);
    }
    state[file.path] = 2;
  };
  for (const auto& [path, file] : tree)
    if (state[path] == 0) visit(file);
}

struct BannedText {
  std::regex pattern;
  std::string what;
  bool code_only;
};

// The patterns are put together from pieces, so that this file does not break its own rule.
const std::vector<BannedText>& banned_texts() {
  const auto flags = std::regex::ECMAScript | std::regex::icase | std::regex::optimize;
  static const std::vector<BannedText> banned = {
      {std::regex(R"((^|[\s"'`=(:])/(work|farm|root|home)/[a-z.])", flags),
       "a path of one machine stands here", false},
      {std::regex(R"(deb\.debian\.org|snapshot\.debian\.org|registry\.npmjs|pypi\.org)", flags),
       "the host of a package registry stands here", false},
      {std::regex(std::string("\\b(to") + "do|fix" + "me|x" + "xx|not imple" + "mented|place" +
                      "holder|st" + "ub(bed)?)\\b",
                  flags),
       "unfinished work is marked here", true},
  };
  return banned;
}

bool is_code(std::string_view path) {
  return is_source(path) || path.ends_with(".py") || path.ends_with(".sh") ||
         path.ends_with(".R") || path.ends_with(".cmake") || path.ends_with("CMakeLists.txt") ||
         path == "dev";
}

void check_texts(const SourceFile& file, Violations& found) {
  if (file.text.find('\0') != std::string::npos) return;  // not text
  std::istringstream lines(file.text);
  std::string text;
  for (std::size_t line = 1; std::getline(lines, text); ++line)
    for (const BannedText& banned : banned_texts())
      if ((!banned.code_only || is_code(file.path)) && std::regex_search(text, banned.pattern))
        found.push_back({file.path, line, banned.what + ": " + text});
}

// ---- Coroutines
// ----------------------------------------------------------------------------------

std::size_t line_of(const std::string& text, std::size_t at) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// The name of the function whose argument list is open at `at`; empty when none is.
std::string called_around(const std::string& text, std::size_t at) {
  int depth = 0;
  while (at > 0) {
    const char c = text[--at];
    if (c == ')' || c == '}' || c == ']') ++depth;
    if (c != '(' && c != '{' && c != '[' && !(c == ';' && depth == 0)) continue;
    if (c == ';' || (depth == 0 && c != '(')) return "";
    if (depth-- > 0) continue;
    if (at > 0 && text[at - 1] == '>') at = text.rfind('<', at);  // spawn<MyActor>(...)
    const std::size_t end = at;
    while (at > 0 &&
           (std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '_'))
      --at;
    return text.substr(at, end - at);
  }
  return "";
}

// A closure that captures dies at the end of the expression that made it, and a coroutine's frame
// would outlive it: such a lambda must have a name, or be given to a function that keeps it.
void check_coroutine_lambdas(const SourceFile& file, Violations& found) {
  static const std::regex lambda(
      R"(\[[^\[\]]+\]\s*(\([^()]*\))?\s*(mutable\s*)?(noexcept\s*)?->\s*([a-z_]+::)*Task<)");
  static const std::set<std::string> keepers = {"co_invoke", "run",   "run_remote", "call_on",
                                                "spawn",     "start", "async_run"};
  // Tables of cases and the like, which hold the lambda as a value.
  static const std::set<std::string> containers = {"push_back", "start_call"};
  const std::string& code = file.code;
  for (std::sregex_iterator it(code.begin(), code.end(), lambda), end; it != end; ++it) {
    const auto at = static_cast<std::size_t>(it->position());
    const std::size_t before = code.find_last_not_of(" \n", at == 0 ? 0 : at - 1);
    if (before != std::string::npos && code[before] == '=') continue;
    const std::string called = called_around(code, at);
    if (keepers.contains(called) || containers.contains(called)) continue;
    found.push_back({file.path, line_of(code, at),
                     "a capturing lambda may not be a coroutine: give it to co_invoke"});
  }
}

void check_coroutines(const SourceFile& file, Violations& found) {
  const std::string& code = file.code;
  if (!is_layer(first_folder(file.path))) return;
  if (code.find("Task<") == std::string::npos && code.find("co_await") == std::string::npos) return;
  check_coroutine_lambdas(file, found);
  static const std::regex binding(R"(auto\s*&{0,2}\s*\[[^\]]*\]\s*[={(]\s*co_await)");
  for (std::sregex_iterator it(code.begin(), code.end(), binding), end; it != end; ++it)
    found.push_back({file.path, line_of(code, static_cast<std::size_t>(it->position())),
                     "no structured binding straight from co_await: give the result a name first"});
}

}  // namespace

std::vector<Violation> check_layout(const fs::path& root) {
  const Tree tree = read_tree(root);
  Violations found;
  for (const auto& [path, file] : tree) {
    check_layers(file, found);
    check_fences(tree, file, found);
    check_public_header(tree, file, found);
    check_include_form(tree, file, found);
    check_header_form(file, found);
    check_file_name(file, found);
    check_texts(file, found);
    check_coroutines(file, found);
  }
  check_cycles(tree, found);
  return found;
}

std::string describe(const Violation& violation) {
  return violation.file + ":" + std::to_string(violation.line) + ": " + violation.what;
}

}  // namespace hyperframes::layout
