#include <hyperframes/apps/dataset/hashes.hpp>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

#include "support.hpp"

using namespace hyperframes::dataset;
using test::bytes_of;

namespace {

std::string hash(std::string_view name, std::string_view text) {
  const auto hasher = Hasher::create(name);
  REQUIRE(hasher != nullptr);
  for (const char& c : text) hasher->update(bytes_of({&c, 1}));
  const std::string hex = hasher->hex();
  CHECK(hasher->hex() == hex);  // asking changes nothing
  return hex;
}

}  // namespace

TEST_CASE("the xxHash names give the published values of the empty input") {
  CHECK(hash("xxh32", "") == "02cc5d05");
  CHECK(hash("xxh64", "") == "ef46db3751d8e999");
  CHECK(hash("xxh3_64", "") == "2d06800538d394c2");
  CHECK(hash("xxh3_128", "") == "99aa06d3014798d86001c324468d497f");
  CHECK(hash("xxh128", "abc") == hash("xxh3_128", "abc"));
}

TEST_CASE("the cryptographic names give the published values") {
  CHECK(hash("sha1", "abc") == "a9993e364706816aba3e25717850c26c9cd0d89d");
  CHECK(hash("sha256", "") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("blake2s", "").size() == 64);
  CHECK(hash("sha3_224", "").size() == 56);
}

TEST_CASE("an unknown hash is null") {
  CHECK(Hasher::create("xxh65") == nullptr);
  CHECK(Hasher::create("") == nullptr);
}
