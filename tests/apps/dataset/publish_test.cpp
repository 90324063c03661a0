#include <hyperframes/apps/dataset/publish.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <hyperframes/apps/dataset/reader.hpp>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using test::read_file;
using test::require_error;
using test::TemporaryDirectory;
using test::write_file;

namespace {

const char* const ratings =
    "\"userId\",\"title\",\"genres\",\"rating\",\"time\"\n"
    "1,\"Dumbo\",\"Animation|Drama\",3,30\n"
    "1,\"Say \"\"Hi\"\", Bob\",\"Comedy\",4.5,10\n"
    "2,\"Two\nlines\",\"\",4,20\n"
    "3,NA,\"Drama\",NA,40\n";

// Rows 0 … count - 1 with a time that falls.
std::string numbered(int count) {
  std::string text = "n,time\n";
  for (int i = 0; i < count; ++i) text += std::to_string(i) + "," + std::to_string(1000 - i) + "\n";
  return text;
}

std::vector<std::int64_t> numbers(const std::filesystem::path& directory) {
  const Reader reader(directory);
  std::vector<std::int64_t> out;
  for (std::uint64_t i = 0; i < reader.size(); ++i) out.push_back(reader.read(i).integer("n"));
  return out;
}

}  // namespace

TEST_CASE("CSV columns become typed columns of a data set") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", ratings);
  PublishOptions options{.csv = directory / "r.csv", .directory = directory / "out"};
  options.columns = {parse_column("user=userId:int"), parse_column("title:str"),
                     parse_column("genres:list"), parse_column("rating:float")};
  options.columns[3].missing = "0";
  std::uint64_t done = 0, total = 1;
  options.progress = [&](std::uint64_t d, std::uint64_t t) { done = d, total = t; };
  const auto published = publish_csv(options);
  CHECK(done == total);
  REQUIRE(published.size() == 1);
  CHECK(published[0].rows == 4);
  CHECK(published[0].shards == 1);

  const Reader reader(directory / "out", {.verify_hashes = true});
  REQUIRE(reader.size() == 4);
  CHECK(reader.read(0).integer("user") == 1);
  CHECK(split_values(reader.read(0).text("genres")).size() == 2);
  CHECK(reader.read(1).text("title") == "Say \"Hi\", Bob");
  CHECK(reader.read(1).real("rating") == 4.5);
  CHECK(reader.read(2).text("title") == "Two\nlines");
  CHECK(reader.read(2).text("genres").empty());
  CHECK(reader.read(3).text("title") == "NA");
  CHECK(reader.read(3).real("rating") == 0);
}

TEST_CASE("without columns all of the file is published as text") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", ratings);
  publish_csv({.csv = directory / "r.csv", .directory = directory / "out"});
  const Reader reader(directory / "out");
  CHECK(reader.columns().size() == 5);
  CHECK(reader.read(1).text("rating") == "4.5");
}

TEST_CASE("a label is 1 where its test passes") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", "x\n3\n4\n4.5\n");
  const auto labels = [&](const char* rule) {
    publish_csv({.csv = directory / "r.csv",
                 .directory = directory / "out",
                 .labels = {parse_label(rule)},
                 .writer = {.replace = true}});
    const Reader reader(directory / "out");
    std::string out;
    for (std::uint64_t i = 0; i < 3; ++i) out += std::to_string(reader.read(i).integer("label"));
    return out;
  };
  CHECK(labels("label=x>=4") == "011");
  CHECK(labels("label=x>4") == "001");
  CHECK(labels("label=x<=4") == "110");
  CHECK(labels("label=x<4") == "100");
  CHECK(labels("label=x==4") == "010");
}

TEST_CASE("a field that is no number is refused with its line") {
  const TemporaryDirectory directory;
  const auto refuse = [&](const char* rows, const char* column, const char* part) {
    write_file(directory / "r.csv", rows);
    require_error(Errc::corrupt, part, [&] {
      publish_csv({.csv = directory / "r.csv",
                   .directory = directory / "out",
                   .columns = {parse_column(column)}});
    });
    CHECK(!std::filesystem::exists(directory / "out/index.json"));
  };
  refuse("x\n1\n2.5\n", "x:int", "line 3, column 'x': '2.5' is no integer");
  refuse("x\none\n", "x:float", "'one' is no number");
  refuse("x\n1\nNA\n", "x:int", "line 3, column 'x': the value is missing");
  refuse("x,y\n1,2\n,3\n", "x:float", "the value is missing");
  refuse("x\ninf\n", "x:float", "is no number");
  refuse("x\n99999999999999999999\n", "x:int", "is no integer");
}

TEST_CASE("a list with another separator is kept with '|' between its values") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", "g\na;b\nc\n");
  PublishOptions options{.csv = directory / "r.csv", .directory = directory / "out"};
  options.columns = {parse_column("g:list")};
  options.list_separator = ';';
  publish_csv(options);
  CHECK(Reader(directory / "out").read(0).text("g") == "a|b");

  write_file(directory / "r.csv", "g\na;b|c\n");
  options.writer.replace = true;
  require_error(Errc::corrupt, "line 2", [&] { publish_csv(options); });
}

TEST_CASE("random splits have exact shares, hold each row once, and follow the seed") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", numbered(1001));
  const auto deal = [&](std::uint64_t seed) {
    PublishOptions options{.csv = directory / "r.csv", .directory = directory / "out"};
    options.columns = {parse_column("n:int")};
    options.splits = {parse_split("train=0.7"), parse_split("validation=0.1"),
                      parse_split("test=0.2")};
    options.seed = seed;
    options.writer = {.size_limit = 1000, .replace = true};
    publish_csv(options);
    return std::vector{numbers(directory / "out/train"), numbers(directory / "out/validation"),
                       numbers(directory / "out/test")};
  };
  const auto parts = deal(1);
  CHECK(parts[0].size() == 701);
  CHECK(parts[1].size() == 100);
  CHECK(parts[2].size() == 200);
  std::set<std::int64_t> all;
  for (const auto& part : parts) {
    CHECK(std::is_sorted(part.begin(), part.end()));
    all.insert(part.begin(), part.end());
  }
  CHECK(all.size() == 1001);
  CHECK(deal(1) == parts);
  CHECK(deal(2) != parts);
}

TEST_CASE("splits by a column cut the rows in its order") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", numbered(10));
  PublishOptions options{.csv = directory / "r.csv", .directory = directory / "out"};
  options.columns = {parse_column("n:int")};
  options.splits = {parse_split("old=0.8"), parse_split("new=0.2")};
  options.order_by = "time";
  publish_csv(options);
  CHECK(numbers(directory / "out/new") == std::vector<std::int64_t>{0, 1});
  CHECK(numbers(directory / "out/old") == std::vector<std::int64_t>{2, 3, 4, 5, 6, 7, 8, 9});

  // Rows of one time keep their order.
  write_file(directory / "r.csv", "n,time\n0,5\n1,5\n2,5\n3,5\n");
  options.splits = {parse_split("old=0.5"), parse_split("new=0.5")};
  options.writer.replace = true;
  publish_csv(options);
  CHECK(numbers(directory / "out/old") == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("splits of one parent read as one data set there") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", numbered(100));
  PublishOptions options{.csv = directory / "r.csv", .directory = directory / "out"};
  options.columns = {parse_column("n:int")};
  options.splits = {parse_split("training/fit=0.7"), parse_split("training/validation=0.1"),
                    parse_split("test=0.2")};
  publish_csv(options);
  auto both = numbers(directory / "out/training");
  auto expected = numbers(directory / "out/training/fit");
  const auto validation = numbers(directory / "out/training/validation");
  expected.insert(expected.end(), validation.begin(), validation.end());
  CHECK(both.size() == 80);
  CHECK(both == expected);

  require_error(Errc::already_exists, "replace", [&] { publish_csv(options); });
  CHECK(numbers(directory / "out/training").size() == 80);
  options.writer.replace = true;
  publish_csv(options);
  CHECK(numbers(directory / "out/training") == expected);
}

TEST_CASE("splits that can't be are refused") {
  const TemporaryDirectory directory;
  write_file(directory / "r.csv", numbered(10));
  const auto refuse = [&](std::vector<Split> splits, const char* part) {
    require_error(Errc::invalid_argument, part, [&] {
      publish_csv({.csv = directory / "r.csv",
                   .directory = directory / "out",
                   .splits = std::move(splits)});
    });
    CHECK(!std::filesystem::exists(directory / "out"));
  };
  refuse({{"a", 0.5}, {"b", 0.4}}, "add up to 0.9");
  refuse({{"a", 0.5}, {"a", 0.5}}, "two splits");
  refuse({{"a", 1.5}, {"b", -0.5}}, "not above 0");
  refuse({{"a", 0.5}, {"a/b", 0.5}}, "lies in the split");
  for (const char* name : {"", "/a", "..", "../a", "a/..", "a/b/c", "a/", ".", "./a"})
    refuse({{name, 1}}, "no name of a split");
}

TEST_CASE("the command-line forms are read") {
  const PublishedColumn column = parse_column("user=userId:int");
  CHECK(column.name == "user");
  CHECK(column.source == "userId");
  CHECK(column.type == PublishedType::integer);
  CHECK(parse_column("a:list").source == "a");
  for (const char* text : {"", "a", "a:", "a:double", ":int", "=b:int", "a=:int"})
    require_error(Errc::invalid_argument, "NAME:TYPE", [&] { parse_column(text); });

  const PublishedLabel label = parse_label("label=rating>=4");
  CHECK(label.name == "label");
  CHECK(label.source == "rating");
  CHECK(label.test == PublishedLabel::Test::greater_or_equal);
  CHECK(label.threshold == 4);
  CHECK(parse_label("l=a<-0.5").threshold == -0.5);
  for (const char* text : {"", "label", "=a>4", "l=>4", "l=a>", "l=a>x", "l=a=4"})
    require_error(Errc::invalid_argument, "NAME=SOURCE", [&] { parse_label(text); });

  CHECK(parse_split("train=0.8").fraction == 0.8);
  for (const char* text : {"", "train", "=1", "a=0", "a=2", "a=x", "a=nan"})
    require_error(Errc::invalid_argument, "NAME=FRACTION", [&] { parse_split(text); });
}
