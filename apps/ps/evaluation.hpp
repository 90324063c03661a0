// Scoring a data set with a model whose rows lie on a parameter server.
//
//   auto table = co_await ps::find_feature_table(client, "movies");      // of the job's latest run
//   ps::Evaluation result = co_await ps::evaluate(client, table, model, source);
//   result.auc; result.logloss;
//
// Rows are read as they are, without waiting for anybody: also while a job trains.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/batch_source.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/model.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::ps {

struct Evaluation {
  double auc = 0;
  double logloss = 0;
  std::vector<float> predictions{};    ///< In the order of the data set.
  std::vector<std::uint8_t> labels{};  ///< 0 or 1.
};

/// Throws `not_found` with the jobs that there are.
Task<TableSpec> find_feature_table(PsClient& client, std::string job);

/// Throws `invalid_argument` if the table's rows are not this model's, or the data has one class
/// only. On the client's shard; files and arithmetic run on the offload executor. `client` outlives
/// it. Takes 4 bytes a sample for the predictions, and 1 for the label.
Task<Evaluation> evaluate(PsClient& client, TableSpec table, std::shared_ptr<const Model> model,
                          std::shared_ptr<const BatchSource> source);

/// "sample,label,prediction" lines. Blocks.
void write_predictions(const Evaluation& evaluation, const std::string& path);

}  // namespace hyperframes::ps
