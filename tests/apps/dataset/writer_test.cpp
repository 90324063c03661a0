#include <hyperframes/apps/dataset/writer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include <hyperframes/apps/dataset/reader.hpp>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using test::read_file;
using test::require_error;
using test::TemporaryDirectory;
using test::write_file;

namespace {

std::uint32_t u32(const std::string& bytes, std::size_t at) {
  std::uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

TEST_CASE("a shard file holds count, offsets, configuration and rows") {
  const TemporaryDirectory directory;
  Writer writer(directory / "set", {{"words", "str"}, {"number", "int"}});
  writer.append({"hi", 5});
  writer.append({std::string(), -1});
  const Index index = writer.finish();

  const std::string bytes = read_file(directory / "set/shard.00000.mds");
  const std::string config =
      R"({"column_encodings": ["int", "str"], "column_names": ["number", "words"], )"
      R"("column_sizes": [8, null], "compression": null, "format": "mds", "hashes": ["xxh64"], )"
      R"("size_limit": 67108864, "version": 2})";
  const std::size_t first = 4 + 4 * 3 + config.size();
  CHECK(u32(bytes, 0) == 2);
  CHECK(u32(bytes, 4) == first);
  CHECK(u32(bytes, 8) == first + 14);
  CHECK(u32(bytes, 12) == bytes.size());
  CHECK(bytes.substr(16, config.size()) == config);
  CHECK(bytes.substr(first, 14) == std::string("\x02\0\0\0\x05\0\0\0\0\0\0\0hi", 14));
  CHECK(read_file(directory / "set/index.json") == index.to_json());
  CHECK(index.shards[0].raw.bytes == bytes.size());
  CHECK(index.shards[0].raw.hashes[0].second.size() == 16);
}

TEST_CASE("a shard closes before the row that would exceed the size limit") {
  const TemporaryDirectory directory;
  const std::vector<ColumnSpec> columns = {{"b", "bytes"}};
  const std::string payload(10, 'x');  // a row of 14 bytes and an offset of 4
  const auto shard_sizes = [&](std::uint64_t limit) {
    Writer writer(directory / "set", columns, {.size_limit = limit, .hashes = {}, .replace = true});
    for (int i = 0; i < 5; ++i) writer.append({test::bytes_of(payload)});
    std::vector<std::uint64_t> sizes;
    for (const ShardInfo& shard : writer.finish().shards) {
      CHECK(shard.raw.bytes <= limit);
      CHECK(std::filesystem::file_size(directory / "set" / shard.raw.basename) == shard.raw.bytes);
      sizes.push_back(shard.samples);
    }
    return sizes;
  };
  Index probe{.columns = {{"b", Encoding::parse("bytes")}}, .shards = {}};
  const auto base = [&](std::uint64_t limit) {
    return 8 + probe.config_json({.size_limit = limit}).size();
  };
  const std::uint64_t empty = base(200);
  REQUIRE(base(empty + 36) == empty);
  CHECK(shard_sizes(empty + 36) == std::vector<std::uint64_t>{2, 2, 1});
  CHECK(shard_sizes(empty + 35) == std::vector<std::uint64_t>{1, 1, 1, 1, 1});
  CHECK(shard_sizes(empty + 54) == std::vector<std::uint64_t>{3, 2});
  CHECK(shard_sizes(empty + 18) == std::vector<std::uint64_t>{1, 1, 1, 1, 1});
  require_error(Errc::too_large, "row 0", [&] { shard_sizes(empty + 17); });
}

TEST_CASE("a refused row leaves the writer as it was") {
  const TemporaryDirectory directory;
  Writer writer(directory / "set", {{"a", "int8"}, {"b", "str"}}, {.size_limit = 1000});
  writer.append({1, "one"});
  require_error(Errc::invalid_argument, "column 'a' of row 1", [&] { writer.append({1000, "x"}); });
  require_error(Errc::invalid_argument, "column 'b' of row 1", [&] { writer.append({1, "\xff"}); });
  require_error(Errc::invalid_argument, "3 values", [&] { writer.append({1, "x", 2}); });
  require_error(Errc::too_large, "raise the size limit",
                [&] { writer.append({1, std::string(1000, 'x')}); });
  writer.append({2, "two"});
  CHECK(writer.rows() == 2);
  writer.finish();
  require_error(Errc::closed, "finished", [&] { writer.append({3, "three"}); });

  const Reader reader(directory / "set");
  REQUIRE(reader.size() == 2);
  CHECK(reader.read(1).integer("a") == 2);
  CHECK(reader.read(1).text("b") == "two");
}

TEST_CASE("a data set is replaced only when told to") {
  const TemporaryDirectory directory;
  const std::vector<ColumnSpec> columns = {{"a", "int"}};
  const auto write = [&](int rows, bool replace) {
    Writer writer(directory / "set", columns,
                  {.size_limit = 200, .hashes = {}, .replace = replace});
    for (int i = 0; i < rows; ++i) writer.append({i});
    writer.finish();
  };
  write(20, false);
  REQUIRE(std::filesystem::exists(directory / "set/shard.00001.mds"));
  require_error(Errc::already_exists, "replace", [&] { write(1, false); });
  CHECK(Reader(directory / "set").size() == 20);
  write(1, true);
  CHECK(Reader(directory / "set").size() == 1);
  CHECK(!std::filesystem::exists(directory / "set/shard.00001.mds"));
}

TEST_CASE("a writer that did not finish leaves no data set behind") {
  const TemporaryDirectory directory;
  {
    Writer writer(directory / "set", {{"a", "int"}}, {.size_limit = 200, .hashes = {}});
    for (int i = 0; i < 20; ++i) writer.append({i});
  }
  require_error(Errc::not_found, "no index.json", [&] { Reader(directory / "set"); });
  Writer writer(directory / "set", {{"a", "int"}});  // what is left of it is no obstacle
  writer.finish();
  CHECK(Reader(directory / "set").size() == 0);
}

TEST_CASE("columns and options that no data set can have are refused") {
  const TemporaryDirectory directory;
  const auto make = [&](std::vector<ColumnSpec> columns, WriterOptions options = {}) {
    Writer(directory / "set", std::move(columns), std::move(options));
  };
  require_error(Errc::invalid_argument, "no columns", [&] { make({}); });
  require_error(Errc::invalid_argument, "two columns", [&] { make({{"a", "int"}, {"a", "str"}}); });
  require_error(Errc::unsupported, "pickle", [&] { make({{"a", "pkl"}}); });
  require_error(Errc::invalid_argument, "below 4 GiB",
                [&] { make({{"a", "int"}}, {.size_limit = std::uint64_t{1} << 32}); });
  require_error(Errc::unsupported, "crc7", [&] { make({{"a", "int"}}, {.hashes = {"crc7"}}); });
}

TEST_CASE("sizes are read in units of 1024") {
  CHECK(parse_size("123") == 123);
  CHECK(parse_size("64kb") == 65536);
  CHECK(parse_size("64MB") == 67108864);
  CHECK(parse_size("1.5gb") == 1610612736);
  CHECK(parse_size("7b") == 7);
  for (const char* text : {"", "mb", "-1", "12 mb", "1eb", "nan", "1e30tb"})
    require_error(Errc::invalid_argument, "as a size", [&] { parse_size(text); });
}
