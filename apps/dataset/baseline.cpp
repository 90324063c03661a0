#include <hyperframes/apps/dataset/baseline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <hyperframes/apps/dataset/metrics.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<std::uint8_t> labels_of(std::span<const Interaction> samples) {
  std::vector<std::uint8_t> labels;
  labels.reserve(samples.size());
  for (const Interaction& sample : samples) labels.push_back(sample.label);
  return labels;
}

using Ids = std::unordered_map<std::int64_t, std::size_t>;

std::size_t number_of(Ids& ids, std::int64_t id) {
  return ids.try_emplace(id, ids.size()).first->second;
}

// The samples with users and items numbered from 0, and the biases being fitted.
struct Fit {
  struct Row {
    std::size_t user, item;
    double label;
  };
  std::vector<Row> rows;
  double mean = 0;
  std::vector<double> users, items;

  double probability(const Row& row) const {
    return sigmoid(mean + users[row.user] + items[row.item]);
  }

  // One Newton step on each bias of one side; returns the longest.
  double step(std::vector<double>& biases, std::size_t Row::* side, double lambda) {
    std::vector<double> gradient(biases.size()), curvature(biases.size());
    for (const Row& row : rows) {
      const double p = probability(row);
      gradient[row.*side] += row.label - p;
      curvature[row.*side] += p * (1 - p);
    }
    double longest = 0;
    for (std::size_t i = 0; i < biases.size(); ++i) {
      const double move = (gradient[i] - lambda * biases[i]) / (curvature[i] + lambda);
      biases[i] += move;
      longest = std::max(longest, std::fabs(move));
    }
    return longest;
  }

  void step_mean() {
    double gradient = 0, curvature = 1e-9;
    for (const Row& row : rows) {
      const double p = probability(row);
      gradient += row.label - p;
      curvature += p * (1 - p);
    }
    mean += gradient / curvature;
  }
};

}  // namespace

std::vector<Interaction> read_interactions(const Reader& reader, std::string_view user,
                                           std::string_view item, std::string_view label) {
  const std::size_t user_column = reader.column(user), item_column = reader.column(item),
                    label_column = reader.column(label);
  std::vector<Interaction> samples;
  samples.reserve(reader.size());
  Sample sample;
  for (std::uint64_t i = 0; i < reader.size(); ++i) {
    reader.read(i, sample);
    samples.push_back({.user = sample.integer(user_column),
                       .item = sample.integer(item_column),
                       .label = static_cast<std::uint8_t>(sample.integer(label_column) != 0)});
  }
  return samples;
}

struct BiasModel::State {
  Ids users, items;
  Fit fit;
};

BiasModel::BiasModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
BiasModel::~BiasModel() = default;
BiasModel::BiasModel(BiasModel&&) noexcept = default;
BiasModel& BiasModel::operator=(BiasModel&&) noexcept = default;

BiasModel BiasModel::fit(std::span<const Interaction> samples, const BiasOptions& options) {
  if (samples.empty())
    throw Error(Errc::invalid_argument, "fit the baseline", "there are no samples");
  if (!(options.user_lambda > 0) || !(options.item_lambda > 0))
    throw Error(Errc::invalid_argument, "fit the baseline", "a lambda is not above 0");
  auto state = std::make_unique<State>();
  Fit& fit = state->fit;
  fit.rows.reserve(samples.size());
  for (const Interaction& sample : samples)
    fit.rows.push_back({number_of(state->users, sample.user), number_of(state->items, sample.item),
                        sample.label != 0 ? 1.0 : 0.0});
  fit.users.resize(state->users.size());
  fit.items.resize(state->items.size());
  for (int sweep = 0; sweep < options.max_sweeps; ++sweep) {
    fit.step_mean();
    const double item_move = fit.step(fit.items, &Fit::Row::item, options.item_lambda);
    const double user_move = fit.step(fit.users, &Fit::Row::user, options.user_lambda);
    if (std::max(item_move, user_move) < options.tolerance) break;
  }
  fit.rows = {};
  return BiasModel(std::move(state));
}

double BiasModel::probability(std::int64_t user, std::int64_t item) const {
  double score = state_->fit.mean;
  if (const auto at = state_->users.find(user); at != state_->users.end())
    score += state_->fit.users[at->second];
  if (const auto at = state_->items.find(item); at != state_->items.end())
    score += state_->fit.items[at->second];
  return sigmoid(score);
}

std::vector<double> BiasModel::probabilities(std::span<const Interaction> samples) const {
  std::vector<double> out;
  out.reserve(samples.size());
  for (const Interaction& sample : samples) out.push_back(probability(sample.user, sample.item));
  return out;
}

BaselineResult run_baseline(std::span<const Interaction> fit,
                            std::span<const Interaction> validation,
                            std::span<const Interaction> test) {
  const std::vector<std::uint8_t> validation_labels = labels_of(validation),
                                  test_labels = labels_of(test);
  BaselineResult result{.validation_logloss = std::numeric_limits<double>::infinity()};
  for (const double user_lambda : {0.25, 1.0})
    for (const double item_lambda : {0.5, 1.0, 2.0, 4.0}) {
      const BiasOptions options{.user_lambda = user_lambda, .item_lambda = item_lambda};
      const auto predictions = BiasModel::fit(fit, options).probabilities(validation);
      const double loss = logloss(std::span<const double>(predictions), validation_labels);
      if (loss >= result.validation_logloss) continue;
      result.chosen = options;
      result.validation_logloss = loss;
      result.validation_auc = auc(std::span<const double>(predictions), validation_labels);
    }
  std::vector<Interaction> training(fit.begin(), fit.end());
  training.insert(training.end(), validation.begin(), validation.end());
  const auto predictions = BiasModel::fit(training, result.chosen).probabilities(test);
  result.test_logloss = logloss(std::span<const double>(predictions), test_labels);
  result.test_auc = auc(std::span<const double>(predictions), test_labels);
  return result;
}

}  // namespace hyperframes::dataset
