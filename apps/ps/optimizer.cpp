#include <hyperframes/apps/ps/optimizer.hpp>

#include <algorithm>
#include <cmath>

// This file is compiled without contraction of a * b + c, so that vectors of any width, with or
// without fused instructions, give the same bits.

namespace hyperframes::ps {
namespace {

constexpr float epsilon = 1e-10f;

__attribute__((always_inline)) inline void sgd(float* __restrict weights,
                                               const float* __restrict gradient, std::size_t width,
                                               float rate, float l2) noexcept {
  if (l2 == 0) {
    for (std::size_t i = 0; i < width; ++i) weights[i] -= rate * gradient[i];
  } else {
    for (std::size_t i = 0; i < width; ++i) weights[i] -= rate * (gradient[i] + l2 * weights[i]);
  }
}

__attribute__((always_inline)) inline void adagrad(float* __restrict weights,
                                                   float* __restrict sums,
                                                   const float* __restrict gradient,
                                                   std::size_t width, float rate,
                                                   float l2) noexcept {
  for (std::size_t i = 0; i < width; ++i) {
    const float g = gradient[i] + l2 * weights[i];
    sums[i] += g * g;
    weights[i] -= rate * g / (std::sqrt(sums[i]) + epsilon);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void sgd_avx2(float* record, const float* gradient,
                                              std::size_t width, float rate, float l2) noexcept {
  sgd(record, gradient, width, rate, l2);
}
__attribute__((target("avx2"))) void adagrad_avx2(float* record, const float* gradient,
                                                  std::size_t width, float rate,
                                                  float l2) noexcept {
  adagrad(record, record + width, gradient, width, rate, l2);
}
#endif

bool has_avx2() noexcept {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

}  // namespace

void detail::sgd_portable(float* record, const float* gradient, std::size_t width, float rate,
                          float l2) noexcept {
  sgd(record, gradient, width, rate, l2);
}

void detail::adagrad_portable(float* record, const float* gradient, std::size_t width, float rate,
                              float l2) noexcept {
  adagrad(record, record + width, gradient, width, rate, l2);
}

Optimizer::Optimizer(const TableSpec& spec) noexcept
    : step_(spec.optimizer == OptimizerKind::sgd ? detail::sgd_portable : detail::adagrad_portable),
      width_(spec.width),
      state_floats_(spec.state_floats()),
      rate_(spec.learning_rate),
      l2_(spec.l2),
      initial_accumulator_(spec.initial_accumulator) {
#if defined(__x86_64__)
  if (has_avx2()) step_ = spec.optimizer == OptimizerKind::sgd ? sgd_avx2 : adagrad_avx2;
#endif
}

void Optimizer::begin(float* record) const noexcept {
  std::fill_n(record + width_, state_floats_, initial_accumulator_);
}

void Optimizer::add(float* record, const float* values) const noexcept {
  for (std::size_t i = 0; i < width_; ++i) record[i] += values[i];
}

}  // namespace hyperframes::ps
