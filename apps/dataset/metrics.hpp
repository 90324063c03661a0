// How good predictions of a yes-or-no label are.
//
//   const double ranking = dataset::auc(scores, labels);            // 0.5: no better than a coin
//   const double surprise = dataset::logloss(probabilities, labels);
//   print(ranking, surprise);
#pragma once

#include <cstdint>
#include <span>

namespace hyperframes::dataset {

/// Area under the ROC curve: the share of pairs of a positive and a negative sample in which the
/// positive has the higher score; a tie counts half. Exact, in O(n log n). Any monotone score will
/// do. `labels[i]` is 0 or not. Throws `invalid_argument` when the lengths differ, a score is not a
/// number, or one of the two classes is missing.
double auc(std::span<const float> scores, std::span<const std::uint8_t> labels);
double auc(std::span<const double> scores, std::span<const std::uint8_t> labels);

/// Mean negative log-likelihood of the labels, in nats. Probabilities are moved into [1e-7, 1 -
/// 1e-7] first, so that one sure mistake costs 16 and not infinity. Throws as auc() does, and for
/// no samples; one class is enough.
double logloss(std::span<const float> probabilities, std::span<const std::uint8_t> labels);
double logloss(std::span<const double> probabilities, std::span<const std::uint8_t> labels);

}  // namespace hyperframes::dataset
