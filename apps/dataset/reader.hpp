// Random access to the samples of a data set in the MDS format.
//
//   const dataset::Reader reader("data/train");
//   const auto sample = reader.read(reader.size() - 1);
//   train(sample.integer("user"), sample.real("rating"), sample.text("title"));
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <hyperframes/apps/dataset/encoding.hpp>
#include <hyperframes/apps/dataset/index.hpp>

namespace hyperframes::dataset {

/// One sample: its bytes and where each column lies in them. It owns the bytes, and refers to the
/// columns of the reader that filled it, which must outlive it. Column numbers come from
/// Reader::column(); one that is none is `invalid_argument`. A name is looked up among the sample's
/// columns on each call, and is `not_found` if there is none. What a call throws for a value that
/// does not fit the question is said at the `decode_` functions. Views refer to the sample.
class Sample {
 public:
  std::int64_t integer(std::size_t column) const;
  double real(std::size_t column) const;
  std::string_view text(std::size_t column) const;
  ArrayView array(std::size_t column) const;
  ImageView image(std::size_t column) const;
  std::vector<std::span<const std::byte>> image_list(std::size_t column) const;
  /// The value as it lies in the file, of a column of any encoding.
  std::span<const std::byte> bytes(std::size_t column) const;

  std::int64_t integer(std::string_view column) const { return integer(find(column)); }
  double real(std::string_view column) const { return real(find(column)); }
  std::string_view text(std::string_view column) const { return text(find(column)); }
  ArrayView array(std::string_view column) const { return array(find(column)); }
  ImageView image(std::string_view column) const { return image(find(column)); }
  std::vector<std::span<const std::byte>> image_list(std::string_view column) const {
    return image_list(find(column));
  }
  std::span<const std::byte> bytes(std::string_view column) const { return bytes(find(column)); }

 private:
  friend class Reader;
  std::size_t find(std::string_view column) const;

  const std::vector<Column>* columns_ = nullptr;
  std::vector<std::byte> data_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> values_;  // offset and length in data_
};

/// The parts of a multi-valued category, which is kept as one text: "Comedy|Drama" has two, an
/// empty text none. They refer to `text`.
std::vector<std::string_view> split_values(std::string_view text, char separator = '|');

struct ReaderOptions {
  /// Compare each shard file with the hashes in the index when it is first opened. Hashes of
  /// unknown names are passed over, unless a shard has no other.
  bool verify_hashes = false;
  /// Shard files kept open, each with its table of 4 bytes a sample.
  std::size_t max_open_shards = 256;
};

/// Reads a data set. Calls block on files: run them on an offload executor, not on a core shard.
/// The const members may be called from several threads at once.
class Reader {
 public:
  /// Reads the index; shard files are opened when they are first needed. Throws what Index::load()
  /// throws, and `unsupported` for compressed shards.
  explicit Reader(std::filesystem::path directory, ReaderOptions options = {});
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  /// Number of samples.
  std::uint64_t size() const noexcept;
  const Index& index() const noexcept;
  const std::vector<Column>& columns() const noexcept;
  /// The column's number, for Sample. Throws `not_found` with the names that there are.
  std::size_t column(std::string_view name) const;

  /// Sample `i` of the data set, in the order of the index. Throws `invalid_argument` unless
  /// `i < size()`, `corrupt` where the files do not follow the format, and the system's error.
  Sample read(std::uint64_t i) const;
  /// The same into `sample`, whose memory is used again.
  void read(std::uint64_t i, Sample& sample) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hyperframes::dataset
