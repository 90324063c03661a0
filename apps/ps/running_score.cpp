#include <algorithm>
#include <cmath>
#include <hyperframes/apps/dataset/metrics.hpp>
#include <hyperframes/apps/ps/running_score.hpp>
#include <numeric>

namespace hyperframes::ps {

void RunningScore::add(std::span<const float> predictions, std::span<const float> labels,
                       double loss) {
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const auto label = static_cast<std::uint8_t>(labels[i] > 0.5f);
    if (predictions_.size() < window_) {
      predictions_.push_back(predictions[i]);
      labels_.push_back(label);
      losses_.push_back(static_cast<float>(loss));
    } else {
      predictions_[next_] = predictions[i];
      labels_[next_] = label;
      losses_[next_] = static_cast<float>(loss);
      next_ = (next_ + 1) % window_;
    }
  }
}

double RunningScore::auc() const {
  const auto positives = std::ranges::count(labels_, 1);
  if (positives == 0 || positives == std::ssize(labels_)) return std::nan("");
  return dataset::auc(predictions_, labels_);
}

double RunningScore::loss() const {
  if (losses_.empty()) return std::nan("");
  return std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
}

}  // namespace hyperframes::ps
