#include <hyperframes/apps/dataset/movielens.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include <hyperframes/apps/dataset/reader.hpp>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using test::require_error;
using test::TemporaryDirectory;
using test::write_file;

namespace {

std::string made_up_ratings(int count) {
  std::string text = R"("userId","movieId","title","year","genres","rating","timestamp")"
                     "\n";
  for (int i = 0; i < count; ++i)
    text += std::to_string(i % 7) + "," + std::to_string(i % 11) + ",\"Title, " +
            std::to_string(i) + "\"," + (i % 50 == 0 ? "NA" : std::to_string(1950 + i % 60)) +
            ",\"Comedy|Drama\"," + std::to_string(1 + i % 5) + "," +
            std::to_string(1'000'000 + (i * 37) % 1000) + "\n";
  return text;
}

std::set<std::pair<std::int64_t, std::int64_t>> keys(const Reader& reader) {
  std::set<std::pair<std::int64_t, std::int64_t>> out;
  for (std::uint64_t i = 0; i < reader.size(); ++i) {
    const Sample sample = reader.read(i);
    out.emplace(sample.integer("timestamp"),
                sample.integer("user") * 100 + sample.integer("movie"));
  }
  return out;
}

}  // namespace

TEST_CASE("the ratings are divided at random and by time into fit, validation and test") {
  const TemporaryDirectory directory;
  write_file(directory / "ratings.csv", made_up_ratings(1000));
  const auto splits =
      publish_movielens({.csv = directory / "ratings.csv", .directory = directory / "out"});
  REQUIRE(splits.size() == 2);
  CHECK(splits[0].name == "random");
  CHECK(splits[1].name == "time");
  for (const MovielensSplit& split : splits) {
    INFO(split.name);
    const Reader fit(split.fit), validation(split.validation), training(split.training),
        test(split.test);
    CHECK(fit.size() == 720);
    CHECK(validation.size() == 80);
    CHECK(training.size() == 800);
    CHECK(test.size() == 200);
    auto all = keys(training);
    all.merge(keys(test));
    CHECK(all.size() == 1000);
  }
  const Reader fit(splits[1].fit), validation(splits[1].validation), test(splits[1].test);
  CHECK(keys(fit).rbegin()->first <= keys(validation).begin()->first);
  CHECK(keys(validation).rbegin()->first <= keys(test).begin()->first);
}

TEST_CASE("a rating's fields keep their meaning") {
  const TemporaryDirectory directory;
  write_file(directory / "ratings.csv", made_up_ratings(100));
  const auto splits =
      publish_movielens({.csv = directory / "ratings.csv", .directory = directory / "out"});
  for (const auto& part : {splits[0].training, splits[0].test}) {
    const Reader reader(part);
    for (std::uint64_t i = 0; i < reader.size(); ++i) {
      const Sample sample = reader.read(i);
      CHECK(sample.integer("label") == (sample.real("rating") >= 4));
      CHECK(split_values(sample.text("genres")).size() == 2);
      const std::int64_t year = sample.integer("year");
      CHECK((year == 0 || (year >= 1950 && year < 2010)));
    }
  }
}

TEST_CASE("a file of other columns is refused by name") {
  const TemporaryDirectory directory;
  write_file(directory / "ratings.csv", "userId,rating\n1,2\n");
  require_error(Errc::not_found, "movieId", [&] {
    publish_movielens({.csv = directory / "ratings.csv", .directory = directory / "out"});
  });
}
