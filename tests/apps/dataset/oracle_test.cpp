// Data sets that the format's own library wrote, with the values that it read from them. They lie
// outside the tree; HYPERFRAMES_MDS_ORACLE names their directory, as a CMake or environment
// variable.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <hyperframes/apps/dataset/reader.hpp>
#include <hyperframes/apps/dataset/writer.hpp>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using nlohmann::json;
using test::read_file;
using test::require_error;
using test::TemporaryDirectory;

namespace {

std::filesystem::path oracle() {
  const char* variable = std::getenv("HYPERFRAMES_MDS_ORACLE");
  const std::filesystem::path path = variable != nullptr ? variable : HYPERFRAMES_MDS_ORACLE;
  if (!std::filesystem::exists(path / "plain/index.json"))
    SKIP("no data sets of the format's own library in "
         << path << "; set HYPERFRAMES_MDS_ORACLE to their directory");
  return path;
}

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : bytes) {
    out += digits[std::to_integer<unsigned>(byte >> 4)];
    out += digits[std::to_integer<unsigned>(byte & std::byte{15})];
  }
  return out;
}

json array_json(const ArrayView& array) {
  json data = json::array();
  for (std::uint64_t i = 0; i < array.size(); ++i) data.push_back(array.real(i));
  return {{"dtype", name(array.type)}, {"shape", array.shape}, {"data", data}};
}

// The value in the form that the expectations have.
json value_json(const Encoding& encoding, const Sample& sample, std::size_t column) {
  switch (encoding.kind) {
    case Encoding::Kind::scalar:
      if (encoding.name.starts_with("float")) return sample.real(column);
      return sample.integer(column);
    case Encoding::Kind::decimal: return json::parse(sample.text(column));
    case Encoding::Kind::json: return json::parse(sample.text(column));
    case Encoding::Kind::text: return std::string(sample.text(column));
    case Encoding::Kind::bytes: return {{"hex", hex(sample.bytes(column))}};
    case Encoding::Kind::array: return array_json(sample.array(column));
    default: FAIL("the data sets hold no " << encoding.name); return {};
  }
}

}  // namespace

TEST_CASE("the data sets of the format's own library read as it reads them") {
  const std::filesystem::path directory = oracle();
  for (const char* name : {"plain", "nohash", "merged"}) {
    INFO(name);
    const json expected =
        json::parse(read_file(directory / (std::string(name) + ".expected.json")));
    const Reader reader(directory / name, {.verify_hashes = true});
    REQUIRE(reader.size() == expected.size());
    REQUIRE(!expected.empty());
    for (std::uint64_t i = 0; i < reader.size(); ++i) {
      const Sample sample = reader.read(i);
      REQUIRE(expected[i].size() == reader.columns().size());
      for (std::size_t c = 0; c < reader.columns().size(); ++c) {
        const Column& column = reader.columns()[c];
        INFO("sample " << i << ", column " << column.name);
        CHECK(value_json(column.encoding, sample, c) == expected[i].at(column.name));
      }
    }
  }
}

TEST_CASE("writing the same values gives the other library's files, byte for byte") {
  const std::filesystem::path directory = oracle();
  for (const std::string name : {"plain", "nohash", "merged/00001"}) {
    INFO(name);
    const Reader reader(directory / name);
    const ShardInfo& first = reader.index().shards.front();
    // Given last name first: the writer must sort them.
    std::vector<ColumnSpec> columns;
    for (std::size_t c = reader.columns().size(); c-- > 0;)
      columns.push_back({reader.columns()[c].name, reader.columns()[c].encoding.name});
    const TemporaryDirectory copy;
    Writer writer(copy.path(), columns, {.size_limit = *first.size_limit, .hashes = first.hashes});
    for (std::uint64_t i = 0; i < reader.size(); ++i) {
      const Sample sample = reader.read(i);
      std::vector<Value> values;
      for (std::size_t c = reader.columns().size(); c-- > 0;) {
        const Encoding& encoding = reader.columns()[c].encoding;
        if (encoding.kind == Encoding::Kind::array)
          values.emplace_back(sample.array(c));
        else if (encoding.kind == Encoding::Kind::bytes)
          values.emplace_back(sample.bytes(c));
        else if (encoding.kind != Encoding::Kind::scalar)
          values.emplace_back(sample.text(c));
        else if (encoding.name.starts_with("float"))
          values.emplace_back(sample.real(c));
        else
          values.emplace_back(sample.integer(c));
      }
      writer.append(values);
    }
    writer.finish();
    CHECK(read_file(copy / "index.json") == read_file(directory / name / "index.json"));
    for (const ShardInfo& shard : reader.index().shards)
      CHECK((read_file(copy / shard.raw.basename) ==
             read_file(directory / name / shard.raw.basename)));
  }
}

TEST_CASE("the other library's compressed data sets are refused by the decompressor they need") {
  const std::filesystem::path directory = oracle();
  for (const std::string name : {"br", "bz2", "gz", "snappy", "zstd"}) {
    require_error(Errc::unsupported, "needs the decompressor " + name,
                  [&] { Reader(directory / name); });
    CHECK(Index::load(directory / name).samples() ==
          json::parse(read_file(directory / (name + ".expected.json"))).size());
  }
}
