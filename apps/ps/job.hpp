// A training run under a name, and how its data is cut into work units.
//
//   ps::JobDefinition job{.name = "movies", .samples = 80'000, .batch_size = 2048, .epochs = 10};
//   job.units();                    // over all epochs; a unit is job.unit_batches batches
//   job.unit_at(7).epoch;           // units are numbered epoch-major
//
// Batches never straddle two units or two epochs, so that (epoch, unit, batch) names the same
// samples whoever works on them. The cut is the one of dataset::Sampler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hyperframes::ps {

/// A work unit: `unit` counts from 0 within its epoch.
struct UnitId {
  std::uint32_t epoch = 0;
  std::uint32_t unit = 0;
  friend bool operator==(const UnitId&, const UnitId&) = default;
};

struct JobDefinition {
  /// So that a push's key fits into the number of its counter row.
  static constexpr std::uint64_t max_epochs = std::uint64_t{1} << 14;
  static constexpr std::uint64_t max_units_per_epoch = std::uint64_t{1} << 20;
  static constexpr std::uint64_t max_unit_batches = std::uint64_t{1} << 10;
  static constexpr std::size_t max_name_bytes = 128;

  std::string name{};
  std::uint64_t samples = 0;       ///< Of the training set.
  std::uint64_t dataset_hash = 0;  ///< Of its index.
  std::uint64_t model_hash = 0;    ///< ModelConfig::fingerprint().
  std::uint32_t batch_size = 0;
  std::uint32_t unit_batches = 8;
  std::uint32_t epochs = 1;
  std::uint64_t seed = 0;

  friend bool operator==(const JobDefinition&, const JobDefinition&) = default;

  /// Throws `invalid_argument` that names the value, its limits and what to change.
  void check() const;

  std::uint64_t batches_per_epoch() const noexcept;
  std::uint64_t units_per_epoch() const noexcept;
  std::uint64_t units() const noexcept { return units_per_epoch() * epochs; }
  UnitId unit_at(std::uint64_t number) const noexcept;
  std::uint64_t number_of(UnitId id) const noexcept {
    return id.epoch * units_per_epoch() + id.unit;
  }
  /// Batches of unit `number`; the last unit of an epoch may have fewer.
  std::uint32_t batches_of(std::uint64_t number) const noexcept;
  /// Samples of all units before `number`, and of the first `batches` of unit `number`.
  std::uint64_t samples_before(std::uint64_t number, std::uint64_t batches = 0) const noexcept;
};

/// The table of a run's features. A job that is begun anew has another number, and so a table of
/// its own: the push keys of the old run are not in its way.
std::string feature_table_name(std::string_view job_name, std::uint32_t job);

}  // namespace hyperframes::ps
