#include <hyperframes/apps/dataset/baseline.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <hyperframes/apps/dataset/movielens.hpp>
#include <hyperframes/apps/tools/commands.hpp>

namespace hyperframes::tools {
namespace {

constexpr const char* example =
    R"(The baseline is p = sigmoid(mean + bias of the user + bias of the film), its
strength of regularisation chosen on training/validation, then fitted on all of
training.

Example:

  hyperframes movielens --out data/movielens
  hyperframes baseline data/movielens
)";

struct BaselineFlags {
  std::string directory;
  bool json = false;
};

dataset::BaselineResult baseline_of(const dataset::MovielensSplit& split) {
  const auto read = [](const std::filesystem::path& part) {
    return dataset::read_interactions(dataset::Reader(part));
  };
  return dataset::run_baseline(read(split.fit), read(split.validation), read(split.test));
}

void run(const BaselineFlags& flags) {
  nlohmann::json report = nlohmann::json::object();
  for (const dataset::MovielensSplit& split : dataset::movielens_splits(flags.directory)) {
    const dataset::BaselineResult result = baseline_of(split);
    report[split.name] = {{"auc", result.test_auc}, {"logloss", result.test_logloss}};
    if (!flags.json)
      fmt::print("{:>6}: AUC {:.4f}, logloss {:.4f} (lambda {} for users, {} for films)\n",
                 split.name, result.test_auc, result.test_logloss, result.chosen.user_lambda,
                 result.chosen.item_lambda);
  }
  if (flags.json) fmt::print("{}\n", report.dump(2));
}

}  // namespace

void add_baseline_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "baseline", "Measures the user and film bias baseline on the MovieLens data sets");
  const auto flags = std::make_shared<BaselineFlags>();
  command->add_option("DIR", flags->directory, "Where `hyperframes movielens` wrote them")
      ->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->footer(example);
  command->callback([flags] { run(*flags); });
}

}  // namespace hyperframes::tools
