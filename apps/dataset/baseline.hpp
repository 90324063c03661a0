// The baseline that a recommendation model has to beat: how generous a user is, and how liked an
// item.
//
//   const auto fit = dataset::read_interactions(dataset::Reader("random/training/fit"));
//   const auto result = dataset::run_baseline(fit, validation, test);
//   print(result.test_auc, result.test_logloss);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <hyperframes/apps/dataset/reader.hpp>

namespace hyperframes::dataset {

/// One user's yes or no to one item.
struct Interaction {
  std::int64_t user = 0;
  std::int64_t item = 0;
  std::uint8_t label = 0;
};

/// All samples of a data set, in its order; the columns hold integers.
std::vector<Interaction> read_interactions(const Reader& reader, std::string_view user = "user",
                                           std::string_view item = "movie",
                                           std::string_view label = "label");

struct BiasOptions {
  double user_lambda = 1;   ///< Strength of the pull of a user's bias to 0; must be above 0.
  double item_lambda = 1;   ///< The same of an item's bias.
  double tolerance = 1e-3;  ///< Done when no bias moves further in a sweep over all samples.
  int max_sweeps = 50;
};

/// p = sigmoid(mean + user bias + item bias): the maximum of the likelihood less
/// λ/2 Σ bias², found by Newton steps on the items' and the users' biases in turn. Deterministic.
class BiasModel {
 public:
  /// Throws `invalid_argument` for no samples or a λ that is not above 0.
  static BiasModel fit(std::span<const Interaction> samples, const BiasOptions& options);
  ~BiasModel();
  BiasModel(BiasModel&&) noexcept;
  BiasModel& operator=(BiasModel&&) noexcept;

  /// Of a positive label. A user or item that was not fitted has the bias 0.
  double probability(std::int64_t user, std::int64_t item) const;
  std::vector<double> probabilities(std::span<const Interaction> samples) const;

 private:
  struct State;
  explicit BiasModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct BaselineResult {
  BiasOptions chosen{};
  double validation_logloss = 0;
  double validation_auc = 0;
  double test_logloss = 0;
  double test_auc = 0;
};

/// Fits on `fit` for a grid of λ, takes those with the best logloss on `validation`, fits again on
/// both and scores `test`. Throws `invalid_argument` where a part is empty or has one class only.
BaselineResult run_baseline(std::span<const Interaction> fit,
                            std::span<const Interaction> validation,
                            std::span<const Interaction> test);

}  // namespace hyperframes::dataset
