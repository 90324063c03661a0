// What a row's weights are before anybody pushed to it.
//
//   hf::ps::Initializer initializer(spec);
//   initializer.fill(id, weights);             // spec.width floats
//
// The values depend on the table's seed and id and on the row's id alone: a pull of a row that does
// not exist returns them without creating it, and each server, each replay and each machine gets
// the same bits. So no function of the C library takes part whose last bit may differ.
#pragma once

#include <hyperframes/apps/ps/table_spec.hpp>

#include <cstdint>
#include <span>

namespace hyperframes::ps {

class Initializer {
 public:
  explicit Initializer(const TableSpec& spec);
  /// `uniform` lies in [-scale, scale); `normal` is the sum of twelve uniform numbers, which stays
  /// within six standard deviations. Counter rows are 0.
  void fill(std::uint64_t id, std::span<float> weights) const noexcept;

 private:
  InitializerKind kind_;
  float scale_;
  std::uint32_t from_;
  std::uint64_t seed_;
};

}  // namespace hyperframes::ps
