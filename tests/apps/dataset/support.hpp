// What the data set tests share: a directory that goes away, whole files, and a check of errors.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include <unistd.h>

#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "hyperframes-dataset-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  REQUIRE(stream.good());
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream stream(path, std::ios::binary);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  REQUIRE(stream.good());
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Runs `action`, which must throw an Error of `code` whose text contains `part`.
template <class Action>
void require_error(Errc code, std::string_view part, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.is(code));
    CHECK(std::string_view(error.what()).find(part) != std::string_view::npos);
    return;
  }
  FAIL("nothing was thrown; expected: " << part);
}

}  // namespace hyperframes::dataset::test
