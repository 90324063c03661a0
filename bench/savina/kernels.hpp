// What the benchmarks' actors compute, the same code on both sides, so that only the actors differ.
// C++17, for CAF.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "programs.hpp"

namespace hyperframes::bench::savina {

/// The same sequence everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::int64_t below(std::int64_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(limit));
  }

 private:
  std::uint64_t state_;
};

/// An order-sensitive sum of a sequence.
class Checksum {
 public:
  void add(std::int64_t value) { sum_ += ++count_ * static_cast<std::uint64_t>(value); }
  std::int64_t count() const { return static_cast<std::int64_t>(count_); }
  std::int64_t value() const { return static_cast<std::int64_t>(sum_); }

 private:
  std::uint64_t count_ = 0, sum_ = 0;
};

// ---- fork-join --------------------------------------------------------------------------------

constexpr double fork_angle = 37.2;
inline double fork_work(double angle) {
  const double sine = std::sin(angle);
  return sine * sine;
}

// ---- chameneos --------------------------------------------------------------------------------

constexpr std::int64_t faded = -1;
/// The colour, of 0, 1 and 2, after two have met: the same if they are alike, else the third.
constexpr std::int64_t complement(std::int64_t mine, std::int64_t other) {
  return mine == other ? mine : 3 - mine - other;
}

// ---- concurrent dictionary --------------------------------------------------------------------

constexpr std::int64_t dictionary_keys = 512;
constexpr std::int64_t dictionary_value(std::int64_t key) { return 3 * key + 1; }

struct DictionaryStep {
  bool writes;
  std::int64_t key;
};
inline DictionaryStep next_step(Random& random, const ConcurrentDictionary& program) {
  const bool writes = random.below(100) < program.write_percent;
  return {writes, random.below(dictionary_keys)};
}

// ---- bounded buffer ---------------------------------------------------------------------------

constexpr std::int64_t buffer_closed = -1;

/// Items, and who waits to put or take one. `Ticket` is how one of them is answered, with
/// `Answer()(ticket, value)`.
template <class Ticket, class Answer>
class BufferState {
 public:
  explicit BufferState(const BoundedBuffer& program)
      : capacity_(static_cast<std::size_t>(program.capacity)), left_(program.items()) {}

  void put(std::int64_t item, Ticket from) {
    if (!takers_.empty()) {
      hand_over(pop(takers_), item);
    } else if (items_.size() < capacity_) {
      items_.push_back(item);
    } else {
      return putters_.push_back({item, std::move(from)});
    }
    Answer()(from, 0);
  }
  void take(Ticket from) {
    if (left_ == 0) return Answer()(from, buffer_closed);
    if (items_.empty()) return takers_.push_back(std::move(from));
    hand_over(std::move(from), pop(items_));
    if (putters_.empty()) return;
    auto waiting = pop(putters_);
    items_.push_back(waiting.first);
    Answer()(waiting.second, 0);
  }

 private:
  template <class T>
  static T pop(std::deque<T>& queue) {
    T first = std::move(queue.front());
    queue.pop_front();
    return first;
  }

  void hand_over(Ticket taker, std::int64_t item) {
    Answer()(taker, item);
    if (--left_ > 0) return;
    while (!takers_.empty()) {
      Ticket waiting = pop(takers_);
      Answer()(waiting, buffer_closed);
    }
  }

  std::size_t capacity_;
  std::int64_t left_;  ///< To be taken.
  std::deque<std::int64_t> items_;
  std::deque<std::pair<std::int64_t, Ticket>> putters_;
  std::deque<Ticket> takers_;
};

// ---- banking ----------------------------------------------------------------------------------

struct Transaction {
  std::int64_t from, to, amount;
};
/// From a lower account to a higher one: accounts that wait for each other form no cycle.
inline Transaction next_transaction(Random& random, std::int64_t accounts) {
  const std::int64_t from = random.below(accounts - 1);
  const std::int64_t to = from + 1 + random.below(accounts - from - 1);
  return {from, to, 1 + random.below(1000)};
}

// ---- radix sort -------------------------------------------------------------------------------

/// One stage: passes on values without its bit, and those with it after the last one came.
class RadixStage {
 public:
  RadixStage(std::int64_t values, unsigned bit) : left_(values), mask_(std::int64_t{1} << bit) {}
  /// Whether the value is passed on now.
  bool passes(std::int64_t value) {
    --left_;
    if ((value & mask_) == 0) return true;
    kept_.push_back(value);
    return false;
  }
  bool complete() const { return left_ == 0; }
  const std::vector<std::int64_t>& kept() const { return kept_; }

 private:
  std::int64_t left_, mask_;
  std::vector<std::int64_t> kept_;
};

// ---- filter bank ------------------------------------------------------------------------------

/// A finite impulse response filter over whole numbers, so that sums are exact in any order.
class Fir {
 public:
  Fir(unsigned taps, unsigned channel);
  double filter(double sample);

 private:
  std::vector<double> coefficients_, samples_;  // the latter twice as long, each sample twice
  std::size_t at_ = 0;
};

inline Fir::Fir(unsigned taps, unsigned channel) : coefficients_(taps), samples_(2 * taps) {
  for (unsigned i = 0; i < taps; ++i) coefficients_[i] = (i * 7 + channel) % 3;
}

inline double Fir::filter(double sample) {
  const std::size_t taps = coefficients_.size();
  samples_[at_] = samples_[at_ + taps] = sample;
  at_ = at_ + 1 == taps ? 0 : at_ + 1;
  double sum = 0;
  for (std::size_t i = 0; i < taps; ++i) sum += coefficients_[i] * samples_[at_ + i];
  return sum;
}

/// Gives back what it got `length` samples ago.
class DelayLine {
 public:
  explicit DelayLine(unsigned length) : samples_(length) {}
  double exchange(double sample) {
    const double old = std::exchange(samples_[at_], sample);
    at_ = at_ + 1 == samples_.size() ? 0 : at_ + 1;
    return old;
  }

 private:
  std::vector<double> samples_;
  std::size_t at_ = 0;
};

/// Lets each `rate`-th sample through, and zeros instead of the others.
class Thinner {
 public:
  explicit Thinner(unsigned rate) : rate_(rate) {}
  double thin(double sample) { return count_++ % rate_ == 0 ? sample : 0; }

 private:
  unsigned rate_, count_ = 0;
};

/// Adds up one sample of each channel, which come in any order.
class Combiner {
 public:
  explicit Combiner(unsigned channels) : waiting_(channels) {}
  void add(unsigned channel, double sample) {
    waiting_[channel].push_back(sample);
    if (waiting_[channel].size() > next_) combine();
  }
  std::int64_t combined() const { return combined_; }
  /// Of all combined samples: exact, while it is below 2^53.
  std::int64_t sum() const { return static_cast<std::int64_t>(sum_); }

 private:
  void combine() {
    for (const auto& samples : waiting_)
      if (samples.size() <= next_) return;
    double total = 0;
    for (auto& samples : waiting_) total += samples[next_];
    sum_ += total;
    ++next_;
    ++combined_;
  }
  std::vector<std::vector<double>> waiting_;
  std::size_t next_ = 0;
  std::int64_t combined_ = 0;
  double sum_ = 0;
};

constexpr double bank_sample(std::int64_t index) { return static_cast<double>(index % 10); }

// ---- sieve ------------------------------------------------------------------------------------

inline bool is_multiple_of_any(std::int64_t number, const std::vector<std::int64_t>& primes) {
  for (const std::int64_t prime : primes)
    if (number % prime == 0) return true;
  return false;
}

// ---- recursive matrix product -----------------------------------------------------------------

/// Two matrices of small whole numbers, and their product, which is made block by block.
class Matrices {
 public:
  explicit Matrices(unsigned size);
  /// Returns the weighted sum of the block.
  std::int64_t multiply_block(unsigned row, unsigned column, unsigned size);
  /// Of the whole product, from the factors alone.
  std::int64_t expected_sum() const;

 private:
  static double weight(std::size_t index) { return static_cast<double>(index % 5 + 1); }
  std::size_t size_;
  std::vector<double> left_, right_, product_;
};

inline Matrices::Matrices(unsigned size)
    : size_(size), left_(size_ * size_), right_(size_ * size_), product_(size_ * size_) {
  Random random(size);
  for (double& value : left_) value = static_cast<double>(random.below(10));
  for (double& value : right_) value = static_cast<double>(random.below(10));
}

inline std::int64_t Matrices::multiply_block(unsigned row, unsigned column, unsigned size) {
  double sum = 0;
  for (std::size_t i = row; i < row + size; ++i) {
    double* into = &product_[i * size_ + column];
    for (std::size_t k = 0; k < size_; ++k) {
      const double factor = left_[i * size_ + k];
      const double* from = &right_[k * size_ + column];
      for (std::size_t j = 0; j < size; ++j) into[j] += factor * from[j];
    }
    for (std::size_t j = 0; j < size; ++j) sum += weight(i) * weight(column + j) * into[j];
  }
  return static_cast<std::int64_t>(sum);
}

inline std::int64_t Matrices::expected_sum() const {
  double sum = 0;
  for (std::size_t k = 0; k < size_; ++k) {
    double column = 0, row = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      column += weight(i) * left_[i * size_ + k];
      row += weight(i) * right_[k * size_ + i];
    }
    sum += column * row;
  }
  return static_cast<std::int64_t>(sum);
}

// ---- n queens ---------------------------------------------------------------------------------

struct QueenPosition {
  std::uint32_t row = 0, columns = 0, left = 0, right = 0;
};

/// Calls `visit(position)` for each way to put a queen into the next row.
template <class Visit>
void for_each_queen(const QueenPosition& position, unsigned queens, Visit&& visit) {
  const std::uint32_t all = (1u << queens) - 1;
  std::uint32_t open = all & ~(position.columns | position.left | position.right);
  while (open) {
    const std::uint32_t queen = open & (0u - open);
    open ^= queen;
    visit(QueenPosition{position.row + 1, position.columns | queen,
                        ((position.left | queen) << 1) & all, (position.right | queen) >> 1});
  }
}

inline std::int64_t count_solutions(const QueenPosition& position, unsigned queens) {
  if (position.row == queens) return 1;
  std::int64_t count = 0;
  for_each_queen(position, queens,
                 [&](const QueenPosition& next) { count += count_solutions(next, queens); });
  return count;
}

inline std::vector<QueenPosition> next_positions(const QueenPosition& position, unsigned queens) {
  std::vector<QueenPosition> next;
  for_each_queen(position, queens, [&](const QueenPosition& found) { next.push_back(found); });
  return next;
}

// ---- trapezoid --------------------------------------------------------------------------------

inline double trapezoid_curve(double x) {
  return 1 / (x + 1) * std::sqrt(1 + std::exp(std::sqrt(2 * x))) * std::sin(x * x * x - 1);
}

/// The share of one worker, of all of them.
inline double trapezoid_share(const Trapezoid& program, std::int64_t worker) {
  const double width = (5.0 - 1.0) / static_cast<double>(program.pieces);
  const std::int64_t first = program.pieces * worker / program.workers;
  const std::int64_t end = program.pieces * (worker + 1) / program.workers;
  double area = 0;
  for (std::int64_t i = first; i < end; ++i) {
    const double x = 1 + width * static_cast<double>(i);
    area += width * (trapezoid_curve(x) + trapezoid_curve(x + width)) / 2;
  }
  return area;
}
/// As a report: billionths.
inline std::int64_t billionths(double area) {
  return static_cast<std::int64_t>(std::llround(area * 1e9));
}

// ---- sorting ----------------------------------------------------------------------------------

inline std::vector<std::int64_t> random_values(std::int64_t count, unsigned bits) {
  Random random(bits);
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = random.below(std::int64_t{1} << bits);
  return values;
}

inline std::int64_t checksum(const std::int64_t* values, std::size_t count) {
  Checksum sum;
  for (std::size_t i = 0; i < count; ++i) sum.add(values[i]);
  return sum.value();
}

/// What a list is parted by, and how many of it are below and equal to that.
struct Pivot {
  std::int64_t value;
  std::size_t below = 0, equal = 0;
};
inline Pivot choose_pivot(const std::int64_t* values, std::size_t count) {
  Pivot pivot{values[count / 2]};
  for (std::size_t i = 0; i < count; ++i) {
    pivot.below += values[i] < pivot.value;
    pivot.equal += values[i] == pivot.value;
  }
  return pivot;
}
inline void part(const std::int64_t* values, std::size_t count, const Pivot& pivot,
                 std::int64_t* below, std::int64_t* above) {
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] < pivot.value) *below++ = values[i];
    if (values[i] > pivot.value) *above++ = values[i];
  }
}

}  // namespace hyperframes::bench::savina
