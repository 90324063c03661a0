#include <hyperframes/apps/dataset/index.hpp>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using nlohmann::json;
using test::read_file;
using test::require_error;
using test::TemporaryDirectory;
using test::write_file;

namespace {

json shard_entry(const std::string& basename = "shard.00000.mds") {
  return {{"column_encodings", {"int", "str"}},
          {"column_names", {"number", "words"}},
          {"column_sizes", {8, nullptr}},
          {"compression", nullptr},
          {"format", "mds"},
          {"hashes", {"xxh64"}},
          {"raw_data", {{"basename", basename}, {"bytes", 499}, {"hashes", {{"xxh64", "c018"}}}}},
          {"samples", 16},
          {"size_limit", 512},
          {"version", 2},
          {"zip_data", nullptr}};
}

json document(const json& entry = shard_entry()) { return {{"shards", {entry}}, {"version", 2}}; }

Index parse(const json& text) { return Index::parse(text.dump(), "the test's index"); }

// The entry after `change` must be refused.
void refuse(Errc code, std::string_view part, const std::function<void(json&)>& change) {
  json entry = shard_entry();
  change(entry);
  INFO(entry.dump());
  require_error(code, part, [&] { parse(document(entry)); });
}

}  // namespace

TEST_CASE("an index is written as the format's own library writes it") {
  const std::string text =
      R"({"shards": [{"column_encodings": ["int", "str"], "column_names": ["number", "words"], )"
      R"("column_sizes": [8, null], "compression": null, "format": "mds", "hashes": ["xxh64"], )"
      R"("raw_data": {"basename": "shard.00000.mds", "bytes": 499, "hashes": {"xxh64": "c018"}}, )"
      R"("samples": 16, "size_limit": 512, "version": 2, "zip_data": null}], "version": 2})";
  const Index index = Index::parse(text, "the test's index");
  CHECK(index.to_json() == text);
  CHECK(index.config_json(index.shards[0]) ==
        R"({"column_encodings": ["int", "str"], "column_names": ["number", "words"], )"
        R"("column_sizes": [8, null], "compression": null, "format": "mds", "hashes": ["xxh64"], )"
        R"("size_limit": 512, "version": 2})");
  CHECK(Index::parse(R"({"shards": [], "version": 2})", "empty").to_json() ==
        R"({"shards": [], "version": 2})");
}

TEST_CASE("names beyond ASCII are escaped in an index") {
  json entry = shard_entry();
  entry["column_names"] = {"number", "w\u00f6rter \U0001f600\x7f\n"};
  const Index index = parse(document(entry));
  CHECK(index.columns[1].name == "w\u00f6rter \U0001f600\x7f\n");
  CHECK(index.to_json().find(R"("w\u00f6rter \ud83d\ude00\u007f\n")") != std::string::npos);
}

TEST_CASE("a column size of null or 0 is variable") {
  json entry = shard_entry();
  entry["column_sizes"] = {8, 0};
  CHECK(parse(document(entry)).columns[1].size == 0);
  entry["column_sizes"] = {nullptr, nullptr};
  CHECK(parse(document(entry)).columns[0].size == 0);
}

TEST_CASE("another version of the format is refused with both versions") {
  for (const json& version : {json(1), json(3), json("2"), json(nullptr), json(2.5)}) {
    json text = document();
    text["version"] = version;
    require_error(Errc::version_mismatch, "version 2 is read", [&] { parse(text); });
    refuse(Errc::version_mismatch, "version 2 is read", [&](json& e) { e["version"] = version; });
  }
}

TEST_CASE("a basename leads at most one directory down") {
  for (const char* good : {"shard.00000.mds", "part0/shard.00000.mds", "..shard", "a..b/c"})
    CHECK(parse(document(shard_entry(good))).shards[0].raw.basename == good);
  for (const char* bad :
       {"", "/etc/passwd", "../shard", "a/../b", "a/..", "..", ".", "./a", "a/b/c", "a/", "a//b"})
    refuse(Errc::corrupt, "leads out of", [&](json& e) { e["raw_data"]["basename"] = bad; });
  refuse(Errc::corrupt, "leads out of",
         [](json& e) { e["raw_data"]["basename"] = std::string("a\0b", 3); });
}

TEST_CASE("an index that is damaged is refused and says where") {
  require_error(Errc::corrupt, "the test's index", [] { Index::parse("{", "the test's index"); });
  require_error(Errc::corrupt, "no JSON object", [] { Index::parse("[]", "x"); });
  require_error(Errc::corrupt, "'shards' is no list",
                [] { Index::parse(R"({"version": 2})", "x"); });
  require_error(Errc::corrupt, "shard 0",
                [] { Index::parse(R"({"version": 2, "shards": [7]})", "x"); });
  refuse(Errc::unsupported, "format is 'csv'", [](json& e) { e["format"] = "csv"; });
  refuse(Errc::corrupt, "'format' is no text", [](json& e) { e.erase("format"); });
  refuse(Errc::corrupt, "differ in length", [](json& e) { e["column_sizes"].push_back(4); });
  refuse(Errc::corrupt, "same name", [](json& e) { e["column_names"] = {"a", "a"}; });
  refuse(Errc::corrupt, "something else than text", [](json& e) { e["column_names"] = {"a", 4}; });
  refuse(Errc::corrupt, "needs 8", [](json& e) { e["column_sizes"] = {4, nullptr}; });
  refuse(Errc::corrupt, "is no size", [](json& e) { e["column_sizes"] = {8, -1}; });
  refuse(Errc::corrupt, "is no size", [](json& e) { e["column_sizes"] = {8, 4294967296}; });
  refuse(Errc::corrupt, "'samples' is no count", [](json& e) { e["samples"] = -1; });
  refuse(Errc::corrupt, "do not fit", [](json& e) { e["samples"] = 123; });
  refuse(Errc::corrupt, "do not fit", [](json& e) { e["raw_data"]["bytes"] = 7; });
  refuse(Errc::corrupt, "smaller than 4 GiB", [](json& e) { e["raw_data"]["bytes"] = 4294967296; });
  refuse(Errc::corrupt, "'bytes' is no count", [](json& e) { e["raw_data"]["bytes"] = 1.5; });
  refuse(Errc::corrupt, "'hashes'", [](json& e) { e["raw_data"]["hashes"] = {1, 2}; });
  refuse(Errc::corrupt, "'xxh64' is no text",
         [](json& e) { e["raw_data"]["hashes"]["xxh64"] = 1; });
  refuse(Errc::corrupt, "'raw_data'", [](json& e) { e["raw_data"] = nullptr; });
  refuse(Errc::corrupt, "'zip_data' is missing", [](json& e) { e["compression"] = "zstd"; });
  refuse(Errc::unsupported, "pickle", [](json& e) { e["column_encodings"] = {"int", "pkl"}; });
}

TEST_CASE("a deeply nested index is refused, not crashed on") {
  const std::string deep(200'000, '[');
  require_error(Errc::corrupt, "x", [&] { Index::parse(deep, "x"); });
  require_error(Errc::corrupt, "no JSON object",
                [&] { Index::parse(deep + std::string(deep.size(), ']'), "x"); });
}

TEST_CASE("shards of different columns are refused") {
  json other = shard_entry("shard.00001.mds");
  other["column_names"] = {"number", "text"};
  const json text = {{"shards", {shard_entry(), other}}, {"version", 2}};
  require_error(Errc::unsupported, "shard 1", [&] { parse(text); });
}

TEST_CASE("a directory without an index says so") {
  const TemporaryDirectory directory;
  require_error(Errc::not_found, "no index.json", [&] { Index::load(directory.path()); });
}

TEST_CASE("indexes of sub-directories are merged into one above them") {
  const TemporaryDirectory directory;
  write_file(directory / "part0/index.json", document().dump());
  write_file(directory / "part1/index.json", document().dump());
  write_file(directory / "none/index.json", R"({"shards": [], "version": 2})");
  const Index merged = merge_indexes(directory.path(), {"part0", "none", "part1"});
  CHECK(merged.samples() == 32);
  const Index loaded = Index::load(directory.path());
  CHECK(loaded.to_json() == merged.to_json());
  REQUIRE(loaded.shards.size() == 2);
  CHECK(loaded.shards[1].raw.basename == "part1/shard.00000.mds");

  SECTION("other columns are refused") {
    json other = shard_entry();
    other["column_names"] = {"number", "text"};
    write_file(directory / "part2/index.json", document(other).dump());
    require_error(Errc::invalid_argument, "part2",
                  [&] { merge_indexes(directory.path(), {"part0", "part2"}); });
  }
  SECTION("a merged index is not merged again") {
    write_file(directory / "deep/index.json", document(shard_entry("a/shard.00000.mds")).dump());
    require_error(Errc::corrupt, "too deep", [&] { merge_indexes(directory.path(), {"deep"}); });
    CHECK(Index::load(directory.path()).samples() == 32);
  }
}
