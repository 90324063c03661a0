#include <hyperframes/apps/dataset/reader.hpp>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <hyperframes/apps/dataset/writer.hpp>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using hyperframes::Error;
using test::read_file;
using test::require_error;
using test::TemporaryDirectory;
using test::write_file;

namespace {

// Rows {number: i, words: i letters}, in shards of a few rows.
void write_numbers(const std::filesystem::path& directory, int rows,
                   std::uint64_t size_limit = 400) {
  Writer writer(directory, {{"number", "int"}, {"words", "str"}},
                {.size_limit = size_limit, .hashes = {"xxh3_64", "xxh64"}});
  for (int i = 0; i < rows; ++i)
    writer.append({i, std::string(static_cast<std::size_t>(i % 7), 'w')});
  writer.finish();
}

void set_u32(std::string& bytes, std::size_t at, std::uint32_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

const char* const one_shard_index =
    R"({"shards": [{"column_encodings": ["int", "str"], "column_names": ["number", "words"],
    "column_sizes": [8, 0], "compression": null, "format": "mds", "hashes": [], "raw_data":
    {"basename": "s", "bytes": BYTES, "hashes": {}}, "samples": SAMPLES, "size_limit": null,
    "version": 2, "zip_data": null}], "version": 2})";

void write_shard(const TemporaryDirectory& directory, const std::string& bytes,
                 std::size_t samples) {
  std::string index = one_shard_index;
  index.replace(index.find("BYTES"), 5, std::to_string(bytes.size()));
  index.replace(index.find("SAMPLES"), 7, std::to_string(samples));
  write_file(directory / "index.json", index);
  write_file(directory / "s", bytes);
}

// {number: 5, words: "hi"} as the description of the format gives it, with no configuration.
std::string hand_made_shard() {
  return std::string(
      "\x01\0\0\0"
      "\x0c\0\0\0"
      "\x1a\0\0\0"
      "\x02\0\0\0"
      "\x05\0\0\0\0\0\0\0"
      "hi",
      26);
}

}  // namespace

TEST_CASE("samples are read by their number across shards") {
  const TemporaryDirectory directory;
  write_numbers(directory.path(), 50);
  const Reader reader(directory.path(), {.verify_hashes = true});
  REQUIRE(reader.index().shards.size() > 5);
  REQUIRE(reader.size() == 50);
  const std::size_t number = reader.column("number"), words = reader.column("words");
  Sample sample;
  for (std::uint64_t i = 50; i-- > 0;) {
    reader.read(i, sample);
    CHECK(sample.integer(number) == static_cast<std::int64_t>(i));
    CHECK(sample.real(number) == static_cast<double>(i));
    CHECK(sample.text(words).size() == i % 7);
  }
  CHECK(reader.read(3).bytes("words").size() == 3);
  require_error(Errc::invalid_argument, "has 50", [&] { reader.read(50); });
  require_error(Errc::not_found, "number, words", [&] { reader.column("word"); });
  require_error(Errc::not_found, "number, words", [&] { reader.read(0).text("word"); });
  require_error(Errc::invalid_argument, "column 2", [&] { reader.read(0).text(2); });
  require_error(Errc::not_found, "no columns", [] { Sample().text("words"); });
}

TEST_CASE("the sample of the format's description is read") {
  const TemporaryDirectory directory;
  write_shard(directory, hand_made_shard(), 1);
  const Sample sample = Reader(directory.path()).read(0);
  static_cast<void>(sample);
  const Reader reader(directory.path());
  CHECK(reader.read(0).integer("number") == 5);
  CHECK(reader.read(0).text("words") == "hi");
}

TEST_CASE("every encoding is written and read back") {
  const TemporaryDirectory directory;
  const std::vector<ColumnSpec> columns = {
      {"a", "ndarray:float32:2"}, {"b", "bytes"},   {"f", "float16"},     {"j", "json"},
      {"n", "ndarray"},           {"s", "str"},     {"si", "str_int"},    {"u", "uint8"},
      {"jpeg", "jpeg"},           {"d", "float64"}, {"sd", "str_decimal"}};
  const float floats[] = {1.5f, -2.5f};
  const std::uint16_t shorts[] = {1, 2, 3, 65535};
  const ArrayView fixed{
      .type = Scalar::float32, .shape = {2}, .data = std::as_bytes(std::span(floats))};
  const ArrayView open{
      .type = Scalar::uint16, .shape = {2, 2}, .data = std::as_bytes(std::span(shorts))};
  Writer writer(directory.path(), columns);
  const std::string large = "592592353929222982000";
  writer.append({fixed, test::bytes_of("\x01\x02"), 0.5, R"({"a": [1, NaN]})", open, "n\u00e9",
                 large, 200, test::bytes_of("\xff\xd8"), 0.1, "1E+2"});
  writer.finish();
  const Reader reader(directory.path());
  const Sample sample = reader.read(0);
  CHECK(sample.array("a").real(1) == -2.5);
  CHECK(sample.bytes("b").size() == 2);
  CHECK(sample.real("f") == 0.5);
  CHECK(sample.text("j") == R"({"a": [1, NaN]})");
  CHECK(sample.array("n").integer(3) == 65535);
  CHECK(sample.text("s") == "n\u00e9");
  CHECK(sample.text("si") == large);
  CHECK(sample.integer("u") == 200);
  CHECK(sample.bytes("jpeg").size() == 2);
  CHECK(sample.real("d") == 0.1);
  CHECK(sample.real("sd") == 100);
}

TEST_CASE("an empty first shard is readable") {
  const TemporaryDirectory directory;
  write_numbers(directory / "full", 3);
  std::string empty("\0\0\0\0\x0a\0\0\0{}", 10);
  write_file(directory / "none/shard.00000.mds", empty);
  std::string index = Index::load(directory / "full").to_json();
  const auto replace = [&](const std::string& from, const std::string& to) {
    index.replace(index.find(from), from.size(), to);
  };
  const ShardInfo full = Index::load(directory / "full").shards[0];
  replace("\"samples\": 3", "\"samples\": 0");
  replace("\"bytes\": " + std::to_string(full.raw.bytes), "\"bytes\": 10");
  write_file(directory / "none/index.json", index);
  merge_indexes(directory.path(), {"none", "full"});
  const Reader reader(directory.path());
  REQUIRE(reader.size() == 3);
  CHECK(reader.read(0).integer("number") == 0);
  CHECK(reader.read(2).integer("number") == 2);
}

TEST_CASE("a data set of no samples is readable") {
  const TemporaryDirectory directory;
  write_file(directory / "index.json", R"({"shards": [], "version": 2})");
  const Reader reader(directory.path());
  CHECK(reader.size() == 0);
  require_error(Errc::invalid_argument, "has 0", [&] { reader.read(0); });
}

TEST_CASE("a damaged shard file is refused before it is believed") {
  const TemporaryDirectory directory;
  const auto refuse = [&](const std::string& bytes, std::size_t samples, const char* part) {
    write_shard(directory, bytes, samples);
    require_error(Errc::corrupt, part, [&] { Reader(directory.path()).read(0); });
  };
  std::string bytes = hand_made_shard();
  SECTION("its count is not the index's") {
    set_u32(bytes, 0, 2);
    refuse(bytes, 1, "has 2 samples");
    set_u32(bytes, 0, 0xffffffff);
    refuse(bytes, 1, "has 4294967295 samples");
  }
  SECTION("its first sample lies in the header") {
    set_u32(bytes, 4, 11);
    refuse(bytes, 1, "does not rise");
  }
  SECTION("its samples do not end where it ends") {
    set_u32(bytes, 8, 27);
    refuse(bytes, 1, "does not rise");
    set_u32(bytes, 8, 25);
    refuse(bytes, 1, "does not rise");
  }
  SECTION("an offset falls") {
    set_u32(bytes, 4, 0xffffffff);
    refuse(bytes, 1, "does not rise");
  }
  SECTION("a length points past its sample") {
    set_u32(bytes, 12, 3);
    refuse(bytes, 1, "do not add up");
    set_u32(bytes, 12, 0xffffffff);
    refuse(bytes, 1, "do not add up");
  }
  SECTION("a sample has bytes of no column") {
    set_u32(bytes, 12, 1);
    refuse(bytes, 1, "do not add up");
  }
  SECTION("a sample is shorter than its lengths") {
    bytes.resize(14);
    set_u32(bytes, 8, 14);
    refuse(bytes, 1, "do not add up");
  }
  SECTION("it was cut or has grown") {
    write_shard(directory, bytes, 1);
    write_file(directory / "s", bytes.substr(0, 20));
    require_error(Errc::corrupt, "the index says 26", [&] { Reader(directory.path()).read(0); });
    write_file(directory / "s", bytes + "x");
    require_error(Errc::corrupt, "the index says 26", [&] { Reader(directory.path()).read(0); });
  }
  SECTION("it is gone") {
    write_shard(directory, bytes, 1);
    std::filesystem::remove(directory / "s");
    require_error(Errc::not_found, "no such file", [&] { Reader(directory.path()).read(0); });
  }
}

TEST_CASE("random damage is read or refused, never more") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const TemporaryDirectory directory;
  Writer writer(directory / "good",
                {{"n", "ndarray"}, {"s", "str"}, {"i", "int"}, {"p", "jpeg_array"}},
                {.hashes = {}});
  const std::uint32_t list[] = {1, 0};
  const ArrayView array{
      .type = Scalar::uint32, .shape = {1, 2}, .data = std::as_bytes(std::span(list))};
  for (int i = 0; i < 4; ++i) writer.append({array, "text", i, std::as_bytes(std::span(list))});
  const Index index = writer.finish();
  const std::string good = read_file(directory / "good/shard.00000.mds");
  const std::size_t first = 4 + 4 * 5 + index.config_json(index.shards[0]).size();
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      // Not the configuration, which is not read.
      const std::size_t at =
          random() % 3 == 0 ? random() % 24 : first + random() % (good.size() - first);
      bytes[at] = static_cast<char>(random());
    }
    write_file(directory / "good/shard.00000.mds", bytes);
    const Reader reader(directory / "good");
    for (std::uint64_t i = 0; i < reader.size(); ++i) try {
        const Sample sample = reader.read(i);
        for (std::size_t c = 0; c < 4; ++c)
          check_value(reader.columns()[c].encoding, sample.bytes(c));
      } catch (const Error& error) {
        if (!error.is(Errc::corrupt)) throw;
      }
  }
}

TEST_CASE("a shard that its hash does not fit is refused when asked for") {
  const TemporaryDirectory directory;
  write_numbers(directory.path(), 50);
  std::string bytes = read_file(directory / "shard.00001.mds");
  bytes.back() ^= 1;
  write_file(directory / "shard.00001.mds", bytes);
  const std::uint64_t first = Index::load(directory.path()).shards[0].samples;

  const Reader trusting(directory.path());
  trusting.read(first);
  const Reader reader(directory.path(), {.verify_hashes = true});
  reader.read(0);
  require_error(Errc::corrupt, "hash", [&] { reader.read(first); });
  require_error(Errc::corrupt, "hash", [&] { reader.read(first); });
}

TEST_CASE("a shard whose hashes are all unknown can't be verified") {
  const TemporaryDirectory directory;
  write_numbers(directory.path(), 1);
  std::string index = read_file(directory / "index.json");
  for (std::size_t at; (at = index.find("xxh")) != std::string::npos;) index.replace(at, 3, "abc");
  write_file(directory / "index.json", index);
  CHECK(Reader(directory.path()).read(0).integer("number") == 0);
  const Reader reader(directory.path(), {.verify_hashes = true});
  require_error(Errc::unsupported, "abc3_64, abc64", [&] { reader.read(0); });
}

TEST_CASE("compressed shards are refused with the name of what is missing") {
  const TemporaryDirectory directory;
  write_file(
      directory / "index.json",
      R"({"shards": [{"column_encodings": ["int"], "column_names": ["a"], "column_sizes": [8],
             "compression": "zstd:7", "format": "mds", "hashes": [], "raw_data": {"basename": "s.mds",
             "bytes": 99, "hashes": {}}, "samples": 1, "size_limit": 99, "version": 2, "zip_data":
             {"basename": "s.mds.zstd", "bytes": 9, "hashes": {}}}], "version": 2})");
  require_error(Errc::unsupported, "needs the decompressor zstd",
                [&] { Reader(directory.path()); });
}

TEST_CASE("no more shards are kept open than told") {
  const TemporaryDirectory directory;
  write_numbers(directory.path(), 200);
  const Reader reader(directory.path(), {.verify_hashes = true, .max_open_shards = 3});
  REQUIRE(reader.index().shards.size() > 20);
  const auto descriptors = [] {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      ++count;
    return count;
  };
  const std::size_t before = descriptors();
  for (int pass = 0; pass < 2; ++pass)
    for (std::uint64_t i = 0; i < reader.size(); ++i)
      if (reader.read(i).integer("number") != static_cast<std::int64_t>(i)) FAIL_CHECK(i);
  CHECK(descriptors() == before + 3);
}

TEST_CASE("several threads read one reader") {
  const TemporaryDirectory directory;
  write_numbers(directory.path(), 300);
  const Reader reader(directory.path(), {.verify_hashes = true, .max_open_shards = 2});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&reader, &wrong, t] {
      std::mt19937 random(t);
      Sample sample;
      for (int k = 0; k < 500; ++k) {
        const std::uint64_t i = random() % reader.size();
        reader.read(i, sample);
        if (sample.integer(std::size_t{0}) != static_cast<std::int64_t>(i)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a multi-valued category is split into its values") {
  using Parts = std::vector<std::string_view>;
  CHECK(split_values("") == Parts{});
  CHECK(split_values("Drama") == Parts{"Drama"});
  CHECK(split_values("Comedy|Drama|War") == Parts{"Comedy", "Drama", "War"});
  CHECK(split_values("|a||b|") == Parts{"a", "b"});
  CHECK(split_values("a;b", ';') == Parts{"a", "b"});
}
