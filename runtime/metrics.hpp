// Counters of one shard: plain integers, named once, bumped without atomics.
//
//   hf::Counter& pushes = shard.metrics().counter("ps_pushes_total", "Pushes applied");
//   pushes.add();
//   for (const hf::MetricSample& sample : runtime.collect_metrics())    // sums over all shards;
//     std::cout << sample.name << ' ' << sample.value << '\n';           // not on a shard
//
// runtime/exposition.hpp makes of them what Prometheus reads.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes {

/// A number that its shard counts: up by `add`, or set as a gauge is.
class Counter {
 public:
  void add(std::uint64_t amount = 1) noexcept { value_ += amount; }
  void set(std::uint64_t value) noexcept { value_ = value; }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// Power-of-two buckets: enough for latencies and sizes over many magnitudes. Recording is O(1).
class Histogram {
 public:
  void record(std::uint64_t value) noexcept;
  std::uint64_t count() const noexcept { return count_; }
  /// Of all values; wraps around.
  std::uint64_t sum() const noexcept { return sum_; }
  /// The upper bound of the bucket that holds the given quantile (0 to 1): less than twice the
  /// value itself. 0 if empty.
  std::uint64_t quantile(double q) const noexcept;
  /// 65 of them: the first counts zeros, number i values from 2^(i-1) to 2^i - 1.
  const std::uint64_t* buckets() const noexcept { return buckets_; }

 private:
  std::uint64_t buckets_[65] = {};
  std::uint64_t count_ = 0, sum_ = 0;
};

/// A copy of one number, for any thread.
struct MetricSample {
  std::string name, help;
  std::uint64_t value;
};

/// Owned by a shard; touched on that shard only. References stay valid as long as the shard. A copy
/// may be taken to another thread. A counter whose name ends in "_total" only grows; any other is a
/// gauge. A time is named by its unit: "_ns", "_us" or "_ms", before "_total" if it has that.
class Metrics {
 public:
  /// The counter of that name, made at first use with that help. Looks through all names: keep the
  /// reference rather than the name. Whatever Prometheus takes for a name may be one.
  Counter& counter(std::string_view name, std::string_view help = {});
  Histogram& histogram(std::string_view name, std::string_view help = {});
  /// Counters, and each histogram as _count and _sum, in order of first use.
  std::vector<MetricSample> samples() const;

  /// `visit(name, help, counter)`, in order of first use.
  template <class Visit>
  void for_each_counter(Visit&& visit) const {
    for (const auto& entry : counters_) visit(entry.name, entry.help, entry.value);
  }
  template <class Visit>
  void for_each_histogram(Visit&& visit) const {
    for (const auto& entry : histograms_) visit(entry.name, entry.help, entry.value);
  }

 private:
  template <class Value>
  struct Named {
    std::string name, help;
    Value value;
  };
  std::deque<Named<Counter>> counters_;
  std::deque<Named<Histogram>> histograms_;
};

}  // namespace hyperframes
