// Loss and AUC of the latest predictions, each made before its sample was learnt.
//
//   hf::ps::RunningScore score(8192);
//   score.add(predictions, labels, loss);
//   score.auc();                           // NaN until both classes were seen
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hyperframes::ps {

class RunningScore {
 public:
  /// Over the latest `window` samples.
  explicit RunningScore(std::size_t window) : window_(window) {}
  /// `loss`: the mean over these samples.
  void add(std::span<const float> predictions, std::span<const float> labels, double loss);
  double auc() const;
  /// The mean loss over the window; NaN before the first sample.
  double loss() const;

 private:
  std::size_t window_, next_ = 0;
  std::vector<float> predictions_;
  std::vector<std::uint8_t> labels_;
  std::vector<float> losses_;
};

}  // namespace hyperframes::ps
