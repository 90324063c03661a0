#include <hyperframes/apps/dataset/reader.hpp>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include <hyperframes/apps/dataset/detail/bytes.hpp>
#include <hyperframes/apps/dataset/detail/file.hpp>
#include <hyperframes/apps/dataset/hashes.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

std::size_t find_column(const std::vector<Column>& columns, std::string_view name) {
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (columns[i].name == name) return i;
  std::string names;
  for (const Column& column : columns) names += (names.empty() ? "" : ", ") + column.name;
  throw Error(Errc::not_found, "find the column '" + std::string(name) + "'",
              "the data set has " + (names.empty() ? "no columns" : "the columns " + names));
}

[[noreturn]] void corrupt(const detail::InputFile& file, std::string found) {
  throw Error(Errc::corrupt, "read the shard '" + file.path().string() + "'", std::move(found),
              "copy the file again from where it was published");
}

// ---- An open shard file
// --------------------------------------------------------------------------

// Throws unless the file is `n` sample offsets that rise to its end, as the index says it is.
std::vector<std::uint32_t> read_offsets(const detail::InputFile& file, const ShardInfo& info) {
  if (file.size() != info.raw.bytes)
    corrupt(file, "it has " + std::to_string(file.size()) + " bytes and the index says " +
                      std::to_string(info.raw.bytes));
  std::uint32_t count = 0;
  file.read_at(0, std::as_writable_bytes(std::span(&count, 1)));
  if (count != info.samples)
    corrupt(file, "it has " + std::to_string(count) + " samples and the index says " +
                      std::to_string(info.samples));
  // The index was refused unless this many offsets fit the file.
  std::vector<std::uint32_t> offsets(std::size_t{count} + 1);
  file.read_at(sizeof(count), std::as_writable_bytes(std::span(offsets)));
  const std::uint64_t header_bytes = sizeof(count) + sizeof(offsets[0]) * offsets.size();
  if (offsets.front() < header_bytes || offsets.back() != file.size() ||
      !std::is_sorted(offsets.begin(), offsets.end()))
    corrupt(file, "its table of samples does not rise from its header to its end");
  return offsets;
}

struct Shard {
  Shard(const std::filesystem::path& path, const ShardInfo& info)
      : file(path), offsets(read_offsets(file, info)) {}

  detail::InputFile file;
  std::vector<std::uint32_t> offsets;
  mutable std::uint64_t last_use = 0;  // guarded by the reader's mutex
};

void feed(const detail::InputFile& file, const std::vector<std::unique_ptr<Hasher>>& hashers) {
  std::vector<std::byte> block(std::min<std::uint64_t>(file.size(), 1 << 20));
  for (std::uint64_t offset = 0; offset < file.size();) {
    const auto part =
        std::span(block).first(std::min<std::uint64_t>(block.size(), file.size() - offset));
    file.read_at(offset, part);
    for (const auto& hasher : hashers) hasher->update(part);
    offset += part.size();
  }
}

void verify(const detail::InputFile& file, const ShardFile& info) {
  std::vector<std::unique_ptr<Hasher>> hashers;
  std::vector<std::string> expected;
  std::string unknown;
  for (const auto& [name, hex] : info.hashes) {
    if (auto hasher = Hasher::create(name)) {
      hashers.push_back(std::move(hasher));
      expected.push_back(hex);
    } else {
      unknown += (unknown.empty() ? "" : ", ") + name;
    }
  }
  if (hashers.empty() && !unknown.empty())
    throw Error(Errc::unsupported, "verify the shard '" + file.path().string() + "'",
                "this build can't compute its hashes (" + unknown + ")",
                "read it without verifying");
  feed(file, hashers);
  for (std::size_t i = 0; i < hashers.size(); ++i)
    if (hashers[i]->hex() != expected[i])
      corrupt(file, "its hash is " + hashers[i]->hex() + " and the index says " + expected[i]);
}

}  // namespace

// ---- Sample
// --------------------------------------------------------------------------------------

std::size_t Sample::find(std::string_view column) const {
  static const std::vector<Column> none;
  return find_column(columns_ == nullptr ? none : *columns_, column);
}

std::span<const std::byte> Sample::bytes(std::size_t column) const {
  if (column >= values_.size())
    throw Error(Errc::invalid_argument, "read column " + std::to_string(column) + " of a sample",
                "it has " + std::to_string(values_.size()), "ask Reader::column() for the number");
  const auto [offset, length] = values_[column];
  return std::span(data_).subspan(offset, length);
}

std::int64_t Sample::integer(std::size_t column) const {
  const auto value = bytes(column);
  return decode_integer((*columns_)[column].encoding, value);
}

double Sample::real(std::size_t column) const {
  const auto value = bytes(column);
  return decode_real((*columns_)[column].encoding, value);
}

std::string_view Sample::text(std::size_t column) const {
  const auto value = bytes(column);
  return decode_text((*columns_)[column].encoding, value);
}

ArrayView Sample::array(std::size_t column) const {
  const auto value = bytes(column);
  return decode_array((*columns_)[column].encoding, value);
}

ImageView Sample::image(std::size_t column) const {
  const auto value = bytes(column);
  return decode_image((*columns_)[column].encoding, value);
}

std::vector<std::span<const std::byte>> Sample::image_list(std::size_t column) const {
  const auto value = bytes(column);
  return decode_image_list((*columns_)[column].encoding, value);
}

std::vector<std::string_view> split_values(std::string_view text, char separator) {
  std::vector<std::string_view> values;
  while (!text.empty()) {
    const std::string_view value = text.substr(0, text.find(separator));
    if (!value.empty()) values.push_back(value);
    text.remove_prefix(std::min(text.size(), value.size() + 1));
  }
  return values;
}

// ---- Reader
// --------------------------------------------------------------------------------------

struct Reader::State {
  std::filesystem::path directory;
  ReaderOptions options;
  Index index;
  std::vector<std::uint64_t> first_samples;  // of each shard, and the total

  std::mutex mutex;
  std::vector<std::shared_ptr<const Shard>> open;  // one a shard of the index
  std::vector<std::size_t> open_numbers;           // those of `open` that are not null
  std::vector<bool> verified;
  std::uint64_t uses = 0;

  State(std::filesystem::path where, ReaderOptions wanted)
      : directory(std::move(where)), options(wanted), index(Index::load(directory)) {
    options.max_open_shards = std::max<std::size_t>(1, options.max_open_shards);
    first_samples.push_back(0);
    for (const ShardInfo& shard : index.shards) {
      refuse_compressed(shard);
      first_samples.push_back(first_samples.back() + shard.samples);
    }
    open.resize(index.shards.size());
    verified.resize(index.shards.size());
  }

  void refuse_compressed(const ShardInfo& shard) const {
    if (shard.compression.empty()) return;
    throw Error(Errc::unsupported, "read the data set '" + directory.string() + "'",
                "its shard '" + shard.compressed->basename + "' needs the decompressor " +
                    shard.compression.substr(0, shard.compression.find(':')) +
                    ", which this version does not have",
                "publish the data set without compression");
  }

  std::shared_ptr<const Shard> find_open(std::size_t number) {
    const std::lock_guard lock(mutex);
    if (open[number]) open[number]->last_use = ++uses;
    return open[number];
  }

  // Two threads may open the same file at once; the first one's is kept.
  std::shared_ptr<const Shard> shard(std::size_t number) {
    if (auto found = find_open(number)) return found;
    const ShardInfo& info = index.shards[number];
    auto opened = std::make_shared<const Shard>(directory / info.raw.basename, info);
    if (needs_verifying(number)) verify(opened->file, info.raw);

    const std::lock_guard lock(mutex);
    verified[number] = true;
    if (!open[number]) {
      if (open_numbers.size() >= options.max_open_shards) close_oldest();
      open[number] = std::move(opened);
      open_numbers.push_back(number);
    }
    open[number]->last_use = ++uses;
    return open[number];
  }

  bool needs_verifying(std::size_t number) {
    const std::lock_guard lock(mutex);
    return options.verify_hashes && !verified[number];
  }

  void close_oldest() {
    const auto oldest = std::min_element(
        open_numbers.begin(), open_numbers.end(),
        [this](std::size_t a, std::size_t b) { return open[a]->last_use < open[b]->last_use; });
    open[*oldest] = nullptr;
    *oldest = open_numbers.back();
    open_numbers.pop_back();
  }
};

Reader::Reader(std::filesystem::path directory, ReaderOptions options)
    : state_(std::make_unique<State>(std::move(directory), options)) {}
Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

std::uint64_t Reader::size() const noexcept { return state_->first_samples.back(); }
const Index& Reader::index() const noexcept { return state_->index; }
const std::vector<Column>& Reader::columns() const noexcept { return state_->index.columns; }
std::size_t Reader::column(std::string_view name) const { return find_column(columns(), name); }

namespace {

// Where each value lies in the sample's bytes: first the lengths of the variable ones, then all.
// False where they do not add up to the sample's size.
bool locate_values(const std::vector<Column>& columns, std::span<const std::byte> data,
                   std::vector<std::pair<std::uint32_t, std::uint32_t>>& values) {
  std::uint64_t header = 0;
  for (const Column& column : columns) header += column.size == 0 ? sizeof(std::uint32_t) : 0;
  if (header > data.size()) return false;
  values.clear();
  const std::byte* length = data.data();
  std::uint64_t offset = header;
  for (const Column& column : columns) {
    std::uint64_t bytes = column.size;
    if (column.size == 0) {
      bytes = detail::load<std::uint32_t>(length);
      length += sizeof(std::uint32_t);
    }
    if (bytes > data.size() - offset) return false;
    values.emplace_back(static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes));
    offset += bytes;
  }
  return offset == data.size();
}

}  // namespace

void Reader::read(std::uint64_t i, Sample& sample) const {
  if (i >= size())
    throw Error(Errc::invalid_argument, "read sample " + std::to_string(i),
                "the data set '" + state_->directory.string() + "' has " + std::to_string(size()));
  const auto& firsts = state_->first_samples;
  const auto after = std::upper_bound(firsts.begin(), firsts.end(), i);
  const auto number = static_cast<std::size_t>(after - firsts.begin()) - 1;
  const std::shared_ptr<const Shard> shard = state_->shard(number);
  const std::uint64_t row = i - firsts[number];
  const std::uint32_t begin = shard->offsets[row], end = shard->offsets[row + 1];
  sample.columns_ = &columns();
  sample.data_.resize(end - begin);
  shard->file.read_at(begin, sample.data_);
  if (!locate_values(columns(), sample.data_, sample.values_)) {
    sample.values_.clear();
    corrupt(shard->file, "the lengths in its sample " + std::to_string(row) +
                             " do not add up to the sample's " + std::to_string(end - begin) +
                             " bytes");
  }
}

Sample Reader::read(std::uint64_t i) const {
  Sample sample;
  read(i, sample);
  return sample;
}

}  // namespace hyperframes::dataset
