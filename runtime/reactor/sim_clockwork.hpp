// The simulator's inside: virtual time, what is to happen when, and the trace of what happened.
//
//   clockwork.at(clockwork.now() + 3ms, [&] { deliver(); });
//   clockwork.advance_to(clockwork.next_event());
//   clockwork.run_due();
#pragma once

#include <cstdint>
#include <functional>
#include <hyperframes/runtime/reactor/sim_random.hpp>
#include <hyperframes/runtime/time.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::detail {

class SimClockwork {
 public:
  SimClockwork(std::uint64_t seed, Time start) noexcept
      : schedule(seed ^ 0x5c4ed01eu),
        network(seed ^ 0x6e65747721u),
        disk(seed ^ 0x6469736bu),
        user(seed),
        now_(start) {}

  Time now() const noexcept { return now_; }
  void advance_to(Time time) noexcept {
    if (time > now_) now_ = time;
  }

  /// Events of one time happen in the order in which they were asked for.
  void at(Time time, std::function<void()> act);
  void after(Duration span, std::function<void()> act) { at(now_ + span, std::move(act)); }
  Time next_event() const noexcept { return events_.empty() ? Time::max() : events_.front().time; }
  /// Runs all that is due. Returns whether anything was.
  bool run_due();

  /// Folds an event into the hash, and hands its text to the listener, if there is one.
  void record(std::string_view what, std::uint64_t node, std::uint64_t shard, std::uint64_t detail,
              std::uint64_t value);
  void fold(std::uint64_t value) noexcept {
    hash_ = SimRandom::mix(hash_ ^ value) + 0x2545f4914f6cdd1du;
  }
  std::uint64_t hash() const noexcept { return hash_; }

  // A stream for each purpose, so that one fault more in the network leaves the disk's alone.
  SimRandom schedule, network, disk, user;
  std::uint64_t event_count = 0;
  std::function<void(const std::string&)> listener;

 private:
  struct Event {
    Time time;
    std::uint64_t order;
    std::function<void()> act;
  };
  static bool later(const Event& a, const Event& b) noexcept {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  Time now_;
  std::uint64_t order_ = 0;
  std::vector<Event> events_;  // a heap, the next one first
  std::uint64_t hash_ = 0x9ae16a3b2f90404fu;
};

}  // namespace hyperframes::detail
