#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/metrics.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <limits>
#include <random>
#include <vector>

using namespace hyperframes;

TEST_CASE("a counter is found by its name, and references to it stay good") {
  Metrics metrics;
  Counter& first = metrics.counter("first_total", "The first");
  for (int i = 0; i < 100; ++i) metrics.counter("other_" + std::to_string(i));
  first.add();
  metrics.counter("first_total").add(4);
  CHECK(first.value() == 5);
  first.set(2);
  const auto samples = metrics.samples();
  REQUIRE(samples.size() == 101);
  CHECK(samples[0].name == "first_total");
  CHECK(samples[0].help == "The first");
  CHECK(samples[0].value == 2);
}

TEST_CASE("an empty histogram has no quantiles") {
  const Histogram histogram;
  CHECK(histogram.quantile(0.5) == 0);
  CHECK(histogram.count() == 0);
}

TEST_CASE("a histogram keeps the extremes") {
  Histogram histogram;
  histogram.record(0);
  CHECK(histogram.quantile(1.0) == 0);
  histogram.record(std::numeric_limits<std::uint64_t>::max());
  CHECK(histogram.quantile(0.0) == 0);
  CHECK(histogram.quantile(1.0) == std::numeric_limits<std::uint64_t>::max());
  CHECK(histogram.buckets()[0] == 1);
  CHECK(histogram.buckets()[64] == 1);
}

TEST_CASE("a quantile is the upper bound of the bucket that holds it") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100; ++round) {
    Histogram histogram;
    std::vector<std::uint64_t> values(1 + random() % 200);
    std::uint64_t sum = 0;
    for (auto& value : values) {
      value = random() >> (random() % 64);
      histogram.record(value);
      sum += value;
    }
    std::ranges::sort(values);
    CHECK(histogram.count() == values.size());
    CHECK(histogram.sum() == sum);
    std::uint64_t before = 0;
    for (const double q : {0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0}) {
      const auto rank = std::min(values.size() - 1,
                                 static_cast<std::size_t>(q * static_cast<double>(values.size())));
      const std::uint64_t exact = values[rank];
      const std::uint64_t got = histogram.quantile(q);
      CHECK(got >= exact);
      CHECK(std::bit_width(got) == std::bit_width(exact));
      CHECK(got >= before);
      before = got;
    }
  }
}

TEST_CASE("a quantile outside of 0 to 1 is the nearest one inside") {
  Histogram histogram;
  for (std::uint64_t value : {1u, 100u, 10'000u}) histogram.record(value);
  CHECK(histogram.quantile(-1.0) == histogram.quantile(0.0));
  CHECK(histogram.quantile(7.0) == histogram.quantile(1.0));
  CHECK(histogram.quantile(std::numeric_limits<double>::quiet_NaN()) == histogram.quantile(0.0));
}

TEST_CASE("metrics of all shards are summed by name") {
  Runtime runtime({.shards = 3});
  runtime.on_every_shard([](Shard& shard) {
    shard.metrics().counter("test_total", "For the test").add(shard.index() + 1);
    shard.metrics().histogram("test_ns").record(10);
  });
  auto value_of = [samples = runtime.collect_metrics()](std::string_view name) {
    const auto found = std::ranges::find(samples, name, &MetricSample::name);
    return found == samples.end() ? std::uint64_t{999'999} : found->value;
  };
  CHECK(value_of("test_total") == 6);
  CHECK(value_of("test_ns_count") == 3);
  CHECK(value_of("test_ns_sum") == 30);
  CHECK(value_of("hyperframes_turns_total") > 0);
}
