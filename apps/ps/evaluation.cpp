#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <hyperframes/apps/dataset/metrics.hpp>
#include <hyperframes/apps/ps/evaluation.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/runtime/offload.hpp>

namespace hyperframes::ps {
namespace {

constexpr std::uint64_t samples_a_pull = 8192;

}  // namespace

Task<TableSpec> find_feature_table(PsClient& client, std::string job) {
  auto status = co_await client.status();
  std::string names;
  std::string table;
  if (status.jobs() != nullptr)
    for (const auto* known : *status.jobs()) {
      const std::string name = known->name() != nullptr ? known->name()->str() : "";
      names += (names.empty() ? "" : ", ") + name;
      if (name == job) table = feature_table_name(name, known->job());
    }
  if (table.empty())
    throw Error(Errc::not_found, fmt::format("find the model of job '{}'", job),
                "the coordinator knows no such job",
                names.empty() ? "train one first" : "choose one of: " + names);
  co_return co_await client.table(std::move(table));
}

Task<Evaluation> evaluate(PsClient& client, TableSpec table, std::shared_ptr<const Model> model,
                          std::shared_ptr<const BatchSource> source) {
  if (table.width != model->config().width())
    throw Error(Errc::invalid_argument, fmt::format("score with table '{}'", table.name),
                fmt::format("its rows have {} floats, and the model's {}", table.width,
                            model->config().width()),
                "use the --model_config that it was trained with");
  Evaluation result;
  for (std::uint64_t first = 0; first < source->samples(); first += samples_a_pull) {
    const std::uint64_t count = std::min(samples_a_pull, source->samples() - first);
    auto batch = std::make_shared<const Batch>(
        co_await offload([source, first, count] { return source->in_order(first, count); }));
    auto ids = batch->ids;
    const auto rows =
        std::make_shared<const std::vector<float>>(co_await client.pull(table, std::move(ids)));
    const auto part = co_await offload([model, batch, rows] {
      std::vector<float> predictions(batch->samples());
      model->predict(*batch, *rows, predictions);
      return predictions;
    });
    result.predictions.insert(result.predictions.end(), part.begin(), part.end());
    for (const float label : batch->labels) result.labels.push_back(label > 0.5f);
  }
  result.auc = dataset::auc(result.predictions, result.labels);
  result.logloss = dataset::logloss(result.predictions, result.labels);
  co_return result;
}

void write_predictions(const Evaluation& evaluation, const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  file << "sample,label,prediction\n";
  for (std::size_t i = 0; i < evaluation.predictions.size(); ++i)
    file << fmt::format("{},{},{}\n", i, evaluation.labels[i], evaluation.predictions[i]);
  file.flush();
  if (!file)
    throw Error::system(errno, fmt::format("write predictions to '{}'", path), {},
                        "choose another file with --predictions");
}

}  // namespace hyperframes::ps
