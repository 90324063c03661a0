// Savina's benchmarks of data that passes through a row of actors, on CAF.
#include <memory>
#include <vector>

#include "savina_root.hpp"

namespace hyperframes::bench::savina::caf_peer {
namespace {

using Check = caf::atom_constant<caf::atom("check")>;
using Put = caf::atom_constant<caf::atom("put")>;
using Sort = caf::atom_constant<caf::atom("sort")>;

// ---- radix sort -------------------------------------------------------------------------------

caf::behavior radix_sorter(caf::event_based_actor* self, std::int64_t values, unsigned bit,
                           caf::actor next) {
  auto stage = std::make_shared<RadixStage>(values, bit);
  return {[=](Sort, std::int64_t value) {
    if (stage->passes(value)) self->send(next, Sort::value, value);
    if (!stage->complete()) return;
    for (const std::int64_t kept : stage->kept()) self->send(next, Sort::value, kept);
  }};
}

struct SortedState {
  Checksum sum;
};
/// The end of the row.
caf::behavior sorted_values(caf::stateful_actor<SortedState>* self, std::int64_t values,
                            caf::actor root) {
  return {[=](Sort, std::int64_t value) {
    Checksum& sum = self->state.sum;
    sum.add(value);
    if (sum.count() == values) self->send(root, Report::value, sum.value());
  }};
}

// ---- filter bank ------------------------------------------------------------------------------

caf::behavior delay(caf::event_based_actor* self, unsigned length, caf::actor next) {
  auto line = std::make_shared<DelayLine>(length);
  return {[=](Put, double sample, std::uint32_t channel) {
    self->send(next, Put::value, line->exchange(sample), channel);
  }};
}

caf::behavior fir_filter(caf::event_based_actor* self, unsigned taps, unsigned seed,
                         caf::actor next) {
  auto fir = std::make_shared<Fir>(taps, seed);
  return {[=](Put, double sample, std::uint32_t channel) {
    self->send(next, Put::value, fir->filter(sample), channel);
  }};
}

caf::behavior sample_filter(caf::event_based_actor* self, unsigned rate, caf::actor next) {
  auto thinner = std::make_shared<Thinner>(rate);
  return {[=](Put, double sample, std::uint32_t channel) {
    self->send(next, Put::value, thinner->thin(sample), channel);
  }};
}

caf::behavior combine(caf::event_based_actor* self, FilterBank program, caf::actor root) {
  auto combiner = std::make_shared<Combiner>(program.channels);
  return {[=](Put, double sample, std::uint32_t channel) {
    combiner->add(channel, sample);
    if (combiner->combined() == program.samples) self->send(root, Report::value, combiner->sum());
  }};
}

caf::behavior branch(caf::event_based_actor* self, std::vector<caf::actor> channels) {
  return {[=](Put, double sample, std::uint32_t) {
    for (std::uint32_t channel = 0; channel < channels.size(); ++channel)
      self->send(channels[channel], Put::value, sample, channel);
  }};
}

/// From its end to its beginning.
caf::actor make_channel(RootActor* self, const FilterBank& program, unsigned channel,
                        caf::actor next) {
  next = start(self, fir_filter, program.taps, channel + 1, next);
  next = start(self, delay, program.taps, next);
  next = start(self, sample_filter, program.channels, next);
  next = start(self, fir_filter, program.taps, channel, next);
  return start(self, delay, program.taps, next);
}

// ---- sieve of primes --------------------------------------------------------------------------

constexpr std::int64_t no_more_numbers = 0;

struct PrimesState {
  std::vector<std::int64_t> primes;
  caf::actor next;
};
/// Keeps so many primes, and passes on what they do not divide; reports how many it has in the end.
caf::behavior prime_filter(caf::stateful_actor<PrimesState>* self, std::int64_t capacity,
                           std::int64_t primes_before, caf::actor root) {
  return {[=](Check, std::int64_t number) {
    PrimesState& state = self->state;
    const auto count = static_cast<std::int64_t>(state.primes.size());
    const bool last = number == no_more_numbers;
    if (!last && is_multiple_of_any(number, state.primes)) return;
    if (!state.next) {
      if (last) return self->send(root, Report::value, primes_before + count);
      if (count < capacity) return state.primes.push_back(number);
      state.next = self->spawn<caf::linked>(prime_filter, capacity, primes_before + count, root);
    }
    self->send(state.next, Check::value, number);
  }};
}

}  // namespace

Outcome run(const RadixSort& program) {
  return timed([=](RootActor* self) {
    auto next = start(self, sorted_values, program.values, handle_of(self));
    for (unsigned bit = program.bits; bit-- > 0;)
      next = start(self, radix_sorter, program.values, bit, next);
    for (const std::int64_t value : random_values(program.values, program.bits))
      self->send(next, Sort::value, value);
    return 1;
  });
}

Outcome run(const FilterBank& program) {
  return timed([=](RootActor* self) {
    const auto last = start(self, combine, program, handle_of(self));
    std::vector<caf::actor> channels;
    for (unsigned channel = 0; channel < program.channels; ++channel)
      channels.push_back(make_channel(self, program, channel, last));
    const auto first = start(self, branch, channels);
    for (std::int64_t i = 0; i < program.samples; ++i)
      self->send(first, Put::value, bank_sample(i), std::uint32_t{0});
    return 1;
  });
}

Outcome run(const Sieve& program) {
  return timed([=](RootActor* self) {
    const auto first =
        start(self, prime_filter, program.primes_each, std::int64_t{0}, handle_of(self));
    self->send(first, Check::value, std::int64_t{2});
    for (std::int64_t number = 3; number < program.limit; number += 2)
      self->send(first, Check::value, number);
    self->send(first, Check::value, no_more_numbers);
    return 1;
  });
}

}  // namespace hyperframes::bench::savina::caf_peer
