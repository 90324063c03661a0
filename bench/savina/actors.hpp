// The Savina benchmarks on Hyperframes: all actors of one on one core shard.
//
//   Outcome outcome = run(PingPong{.round_trips = 1000});
#pragma once

#include "programs.hpp"

namespace hyperframes::bench::savina {

Outcome run(const PingPong& program);
Outcome run(const Counting& program);
Outcome run(const ForkJoinThroughput& program);
Outcome run(const ForkJoinCreate& program);
Outcome run(const ThreadRing& program);
Outcome run(const Chameneos& program);
Outcome run(const Big& program);
Outcome run(const ConcurrentDictionary& program);
Outcome run(const BoundedBuffer& program);
Outcome run(const Banking& program);
Outcome run(const RadixSort& program);
Outcome run(const FilterBank& program);
Outcome run(const Sieve& program);
Outcome run(const MatrixProduct& program);
Outcome run(const NQueens& program);
Outcome run(const Trapezoid& program);
Outcome run(const Quicksort& program);

}  // namespace hyperframes::bench::savina
