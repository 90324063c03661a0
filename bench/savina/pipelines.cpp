// Savina's benchmarks of data that passes through a row of actors.
#include <vector>

#include "actors.hpp"
#include "kernels.hpp"
#include "root.hpp"

namespace hyperframes::bench::savina {
namespace {

// ---- radix sort -------------------------------------------------------------------------------

class RadixSorter final : public protocol::Sorter::Actor {
 public:
  RadixSorter(std::int64_t values, unsigned bit, protocol::Sorter::Ref next)
      : stage_(values, bit), next_(next) {}

 private:
  Task<void> sort(protocol::Number value) override {
    if (stage_.passes(value.value())) co_await next_.sort({.value = value.value()});
    if (!stage_.complete()) co_return;
    for (const std::int64_t kept : stage_.kept()) co_await next_.sort({.value = kept});
  }
  RadixStage stage_;
  protocol::Sorter::Ref next_;
};

/// The end of the row.
class SortedValues final : public protocol::Sorter::Actor {
 public:
  SortedValues(std::int64_t values, protocol::Root::Ref root) : values_(values), root_(root) {}

 private:
  Task<void> sort(protocol::Number value) override {
    sum_.add(value.value());
    if (sum_.count() < values_) return {};
    return root_.report({.value = sum_.value()});
  }
  std::int64_t values_;
  Checksum sum_;
  protocol::Root::Ref root_;
};

class RadixSortRoot final : public Root {
 public:
  explicit RadixSortRoot(RadixSort program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto next = co_await spawn<SortedValues>(SpawnOptions{}, program_.values, self());
    for (unsigned bit = program_.bits; bit-- > 0;)
      next = co_await spawn<RadixSorter>(SpawnOptions{}, program_.values, bit, next);
    for (const std::int64_t value : random_values(program_.values, program_.bits))
      co_await next.sort({.value = value});
    co_return 1;
  }
  RadixSort program_;
};

// ---- filter bank ------------------------------------------------------------------------------

using Next = protocol::Filter::Ref;

class Delay final : public protocol::Filter::Actor {
 public:
  Delay(unsigned length, Next next) : line_(length), next_(next) {}

 private:
  Task<void> put(protocol::Sample sample) override {
    co_await next_.put({.value = line_.exchange(sample.value()), .channel = sample.channel()});
  }
  DelayLine line_;
  Next next_;
};

class FirFilter final : public protocol::Filter::Actor {
 public:
  FirFilter(unsigned taps, unsigned seed, Next next) : fir_(taps, seed), next_(next) {}

 private:
  Task<void> put(protocol::Sample sample) override {
    co_await next_.put({.value = fir_.filter(sample.value()), .channel = sample.channel()});
  }
  Fir fir_;
  Next next_;
};

class SampleFilter final : public protocol::Filter::Actor {
 public:
  SampleFilter(unsigned rate, Next next) : thinner_(rate), next_(next) {}

 private:
  Task<void> put(protocol::Sample sample) override {
    co_await next_.put({.value = thinner_.thin(sample.value()), .channel = sample.channel()});
  }
  Thinner thinner_;
  Next next_;
};

class Combine final : public protocol::Filter::Actor {
 public:
  Combine(FilterBank program, protocol::Root::Ref root)
      : program_(program), combiner_(program.channels), root_(root) {}

 private:
  Task<void> put(protocol::Sample sample) override {
    combiner_.add(sample.channel(), sample.value());
    if (combiner_.combined() < program_.samples) return {};
    return root_.report({.value = combiner_.sum()});
  }
  FilterBank program_;
  Combiner combiner_;
  protocol::Root::Ref root_;
};

class Branch final : public protocol::Filter::Actor {
 public:
  explicit Branch(std::vector<Next> channels) : channels_(std::move(channels)) {}

 private:
  Task<void> put(protocol::Sample sample) override {
    for (std::uint32_t channel = 0; channel < channels_.size(); ++channel)
      co_await channels_[channel].put({.value = sample.value(), .channel = channel});
  }
  std::vector<Next> channels_;
};

class FilterBankRoot final : public Root {
 public:
  explicit FilterBankRoot(FilterBank program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    const Next combine = co_await spawn<Combine>(SpawnOptions{}, program_, self());
    std::vector<Next> channels;
    for (unsigned channel = 0; channel < program_.channels; ++channel)
      channels.push_back(co_await make_channel(channel, combine));
    auto branch = co_await spawn<Branch>(SpawnOptions{}, channels);
    for (std::int64_t i = 0; i < program_.samples; ++i)
      co_await branch.put({.value = bank_sample(i)});
    co_return 1;
  }
  /// From its end to its beginning.
  Task<Next> make_channel(unsigned channel, Next next) {
    next = co_await spawn<FirFilter>(SpawnOptions{}, program_.taps, channel + 1, next);
    next = co_await spawn<Delay>(SpawnOptions{}, program_.taps, next);
    next = co_await spawn<SampleFilter>(SpawnOptions{}, program_.channels, next);
    next = co_await spawn<FirFilter>(SpawnOptions{}, program_.taps, channel, next);
    co_return co_await spawn<Delay>(SpawnOptions{}, program_.taps, next);
  }
  FilterBank program_;
};

// ---- sieve of primes --------------------------------------------------------------------------

constexpr std::int64_t no_more_numbers = 0;

/// Keeps so many primes, and passes on what they do not divide; reports how many it has in the end.
class PrimeFilter final : public protocol::Sieve::Actor {
 public:
  PrimeFilter(std::int64_t capacity, std::int64_t primes_before, protocol::Root::Ref root)
      : capacity_(capacity), primes_before_(primes_before), root_(root) {}

 private:
  Task<void> check(protocol::Number number) override {
    const bool last = number.value() == no_more_numbers;
    if (!last && is_multiple_of_any(number.value(), primes_)) return {};
    if (next_) return next_.check({.value = number.value()});
    if (last) return root_.report({.value = primes_before_ + count()});
    if (count() == capacity_) return grow(number.value());
    primes_.push_back(number.value());
    return {};
  }
  Task<void> grow(std::int64_t number) {
    next_ = co_await spawn<PrimeFilter>(SpawnOptions{}, capacity_, primes_before_ + count(), root_);
    co_await next_.check({.value = number});
  }
  std::int64_t count() const { return static_cast<std::int64_t>(primes_.size()); }

  std::int64_t capacity_, primes_before_;
  std::vector<std::int64_t> primes_;
  protocol::Sieve::Ref next_;
  protocol::Root::Ref root_;
};

class SieveRoot final : public Root {
 public:
  explicit SieveRoot(Sieve program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto first =
        co_await spawn<PrimeFilter>(SpawnOptions{}, program_.primes_each, std::int64_t{0}, self());
    co_await first.check({.value = 2});
    for (std::int64_t number = 3; number < program_.limit; number += 2)
      co_await first.check({.value = number});
    co_await first.check({.value = no_more_numbers});
    co_return 1;
  }
  Sieve program_;
};

}  // namespace

Outcome run(const RadixSort& program) { return timed<RadixSortRoot>(program); }
Outcome run(const FilterBank& program) { return timed<FilterBankRoot>(program); }
Outcome run(const Sieve& program) { return timed<SieveRoot>(program); }

}  // namespace hyperframes::bench::savina
