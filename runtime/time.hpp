// Time as a shard sees it: monotonic, and virtual under the simulator.
//
//   co_await hf::sleep_for(50ms);
//   hf::Time limit = hf::Clock::now() + 5s;
//
// `Clock::now()` on a shard is the time at which its current turn began: reading it costs a load,
// not a clock call, and everything that runs in one turn agrees on it. A deadline is a Time, in
// most functions the last argument; `no_deadline` waits for good. Units are written as literals: in
// code outside this namespace, say `using namespace std::chrono_literals`.
#pragma once

#include <chrono>
#include <cstdint>

namespace hyperframes {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;

struct Clock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock, Duration>;
  static constexpr bool is_steady = true;

  /// The current shard's turn time; off a shard, the system's monotonic clock.
  static time_point now() noexcept;
  /// The system's monotonic clock, read afresh. Not for code that must run under the simulator.
  static time_point read_system() noexcept;
};

using Time = Clock::time_point;
inline constexpr Time no_deadline = Time::max();

/// `Clock::now() + span`, saturating: a huge span means "never". A turn that computes for long
/// makes it earlier than the clock on the wall would.
Time after(Duration span) noexcept;

/// The timing promises of the whole system. `scale` stretches all of them (sanitizers, slow
/// machines); it is read from HYPERFRAMES_TIME_SCALE once, at first use: a number from 0.01 to
/// 1000, anything else counts as 1.
struct Timing {
  double scale = 1.0;
  Duration heartbeat() const noexcept { return scaled(1s); }  ///< Between two of a link.
  /// A peer is down so many after it was last heard of, however its connection ended.
  int missed_heartbeats_until_down = 3;
  /// After so many a connection is taken for broken; what is left is for taking its link up again.
  int missed_heartbeats_until_broken = 2;
  Duration default_deadline() const noexcept { return scaled(5s); }  ///< Of a send or an ask.
  Duration handshake_deadline() const noexcept { return scaled(5s); }
  Duration down_after() const noexcept { return missed_heartbeats_until_down * heartbeat(); }
  Duration lease() const noexcept { return scaled(10s); }  ///< Of what a node owns in a cluster.

  Duration scaled(Duration span) const noexcept {
    return std::chrono::duration_cast<Duration>(span * scale);
  }
};
const Timing& timing() noexcept;

}  // namespace hyperframes
