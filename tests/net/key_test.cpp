#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <hyperframes/net/key.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <string>

using hf::net::Key;

namespace {

struct TemporaryFile {
  explicit TemporaryFile(const std::string& text)
      : path(std::filesystem::temp_directory_path() /
             ("hyperframes-key-" + std::to_string(::getpid()))) {
    std::ofstream(path, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

}  // namespace

TEST_CASE("a key is its file's bytes without the white space at the end") {
  const TemporaryFile file("0123456789abcdef \r\n\n");
  const Key key = Key::from_file(file.path);
  CHECK(std::string_view(reinterpret_cast<const char*>(key.bytes().data()), key.bytes().size()) ==
        "0123456789abcdef");
}

TEST_CASE("a key file that is too short is refused without showing what it holds") {
  const TemporaryFile file("hunter2\n");
  try {
    Key::from_file(file.path);
    FAIL("it was taken");
  } catch (const hf::Error& error) {
    const std::string text = error.what();
    CHECK(text.find(file.path.string()) != std::string::npos);
    CHECK(text.find("7 bytes") != std::string::npos);
    CHECK(text.find("hunter2") == std::string::npos);
  }
}

TEST_CASE("a key file that is too long or missing is refused by its path") {
  const TemporaryFile file(std::string(5000, 'x'));
  CHECK_THROWS_AS(Key::from_file(file.path), hf::Error);
  try {
    Key::from_file("/does/not/exist");
    FAIL("it was taken");
  } catch (const hf::Error& error) {
    CHECK(error.code() == std::errc::no_such_file_or_directory);
    CHECK(std::string(error.what()).find("/does/not/exist") != std::string::npos);
  }
}

TEST_CASE("a key file that others can read is taken with a warning that does not show it") {
  const TemporaryFile file("0123456789abcdef");
  std::string said;
  hf::log::set_sink([&](hf::log::Level, std::string_view text) { said += text; });
  namespace fs = std::filesystem;
  fs::permissions(file.path, fs::perms::owner_read);
  Key::from_file(file.path);
  CHECK(said.empty());
  fs::permissions(file.path, fs::perms::owner_read | fs::perms::others_read);
  Key::from_file(file.path);
  hf::log::set_sink({});
  CHECK(said.find("mode 404") != std::string::npos);
  CHECK(said.find("chmod 600") != std::string::npos);
  CHECK(said.find("0123456789") == std::string::npos);
}
