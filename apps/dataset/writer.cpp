#include <hyperframes/apps/dataset/writer.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>

#include <hyperframes/apps/dataset/detail/bytes.hpp>
#include <hyperframes/apps/dataset/detail/file.hpp>
#include <hyperframes/apps/dataset/detail/utf8.hpp>
#include <hyperframes/apps/dataset/hashes.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t max_shard_bytes = std::numeric_limits<std::uint32_t>::max();

std::string shard_name(std::size_t number) {
  std::array<char, 40> name;
  std::snprintf(name.data(), name.size(), "shard.%05zu.mds", number);
  return name.data();
}

bool is_shard_name(std::string_view name) {
  return name.starts_with("shard.") && name.find(".mds") != std::string_view::npos;
}

// The index goes first, so that no moment shows an index over missing shards.
void remove_data_set(const fs::path& directory) {
  fs::remove(directory / Index::file_name);
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_shard_name(entry.path().filename().string())) fs::remove(entry.path());
}

// Column numbers in the order of their names, which is the order in a sample.
std::vector<std::size_t> sorted_order(const std::vector<ColumnSpec>& specs) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return specs[a].name < specs[b].name; });
  return order;
}

void check_options(const std::string& tried, const std::vector<ColumnSpec>& specs,
                   const std::vector<std::size_t>& order, const WriterOptions& options) {
  if (specs.empty()) throw Error(Errc::invalid_argument, tried, "no columns were given");
  for (const ColumnSpec& spec : specs)
    if (!detail::is_utf8(spec.name))
      throw Error(Errc::invalid_argument, tried, "a column's name is not UTF-8");
  for (std::size_t i = 1; i < order.size(); ++i)
    if (specs[order[i]].name == specs[order[i - 1]].name)
      throw Error(Errc::invalid_argument, tried,
                  "two columns are named '" + specs[order[i]].name + "'");
  if (options.size_limit > max_shard_bytes)
    throw Error(Errc::invalid_argument, tried,
                "the size limit is " + std::to_string(options.size_limit) + " bytes",
                "choose one below 4 GiB");
  for (const std::string& name : options.hashes)
    if (!Hasher::create(name))
      throw Error(Errc::unsupported, tried, "this build can't compute the hash '" + name + "'",
                  "use xxh64, or another that it has");
}

}  // namespace

struct Writer::State {
  fs::path directory;
  WriterOptions options;
  std::vector<std::size_t> order;  // order[i]: the given number of the i-th column by name
  Index index;                     // its shards are those already written
  ShardInfo open_shard;            // what is the same in every shard
  std::string config;
  std::string row;                    // the one being appended
  std::string body;                   // the rows of the shard in memory
  std::vector<std::uint32_t> starts;  // of those rows in `body`
  std::uint64_t shard_bytes = 0;      // the raw file's size if it were written now
  std::uint64_t rows = 0;
  bool finished = false;

  std::string tried() const { return "write the data set '" + directory.string() + "'"; }

  std::uint64_t empty_shard_bytes() const {
    return sizeof(std::uint32_t) + sizeof(std::uint32_t) + config.size();
  }

  void encode_row(std::span<const Value> values) {
    row.clear();
    std::vector<std::uint32_t> lengths;
    std::string data;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Column& column = index.columns[i];
      const std::size_t before = data.size();
      try {
        encode(column.encoding, values[order[i]], data);
      } catch (const Error& error) {
        throw Error(error.code(),
                    tried() + ": column '" + column.name + "' of row " + std::to_string(rows),
                    error.found(), error.remedy());
      }
      if (column.size == 0) detail::append(row, static_cast<std::uint32_t>(data.size() - before));
    }
    row += data;
  }

  void write_shard() {
    std::string header;
    detail::append(header, static_cast<std::uint32_t>(starts.size()));
    const auto first =
        static_cast<std::uint32_t>(sizeof(std::uint32_t) * (starts.size() + 2) + config.size());
    for (const std::uint32_t start : starts) detail::append(header, first + start);
    detail::append(header, static_cast<std::uint32_t>(first + body.size()));
    header += config;

    ShardInfo shard = open_shard;
    shard.samples = starts.size();
    shard.raw = {.basename = shard_name(index.shards.size()), .bytes = header.size() + body.size()};
    const std::array<std::string_view, 2> parts = {header, body};
    for (const std::string& name : shard.hashes) {
      const auto hasher = Hasher::create(name);
      for (const std::string_view part : parts) hasher->update(detail::as_bytes(part));
      shard.raw.hashes.emplace_back(name, hasher->hex());
    }
    detail::write_file(directory / shard.raw.basename, parts);
    index.shards.push_back(std::move(shard));
    body.clear();
    starts.clear();
    shard_bytes = empty_shard_bytes();
  }
};

Writer::Writer(fs::path directory, std::vector<ColumnSpec> columns, WriterOptions options)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.directory = std::move(directory);
  state.order = sorted_order(columns);
  check_options(state.tried(), columns, state.order, options);
  std::sort(options.hashes.begin(), options.hashes.end());
  options.hashes.erase(std::unique(options.hashes.begin(), options.hashes.end()),
                       options.hashes.end());
  for (const std::size_t number : state.order) {
    Column& column = state.index.columns.emplace_back(columns[number].name,
                                                      Encoding::parse(columns[number].encoding));
    column.size = column.encoding.size.value_or(0);
  }
  state.open_shard.hashes = options.hashes;
  state.open_shard.size_limit = options.size_limit;
  state.config = state.index.config_json(state.open_shard);
  state.shard_bytes = state.empty_shard_bytes();
  state.options = std::move(options);

  try {
    fs::create_directories(state.directory);
    if (fs::exists(state.directory / Index::file_name) && !state.options.replace)
      throw Error(Errc::already_exists, state.tried(), "there is a data set in it",
                  "choose another directory, or replace it (--replace)");
    remove_data_set(state.directory);
  } catch (const fs::filesystem_error& failure) {
    throw Error(failure.code(), state.tried(), {},
                "choose a directory that this user can make and write");
  }
}

Writer::~Writer() = default;

void Writer::append(std::span<const Value> values) {
  State& state = *state_;
  if (state.finished) throw Error(Errc::closed, state.tried(), "it was finished");
  if (values.size() != state.order.size())
    throw Error(Errc::invalid_argument, state.tried(),
                "a row has " + std::to_string(values.size()) + " values and there are " +
                    std::to_string(state.order.size()) + " columns");
  state.encode_row(values);
  const std::uint64_t row_bytes = state.row.size() + sizeof(std::uint32_t);
  if (state.empty_shard_bytes() + row_bytes > state.options.size_limit)
    throw Error(Errc::too_large, state.tried(),
                "row " + std::to_string(state.rows) + " takes " + std::to_string(row_bytes) +
                    " bytes and a shard at most " + std::to_string(state.options.size_limit),
                "raise the size limit");
  if (state.shard_bytes + row_bytes > state.options.size_limit) state.write_shard();
  state.starts.push_back(static_cast<std::uint32_t>(state.body.size()));
  state.body += state.row;
  state.shard_bytes += row_bytes;
  ++state.rows;
}

std::uint64_t Writer::rows() const noexcept { return state_->rows; }

Index Writer::finish() {
  State& state = *state_;
  if (state.finished) throw Error(Errc::closed, state.tried(), "it was finished");
  if (!state.starts.empty()) state.write_shard();
  const std::string text = state.index.to_json();
  const std::array<std::string_view, 1> parts = {text};
  detail::write_file(state.directory / Index::file_name, parts);
  state.finished = true;
  return state.index;
}

std::uint64_t parse_size(std::string_view text) {
  const auto refuse = [&] {
    return Error(Errc::invalid_argument, "read '" + std::string(text) + "' as a size",
                 "it is no number of bytes", "write it as 67108864 or 64mb");
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) throw refuse();
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const int shift = unit.empty() || unit == "b" ? 0
                    : unit == "kb"              ? 10
                    : unit == "mb"              ? 20
                    : unit == "gb"              ? 30
                    : unit == "tb"              ? 40
                                                : -1;
  const double bytes = std::ldexp(number, shift);
  if (shift < 0 || !(bytes < std::ldexp(1, 63))) throw refuse();
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace hyperframes::dataset
