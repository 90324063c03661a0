// Makes the data sets of the MovieLens ratings that the demo trains on.
//
//   dataset::export_movielens("ratings.csv");
//   dataset::publish_movielens({.csv = "ratings.csv", .directory = "data/movielens"});
//   const dataset::Reader training("data/movielens/random/training");
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <hyperframes/apps/dataset/publish.hpp>

namespace hyperframes::dataset {

/// The directories of a division of the ratings: `fit` and `validation` for choosing, `training`,
/// which is both as one data set, for the final run, and `test`.
struct MovielensSplit {
  std::string name;
  std::filesystem::path fit, validation, training, test;
};

/// Writes the ratings of the R package dslabs as the CSV file that publish_movielens() reads. Runs
/// `Rscript` and blocks; its messages go to standard error. Throws `unsupported` where R or the
/// package is not installed.
void export_movielens(const std::filesystem::path& csv);

struct MovielensOptions {
  /// As export_movielens() writes it: the columns userId, movieId, year, genres, rating, timestamp.
  std::filesystem::path csv;
  std::filesystem::path directory;
  std::uint64_t seed = 1;  ///< Of the random division.
  bool replace = false;
  /// As in PublishOptions; counts the bytes of both divisions.
  std::function<void(std::uint64_t, std::uint64_t)> progress{};
};

/// Divides the ratings twice. `random`: 80 % training and 20 % test, and of the training a tenth is
/// the validation. `time`: the same shares, but the latest fifth of the ratings is the test and the
/// latest tenth of the rest the validation. Columns: label (rating >= 4), user, movie, year (0
/// where it is not known), genres (a list), rating, timestamp.
std::vector<MovielensSplit> publish_movielens(const MovielensOptions& options);

/// Where publish_movielens() puts each division.
std::vector<MovielensSplit> movielens_splits(const std::filesystem::path& directory);

}  // namespace hyperframes::dataset
