#include <hyperframes/runtime/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

using namespace hyperframes;

namespace {

// What docs/reference/errors.md says under each heading.
std::map<std::string, std::string> sections() {
  std::ifstream page(HYPERFRAMES_SOURCE_DIR "/docs/reference/errors.md");
  std::map<std::string, std::string> sections;
  std::string heading;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) {
      heading = line.substr(3);
    } else if (!heading.empty()) {
      sections[heading] += line + "\n";
    }
  }
  return sections;
}

template <class Visit>
int for_each_code(Visit&& visit) {
  int count = 0;
  for (; name(static_cast<Errc>(count + 1)) != "unknown_error"; ++count)
    visit(static_cast<Errc>(count + 1));
  return count;
}

}  // namespace

TEST_CASE("every error code has a section that says what it means, its causes and what to do") {
  const auto page = sections();
  const int codes = for_each_code([&](Errc code) {
    INFO(name(code));
    const auto section = page.find(std::string(name(code)));
    REQUIRE(section != page.end());
    for (const char* part : {"**Means:**", "**Causes:**", "**What to do:**"})
      CHECK(section->second.find(part) != std::string::npos);
  });
  CHECK(codes >= 25);
  CHECK(page.size() == static_cast<std::size_t>(codes) + 1);  // and the system's
}

TEST_CASE("an error's message names the code by which the page describes it") {
  for_each_code([](Errc code) {
    const std::string text = Error(code, "try it", "it failed", "try something else").what();
    CHECK(text == "try it: it failed [" + std::string(name(code)) + "]; try something else");
    CHECK(std::string(Error(code, "try it").what()).find("[" + std::string(name(code)) + "]") !=
          std::string::npos);
  });
}

TEST_CASE("an error of the system names what the system says") {
  const Error error = Error::system(-EACCES, "open 'x'", "it is another's", "ask its owner");
  CHECK(error.code() == std::errc::permission_denied);
  CHECK(std::string(error.what()) ==
        "open 'x': it is another's [Permission denied]; ask its owner");
}
