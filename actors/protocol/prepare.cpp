#include <hyperframes/actors/protocol/prepare.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace hyperframes::protocol {
namespace {

namespace fs = std::filesystem;

// Attributes of methods; declared for the schema so that it need not.
constexpr std::string_view declared_attributes =
    R"(attribute "interleaved"; attribute "oneway"; attribute "segments"; attribute "bulk"; )";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw SchemaError("can't read " + path.string() + ": " +
                      std::generic_category().message(errno));
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
    const std::size_t place = copies.size();
    copies.emplace_back();
    Copy copy = rewrite(read_file(original), original);
    copy.original = original;
    copy.path = fs::canonical(folder_) / original.filename();  // as flatc calls it
    write(copy.path, copy.text);
    copies[place] = std::move(copy);
  }

  std::vector<Copy> copies;

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

  Copy rewrite(const std::string& text, const fs::path& path) {
    Copy copy;
    std::string& result = copy.text;
    std::size_t copied = 0;
    const auto copy_to = [&](std::size_t end) {
      copy.pieces.push_back({result.size(), copied, end - copied});
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
        if (copied)
          copy_to(std::min(text.find(';', copied), text.size() - 1) + 1);  // the include's end
        result += " ";
        result += declared_attributes;
        attributes_declared = true;
      }
      if (token.text == "rpc_service") rewrite_service(scanner, copy_to, result, copied);
    }
    copy_to(text.size());
    return copy;
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

std::size_t Copy::original_of(std::size_t in_copy) const noexcept {
  std::size_t found = 0;
  for (const Piece& piece : pieces)
    if (piece.in_copy <= in_copy)
      found = piece.in_original + std::min(in_copy - piece.in_copy, piece.size);
  return found;
}

std::vector<Copy> prepare(const fs::path& schema, const std::vector<fs::path>& include_folders,
                          const fs::path& folder) {
  Preparation preparation(include_folders, folder);
  preparation.add(schema);
  return std::move(preparation.copies);
}

namespace {

/// Takes a number off the front; 0 if there is none.
std::size_t take_number(std::string_view& text) {
  std::size_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

/// The column in the original of a line of the copy.
std::size_t column_of(const Copy& copy, std::size_t line, std::size_t column) {
  std::size_t begin = 0;
  for (std::size_t i = 1; i < line && begin != std::string::npos; ++i)
    begin = copy.text.find('\n', begin) + 1;
  const std::size_t first = copy.original_of(begin);
  return std::max(copy.original_of(begin + column), first) - first;
}

}  // namespace

std::string in_originals(std::string message, const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    const std::string path = copy.path.string();
    for (auto at = message.find(path); at != std::string::npos;) {
      std::string_view rest = std::string_view(message).substr(at + path.size());
      std::string place = copy.original.string();
      // flatc writes "PATH:LINE: COLUMN: error: ...".
      if (std::string_view after = rest; take(after, ":"))
        if (const auto line = take_number(after); line != 0 && take(after, ": "))
          if (const auto column = take_number(after); take(after, ":")) {
            place += ":" + std::to_string(line) + ":" +
                     std::to_string(column_of(copy, line, column)) + ":";
            rest = after;
          }
      const std::size_t end = message.size() - rest.size();
      message.replace(at, end - at, place);
      at = message.find(path, at + place.size());
    }
  }
  return message;
}

}  // namespace hyperframes::protocol
