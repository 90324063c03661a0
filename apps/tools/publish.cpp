#include <hyperframes/apps/dataset/publish.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hyperframes/apps/dataset/movielens.hpp>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/time.hpp>

namespace hyperframes::tools {
namespace {

constexpr const char* publish_example =
    R"(A column is NAME:TYPE or NAME=SOURCE:TYPE, where SOURCE names a column of the
file and TYPE is
  int     a whole number          str   text
  float   a real number           list  a category of several values, such as Comedy|Drama
Without --column all columns are published as text. Splits such as training/fit and
training/validation also read as one data set: training.

Example: rate films 1 if they have 4 stars or more, keep the latest fifth of the
ratings for testing:

  hyperframes publish csv ratings.csv --out data \
    --column user=userId:int --column movie=movieId:int --column genres:list \
    --label "label=rating>=4" --split train=0.8 --split test=0.2 --order_by timestamp
  hyperframes inspect data/train
)";

constexpr const char* movielens_example =
    R"(Writes DIR/random and DIR/time, each with training/fit, training/validation and
test; training is a data set too, of fit and validation together. Without --csv
the ratings come from Debian's package r-cran-dslabs and are kept in
DIR/ratings.csv.

Example:

  hyperframes movielens --out data/movielens
  hyperframes baseline data/movielens
)";

// One bar on a terminal; nothing elsewhere, for what is published is said at the end.
class PublishBar {
 public:
  PublishBar() : screen_({}) {}

  void show(std::uint64_t done, std::uint64_t total) {
    const Time now = Clock::read_system();
    if (!screen_.terminal() || now - shown_ < 100ms) return;
    shown_ = now;
    const double fraction = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
    screen_.refresh({fmt::format("{} {:3.0f} %  {} of {}", screen_.bar(fraction, 32),
                                 100 * fraction, bytes_text(done), bytes_text(total))},
                    "");
  }
  void clear() { screen_.clear(); }

 private:
  Screen screen_;
  Time shown_{};
};

std::function<void(std::uint64_t, std::uint64_t)> show_on(PublishBar& bar) {
  return [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); };
}

char one_character(const std::string& text, const char* flag) {
  if (text == "\\t" || text == "tab") return '\t';
  if (text.size() == 1 && text != "\"" && text != "\n" && text != "\r") return text[0];
  throw Error(Errc::invalid_argument, fmt::format("read {} '{}'", flag, text),
              "it is not one character", "give one such as ';', or tab");
}

struct PublishFlags {
  std::string csv, out;
  std::vector<std::string> columns, labels, splits, missing, hashes = {"xxh64"};
  std::string order_by, separator = ",", list_separator = "|", size_limit = "64mb";
  std::uint64_t seed = 0;
  bool replace = false;
};

void set_missing(dataset::PublishOptions& options, const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos)
    throw Error(Errc::invalid_argument, fmt::format("read --missing '{}'", text),
                "it does not have the form NAME=VALUE", "give, for example, --missing user=0");
  for (dataset::PublishedColumn& column : options.columns)
    if (column.name == text.substr(0, equals)) {
      column.missing = text.substr(equals + 1);
      return;
    }
  throw Error(Errc::invalid_argument, fmt::format("read --missing '{}'", text),
              "no --column has that name", "name the column as it is published");
}

dataset::PublishOptions publish_options(const PublishFlags& flags) {
  dataset::PublishOptions options{.csv = flags.csv, .directory = flags.out};
  for (const std::string& text : flags.columns)
    options.columns.push_back(dataset::parse_column(text));
  for (const std::string& text : flags.labels) options.labels.push_back(dataset::parse_label(text));
  for (const std::string& text : flags.splits) options.splits.push_back(dataset::parse_split(text));
  for (const std::string& text : flags.missing) set_missing(options, text);
  options.order_by = flags.order_by;
  options.seed = flags.seed;
  options.separator = one_character(flags.separator, "--separator");
  options.list_separator = one_character(flags.list_separator, "--list_separator");
  options.writer = {.size_limit = dataset::parse_size(flags.size_limit),
                    .hashes = flags.hashes,
                    .replace = flags.replace};
  return options;
}

void publish(const PublishFlags& flags) {
  PublishBar bar;
  dataset::PublishOptions options = publish_options(flags);
  options.progress = show_on(bar);
  const auto published = dataset::publish_csv(options);
  bar.clear();
  const auto directory_of = [&](const dataset::PublishedSplit& split) {
    const std::filesystem::path out = flags.out;
    return split.name.empty() ? out : out / split.name;
  };
  for (const dataset::PublishedSplit& split : published)
    fmt::print("{}: {} rows in {} shard{}, {}\n", directory_of(split).string(),
               with_separators(split.rows), split.shards, split.shards == 1 ? "" : "s",
               bytes_text(split.bytes));
}

struct MovielensFlags {
  std::string csv, out;
  std::uint64_t seed = 1;
  bool replace = false;
};

void publish_movielens(const MovielensFlags& flags) {
  std::filesystem::path csv = flags.csv;
  if (csv.empty()) {
    csv = std::filesystem::path(flags.out) / "ratings.csv";
    if (!std::filesystem::exists(csv)) dataset::export_movielens(csv);
  }
  PublishBar bar;
  const auto splits = dataset::publish_movielens({.csv = csv,
                                                  .directory = flags.out,
                                                  .seed = flags.seed,
                                                  .replace = flags.replace,
                                                  .progress = show_on(bar)});
  bar.clear();
  for (const dataset::MovielensSplit& split : splits)
    for (const auto& directory : {split.fit, split.validation, split.test})
      fmt::print("{}: {} ratings\n", directory.string(),
                 with_separators(dataset::Index::load(directory).samples()));
}

}  // namespace

void add_publish_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("publish", "Turns files into data sets in the MDS format");
  command->require_subcommand(1);
  CLI::App* csv =
      command->add_subcommand("csv", "Publishes a CSV file, whose first line names its columns");
  const auto flags = std::make_shared<PublishFlags>();
  csv->add_option("FILE", flags->csv, "The CSV file")->required();
  csv->add_option("--out", flags->out, "Directory for the data set, or for its splits")->required();
  csv->add_option("--column", flags->columns, "A column to publish; repeat it for more");
  csv->add_option("--label", flags->labels,
                  "A column that is 1 or 0 by a test, such as label=rating>=4");
  csv->add_option("--missing", flags->missing,
                  "NAME=VALUE: what stands for an empty field or NA in a number");
  csv->add_option("--split", flags->splits,
                  "NAME=FRACTION of the rows; repeat it until they add up to 1");
  csv->add_option("--order_by", flags->order_by,
                  "Cut splits in the order of this column of the file, not at random");
  ps::take_whole(csv->add_option("--seed", flags->seed, "Of the random splits"))
      ->capture_default_str();
  csv->add_option("--separator", flags->separator, "Between the fields of the file")
      ->capture_default_str();
  csv->add_option("--list_separator", flags->list_separator,
                  "Between the values of a list in the file")
      ->capture_default_str();
  csv->add_option("--size_limit", flags->size_limit,
                  "Bytes of a shard file; kb, mb and gb are known")
      ->capture_default_str();
  csv->add_option("--hash", flags->hashes, "Hashes to keep of each shard file")
      ->capture_default_str();
  csv->add_flag("--replace", flags->replace, "Replace data sets that are there");
  csv->footer(publish_example);
  csv->callback([flags] { publish(*flags); });
}

void add_movielens_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "movielens", "Makes the data sets of 100,004 film ratings that the demo trains on");
  const auto flags = std::make_shared<MovielensFlags>();
  command->add_option("--out", flags->out, "Directory for the data sets")->required();
  command->add_option("--csv", flags->csv, "The ratings, where they are exported already");
  ps::take_whole(command->add_option("--seed", flags->seed, "Of the random split"))
      ->capture_default_str();
  command->add_flag("--replace", flags->replace, "Replace data sets that are there");
  command->footer(movielens_example);
  command->callback([flags] { publish_movielens(*flags); });
}

}  // namespace hyperframes::tools
