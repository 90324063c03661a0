#include <hyperframes/actors/protocol/prepare.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

namespace hyperframes::protocol {
namespace {

namespace fs = std::filesystem;

// Attributes of methods; declared for the schema so that it need not.
constexpr std::string_view declared_attributes =
    R"(attribute "interleaved"; attribute "oneway"; attribute "segments"; attribute "bulk"; )";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw SchemaError("can't read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Walks a schema's tokens. Comments and white space are skipped, never lost: the text is copied by
/// position.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  struct Token {
    std::string_view text;
    std::size_t begin = 0, end = 0;
  };

  /// The next word, string or single character; empty at the end.
  Token next() {
    skip_blank();
    const std::size_t begin = at_;
    if (at_ >= text_.size()) return {{}, begin, begin};
    if (text_[at_] == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
        if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size()) ++at_;
    } else if (is_word(text_[at_])) {
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    } else {
      ++at_;
    }
    at_ = std::min(at_, text_.size());
    return {text_.substr(begin, at_ - begin), begin, at_};
  }

 private:
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  }
  void skip_blank() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (text_.substr(at_, 2) == "/*") {
        const auto close = text_.find("*/", at_ + 2);
        at_ = close == std::string_view::npos ? text_.size() : close + 2;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

class Preparation {
 public:
  Preparation(const std::vector<fs::path>& include_folders, const fs::path& folder)
      : include_folders_(include_folders), folder_(folder) {
    fs::create_directories(folder_);
  }

  void add(const fs::path& path) {
    const fs::path original = fs::weakly_canonical(path);
    const auto [entry, is_new] = by_name_.try_emplace(original.filename().string(), original);
    if (!is_new) {
      if (entry->second == original) return;
      throw SchemaError("two schemas are called " + entry->first + ": " + entry->second.string() +
                        " and " + original.string() + "; rename one of them");
    }
    originals.push_back(original);
    write(folder_ / original.filename(), rewrite(read_file(original), original));
  }

  std::vector<fs::path> originals;

 private:
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw SchemaError("can't write " + path.string());
  }

  fs::path find(std::string_view included, const fs::path& from) const {
    if (const fs::path beside = from.parent_path() / included; fs::exists(beside)) return beside;
    for (const fs::path& folder : include_folders_)
      if (const fs::path path = folder / included; fs::exists(path)) return path;
    throw SchemaError(from.string() + " includes \"" + std::string(included) +
                      "\", which is neither beside it nor in an include folder");
  }

  std::string rewrite(const std::string& text, const fs::path& path) {
    std::string result;
    std::size_t copied = 0;
    const auto copy_to = [&](std::size_t end) {
      result.append(text, copied, end - copied);
      copied = end;
    };
    bool attributes_declared = false;
    Scanner scanner(text);
    std::string_view before;
    for (auto token = scanner.next(); !token.text.empty();
         before = token.text, token = scanner.next()) {
      if (before == "ulong" && token.text == "=") refuse_large_default(scanner.next().text, path);
      if (token.text == "include") {
        const auto name = scanner.next();
        if (name.text.size() < 2 || name.text.front() != '"') continue;
        const fs::path included = find(name.text.substr(1, name.text.size() - 2), path);
        copy_to(name.begin);
        result += "\"" + included.filename().string() + "\"";
        copied = name.end;
        add(included);
        continue;
      }
      if (!attributes_declared) {
        // Before the first declaration, but after the includes. A doc comment stays with what it
        // documents: this goes to the start of the file, or right after the last include.
        declare_attributes(result, text, copied);
        attributes_declared = true;
      }
      if (token.text == "rpc_service") rewrite_service(scanner, copy_to, result, copied);
    }
    copy_to(text.size());
    return result;
  }

  // flatc's reflection holds defaults as signed numbers, and turns what does not fit into 0.
  static void refuse_large_default(std::string_view value, const fs::path& path) {
    std::uint64_t number = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
    if (read.ec != std::errc() || number <= std::uint64_t{INT64_MAX}) return;
    throw SchemaError(
        path.string() + ": the default " + std::string(value) +
        " of a ulong is over 9223372036854775807, which flatc's reflection can't say");
  }

  static void declare_attributes(std::string& result, const std::string& text,
                                 std::size_t& copied) {
    if (copied) {  // up to the semicolon of the last include
      const auto end = text.find(';', copied) + 1;
      result.append(text, copied, end - copied);
      copied = end;
    }
    result += " ";
    result += declared_attributes;
  }

  template <class CopyTo>
  static void rewrite_service(Scanner& scanner, CopyTo& copy_to, std::string& result,
                              std::size_t& copied) {
    const std::string service(scanner.next().text);
    std::string tables;
    if (scanner.next().text != "{") return;  // flatc will say what is wrong
    for (auto method = scanner.next(); !method.text.empty(); method = scanner.next()) {
      if (method.text == "}") {
        copy_to(method.end);
        result += tables;
        return;
      }
      const auto open = scanner.next(), request = scanner.next(), close = scanner.next(),
                 colon = scanner.next(), response = scanner.next();
      if (open.text != "(" || close.text != ")" || colon.text != ":") return;
      const std::string table = service + std::string(method.text) + call_table_suffix;
      copy_to(request.begin);
      result += table;
      copied = request.end;
      copy_to(response.begin);
      result += table;
      copied = response.end;
      tables += " table " + table + " { request:" + std::string(request.text) +
                "; response:" + std::string(response.text) + "; }";
      for (auto rest = scanner.next(); rest.text != ";"; rest = scanner.next())
        if (rest.text.empty()) return;
    }
  }

  const std::vector<fs::path>& include_folders_;
  fs::path folder_;
  std::map<std::string, fs::path> by_name_;
};

}  // namespace

std::vector<fs::path> prepare(const fs::path& schema, const std::vector<fs::path>& include_folders,
                              const fs::path& folder) {
  Preparation preparation(include_folders, folder);
  preparation.add(schema);
  return preparation.originals;
}

}  // namespace hyperframes::protocol
