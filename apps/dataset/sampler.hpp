// Which samples make up which batch: the same on every machine, for every worker.
//
//   const dataset::Sampler sampler({.samples = 80'000, .seed = 7, .batch_size = 2048});
//   for (std::uint64_t unit = 0; unit < sampler.units(); ++unit)
//     for (std::uint64_t b = 0; b < sampler.batches(unit); ++b)
//       train(sampler.batch(epoch, unit, b));
//
// An epoch visits every sample once, in an order that follows from (seed, epoch) alone. Batches are
// cut from that order, and work units are runs of batches; where they are cut never depends on who
// asks, so a worker that takes over a unit sees the very batches that its predecessor saw.
#pragma once

#include <cstdint>
#include <vector>

namespace hyperframes::dataset {

/// A seeded one-to-one mapping of [0, size) onto itself, in constant memory and time. `stream`:
/// which of the seed's mappings (a Sampler's epoch). Of size 0 it may only be made.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream);
  /// `i < size`.
  std::uint64_t operator()(std::uint64_t i) const noexcept;
  std::uint64_t size() const noexcept { return size_; }

 private:
  static constexpr int rounds = 6;
  std::uint64_t scramble(std::uint64_t i) const noexcept;

  std::uint64_t size_;
  int left_bits_;
  int right_bits_;
  std::uint64_t keys_[rounds];
};

struct SamplerOptions {
  std::uint64_t samples = 0;  ///< Size of the data set.
  std::uint64_t seed = 0;
  std::uint64_t batch_size = 2048;
  std::uint64_t unit_batches = 8;  ///< Batches of a work unit.
  /// False: samples come in the order of the data set, as for evaluation.
  bool shuffle = true;
};

/// May be used from several threads at once.
class Sampler {
 public:
  /// Throws `invalid_argument` for a batch or unit of size 0, or one whose samples overflow.
  explicit Sampler(SamplerOptions options);

  /// Work units of an epoch; the last may be shorter. 0 for an empty data set.
  std::uint64_t units() const noexcept { return units_; }
  /// Batches of an epoch; the last may hold fewer samples.
  std::uint64_t batches() const noexcept { return batches_; }
  /// Batches of unit `unit`. Throws `invalid_argument` unless `unit < units()`.
  std::uint64_t batches(std::uint64_t unit) const;

  /// The samples of batch `batch < batches(unit)`. Throws `invalid_argument` beyond that.
  std::vector<std::uint64_t> batch(std::uint64_t epoch, std::uint64_t unit,
                                   std::uint64_t batch) const;
  /// The same into `samples`, whose memory is used again.
  void batch(std::uint64_t epoch, std::uint64_t unit, std::uint64_t batch,
             std::vector<std::uint64_t>& samples) const;

  const SamplerOptions& options() const noexcept { return options_; }

 private:
  SamplerOptions options_;
  std::uint64_t batches_ = 0;
  std::uint64_t units_ = 0;
};

}  // namespace hyperframes::dataset
