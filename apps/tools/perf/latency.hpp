// How long each of very many things took, in little memory.
//
//   LatencyHistogram latencies;
//   latencies.record(Clock::read_system() - start);
//   latencies.at(.99);                             // 99 of 100 took no longer than that
//
// Buckets are 128 for each power of two, so a percentile is off by less than .4 %; below 256 ns,
// and for the longest, it is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/runtime/time.hpp>
#include <vector>

namespace hyperframes::tools::perf {

class LatencyHistogram {
 public:
  LatencyHistogram();

  /// What is negative counts as 0, what is longer than 18 minutes as that.
  void record(Duration span) noexcept;
  std::uint64_t count() const noexcept { return count_; }
  /// The least time that at least `fraction` (0 to 1) of them did not exceed; 0 of none.
  Duration at(double fraction) const noexcept;
  Duration longest() const noexcept { return longest_; }

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  Duration longest_{0};
};

}  // namespace hyperframes::tools::perf
