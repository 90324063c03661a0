// The list of a data set's shard files, kept as index.json beside them.
//
//   const auto index = dataset::Index::load("data/train");
//   for (const auto& shard : index.shards) total += shard.samples;
//   dataset::merge_indexes("data", {"part0", "part1"});
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hyperframes/apps/dataset/encoding.hpp>

namespace hyperframes::dataset {

/// A column, in the order in which a sample's values lie.
struct Column {
  std::string name;
  Encoding encoding;
  std::uint32_t size = 0;  ///< Bytes of each value; 0: a length stands before the values.
};

/// One file that holds a shard, raw or compressed.
struct ShardFile {
  std::string basename{};  ///< Relative to the index; holds at most one slash and no `..`.
  std::uint64_t bytes = 0;
  std::vector<std::pair<std::string, std::string>> hashes{};  ///< Name, and lowercase hex.
};

struct ShardInfo {
  std::uint64_t samples = 0;
  std::string compression{};                  ///< Such as "zstd:7"; empty where there is none.
  std::vector<std::string> hashes{};          ///< The names that the shard was written with.
  std::optional<std::uint64_t> size_limit{};  ///< Bytes of the raw file.
  ShardFile raw{};
  std::optional<ShardFile> compressed{};
};

struct Index {
  static constexpr std::string_view file_name = "index.json";

  std::vector<Column> columns;  ///< The same in all shards. Empty when there is no shard.
  std::vector<ShardInfo> shards;

  std::uint64_t samples() const noexcept;

  /// Reads `directory`/index.json. Throws `not_found`, `corrupt` for text that is no such index,
  /// `version_mismatch` for another version of the format, `unsupported` for another format, for
  /// `pkl` columns and for shards whose columns differ.
  static Index load(const std::filesystem::path& directory);
  /// As load(), of text that came from `origin`, which error texts name.
  static Index parse(std::string_view text, std::string_view origin);
  /// The text of index.json, byte for byte as the format's own library writes it.
  std::string to_json() const;
  /// The configuration that a shard file carries, in the same form.
  std::string config_json(const ShardInfo& shard) const;
};

/// Writes `directory`/index.json over the shards of its sub-directories `parts`, each of which has
/// an index of its own and plain basenames, and returns it. The parts' columns must be the same.
Index merge_indexes(const std::filesystem::path& directory, const std::vector<std::string>& parts);

}  // namespace hyperframes::dataset
