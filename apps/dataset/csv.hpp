// Reads comma-separated text, record by record, in constant memory.
//
//   dataset::CsvReader csv("ratings.csv");
//   const std::size_t rating = csv.column("rating");
//   while (csv.next()) sum += std::stod(csv.fields()[rating]);
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::dataset {

struct CsvOptions {
  char separator = ',';
  /// Bytes of a record; a longer one is an error, as a quote that was never closed makes them.
  std::uint64_t max_record_bytes = std::uint64_t{16} << 20;
};

/// RFC 4180 and what is found in practice: fields may stand in quotes and then hold separators,
/// line breaks and doubled quotes; lines end in LF or CRLF; a byte order mark is passed over; blank
/// lines are passed over where there is more than one column. The first record names the columns.
class CsvReader {
 public:
  /// Reads the header. Throws the file's error, `corrupt` for a header that is missing, damaged or
  /// names a column twice.
  explicit CsvReader(const std::filesystem::path& path, CsvOptions options = {});
  ~CsvReader();
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  const std::vector<std::string>& header() const noexcept;
  /// The column's place in fields(). Throws `not_found` with the names that there are.
  std::size_t column(std::string_view name) const;

  /// Goes to the next record; false at the end. Throws `corrupt` with the line for a record that
  /// has another number of fields than the header or is quoted wrongly, and `too_large`.
  bool next();
  /// The record that next() went to, one field a column of the header. Good until the next next();
  /// before the first, and after the end, it means nothing.
  const std::vector<std::string>& fields() const noexcept;
  /// The line on which that record starts, from 1.
  std::uint64_t line() const noexcept;

  std::uint64_t bytes_read() const noexcept;
  std::uint64_t bytes_total() const noexcept;
  const std::filesystem::path& path() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hyperframes::dataset
