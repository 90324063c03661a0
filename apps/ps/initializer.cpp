#include <hyperframes/apps/ps/initializer.hpp>

#include <algorithm>

namespace hyperframes::ps {
namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// In [-1, 1): 24 bits, which a float holds exactly.
float uniform(std::uint64_t bits) noexcept {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

/// Twelve 16-bit numbers, summed as integers: variance 1 but for 2^-32.
float normal(std::uint64_t stream) noexcept {
  std::int32_t sum = 0;
  for (std::uint64_t draw = 0; draw < 3; ++draw) {
    const std::uint64_t bits = mix(stream + draw * golden);
    for (int part = 0; part < 4; ++part)
      sum += static_cast<std::int32_t>((bits >> (16 * part)) & 0xffff);
  }
  return static_cast<float>(2 * sum - 12 * 65535) * 0x1p-17f;
}

}  // namespace

Initializer::Initializer(const TableSpec& spec)
    : kind_(spec.initializer),
      scale_(spec.initializer_scale),
      from_(spec.initializer_from),
      seed_(mix(spec.seed + golden * (std::uint64_t{spec.id} + 1))) {}

void Initializer::fill(std::uint64_t id, std::span<float> weights) const noexcept {
  std::ranges::fill(weights, 0.0f);
  if (kind_ == InitializerKind::zero || is_counter(id)) return;
  const std::uint64_t row = mix(seed_ ^ mix(id + golden));
  for (std::size_t i = from_; i < weights.size(); ++i) {
    // A column's numbers don't depend on the width, and no two columns share one.
    const std::uint64_t stream = row + i * 4 * golden;
    switch (kind_) {
      case InitializerKind::zero: break;
      case InitializerKind::constant: weights[i] = scale_; break;
      case InitializerKind::uniform: weights[i] = scale_ * uniform(mix(stream)); break;
      case InitializerKind::normal: weights[i] = scale_ * normal(stream); break;
    }
  }
}

}  // namespace hyperframes::ps
