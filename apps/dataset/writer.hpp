// Writes a data set in the MDS format.
//
//   dataset::Writer writer("data/train", {{"number", "int"}, {"words", "str"}});
//   writer.append({5, "hi"});
//   writer.finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hyperframes/apps/dataset/encoding.hpp>
#include <hyperframes/apps/dataset/index.hpp>

namespace hyperframes::dataset {

/// A column's name and the name of its encoding.
struct ColumnSpec {
  std::string name;
  std::string encoding;
};

struct WriterOptions {
  /// Bytes that a shard file may have; below 4 GiB.
  std::uint64_t size_limit = std::uint64_t{64} << 20;
  /// Names of the hashes to keep of each file, see hashes.hpp.
  std::vector<std::string> hashes = {"xxh64"};
  /// Remove the data set that is in the directory, at once; else its presence is an error. Shard
  /// files without an index, as an unfinished writer leaves them, are removed in any case.
  bool replace = false;
};

/// Writes rows into shard files. One shard file is kept in memory. The directory holds a data set
/// only once finish() has returned: a writer that is destroyed before leaves no index behind, but
/// maybe shard files, which the next Writer there removes. Calls block on files. Not for use from
/// several threads at once.
class Writer {
 public:
  /// Makes the directory. Throws `already_exists` where there is an index in it, `unsupported` for
  /// an encoding or hash that is not known, `invalid_argument` for columns or limits that no data
  /// set can have.
  Writer(std::filesystem::path directory, std::vector<ColumnSpec> columns,
         WriterOptions options = {});
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Adds a row: one value a column, in the order in which the columns were given. Throws
  /// `invalid_argument` for values that do not fit the columns and `too_large` for a row above the
  /// size limit; the row is not added then, and the writer can be used on.
  void append(std::span<const Value> values);
  void append(std::initializer_list<Value> values) {
    append(std::span<const Value>(values.begin(), values.size()));
  }

  std::uint64_t rows() const noexcept;
  /// Writes what is left and the index, and returns the index. Last: after it, this and append()
  /// throw `closed`.
  Index finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bytes from text such as "67108864", "64mb" or "1.5gb" (b, kb, mb, gb, tb, in any case; kb =
/// 1024). Throws `invalid_argument` for other text.
std::uint64_t parse_size(std::string_view text);

}  // namespace hyperframes::dataset
