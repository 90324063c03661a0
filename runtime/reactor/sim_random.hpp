// Random numbers that depend on a seed and on nothing else: not on the compiler, not on the
// machine.
//
//   hf::SimRandom random(seed);
//   if (random.chance(0.01)) fail();
//   hf::Duration wait = random.between(10us, 2ms);
//
// The standard library's generators are exact, its distributions are not: they differ from library
// to library, and a seed must mean the same everywhere.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/time.hpp>

namespace hyperframes {

class SimRandom {
 public:
  explicit SimRandom(std::uint64_t seed) noexcept : state_(seed) {}

  /// All 64 bits are random.
  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    return mix(state_);
  }
  /// In [0, bound); `bound` is at least 1. The bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  /// In [low, high], both included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept {
    return low + below(high - low + 1);
  }
  /// Likewise; `low` if `high` is not above it.
  Duration between(Duration low, Duration high) noexcept {
    if (high <= low) return low;
    return low + Duration(below(static_cast<std::uint64_t>((high - low).count()) + 1));
  }
  /// True with that probability, from 0 to 1.
  bool chance(double probability) noexcept {
    return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
  }

  /// A good 64-bit mixer: every input bit moves every output bit.
  static std::uint64_t mix(std::uint64_t value) noexcept {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  std::uint64_t state_;
};

}  // namespace hyperframes
