#include <hyperframes/apps/dataset/baseline.hpp>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>
#include <vector>

#include <hyperframes/apps/dataset/writer.hpp>

#include "support.hpp"

using namespace hyperframes::dataset;
using Catch::Approx;
using hyperframes::Errc;
using test::require_error;
using test::TemporaryDirectory;

namespace {

// Labels drawn from known biases, that run over [-2, 2] by user and by item.
std::vector<Interaction> draw(std::mt19937& random, int count) {
  std::vector<Interaction> samples;
  for (int i = 0; i < count; ++i) {
    const std::int64_t user = random() % 41, item = random() % 41;
    const double score =
        (static_cast<double>(user) - 20) / 10 + (static_cast<double>(item) - 20) / 10;
    const double p = 1 / (1 + std::exp(-score));
    const bool label = std::uniform_real_distribution<double>()(random) < p;
    samples.push_back({user, item + 1000, static_cast<std::uint8_t>(label)});
  }
  return samples;
}

}  // namespace

TEST_CASE("the bias model finds the biases that the labels were drawn from") {
  std::mt19937 random(3);
  const auto samples = draw(random, 60'000);
  const BiasModel model = BiasModel::fit(samples, {});
  CHECK(model.probability(40, 1040) == Approx(1 / (1 + std::exp(-4.0))).margin(0.02));
  CHECK(model.probability(0, 1040) == Approx(0.5).margin(0.05));
  CHECK(model.probability(20, 1000) == Approx(1 / (1 + std::exp(2.0))).margin(0.05));
  // Unknown ones have no bias.
  CHECK(model.probability(-1, -1) == Approx(0.5).margin(0.05));
  CHECK(model.probabilities(std::vector<Interaction>{samples[0]})[0] ==
        model.probability(samples[0].user, samples[0].item));
}

TEST_CASE("the bias model is at the maximum that it promises") {
  std::mt19937 random(4);
  const auto samples = draw(random, 3000);
  const BiasOptions options{
      .user_lambda = 2, .item_lambda = 0.5, .tolerance = 1e-9, .max_sweeps = 500};
  const BiasModel model = BiasModel::fit(samples, options);
  // There the surplus of positive labels over a user's probabilities is λ times the user's bias.
  const auto logit = [](double p) { return std::log(p / (1 - p)); };
  const double mean = logit(model.probability(-1, -1));
  for (const std::int64_t user : {0, 7, 40}) {
    double surplus = 0;
    for (const Interaction& sample : samples)
      if (sample.user == user) surplus += sample.label - model.probability(user, sample.item);
    CHECK(surplus == Approx(2 * (logit(model.probability(user, -1)) - mean)).margin(0.01));
  }
}

TEST_CASE("the baseline chooses its strength on the validation and scores the test") {
  std::mt19937 random(5);
  const auto fit = draw(random, 8000), validation = draw(random, 1000), test = draw(random, 2000);
  const BaselineResult result = run_baseline(fit, validation, test);
  CHECK(result.test_auc > 0.8);
  CHECK(result.test_logloss < 0.6);
  CHECK(result.validation_auc > 0.8);
  CHECK(result.chosen.user_lambda > 0);
  const BaselineResult again = run_baseline(fit, validation, test);
  CHECK(again.test_auc == result.test_auc);
  CHECK(again.test_logloss == result.test_logloss);
}

TEST_CASE("a baseline of nothing is refused") {
  const std::vector<Interaction> none, one = {{1, 1, 1}};
  require_error(Errc::invalid_argument, "no samples", [&] { BiasModel::fit(none, {}); });
  require_error(Errc::invalid_argument, "lambda", [&] { BiasModel::fit(one, {.user_lambda = 0}); });
  require_error(Errc::invalid_argument, "no sample is negative",
                [&] { run_baseline(one, one, one); });
}

TEST_CASE("interactions are read from a data set") {
  const TemporaryDirectory directory;
  Writer writer(directory / "set", {{"user", "int"}, {"movie", "int"}, {"label", "uint8"}});
  writer.append({7, 31, 1});
  writer.append({8, 32, 0});
  writer.finish();
  const auto samples = read_interactions(Reader(directory / "set"));
  REQUIRE(samples.size() == 2);
  CHECK(samples[0].user == 7);
  CHECK(samples[1].item == 32);
  CHECK(samples[0].label == 1);
  require_error(Errc::not_found, "label, movie, user",
                [&] { read_interactions(Reader(directory / "set"), "who"); });
}
