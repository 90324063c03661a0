#include <hyperframes/apps/dataset/sampler.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using test::require_error;

namespace {

std::vector<std::uint64_t> epoch_order(const Sampler& sampler, std::uint64_t epoch) {
  std::vector<std::uint64_t> order;
  for (std::uint64_t unit = 0; unit < sampler.units(); ++unit)
    for (std::uint64_t batch = 0; batch < sampler.batches(unit); ++batch) {
      const auto samples = sampler.batch(epoch, unit, batch);
      order.insert(order.end(), samples.begin(), samples.end());
    }
  return order;
}

bool is_permutation_of_range(std::vector<std::uint64_t> order, std::uint64_t size) {
  std::sort(order.begin(), order.end());
  if (order.size() != size) return false;
  for (std::uint64_t i = 0; i < size; ++i)
    if (order[i] != i) return false;
  return true;
}

}  // namespace

TEST_CASE("an epoch holds every sample exactly once") {
  for (const std::uint64_t samples :
       {0u, 1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 100u, 1023u, 1024u, 1025u, 10'007u})
    for (const std::uint64_t batch_size : {1u, 3u, 64u}) {
      const Sampler sampler(
          {.samples = samples, .seed = 5, .batch_size = batch_size, .unit_batches = 4});
      INFO(samples << " samples, batches of " << batch_size);
      CHECK(is_permutation_of_range(epoch_order(sampler, 3), samples));
    }
}

TEST_CASE("random sizes, seeds and cuts keep the epoch whole") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const SamplerOptions options{.samples = random() % 3000,
                                 .seed = random(),
                                 .batch_size = 1 + random() % 200,
                                 .unit_batches = 1 + random() % 9};
    INFO(options.samples << " " << options.seed << " " << options.batch_size << " "
                         << options.unit_batches);
    CHECK(is_permutation_of_range(epoch_order(Sampler(options), random()), options.samples));
  }
}

TEST_CASE("the order follows from seed and epoch alone") {
  const SamplerOptions options{.samples = 5000, .seed = 1, .batch_size = 100, .unit_batches = 7};
  const auto order = epoch_order(Sampler(options), 0);
  CHECK(epoch_order(Sampler(options), 0) == order);
  CHECK(epoch_order(Sampler(options), 1) != order);
  SamplerOptions other = options;
  other.seed = 2;
  CHECK(epoch_order(Sampler(other), 0) != order);
  // Cut otherwise, the order is the same: only the boundaries move.
  other = options;
  other.batch_size = 33;
  other.unit_batches = 2;
  CHECK(epoch_order(Sampler(other), 0) == order);
}

// These numbers are part of the promise: a worker of another build or machine must see them too.
TEST_CASE("the order is the same on every machine") {
  const Sampler sampler({.samples = 1'000'000, .seed = 42, .batch_size = 5, .unit_batches = 3});
  CHECK(sampler.batch(0, 0, 0) ==
        std::vector<std::uint64_t>{147285, 265440, 310330, 865689, 165270});
  CHECK(sampler.batch(7, 66'666, 1) ==
        std::vector<std::uint64_t>{606108, 690940, 782073, 144221, 261077});
}

TEST_CASE("batches are cut at fixed places and the last ones are short") {
  const Sampler sampler({.samples = 1050, .seed = 1, .batch_size = 100, .unit_batches = 4});
  CHECK(sampler.batches() == 11);
  CHECK(sampler.units() == 3);
  CHECK(sampler.batches(0) == 4);
  CHECK(sampler.batches(2) == 3);
  CHECK(sampler.batch(0, 2, 1).size() == 100);
  CHECK(sampler.batch(0, 2, 2).size() == 50);
  require_error(Errc::invalid_argument, "unit 3", [&] { sampler.batches(3); });
  require_error(Errc::invalid_argument, "batch 3", [&] { sampler.batch(0, 2, 3); });
}

TEST_CASE("without shuffling samples come in the order of the data set") {
  const Sampler sampler({.samples = 10, .batch_size = 4, .unit_batches = 1, .shuffle = false});
  CHECK(sampler.batch(9, 2, 0) == std::vector<std::uint64_t>{8, 9});
}

TEST_CASE("a batch or unit of no size is refused") {
  require_error(Errc::invalid_argument, "batch size is 0",
                [] { Sampler({.samples = 1, .batch_size = 0}); });
  require_error(Errc::invalid_argument, "0 batches",
                [] { Sampler({.samples = 1, .unit_batches = 0}); });
}

// Chi-square over where the samples of the first tenth of the data set land: 100 cells, 99 degrees
// of freedom; the bounds are those of one in a million. The seed is fixed, so this never flickers.
TEST_CASE("a shuffle spreads neighbours over the whole epoch") {
  constexpr std::uint64_t samples = 100'000, cells = 100;
  const auto order = epoch_order(Sampler({.samples = samples, .seed = 3, .batch_size = 1000}), 0);
  std::vector<double> counts(cells);
  for (std::uint64_t at = 0; at < samples; ++at)
    if (order[at] < samples / 10) counts[at * cells / samples] += 1;
  const double expected = static_cast<double>(samples) / 10 / cells;
  double chi_square = 0;
  for (const double count : counts)
    chi_square += (count - expected) * (count - expected) / expected;
  CHECK(chi_square < 175);
  CHECK(chi_square > 45);
  std::uint64_t neighbours = 0;
  for (std::uint64_t at = 1; at < samples; ++at) neighbours += order[at] == order[at - 1] + 1;
  CHECK(neighbours < 10);
}
