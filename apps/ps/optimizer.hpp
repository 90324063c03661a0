// How a row learns from a gradient.
//
//   hf::ps::Optimizer optimizer(spec);
//   optimizer.begin(record);               // the state of a new row; its weights are there already
//   optimizer.apply(record, gradient);     // weights and state change in place
//
// Only rows that were pushed change, weight decay included. Every element is computed by itself, in
// plain IEEE operations without contraction: the same pushes in the same order give the same bits
// on every processor.
#pragma once

#include <hyperframes/apps/ps/table_spec.hpp>

#include <cstddef>

namespace hyperframes::ps {

class Optimizer {
 public:
  explicit Optimizer(const TableSpec& spec) noexcept;

  /// `record`: spec.record_bytes() bytes, aligned to 4: weights, then state.
  void begin(float* record) const noexcept;
  /// sgd:      g += l2 w;  w -= rate g
  /// adagrad:  g += l2 w;  a += g^2;  w -= rate g / (sqrt(a) + 1e-10)
  void apply(float* record, const float* gradient) const noexcept {
    step_(record, gradient, width_, rate_, l2_);
  }
  /// What a counter row does instead: w += values.
  void add(float* record, const float* values) const noexcept;

 private:
  using Step = void (*)(float* record, const float* gradient, std::size_t width, float rate,
                        float l2) noexcept;
  Step step_;
  std::size_t width_, state_floats_;
  float rate_, l2_, initial_accumulator_;
};

namespace detail {
/// The steps as compiled for every processor; `Optimizer` takes wider vectors where there are some.
void sgd_portable(float* record, const float* gradient, std::size_t width, float rate,
                  float l2) noexcept;
void adagrad_portable(float* record, const float* gradient, std::size_t width, float rate,
                      float l2) noexcept;
}  // namespace detail

}  // namespace hyperframes::ps
