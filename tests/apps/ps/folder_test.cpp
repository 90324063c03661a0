#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/detail/folder.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/runtime.hpp>

#include "temporary_folder.hpp"

using namespace hyperframes;
using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

TEST_CASE("a number is found in a name that is whole, and in no other") {
  CHECK(ps::detail::number_in("segment-000000000000002a.log", "segment-", ".log") == 42);
  CHECK(ps::detail::number_in("token-ffffffffffffffff", "token-", "") == ~std::uint64_t{0});
  for (const char* name :
       {"segment-.log", "segment-2a.logs", "segment-2a.log.new", "segment-2g.log", "segment--1.log",
        "segment- 1.log", "segment-10000000000000000.log", "old-segment-2a.log", "segment-", ".log",
        ""}) {
    INFO(name);
    CHECK_FALSE(ps::detail::number_in(name, "segment-", ".log").has_value());
  }
  CHECK_FALSE(ps::detail::number_in("ab", "ab", "b").has_value());  // no letter counts twice
}

TEST_CASE("a folder that is not there holds nothing, and is not made") {
  Runtime runtime({.shards = 1});
  TemporaryFolder folder;
  const auto list = [&](std::string path) {
    return runtime.run([path](Runtime&) { return ps::detail::list_if_there(path); });
  };
  CHECK(list(folder.file("none/at/all")).empty());
  CHECK(std::filesystem::is_empty(folder.path()));
  std::ofstream(folder.file("b")) << "x";
  std::ofstream(folder.file("a")) << "x";
  CHECK(list(folder.path()) == std::vector<std::string>{"a", "b"});
  CHECK_THROWS_AS(list(folder.file("a")), Error);
}
