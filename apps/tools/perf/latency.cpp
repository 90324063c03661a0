#include <hyperframes/apps/tools/perf/latency.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

namespace hyperframes::tools::perf {
namespace {

// A value with its highest 8 bits kept: those of one exponent fill 128 buckets. Values below 256
// keep all of their bits.
constexpr unsigned kept_bits = 8;
constexpr std::uint64_t per_exponent = 1u << (kept_bits - 1);
constexpr std::uint64_t largest = (std::uint64_t{1} << 40) - 1;

unsigned exponent_of(std::uint64_t value) noexcept {
  const auto width = static_cast<unsigned>(std::bit_width(value));
  return width > kept_bits ? width - kept_bits : 0;
}

std::size_t bucket_of(std::uint64_t value) noexcept {
  const unsigned exponent = exponent_of(value);
  return exponent * per_exponent + (value >> exponent);
}

/// The middle of a bucket.
std::uint64_t value_of(std::size_t bucket) noexcept {
  if (bucket < 2 * per_exponent) return bucket;
  const std::uint64_t exponent = bucket / per_exponent - 1;
  const std::uint64_t kept = bucket - exponent * per_exponent;
  return (kept << exponent) + (std::uint64_t{1} << exponent) / 2;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(bucket_of(largest) + 1) {}

void LatencyHistogram::record(Duration span) noexcept {
  const auto value = std::clamp<std::int64_t>(span.count(), 0, largest);
  ++buckets_[bucket_of(static_cast<std::uint64_t>(value))];
  ++count_;
  longest_ = std::max(longest_, Duration(value));
}

Duration LatencyHistogram::at(double fraction) const noexcept {
  if (count_ == 0) return Duration::zero();
  const double wanted = std::ceil(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(count_));
  const std::uint64_t rank =
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, count_);
  if (rank == count_) return longest_;
  std::uint64_t below = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    below += buckets_[bucket];
    if (below >= rank)
      return std::min(longest_, Duration(static_cast<std::int64_t>(value_of(bucket))));
  }
  return longest_;
}

}  // namespace hyperframes::tools::perf
