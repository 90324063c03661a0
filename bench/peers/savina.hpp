// The Savina benchmarks on the C++ Actor Framework, with one worker thread.
//
//   savina::Outcome outcome = savina::caf_peer::run(savina::PingPong{.round_trips = 1000});
#pragma once

#include "../savina/programs.hpp"

namespace hyperframes::bench::savina::caf_peer {

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

}  // namespace hyperframes::bench::savina::caf_peer
