#include <hyperframes/apps/dataset/publish.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include <hyperframes/apps/dataset/csv.hpp>
#include <hyperframes/apps/dataset/sampler.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

// ---- Numbers in text
// -----------------------------------------------------------------------------

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_missing(std::string_view field) { return field.empty() || field == "NA"; }

template <class T>
T number_field(const CsvReader& csv, const std::string& column, const std::string& field) {
  const std::optional<T> value = parse_number<T>(field);
  if (value && std::isfinite(static_cast<double>(*value))) return *value;
  throw Error(
      Errc::corrupt,
      "read '" + csv.path().string() + "', line " + std::to_string(csv.line()) + ", column '" +
          column + "'",
      is_missing(field)
          ? "the value is missing"
          : "'" + field.substr(0, 40) + "' is no " + (std::is_integral_v<T> ? "integer" : "number"),
      is_missing(field)
          ? "say what stands for it by --missing NAME=VALUE, NAME being the column as it is "
            "published, or publish it as text"
          : "publish the column as text");
}

// ---- Rows
// ----------------------------------------------------------------------------------------

bool passes(const PublishedLabel& label, double value) {
  switch (label.test) {
    case PublishedLabel::Test::less: return value < label.threshold;
    case PublishedLabel::Test::less_or_equal: return value <= label.threshold;
    case PublishedLabel::Test::equal: return value == label.threshold;
    case PublishedLabel::Test::greater_or_equal: return value >= label.threshold;
    case PublishedLabel::Test::greater: return value > label.threshold;
  }
  __builtin_unreachable();
}

const char* encoding_of(PublishedType type) {
  switch (type) {
    case PublishedType::integer: return "int";
    case PublishedType::real: return "float64";
    case PublishedType::text:
    case PublishedType::list: return "str";
  }
  __builtin_unreachable();
}

// Turns the reader's current record into the values of a row.
class RowMaker {
 public:
  RowMaker(const CsvReader& csv, const PublishOptions& options)
      : csv_(csv), options_(options), columns_(options.columns) {
    if (columns_.empty())
      for (const std::string& name : csv.header())
        columns_.push_back({.name = name, .source = name});
    for (const PublishedColumn& column : columns_) sources_.push_back(csv.column(column.source));
    for (const PublishedLabel& label : options.labels)
      label_sources_.push_back(csv.column(label.source));
    lists_.resize(columns_.size());
  }

  std::vector<ColumnSpec> specs() const {
    std::vector<ColumnSpec> specs;
    for (const PublishedColumn& column : columns_)
      specs.push_back({column.name, encoding_of(column.type)});
    for (const PublishedLabel& label : options_.labels) specs.push_back({label.name, "uint8"});
    return specs;
  }

  // Valid until the reader's next record.
  const std::vector<Value>& row() {
    values_.clear();
    for (std::size_t i = 0; i < columns_.size(); ++i) values_.push_back(value(i));
    for (std::size_t i = 0; i < label_sources_.size(); ++i) {
      const PublishedLabel& label = options_.labels[i];
      const std::string& field = csv_.fields()[label_sources_[i]];
      values_.emplace_back(passes(label, number_field<double>(csv_, label.source, field)));
    }
    return values_;
  }

 private:
  Value value(std::size_t i) {
    const PublishedColumn& column = columns_[i];
    const std::string& field = csv_.fields()[sources_[i]];
    const std::string& number = column.missing && is_missing(field) ? *column.missing : field;
    switch (column.type) {
      case PublishedType::integer: return number_field<std::int64_t>(csv_, column.source, number);
      case PublishedType::real: return number_field<double>(csv_, column.source, number);
      case PublishedType::text: return field;
      case PublishedType::list: return list(i, field);
    }
    __builtin_unreachable();
  }

  Value list(std::size_t i, const std::string& field) {
    if (options_.list_separator == '|') return field;
    if (field.find('|') != std::string::npos)
      throw Error(Errc::corrupt,
                  "read '" + csv_.path().string() + "', line " + std::to_string(csv_.line()) +
                      ", column '" + columns_[i].source + "'",
                  "a value of the list holds '|', which stands between values in a data set");
    lists_[i] = field;
    std::replace(lists_[i].begin(), lists_[i].end(), options_.list_separator, '|');
    return lists_[i];
  }

  const CsvReader& csv_;
  const PublishOptions& options_;
  std::vector<PublishedColumn> columns_;
  std::vector<std::size_t> sources_, label_sources_;
  std::vector<std::string> lists_;  // what the lists of values_ refer to
  std::vector<Value> values_;
};

// ---- Splits
// --------------------------------------------------------------------------------------

void check_splits(const std::vector<Split>& splits) {
  const auto fail = [](std::string found, std::string remedy = {}) {
    throw Error(Errc::invalid_argument, "divide the rows into splits", std::move(found),
                std::move(remedy));
  };
  double sum = 0;
  for (const Split& split : splits) {
    const std::filesystem::path path(split.name);
    const auto depth = std::distance(path.begin(), path.end());
    const bool inside = path.is_relative() && depth <= 2 && path.lexically_normal() == path &&
                        path.has_filename() && *path.begin() != ".." && *path.begin() != ".";
    if (!inside) fail("'" + split.name + "' is no name of a split", "use NAME or PARENT/NAME");
    if (!(split.fraction > 0)) fail("the share of '" + split.name + "' is not above 0");
    for (const Split& other : splits) {
      if (&other != &split && other.name == split.name)
        fail("two splits are named '" + split.name + "'");
      if (other.name == path.parent_path())
        fail("'" + split.name + "' lies in the split '" + other.name + "'");
    }
    sum += split.fraction;
  }
  if (!splits.empty() && std::fabs(sum - 1) > 1e-6)
    fail("the shares add up to " + std::to_string(sum), "make them add up to 1");
}

using Progress = std::function<void(std::uint64_t)>;

// The place of each row in the order that is cut into splits.
std::vector<std::uint64_t> row_places(const PublishOptions& options, const Progress& progress) {
  CsvReader csv(options.csv, {.separator = options.separator});
  std::vector<double> keys;
  std::uint64_t rows = 0;
  const std::size_t column = options.order_by.empty() ? 0 : csv.column(options.order_by);
  for (; csv.next(); ++rows) {
    if (!options.order_by.empty())
      keys.push_back(number_field<double>(csv, options.order_by, csv.fields()[column]));
    progress(csv.bytes_read());
  }
  std::vector<std::uint64_t> places(rows);
  if (options.order_by.empty()) {
    constexpr std::uint64_t stream = 0x73706c6974;  // its own, apart from those of epochs
    const Permutation permutation(rows, options.seed, stream);
    for (std::uint64_t row = 0; row < rows; ++row) places[row] = permutation(row);
    return places;
  }
  std::vector<std::uint64_t> order(rows);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::sort(order.begin(), order.end(), [&](std::uint64_t a, std::uint64_t b) {
    return keys[a] != keys[b] ? keys[a] < keys[b] : a < b;
  });
  for (std::uint64_t place = 0; place < rows; ++place) places[order[place]] = place;
  return places;
}

// The first place beyond each split, rounded to whole rows.
std::vector<std::uint64_t> split_ends(const std::vector<Split>& splits, std::uint64_t rows) {
  std::vector<std::uint64_t> ends;
  double sum = 0;
  for (const Split& split : splits) {
    sum += split.fraction;
    ends.push_back(
        std::min(rows, static_cast<std::uint64_t>(std::llround(sum * static_cast<double>(rows)))));
  }
  ends.back() = rows;
  return ends;
}

// Which split each row of the file goes to.
class Deal {
 public:
  Deal(const PublishOptions& options, const Progress& progress) {
    if (options.splits.empty()) return;
    places_ = row_places(options, progress);
    ends_ = split_ends(options.splits, places_.size());
  }

  std::size_t split_of(std::uint64_t row, const CsvReader& csv) const {
    if (ends_.empty()) return 0;
    if (row >= places_.size())
      throw Error(Errc::corrupt, "read '" + csv.path().string() + "'", "it grew while it was read");
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), places_[row]);
    return static_cast<std::size_t>(end - ends_.begin());
  }

 private:
  std::vector<std::uint64_t> places_, ends_;
};

void merge_parents(const PublishOptions& options) {
  std::map<std::string, std::vector<std::string>> children;
  for (const Split& split : options.splits) {
    const std::filesystem::path path(split.name);
    if (path.has_parent_path()) children[path.parent_path()].push_back(path.filename());
  }
  for (const auto& [parent, names] : children) merge_indexes(options.directory / parent, names);
}

// A merged index over old splits must not outlive them.
void remove_old_parents(const PublishOptions& options) {
  for (const Split& split : options.splits) {
    const std::filesystem::path path(split.name);
    if (!path.has_parent_path()) continue;
    const std::filesystem::path index = options.directory / path.parent_path() / Index::file_name;
    if (!options.writer.replace && std::filesystem::exists(index))
      throw Error(Errc::already_exists, "write '" + index.string() + "'", "there is a data set",
                  "choose another directory, or replace it (--replace)");
    std::filesystem::remove(index);
  }
}

PublishedSplit describe(std::string name, const Index& index) {
  PublishedSplit split{
      .name = std::move(name), .rows = index.samples(), .shards = index.shards.size()};
  for (const ShardInfo& shard : index.shards) split.bytes += shard.raw.bytes;
  return split;
}

}  // namespace

std::vector<PublishedSplit> publish_csv(const PublishOptions& options) {
  check_splits(options.splits);
  CsvReader csv(options.csv, {.separator = options.separator});
  RowMaker maker(csv, options);
  const std::uint64_t passes = options.splits.empty() ? 1 : 2;
  std::uint64_t last_report = 0;
  const auto report = [&](std::uint64_t bytes) {
    if (!options.progress || (bytes - last_report < 1 << 20 && bytes != 0)) return;
    last_report = bytes;
    options.progress(bytes, passes * csv.bytes_total());
  };

  std::vector<std::string> names;
  for (const Split& split : options.splits) names.push_back(split.name);
  if (names.empty()) names.emplace_back();
  remove_old_parents(options);
  std::vector<std::unique_ptr<Writer>> writers;
  for (const std::string& name : names)
    writers.push_back(
        std::make_unique<Writer>(options.directory / name, maker.specs(), options.writer));

  const Deal deal(options, report);
  const std::uint64_t before = (passes - 1) * csv.bytes_total();
  for (std::uint64_t row = 0; csv.next(); ++row) {
    writers[deal.split_of(row, csv)]->append(maker.row());
    report(before + csv.bytes_read());
  }

  std::vector<PublishedSplit> published;
  for (std::size_t i = 0; i < writers.size(); ++i)
    published.push_back(describe(names[i], writers[i]->finish()));
  merge_parents(options);
  if (options.progress) options.progress(passes * csv.bytes_total(), passes * csv.bytes_total());
  return published;
}

// ---- Command-line forms
// --------------------------------------------------------------------------

namespace {

[[noreturn]] void refuse_form(std::string_view text, const char* what, const char* form) {
  throw Error(Errc::invalid_argument, "read '" + std::string(text) + "' as " + what,
              "it does not have the form " + std::string(form));
}

}  // namespace

PublishedColumn parse_column(std::string_view text) {
  constexpr const char* form =
      "NAME:TYPE or NAME=SOURCE:TYPE, with TYPE one of int, float, str, list";
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse_form(text, "a column", form);
  const std::string_view names = text.substr(0, colon), type = text.substr(colon + 1);
  const auto equals = names.find('=');
  PublishedColumn column;
  column.name = names.substr(0, equals);
  column.source = equals == std::string_view::npos ? names : names.substr(equals + 1);
  if (type == "int")
    column.type = PublishedType::integer;
  else if (type == "float")
    column.type = PublishedType::real;
  else if (type == "str")
    column.type = PublishedType::text;
  else if (type == "list")
    column.type = PublishedType::list;
  else
    refuse_form(text, "a column", form);
  if (column.name.empty() || column.source.empty()) refuse_form(text, "a column", form);
  return column;
}

PublishedLabel parse_label(std::string_view text) {
  constexpr const char* form = "NAME=SOURCE>=NUMBER, also with >, <=, <, ==";
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) refuse_form(text, "a label", form);
  const std::string_view rule = text.substr(equals + 1);
  using Test = PublishedLabel::Test;
  constexpr std::array<std::pair<std::string_view, Test>, 5> tests = {
      {{">=", Test::greater_or_equal},
       {"<=", Test::less_or_equal},
       {"==", Test::equal},
       {">", Test::greater},
       {"<", Test::less}}};
  for (const auto& [sign, test] : tests) {
    const auto at = rule.find(sign);
    if (at == std::string_view::npos || at == 0) continue;
    const std::optional<double> threshold = parse_number<double>(rule.substr(at + sign.size()));
    if (!threshold || !std::isfinite(*threshold)) break;
    return {.name = std::string(text.substr(0, equals)),
            .source = std::string(rule.substr(0, at)),
            .test = test,
            .threshold = *threshold};
  }
  refuse_form(text, "a label", form);
}

Split parse_split(std::string_view text) {
  constexpr const char* form = "NAME=FRACTION, such as train=0.8";
  const auto equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) refuse_form(text, "a split", form);
  const std::optional<double> fraction = parse_number<double>(text.substr(equals + 1));
  if (!fraction || !(*fraction > 0 && *fraction <= 1)) refuse_form(text, "a split", form);
  return {.name = std::string(text.substr(0, equals)), .fraction = *fraction};
}

}  // namespace hyperframes::dataset
