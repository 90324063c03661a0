#include <hyperframes/apps/dataset/sampler.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

// Spreads every bit of `x` over all 64: a bijection of the splitmix family.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t low_bits(int count) noexcept { return (std::uint64_t{1} << count) - 1; }

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) noexcept { return a / b + (a % b != 0); }

[[noreturn]] void refuse(const char* what, std::uint64_t value, std::uint64_t count) {
  throw Error(Errc::invalid_argument, "take the samples of a batch",
              std::string(what) + " " + std::to_string(value) + " was asked for and there are " +
                  std::to_string(count));
}

}  // namespace

// A Feistel network over the smallest power of two that holds the range: each round is one-to-one
// whatever its function does. What falls outside the range walks on until it is inside.
Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream)
    : size_(size) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(size > 0 ? size - 1 : 0)));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  std::uint64_t key = mix(mix(seed) ^ stream);
  for (std::uint64_t& round_key : keys_) round_key = key = mix(key);
}

std::uint64_t Permutation::scramble(std::uint64_t i) const noexcept {
  std::uint64_t left = i >> right_bits_, right = i & low_bits(right_bits_);
  // The halves change places and widths after each round; an even number of rounds restores them.
  int left_bits = left_bits_, right_bits = right_bits_;
  for (const std::uint64_t key : keys_) {
    const std::uint64_t mixed = left ^ (mix(right ^ key) & low_bits(left_bits));
    left = right;
    right = mixed;
    std::swap(left_bits, right_bits);
  }
  return left << right_bits | right;
}

std::uint64_t Permutation::operator()(std::uint64_t i) const noexcept {
  do i = scramble(i);
  while (i >= size_);
  return i;
}

Sampler::Sampler(SamplerOptions options) : options_(options) {
  const auto fail = [](const char* what) {
    throw Error(Errc::invalid_argument, "divide a data set into batches and work units", what);
  };
  if (options.batch_size == 0) fail("the batch size is 0");
  if (options.unit_batches == 0) fail("a work unit has 0 batches");
  if (options.samples > std::numeric_limits<std::uint64_t>::max() / 4)
    fail("there are too many samples");
  batches_ = divide_up(options.samples, options.batch_size);
  units_ = divide_up(batches_, options.unit_batches);
}

std::uint64_t Sampler::batches(std::uint64_t unit) const {
  if (unit >= units_) refuse("unit", unit, units_);
  return std::min(options_.unit_batches, batches_ - unit * options_.unit_batches);
}

void Sampler::batch(std::uint64_t epoch, std::uint64_t unit, std::uint64_t batch,
                    std::vector<std::uint64_t>& samples) const {
  if (const std::uint64_t count = batches(unit); batch >= count) refuse("batch", batch, count);
  const std::uint64_t first = (unit * options_.unit_batches + batch) * options_.batch_size;
  const std::uint64_t count = std::min(options_.batch_size, options_.samples - first);
  samples.resize(count);
  const Permutation permutation(options_.samples, options_.seed, epoch);
  for (std::uint64_t i = 0; i < count; ++i)
    samples[i] = options_.shuffle ? permutation(first + i) : first + i;
}

std::vector<std::uint64_t> Sampler::batch(std::uint64_t epoch, std::uint64_t unit,
                                          std::uint64_t batch) const {
  std::vector<std::uint64_t> samples;
  this->batch(epoch, unit, batch, samples);
  return samples;
}

}  // namespace hyperframes::dataset
