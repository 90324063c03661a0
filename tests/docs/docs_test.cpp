// What the pages say is there: quoted code, linked pages, named files and named tests. Their
// commands are followed by tests/docs/follow.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const fs::path root = HYPERFRAMES_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  REQUIRE(stream);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// A fenced block: "```cpp main.cpp" has the language cpp and the file main.cpp.
struct Block {
  std::size_t line = 0;
  std::string language{}, file{};
  Lines lines{};
};

std::vector<Block> blocks_of(const fs::path& page) {
  std::vector<Block> blocks;
  bool inside = false;
  std::size_t number = 0;
  for (const std::string& line : lines_of(text_of(page))) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
      if (!inside) continue;
      Block block{.line = number};
      std::istringstream(line.substr(3)) >> block.language >> block.file;
      blocks.push_back(block);
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
  }
  INFO(page);
  REQUIRE(!inside);
  return blocks;
}

std::size_t indentation(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// Without the indentation that all of them have, and without spaces at their ends.
Lines shifted(Lines lines) {
  std::size_t common = std::string::npos;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    if (!line.empty()) common = std::min(common, indentation(line));
  }
  for (std::string& line : lines)
    if (!line.empty()) line.erase(0, common);
  return lines;
}

/// The index behind the first place from `begin` on where `piece` stands; npos: nowhere.
std::size_t end_of(const Lines& piece, const Lines& file, std::size_t begin) {
  const Lines wanted = shifted(piece);
  for (; begin + piece.size() <= file.size(); ++begin) {
    const auto first = file.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = first + static_cast<std::ptrdiff_t>(piece.size());
    if (first->find(wanted.front()) != std::string::npos && shifted(Lines(first, last)) == wanted)
      return begin + piece.size();
  }
  return std::string::npos;
}

/// Whether the file has the block's lines. A line "// ..." in the block leaves some out.
bool is_quoted_from(const Block& block, const Lines& file) {
  std::vector<Lines> pieces(1);
  for (const std::string& line : block.lines) {
    const std::string bare = line.substr(indentation(line));
    if (bare == "// ..." || bare == "# ...") {
      pieces.emplace_back();
    } else {
      pieces.back().push_back(line);
    }
  }
  std::size_t at = 0;
  for (const Lines& piece : pieces) {
    if (piece.empty()) continue;
    at = end_of(piece, file, at);
    if (at == std::string::npos) return false;
  }
  return true;
}

std::vector<fs::path> files_below(const fs::path& folder, const std::set<std::string>& kinds) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && (kinds.contains(entry.path().extension().string()) ||
                                    kinds.contains(entry.path().filename().string())))
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::vector<fs::path> all_pages() {
  auto pages = files_below(root / "docs", {".md"});
  pages.push_back(root / "README.md");
  return pages;
}

/// Pages for people who begin: all that they show must run.
std::vector<fs::path> taught_pages() {
  auto pages = files_below(root / "docs" / "tutorials", {".md"});
  pages.push_back(root / "docs" / "primer.md");
  pages.push_back(root / "docs" / "tour.md");
  return pages;
}

bool is_followed(const fs::path& page) {
  std::istringstream followed(HYPERFRAMES_FOLLOWED_PAGES);
  for (std::string name; std::getline(followed, name, '|');)
    if (page == root / name) return true;
  return false;
}

std::string at(const fs::path& page, std::size_t line) {
  return page.lexically_relative(root).string() + ":" + std::to_string(line);
}

template <class Visit>
void each_match(const std::string& text, const std::regex& pattern, Visit visit) {
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) visit(*it);
}

}  // namespace

TEST_CASE("code in the tutorials, the primer and the tour is code that the tests run") {
  std::vector<Lines> examples;
  for (const auto& file :
       files_below(root / "examples", {".cpp", ".fbs", ".cmake", "CMakeLists.txt"}))
    examples.push_back(lines_of(text_of(file)));
  const std::set<std::string> code = {"cpp", "cmake", "fbs"};
  std::size_t quotations = 0;
  for (const auto& page : taught_pages())
    for (const Block& block : blocks_of(page)) {
      INFO(at(page, block.line) << " holds code that stands in no file of examples/");
      if (!code.contains(block.language)) continue;
      ++quotations;
      CHECK(std::ranges::any_of(examples,
                                [&](const Lines& file) { return is_quoted_from(block, file); }));
    }
  CHECK(quotations > 20);
}

TEST_CASE("commands and files that a reader is told to type are followed by a test") {
  // A "screen" was captured from a terminal, and is looked at only.
  const std::set<std::string> known = {"cpp",  "cmake", "fbs", "sh",
                                       "text", "yaml",  "awk", "screen"};
  for (const auto& page : taught_pages())
    for (const Block& block : blocks_of(page)) {
      INFO(at(page, block.line) << " has a block of '" << block.language << "'");
      CHECK(known.contains(block.language));
      if (block.language == "sh" || !block.file.empty()) CHECK(is_followed(page));
    }
  // Of the README its quick starts are followed.
  for (const Block& block : blocks_of(root / "README.md")) {
    INFO(at(root / "README.md", block.line) << " is code without a file to put it into");
    if (block.language == "cpp" || block.language == "cmake") CHECK(!block.file.empty());
  }
}

TEST_CASE("a quotation that its file does not have is found") {
  const Lines file = {"int main() {", "  first();", "", "  second();", "  third();", "}"};
  CHECK(is_quoted_from({.lines = {"first();", "", "second();"}}, file));
  CHECK(is_quoted_from({.lines = {"  first();", "  // ...", "  third();"}}, file));
  CHECK(!is_quoted_from({.lines = {"second();", "first();"}}, file));
  CHECK(!is_quoted_from({.lines = {"third();", "// ...", "first();"}}, file));
  CHECK(!is_quoted_from({.lines = {"first();", "second();"}}, file));
  CHECK(!is_quoted_from({.lines = {"fourth();"}}, file));
}

TEST_CASE("pages and files that the documentation names exist") {
  const std::regex link(R"re(\]\(([^)#: ]+)(#[^)]*)?\))re");
  const std::regex path(
      R"re(`((?:actors|apps|bench|cmake|docs|examples|gpu|net|runtime|tests)/[A-Za-z0-9_./]+)`)re");
  std::size_t count = 0;
  for (const auto& page : all_pages()) {
    const std::string text = text_of(page);
    const std::string name = page.lexically_relative(root).string();
    each_match(text, link, [&](const std::smatch& match) {
      ++count;
      INFO(name << " links " << match.str(1));
      CHECK(fs::exists(page.parent_path() / match.str(1)));
    });
    each_match(text, path, [&](const std::smatch& match) {
      ++count;
      INFO(name << " names " << match.str(1));
      CHECK((fs::exists(root / match.str(1)) || fs::exists(root / (match.str(1) + ".cpp")) ||
             fs::exists(root / (match.str(1) + "_test.cpp"))));
    });
  }
  CHECK(count > 50);
}

TEST_CASE("tests that the essays name exist") {
  // - `tests/runtime/task_test.cpp`: "a test", "another one".
  const std::regex item(R"re(- `(tests/[a-z0-9_/]+\.cpp)`:((?:[^-`]|-[^ ])*))re");
  const std::regex quoted("\"([^\"]+)\"");
  std::size_t count = 0;
  for (const auto& page : files_below(root / "docs" / "design", {".md"})) {
    const std::string text = text_of(page);
    each_match(text, item, [&](const std::smatch& match) {
      const std::string source = text_of(root / match.str(1));
      each_match(match.str(2), quoted, [&](const std::smatch& name) {
        ++count;
        const std::string words = std::regex_replace(name.str(1), std::regex("\\s+"), " ");
        INFO(page.filename() << " names a test of " << match.str(1) << ": " << words);
        CHECK(source.find("TEST_CASE(\"" + words + "\"") != std::string::npos);
      });
    });
  }
  CHECK(count > 30);
}

TEST_CASE("every page can be reached from the documentation's index") {
  const std::string index = text_of(root / "docs" / "README.md");
  for (const auto& page : files_below(root / "docs", {".md"})) {
    const std::string name = page.lexically_relative(root / "docs").generic_string();
    INFO(name);
    if (name != "README.md") CHECK(index.find("(" + name + ")") != std::string::npos);
  }
  CHECK(text_of(root / "README.md").find("docs/README.md") != std::string::npos);
}
