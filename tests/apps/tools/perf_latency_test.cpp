#include <hyperframes/apps/tools/perf/latency.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace hf = hyperframes;
using hf::Duration;
using hf::tools::perf::LatencyHistogram;

TEST_CASE("a latency histogram without a value answers with nothing") {
  const LatencyHistogram latencies;
  CHECK(latencies.count() == 0);
  CHECK(latencies.at(.5) == Duration::zero());
  CHECK(latencies.longest() == Duration::zero());
}

TEST_CASE("percentiles of short latencies are exact") {
  LatencyHistogram latencies;
  for (int ns = 1; ns <= 200; ++ns) latencies.record(Duration(ns));
  CHECK(latencies.at(.5) == Duration(100));
  CHECK(latencies.at(.99) == Duration(198));
  CHECK(latencies.at(0) == Duration(1));
  CHECK(latencies.at(1) == Duration(200));
}

TEST_CASE("percentiles of any latencies are within .4 percent of sorted ones") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(2, 11);
  std::vector<Duration> all;
  LatencyHistogram latencies;
  for (int i = 0; i < 20'000; ++i) {
    all.emplace_back(static_cast<std::int64_t>(std::pow(10, exponent(random))));
    latencies.record(all.back());
  }
  std::ranges::sort(all);
  for (const double fraction : {.01, .1, .5, .9, .99, .999, .9999}) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(all.size())));
    const auto exact = static_cast<double>(all[rank - 1].count());
    const auto found = static_cast<double>(latencies.at(fraction).count());
    INFO("fraction " << fraction << ": " << found << " for " << exact);
    CHECK(std::abs(found - exact) <= .004 * exact);
  }
  CHECK(latencies.longest() == all.back());
  CHECK(latencies.at(1) == all.back());
}

TEST_CASE("latencies out of range count as the nearest that is in it") {
  LatencyHistogram latencies;
  latencies.record(Duration(-5));
  latencies.record(std::chrono::hours(48));
  CHECK(latencies.count() == 2);
  CHECK(latencies.at(.5) == Duration::zero());
  CHECK(latencies.longest() > std::chrono::minutes(18));
}
