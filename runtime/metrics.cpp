#include <algorithm>
#include <bit>
#include <hyperframes/runtime/metrics.hpp>

namespace hyperframes {
namespace {

template <class Deque>
auto& find_or_add(Deque& entries, std::string_view name, std::string_view help) {
  for (auto& entry : entries)
    if (entry.name == name) return entry.value;
  return entries.emplace_back(std::string(name), std::string(help)).value;
}

}  // namespace

void Histogram::record(std::uint64_t value) noexcept {
  ++buckets_[std::bit_width(value)];
  ++count_;
  sum_ += value;
}

std::uint64_t Histogram::quantile(double q) const noexcept {
  const double share = q > 0 ? std::min(q, 1.0) : 0;  // also for what is no number
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(count_));
  std::uint64_t seen = 0;
  for (int width = 0; width <= 64; ++width) {
    seen += buckets_[width];
    if (seen > wanted || (seen == count_ && seen > 0))
      return width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
  }
  return 0;
}

Counter& Metrics::counter(std::string_view name, std::string_view help) {
  return find_or_add(counters_, name, help);
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help) {
  return find_or_add(histograms_, name, help);
}

std::vector<MetricSample> Metrics::samples() const {
  std::vector<MetricSample> result;
  for (const auto& entry : counters_)
    result.push_back({entry.name, entry.help, entry.value.value()});
  for (const auto& entry : histograms_) {
    result.push_back({entry.name + "_count", entry.help, entry.value.count()});
    result.push_back({entry.name + "_sum", entry.help, entry.value.sum()});
  }
  return result;
}

}  // namespace hyperframes
