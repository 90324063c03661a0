// Turns a CSV file into data sets in the MDS format, divided into splits.
//
//   dataset::publish_csv({.csv = "ratings.csv", .directory = "data",
//                         .columns = {dataset::parse_column("user=userId:int")},
//                         .splits = {{"train", 0.8}, {"test", 0.2}}, .seed = 7});
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hyperframes/apps/dataset/writer.hpp>

namespace hyperframes::dataset {

enum class PublishedType {
  integer,  ///< Kept as `int`.
  real,     ///< Kept as `float64`.
  text,     ///< Kept as `str`.
  list,     ///< A category of several values, kept as one `str` with `|` between them.
};

/// A column of the data set and where its values come from.
struct PublishedColumn {
  std::string name;
  std::string source;  ///< Column of the CSV file.
  PublishedType type = PublishedType::text;
  /// What stands in for an empty field or `NA` in a number's column; without it such a field is an
  /// error, for the format has no missing values. Text and lists keep what the file says.
  std::optional<std::string> missing{};
};

/// A column that is 1 where a number of the CSV file passes a test, else 0. Kept as `uint8`.
struct PublishedLabel {
  enum class Test { less, less_or_equal, equal, greater_or_equal, greater };
  std::string name;
  std::string source;
  Test test = Test::greater_or_equal;
  double threshold = 0;
};

struct Split {
  std::string name;     ///< Its directory; may lie in another, as `training/fit` does.
  double fraction = 0;  ///< Of the rows.
};

struct PublishOptions {
  std::filesystem::path csv;
  std::filesystem::path directory;
  std::vector<PublishedColumn> columns{};  ///< None: every column of the file, as text.
  std::vector<PublishedLabel> labels{};
  /// None: all rows go into `directory` itself. Splits that share a parent directory get a merged
  /// index there, so that the parent reads as one data set of all their rows.
  std::vector<Split> splits{};
  /// Empty: rows are dealt to the splits at random. Else a CSV column of numbers: the first split
  /// gets the rows with the smallest, and so on; rows with the same number keep their order.
  std::string order_by{};
  std::uint64_t seed = 0;     ///< Of the random deal.
  char separator = ',';       ///< Between the fields of the CSV file.
  char list_separator = '|';  ///< Between the values of a list in the CSV file.
  WriterOptions writer{};
  /// Called now and then, on the calling thread, with the bytes read so far and the bytes to read
  /// in all. What it throws ends the work.
  std::function<void(std::uint64_t, std::uint64_t)> progress{};
};

struct PublishedSplit {
  std::string name;  ///< Empty for the only one.
  std::uint64_t rows = 0;
  std::size_t shards = 0;
  std::uint64_t bytes = 0;
};

/// Reads the file once, or twice where there are splits, and writes one data set a split. Rows keep
/// the file's order inside a split, and each split's size is its exact share. Blocks on files.
/// Throws `corrupt` with the line for a field that is no number in a number's column, and what
/// CsvReader and Writer throw; no data set is left where one was being written then.
std::vector<PublishedSplit> publish_csv(const PublishOptions& options);

/// `NAME:TYPE` or `NAME=SOURCE:TYPE`, TYPE one of int, float, str, list. Throws `invalid_argument`.
PublishedColumn parse_column(std::string_view text);
/// `NAME=SOURCE>=4`, also with `>`, `<=`, `<`, `==`. Throws `invalid_argument`.
PublishedLabel parse_label(std::string_view text);
/// `NAME=FRACTION`. Throws `invalid_argument`.
Split parse_split(std::string_view text);

}  // namespace hyperframes::dataset
