#include <hyperframes/apps/dataset/metrics.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

[[noreturn]] void refuse(const char* metric, std::string found) {
  throw Error(Errc::invalid_argument, std::string("compute the ") + metric, std::move(found));
}

template <class T>
void check(const char* metric, std::span<const T> predictions,
           std::span<const std::uint8_t> labels) {
  if (predictions.size() != labels.size())
    refuse(metric, "there are " + std::to_string(predictions.size()) + " predictions and " +
                       std::to_string(labels.size()) + " labels");
  for (const T prediction : predictions)
    if (std::isnan(prediction)) refuse(metric, "a prediction is not a number");
}

template <class T>
double exact_auc(std::span<const T> scores, std::span<const std::uint8_t> labels) {
  check("AUC", scores, labels);
  std::vector<std::pair<T, bool>> samples(scores.size());
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = {scores[i], labels[i] != 0};
  std::sort(samples.begin(), samples.end());
  // Counted in halves, so that ties stay whole numbers.
  std::uint64_t positives = 0, negatives = 0, half_wins = 0;
  for (std::size_t i = 0; i < samples.size();) {
    std::uint64_t tied_positives = 0, tied_negatives = 0;
    const T score = samples[i].first;
    for (; i < samples.size() && samples[i].first == score; ++i)
      ++(samples[i].second ? tied_positives : tied_negatives);
    half_wins += tied_positives * (2 * negatives + tied_negatives);
    positives += tied_positives;
    negatives += tied_negatives;
  }
  if (positives == 0 || negatives == 0)
    refuse("AUC", positives == 0 ? "no sample is positive" : "no sample is negative");
  return static_cast<double>(half_wins) / 2 / static_cast<double>(positives) /
         static_cast<double>(negatives);
}

template <class T>
double mean_logloss(std::span<const T> probabilities, std::span<const std::uint8_t> labels) {
  check("logloss", probabilities, labels);
  if (labels.empty()) refuse("logloss", "there are no samples");
  double sum = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double probability = std::clamp<double>(probabilities[i], 1e-7, 1 - 1e-7);
    sum -= std::log(labels[i] != 0 ? probability : 1 - probability);
  }
  return sum / static_cast<double>(labels.size());
}

}  // namespace

double auc(std::span<const float> scores, std::span<const std::uint8_t> labels) {
  return exact_auc(scores, labels);
}
double auc(std::span<const double> scores, std::span<const std::uint8_t> labels) {
  return exact_auc(scores, labels);
}
double logloss(std::span<const float> probabilities, std::span<const std::uint8_t> labels) {
  return mean_logloss(probabilities, labels);
}
double logloss(std::span<const double> probabilities, std::span<const std::uint8_t> labels) {
  return mean_logloss(probabilities, labels);
}

}  // namespace hyperframes::dataset
