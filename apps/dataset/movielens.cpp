#include <hyperframes/apps/dataset/movielens.hpp>

#include <utility>

namespace hyperframes::dataset {
namespace {

PublishOptions publish_options(const MovielensOptions& options, const MovielensSplit& split) {
  PublishOptions publish{.csv = options.csv, .directory = options.directory / split.name};
  for (const char* column : {"user=userId:int", "movie=movieId:int", "year:int", "genres:list",
                             "rating:float", "timestamp:int"})
    publish.columns.push_back(parse_column(column));
  publish.columns[2].missing = "0";
  publish.labels = {parse_label("label=rating>=4")};
  publish.splits = {{"training/fit", 0.72}, {"training/validation", 0.08}, {"test", 0.2}};
  if (split.name == "time") publish.order_by = "timestamp";
  publish.seed = options.seed;
  publish.writer.replace = options.replace;
  return publish;
}

}  // namespace

std::vector<MovielensSplit> movielens_splits(const std::filesystem::path& directory) {
  std::vector<MovielensSplit> splits;
  for (const char* name : {"random", "time"}) {
    const std::filesystem::path at = directory / name;
    splits.push_back({.name = name,
                      .fit = at / "training" / "fit",
                      .validation = at / "training" / "validation",
                      .training = at / "training",
                      .test = at / "test"});
  }
  return splits;
}

std::vector<MovielensSplit> publish_movielens(const MovielensOptions& options) {
  std::vector<MovielensSplit> splits = movielens_splits(options.directory);
  for (std::size_t i = 0; i < splits.size(); ++i) {
    PublishOptions publish = publish_options(options, splits[i]);
    if (options.progress)
      publish.progress = [&, i](std::uint64_t done, std::uint64_t total) {
        options.progress(i * total + done, splits.size() * total);
      };
    publish_csv(publish);
  }
  return splits;
}

}  // namespace hyperframes::dataset
