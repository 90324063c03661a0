// The Savina actor benchmarks (Imam and Sarkar, AGERE 2014) that are run here and on CAF: their
// sizes, how many messages they take, and what must come out.
//
//   const PingPong program{.round_trips = 1000};
//   Outcome outcome = run(program);                  // caf_peer::run(program) does it on CAF
//   outcome.answer == program.expected();
//
// Both sides include this, CAF's as C++17.
#pragma once

#include <cstdint>

namespace hyperframes::bench::savina {

/// From the start of the first actor to the end of the last one.
struct Outcome {
  double seconds = 0;
  std::int64_t answer = 0;
};

// ---- Bound by messages: `messages()` counts those that the algorithm sends --------------------

struct PingPong {
  std::int64_t round_trips;
  std::int64_t messages() const { return 2 * round_trips; }
  std::int64_t expected() const { return round_trips; }
};

struct Counting {
  std::int64_t increments;
  std::int64_t messages() const { return increments; }
  std::int64_t expected() const { return increments; }
};

struct ForkJoinThroughput {
  std::int64_t actors, messages_each;
  std::int64_t messages() const { return actors * messages_each; }
  std::int64_t expected() const { return actors * messages_each; }
};

struct ForkJoinCreate {
  std::int64_t actors;
  std::int64_t messages() const { return actors; }
  std::int64_t expected() const { return actors; }
};

struct ThreadRing {
  std::int64_t actors, rounds;
  std::int64_t messages() const { return actors * rounds; }
  std::int64_t expected() const { return actors * rounds; }
};

/// A meeting is two requests to the mall and its two answers.
struct Chameneos {
  std::int64_t chameneos, meetings;
  std::int64_t messages() const { return 4 * meetings; }
  std::int64_t expected() const { return 2 * meetings; }
};

struct Big {
  std::int64_t actors, pings_each;
  std::int64_t messages() const { return 2 * actors * pings_each; }
  std::int64_t expected() const { return actors * pings_each; }
};

struct ConcurrentDictionary {
  std::int64_t workers, operations_each, write_percent;
  std::int64_t messages() const { return 2 * workers * operations_each; }
  std::int64_t expected() const;
};

struct BoundedBuffer {
  std::int64_t producers, consumers, items_each, capacity;
  std::int64_t items() const { return producers * items_each; }
  std::int64_t messages() const { return 4 * items(); }
  std::int64_t expected() const { return items() * (items() + 1) / 2; }
};

/// A transaction is a credit, a debit, its answer, and a report.
struct Banking {
  std::int64_t accounts, transactions;
  std::int64_t messages() const { return 4 * transactions; }
  std::int64_t expected() const;
};

// ---- Bound by computing ------------------------------------------------------------------------

struct RadixSort {
  std::int64_t values;
  unsigned bits;
  std::int64_t expected() const;
};

struct FilterBank {
  unsigned channels, taps;
  std::int64_t samples;
  std::int64_t expected() const;
};

/// Primes below `limit`.
struct Sieve {
  std::int64_t limit, primes_each;
  std::int64_t expected() const;
};

struct MatrixProduct {
  unsigned size, block, workers;
  std::int64_t expected() const;
};

struct NQueens {
  unsigned queens, sequential_rows, workers;
  std::int64_t solutions;  ///< Known.
  std::int64_t expected() const { return solutions; }
};

/// The area under a curve from 1 to 5, in millionths.
struct Trapezoid {
  std::int64_t pieces, workers;
  std::int64_t expected() const;
};

struct Quicksort {
  std::int64_t values, sequential_below;
  std::int64_t expected() const;
};

}  // namespace hyperframes::bench::savina
