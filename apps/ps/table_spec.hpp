// What a table is: how wide its rows are, how they begin and how they learn.
//
//   hf::ps::TableSpec spec{.id = 1, .name = "movies/features", .width = 17};
//   spec.check();                                     // throws what is out of range
//   std::size_t bytes = spec.record_bytes();          // weights and optimizer state of a row
//
// A row is one record: `width` weights, then what the optimizer keeps for each of them.
#pragma once

#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/slots.hpp>

#include <cstdint>
#include <string>

namespace hyperframes::ps {

// The numbers stand in snapshots: append, never renumber.
enum class OptimizerKind : std::uint8_t { sgd = 0, adagrad = 1 };
enum class InitializerKind : std::uint8_t { zero = 0, constant = 1, uniform = 2, normal = 3 };

struct TableSpec {
  static constexpr std::uint32_t max_width = 1u << 16;
  static constexpr std::size_t max_name_bytes = 256;

  TableId id = 0;
  std::string name{};
  std::uint32_t width = 0;  ///< Floats that a pull returns for a row.
  OptimizerKind optimizer = OptimizerKind::adagrad;
  float learning_rate = 0.05f;
  float initial_accumulator = 0.1f;  ///< Adagrad's sum of squares at the start.
  float l2 = 0;                      ///< Weight decay, counted once for each push of a row.
  InitializerKind initializer = InitializerKind::zero;
  float initializer_scale = 0;         ///< The constant, half width or standard deviation.
  std::uint32_t initializer_from = 0;  ///< Columns before this one begin at 0.
  std::uint64_t seed = 0;

  friend bool operator==(const TableSpec&, const TableSpec&) = default;

  std::size_t state_floats() const noexcept {
    return optimizer == OptimizerKind::adagrad ? width : 0;
  }
  std::size_t record_bytes() const noexcept { return (width + state_floats()) * sizeof(float); }

  /// Throws `invalid_argument` that names the value and its limits.
  void check() const;
  /// Which values differ, as "width 16 instead of 8, seed 1 instead of 2"; empty when equal.
  std::string differences(const TableSpec& expected) const;

  void encode(Bytes& out) const;
  /// Throws `corrupt`; the result is checked.
  static TableSpec decode(detail::ByteReader& reader);
};

/// Rows whose ids have the top bit set count: what is pushed to them is added as it is, they begin
/// at 0, and no optimizer touches them.
inline constexpr std::uint64_t counter_bit = std::uint64_t{1} << 63;
constexpr bool is_counter(std::uint64_t id) noexcept { return (id & counter_bit) != 0; }

}  // namespace hyperframes::ps
