// Trying again: which failures are worth it, how long to wait, and saying so without flooding a
// log.
//
//   Backoff backoff(20ms, 500ms);
//   try { ... } catch (const Error& error) { if (!worth_retrying(error)) throw; }
//   co_await sleep_for(backoff.next());
#pragma once

#include <algorithm>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/time.hpp>
#include <random>

namespace hyperframes::ps::detail {

/// False for what stays as it is however often it is tried: arguments, refusals, other versions, a
/// place that a newer process took (`fenced`); and for `moved`, which must be tried elsewhere.
inline bool worth_retrying(const Error& error) noexcept {
  // Errno of a peer or of this host: a full disk may be emptied, a route may come back.
  if (error.code().category() != error_category()) return true;
  switch (static_cast<Errc>(error.code().value())) {
    case Errc::cancelled:  // the other side was; whoever was cancelled itself does not ask
    case Errc::deadline_exceeded:
    case Errc::closed:
    case Errc::exhausted:
    case Errc::unreachable:
    case Errc::peer_lost:
    case Errc::not_found:
    case Errc::overloaded:
    case Errc::actor_down:
    case Errc::no_reply:
    case Errc::shutting_down: return true;
    default: return false;
  }
}

/// How long one attempt to reach a node may take.
inline Duration connect_span() noexcept { return timing().scaled(std::chrono::seconds(2)); }

/// Of this thread's pauses. The simulator gives it a seed.
inline std::minstd_rand& pause_chance() {
  thread_local std::minstd_rand random{std::random_device()()};
  return random;
}

/// Doubling pauses, each cut by up to a half at random so that many who wait don't move in step.
class Backoff {
 public:
  Backoff(Duration least, Duration most) noexcept : least_(least), most_(most), next_(least) {}
  Duration next() {
    const Duration pause = next_;
    next_ = std::min(next_ * 2, most_);
    // The standard's generators are the same in every library, its distributions are not.
    const double share = static_cast<double>(pause_chance()()) / std::minstd_rand::max();
    return pause -
           Duration(static_cast<Duration::rep>(share * static_cast<double>(pause.count()) / 2));
  }
  void reset() noexcept { next_ = least_; }

 private:
  Duration least_, most_, next_;
};

/// True once in a span.
class Every {
 public:
  explicit Every(Duration span) noexcept : span_(span) {}
  bool due() noexcept {
    const Time now = Clock::now();
    if (now < next_) return false;
    next_ = now + span_;
    return true;
  }

 private:
  Duration span_;
  Time next_{};
};

}  // namespace hyperframes::ps::detail
