#include <hyperframes/apps/dataset/csv.hpp>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <hyperframes/apps/dataset/detail/file.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

constexpr std::size_t block_bytes = 1 << 18;
constexpr int end_of_file = -1;

}  // namespace

struct CsvReader::State {
  detail::InputFile file;
  CsvOptions options;
  std::string block;
  std::size_t block_at = 0;
  std::uint64_t block_end = 0;  // offset in the file of the end of `block`
  std::uint64_t next_line = 1;
  std::uint64_t line = 1;
  std::uint64_t record_bytes = 0;
  std::vector<std::string> header;
  std::vector<std::string> fields;
  std::size_t field_count = 0;

  State(const std::filesystem::path& path, CsvOptions wanted) : file(path), options(wanted) {}

  [[noreturn]] void corrupt(std::string found, std::string remedy = {}) const {
    throw Error(Errc::corrupt, "read '" + file.path().string() + "', line " + std::to_string(line),
                std::move(found), std::move(remedy));
  }

  int peek() {
    if (block_at == block.size() && !refill()) return end_of_file;
    return static_cast<unsigned char>(block[block_at]);
  }

  int take() {
    const int c = peek();
    if (c == end_of_file) return c;
    ++block_at;
    if (c == '\n') ++next_line;
    if (++record_bytes > options.max_record_bytes)
      throw Error(
          Errc::too_large, "read '" + file.path().string() + "', line " + std::to_string(line),
          "the record is longer than " + std::to_string(options.max_record_bytes) + " bytes",
          "look for a quote that is not closed there");
    return c;
  }

  bool refill() {
    block.resize(std::min<std::uint64_t>(block_bytes, file.size() - block_end));
    block_at = 0;
    file.read_at(block_end, std::as_writable_bytes(std::span(block)));
    block_end += block.size();
    return !block.empty();
  }

  // The memory of the last record's fields is used again.
  std::string& begin_field() {
    if (field_count == fields.size()) fields.emplace_back();
    fields[field_count].clear();
    return fields[field_count++];
  }

  void take_quoted(std::string& field) {
    take();
    while (true) {
      const int c = take();
      if (c == end_of_file) corrupt("a quote that opens in this record is not closed");
      if (c != '"') {
        field += static_cast<char>(c);
      } else if (peek() == '"') {
        field += static_cast<char>(take());
      } else {
        return;
      }
    }
  }

  // Consumes what ends the field; true if another field of the record follows.
  bool take_end_of_field(bool quoted) {
    const int c = take();
    if (c == options.separator) return true;
    if (c == '\n' || c == end_of_file) return false;
    if (c == '\r' && peek() == '\n') return take(), false;
    corrupt(
        quoted ? "text follows a closing quote" : "a quote stands inside a field without quotes",
        "put the whole field in quotes and double those inside it");
  }

  void take_plain(std::string& field) {
    for (int c = peek(); c != end_of_file && c != options.separator && c != '\n' && c != '"';
         c = peek())
      field += static_cast<char>(take());
    if (peek() == '\n' && field.ends_with('\r')) field.pop_back();
  }

  bool take_record() {
    record_bytes = 0;
    line = next_line;
    field_count = 0;
    if (peek() == end_of_file) return false;
    bool more = true;
    while (more) {
      std::string& field = begin_field();
      const bool quoted = peek() == '"';
      quoted ? take_quoted(field) : take_plain(field);
      more = take_end_of_field(quoted);
    }
    fields.resize(field_count);
    return true;
  }

  bool is_blank() const { return fields.size() == 1 && fields[0].empty(); }

  void read_header() {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (peek() != end_of_file && block.starts_with(byte_order_mark))
      block_at = byte_order_mark.size();
    if (!take_record()) corrupt("the file is empty", "its first line must name the columns");
    header = std::exchange(fields, {});
    if (std::set(header.begin(), header.end()).size() != header.size())
      corrupt("two columns have the same name");
  }
};

CsvReader::CsvReader(const std::filesystem::path& path, CsvOptions options)
    : state_(std::make_unique<State>(path, options)) {
  state_->read_header();
}

CsvReader::~CsvReader() = default;

const std::vector<std::string>& CsvReader::header() const noexcept { return state_->header; }

std::size_t CsvReader::column(std::string_view name) const {
  const auto at = std::find(state_->header.begin(), state_->header.end(), name);
  if (at != state_->header.end()) return static_cast<std::size_t>(at - state_->header.begin());
  std::string names;
  for (const std::string& column : state_->header) names += (names.empty() ? "" : ", ") + column;
  throw Error(
      Errc::not_found,
      "find the column '" + std::string(name) + "' of '" + state_->file.path().string() + "'",
      "it has the columns " + names);
}

bool CsvReader::next() {
  do {
    if (!state_->take_record()) return false;
  } while (state_->header.size() > 1 && state_->is_blank());
  if (state_->fields.size() != state_->header.size())
    state_->corrupt("it has " + std::to_string(state_->fields.size()) +
                    (state_->fields.size() == 1 ? " field" : " fields") + " and the header " +
                    std::to_string(state_->header.size()));
  return true;
}

const std::vector<std::string>& CsvReader::fields() const noexcept { return state_->fields; }
std::uint64_t CsvReader::line() const noexcept { return state_->line; }
std::uint64_t CsvReader::bytes_read() const noexcept {
  return state_->block_end - (state_->block.size() - state_->block_at);
}
std::uint64_t CsvReader::bytes_total() const noexcept { return state_->file.size(); }
const std::filesystem::path& CsvReader::path() const noexcept { return state_->file.path(); }

}  // namespace hyperframes::dataset
