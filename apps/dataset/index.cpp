#include <hyperframes/apps/dataset/index.hpp>

#include <algorithm>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include <hyperframes/apps/dataset/detail/file.hpp>
#include <hyperframes/apps/dataset/detail/json_text.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

using nlohmann::json;

constexpr std::uint64_t version = 2;
constexpr std::uint64_t max_index_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t max_shard_bytes = std::numeric_limits<std::uint32_t>::max();

// ---- Reading
// -------------------------------------------------------------------------------------

// Reads fields of one JSON object and says in errors where it stands.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("it is no JSON object");
  }

  [[noreturn]] void fail(std::string found) const {
    throw Error(Errc::corrupt, "read " + where_, std::move(found));
  }

  // Null where the key is missing.
  const json& get(const char* key) const {
    static const json null;
    const auto at = object_.find(key);
    return at == object_.end() ? null : *at;
  }

  std::uint64_t number(const char* key) const {
    const json& value = get(key);
    if (!value.is_number_unsigned()) fail(std::string("'") + key + "' is no count");
    return value.get<std::uint64_t>();
  }

  std::string text(const char* key) const {
    const json& value = get(key);
    if (!value.is_string()) fail(std::string("'") + key + "' is no text");
    return value.get<std::string>();
  }

  const json& list(const char* key) const {
    const json& value = get(key);
    if (!value.is_array()) fail(std::string("'") + key + "' is no list");
    return value;
  }

  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    for (const json& value : list(key)) {
      if (!value.is_string()) fail(std::string("'") + key + "' holds something else than text");
      out.push_back(value.get<std::string>());
    }
    return out;
  }

  Fields object(const char* key) const { return {get(key), where_ + ", '" + key + "'"}; }
  const json& raw() const { return object_; }

 private:
  const json& object_;
  std::string where_;
};

void check_version(const Fields& fields, std::string_view where) {
  const json& found = fields.get("version");
  if (found.is_number_integer() && found == version) return;
  throw Error(Errc::version_mismatch, "read " + std::string(where),
              "it is version " + (found.is_null() ? "unknown" : found.dump()) +
                  " of the format, and version 2 is read",
              "write the data set again as version 2");
}

// A name that leads nowhere but into the index's directory or one below it.
void check_basename(const Fields& fields, const std::string& basename) {
  const auto slash = basename.find('/');
  const bool one_slash =
      slash == std::string::npos || basename.find('/', slash + 1) == std::string::npos;
  bool plain_parts = true;
  for (const std::string& part :
       {basename.substr(0, slash),
        slash == std::string::npos ? std::string("file") : basename.substr(slash + 1)})
    plain_parts = plain_parts && !part.empty() && part != "." && part != "..";
  if (!one_slash || !plain_parts || basename.find('\0') != std::string::npos)
    fields.fail("the basename " + json(basename).dump() + " leads out of the data set or too deep");
}

ShardFile parse_file(const Fields& fields) {
  ShardFile file{.basename = fields.text("basename"), .bytes = fields.number("bytes")};
  check_basename(fields, file.basename);
  const Fields hashes = fields.object("hashes");
  for (const auto& item : hashes.raw().items()) {
    if (!item.value().is_string()) hashes.fail("'" + item.key() + "' is no text");
    file.hashes.emplace_back(item.key(), item.value().get<std::string>());
  }
  return file;
}

std::uint32_t parse_size(const Fields& fields, const json& value, const Column& column) {
  if (value.is_null()) return 0;
  const bool in_range = value.is_number_unsigned() && value.get<std::uint64_t>() <= max_shard_bytes;
  if (!in_range) fields.fail("the size of column '" + column.name + "' is no size");
  const auto size = static_cast<std::uint32_t>(value.get<std::uint64_t>());
  if (size != 0 && column.encoding.size && size != *column.encoding.size)
    fields.fail("column '" + column.name + "' has " + std::to_string(size) +
                " bytes and its encoding '" + column.encoding.name + "' needs " +
                std::to_string(*column.encoding.size));
  return size;
}

std::vector<Column> parse_columns(const Fields& fields) {
  const std::vector<std::string> names = fields.texts("column_names");
  const std::vector<std::string> encodings = fields.texts("column_encodings");
  const json& sizes = fields.list("column_sizes");
  if (names.size() != encodings.size() || names.size() != sizes.size())
    fields.fail("its lists of columns differ in length");
  if (std::set(names.begin(), names.end()).size() != names.size())
    fields.fail("two columns have the same name");
  std::vector<Column> columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Column& column = columns.emplace_back(names[i], Encoding::parse(encodings[i]));
    column.size = parse_size(fields, sizes[i], column);
  }
  return columns;
}

bool same_columns(const std::vector<Column>& a, const std::vector<Column>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Column& x, const Column& y) {
    return x.name == y.name && x.encoding == y.encoding && x.size == y.size;
  });
}

ShardInfo parse_shard(const Fields& fields) {
  ShardInfo shard{.samples = fields.number("samples"),
                  .raw = parse_file(fields.object("raw_data"))};
  if (!fields.get("compression").is_null()) shard.compression = fields.text("compression");
  if (!fields.get("hashes").is_null()) shard.hashes = fields.texts("hashes");
  if (!fields.get("size_limit").is_null()) shard.size_limit = fields.number("size_limit");
  if (!fields.get("zip_data").is_null()) shard.compressed = parse_file(fields.object("zip_data"));
  if (!shard.compression.empty() && !shard.compressed)
    fields.fail("it is compressed and 'zip_data' is missing");
  if (shard.raw.bytes > max_shard_bytes) fields.fail("a shard file is smaller than 4 GiB");
  // Bounds every later allocation by the size of a file that is really there.
  if (shard.raw.bytes < 8 || shard.samples > (shard.raw.bytes - 8) / 4)
    fields.fail(std::to_string(shard.samples) + " samples do not fit " +
                std::to_string(shard.raw.bytes) + " bytes");
  return shard;
}

json parse_json(std::string_view text, std::string_view origin) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw Error(Errc::corrupt, "read " + std::string(origin), error.what(),
                "an index is a JSON object with the keys 'shards' and 'version'");
  }
}

// ---- Writing
// -------------------------------------------------------------------------------------

json file_json(const ShardFile& file) {
  json hashes = json::object();
  for (const auto& [name, hex] : file.hashes) hashes[name] = hex;
  return {{"basename", file.basename}, {"bytes", file.bytes}, {"hashes", std::move(hashes)}};
}

json config(const std::vector<Column>& columns, const ShardInfo& shard) {
  json names = json::array(), encodings = json::array(), sizes = json::array();
  for (const Column& column : columns) {
    names.push_back(column.name);
    encodings.push_back(column.encoding.name);
    sizes.push_back(column.size == 0 ? json() : json(column.size));
  }
  return {{"column_names", std::move(names)},
          {"column_encodings", std::move(encodings)},
          {"column_sizes", std::move(sizes)},
          {"compression", shard.compression.empty() ? json() : json(shard.compression)},
          {"format", "mds"},
          {"hashes", shard.hashes},
          {"size_limit", shard.size_limit ? json(*shard.size_limit) : json()},
          {"version", version}};
}

}  // namespace

std::uint64_t Index::samples() const noexcept {
  std::uint64_t total = 0;
  for (const ShardInfo& shard : shards) total += shard.samples;
  return total;
}

Index Index::load(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / file_name;
  if (!std::filesystem::exists(path))
    throw Error(Errc::not_found, "open the data set '" + directory.string() + "'",
                "there is no index.json in it",
                "name a directory that holds one, such as a split's");
  return parse(detail::read_text(path, max_index_bytes), "'" + path.string() + "'");
}

Index Index::parse(std::string_view text, std::string_view origin) {
  const json document = parse_json(text, origin);
  const Fields fields(document, std::string(origin));
  check_version(fields, origin);
  Index index;
  for (const json& entry : fields.list("shards")) {
    const std::string where =
        std::string(origin) + ", shard " + std::to_string(index.shards.size());
    const Fields shard_fields(entry, where);
    check_version(shard_fields, where);
    if (const std::string format = shard_fields.text("format"); format != "mds")
      throw Error(Errc::unsupported, "read " + where, "its format is '" + format + "'",
                  "only the format mds is read");
    std::vector<Column> columns = parse_columns(shard_fields);
    if (index.shards.empty())
      index.columns = std::move(columns);
    else if (!same_columns(index.columns, columns))
      throw Error(Errc::unsupported, "read " + where, "its columns differ from those of shard 0",
                  "read data sets of different columns one by one");
    index.shards.push_back(parse_shard(shard_fields));
  }
  return index;
}

std::string Index::to_json() const {
  nlohmann::json entries = nlohmann::json::array();
  for (const ShardInfo& shard : shards) {
    nlohmann::json entry = config(columns, shard);
    entry["samples"] = shard.samples;
    entry["raw_data"] = file_json(shard.raw);
    entry["zip_data"] = shard.compressed ? file_json(*shard.compressed) : nlohmann::json();
    entries.push_back(std::move(entry));
  }
  return detail::json_text({{"shards", std::move(entries)}, {"version", version}});
}

std::string Index::config_json(const ShardInfo& shard) const {
  return detail::json_text(config(columns, shard));
}

Index merge_indexes(const std::filesystem::path& directory, const std::vector<std::string>& parts) {
  Index merged;
  for (const std::string& part : parts) {
    Index index = Index::load(directory / part);
    if (index.shards.empty()) continue;
    if (merged.shards.empty()) merged.columns = index.columns;
    if (!same_columns(merged.columns, index.columns))
      throw Error(Errc::invalid_argument, "merge '" + part + "' into '" + directory.string() + "'",
                  "its columns differ from those before it");
    for (ShardInfo& shard : index.shards) {
      shard.raw.basename = part + "/" + shard.raw.basename;
      if (shard.compressed) shard.compressed->basename = part + "/" + shard.compressed->basename;
      merged.shards.push_back(std::move(shard));
    }
  }
  const std::string text = merged.to_json();
  // Says so now, not when the merged data set is first read.
  static_cast<void>(Index::parse(text, "the merged index of '" + directory.string() + "'"));
  detail::write_file(directory / Index::file_name, std::vector<std::string_view>{text});
  return merged;
}

}  // namespace hyperframes::dataset
