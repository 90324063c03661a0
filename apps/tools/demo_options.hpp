// What a demo does: its choices as the command line gives them, and the runs that follow from them.
//
//   tools::DemoOptions options{.kills = 2};
//   for (const tools::DemoSplit& split : tools::demo_splits()) ...
//   auto kills = tools::kill_fractions(options.kills, 6, run);      // when, within that run
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools {

struct DemoOptions {
  std::filesystem::path workdir{};  ///< Empty: a new one, removed after a demo that passed.
  std::filesystem::path json{};     ///< Where the result goes as JSON. Empty: nowhere.
  std::filesystem::path ratings{};  ///< A CSV file of ratings. Empty: exported with R.
  std::string durability = "push";
  unsigned servers = 2;
  unsigned workers = 2;
  unsigned shards = 16;
  unsigned staleness_bound = 3;
  unsigned batch_size = 2048;
  unsigned kills = 1;
  unsigned seeds = 3;
  std::uint64_t seed = 1;  ///< The first of them.
  bool quick = false;      ///< One seed and one candidate: for tests.
  bool keep = false;       ///< Keep the work folder.

  /// Throws for choices that can't work together, and for files and folders that can't be used.
  /// Makes the work folder.
  void check() const;
};

/// How the ratings are divided, and what the model must achieve there.
struct DemoSplit {
  const char* name;
  double needed_margin;
  bool margin_is_strict;
};
const std::vector<DemoSplit>& demo_splits();

/// A setting of the hyperparameters, which ships in this program as a model.yaml.
struct DemoModel {
  const char* name;
  std::string_view yaml;
};
const std::vector<DemoModel>& demo_models();

/// How far run `run` of `runs` is, from 0 to 1, when a server is to be killed in it; ascending. The
/// first kill falls in the middle of the first run, and the kills are spread evenly over the runs.
std::vector<double> kill_fractions(unsigned kills, unsigned runs, unsigned run);

}  // namespace hyperframes::tools
