#include "programs.hpp"

#include <algorithm>
#include <vector>

#include "kernels.hpp"

namespace hyperframes::bench::savina {

std::int64_t ConcurrentDictionary::expected() const {
  std::int64_t sum = 0;
  for (std::int64_t worker = 0; worker < workers; ++worker) {
    Random random(static_cast<std::uint64_t>(worker));
    for (std::int64_t i = 0; i < operations_each; ++i)
      sum += dictionary_value(next_step(random, *this).key);
  }
  return sum;
}

std::int64_t Banking::expected() const {
  Random random(1);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < transactions; ++i) {
    const Transaction next = next_transaction(random, accounts);
    sum += next.amount * (next.to - next.from);
  }
  return sum;
}

std::int64_t RadixSort::expected() const {
  auto sorted = random_values(values, bits);
  std::ranges::sort(sorted);
  return checksum(sorted.data(), sorted.size());
}

std::int64_t FilterBank::expected() const {
  double sum = 0;
  for (unsigned channel = 0; channel < channels; ++channel) {
    DelayLine first_delay(taps), second_delay(taps);
    Fir first(taps, channel), second(taps, channel + 1);
    Thinner thinner(channels);
    for (std::int64_t i = 0; i < samples; ++i) {
      const double sample = thinner.thin(first.filter(first_delay.exchange(bank_sample(i))));
      sum += second.filter(second_delay.exchange(sample));
    }
  }
  return static_cast<std::int64_t>(sum);
}

std::int64_t Sieve::expected() const {
  std::vector<bool> composite(static_cast<std::size_t>(limit));
  std::int64_t primes = 0;
  for (std::size_t number = 2; number < composite.size(); ++number) {
    if (composite[number]) continue;
    ++primes;
    for (std::size_t multiple = 2 * number; multiple < composite.size(); multiple += number)
      composite[multiple] = true;
  }
  return primes;
}

std::int64_t MatrixProduct::expected() const { return Matrices(size).expected_sum(); }

std::int64_t Trapezoid::expected() const {
  std::int64_t sum = 0;
  for (std::int64_t worker = 0; worker < workers; ++worker)
    sum += billionths(trapezoid_share(*this, worker));
  return sum;
}

std::int64_t Quicksort::expected() const {
  auto sorted = random_values(values, 30);
  std::ranges::sort(sorted);
  return checksum(sorted.data(), sorted.size());
}

}  // namespace hyperframes::bench::savina
