#include <hyperframes/apps/dataset/metrics.hpp>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "support.hpp"

using namespace hyperframes::dataset;
using Catch::Approx;
using hyperframes::Errc;
using test::require_error;

namespace {

using Labels = std::vector<std::uint8_t>;

double auc_of(const std::vector<double>& scores, const Labels& labels) {
  return auc(std::span<const double>(scores), labels);
}

double logloss_of(const std::vector<float>& probabilities, const Labels& labels) {
  return logloss(std::span<const float>(probabilities), labels);
}

}  // namespace

TEST_CASE("AUC is the share of pairs in the right order, ties counted half") {
  CHECK(auc_of({1, 2, 3, 4}, {0, 0, 1, 1}) == 1);
  CHECK(auc_of({1, 2, 3, 4}, {1, 1, 0, 0}) == 0);
  CHECK(auc_of({1, 2, 3, 4}, {0, 1, 0, 1}) == 0.75);
  CHECK(auc_of({5, 5, 5}, {0, 1, 1}) == 0.5);
  CHECK(auc_of({1, 2, 2, 3}, {0, 1, 0, 1}) == 0.875);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(auc_of({-infinity, 0, infinity}, {0, 0, 1}) == 1);
}

TEST_CASE("AUC equals the count over all pairs on random scores with ties") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const std::size_t size = 2 + random() % 100;
    std::vector<float> scores(size);
    Labels labels(size);
    for (std::size_t i = 0; i < size; ++i) {
      scores[i] = static_cast<float>(random() % 20);
      labels[i] = random() % 2;
    }
    labels[0] = 0;
    labels[1] = 1;
    double wins = 0, pairs = 0;
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j)
        if (labels[i] != 0 && labels[j] == 0) {
          wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
          pairs += 1;
        }
    CHECK(auc(std::span<const float>(scores), labels) == Approx(wins / pairs).epsilon(1e-12));
  }
}

TEST_CASE("logloss is the mean surprise") {
  CHECK(logloss_of({0.5f, 0.5f}, {0, 1}) == Approx(std::log(2.0)));
  CHECK(logloss_of({0.9f, 0.2f}, {1, 0}) ==
        Approx(-(std::log(0.9) + std::log(0.8)) / 2).epsilon(1e-6));
  CHECK(logloss_of({1}, {1}) == Approx(1e-7));
  CHECK(logloss_of({0}, {1}) == Approx(-std::log(1e-7)));
}

TEST_CASE("a metric that has no value is refused") {
  require_error(Errc::invalid_argument, "no sample is positive", [] { auc_of({1, 2}, {0, 0}); });
  require_error(Errc::invalid_argument, "no sample is negative", [] { auc_of({1, 2}, {1, 1}); });
  require_error(Errc::invalid_argument, "not a number", [] { auc_of({1, std::nan("")}, {0, 1}); });
  require_error(Errc::invalid_argument, "2 predictions and 1 labels", [] { auc_of({1, 2}, {0}); });
  require_error(Errc::invalid_argument, "no samples", [] { logloss_of({}, {}); });
  require_error(Errc::invalid_argument, "not a number", [] { logloss_of({std::nanf("")}, {0}); });
}
