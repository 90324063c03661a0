// How long a call may take.
//
//   co_await counter.add({.delta = 2}, hf::within(50ms));   // throws deadline_exceeded after 50 ms
//   co_await counter.add({.delta = 2}, hf::until(limit));   // at a given time
//   co_await counter.add({.delta = 2});                     // Timing::default_deadline(), 5 s
//
// The deadline of an ask travels with it: work whose asker no longer waits is not begun. What a
// handler awaits of other actors ends with the ask that it handles, however long it was given,
// since nobody waits for it afterwards; `hf::within(10s).regardless()` goes on all the same. Tasks
// that an actor starts beside its handlers, and the inbox form, have no such bound.
#pragma once

#include <hyperframes/runtime/time.hpp>

namespace hyperframes {

struct Within {
  /// `Time{}` stands for the default deadline from the moment of the call.
  Time deadline{};
  /// It may outlast the ask whose handler makes the call.
  bool outlasts = false;

  Within regardless() const noexcept { return {deadline, true}; }
};

/// `span` from now: from the beginning of the shard's turn. A huge span means "no deadline".
inline Within within(Duration span) noexcept { return {after(span)}; }
/// Until then; `no_deadline` waits for good.
inline Within until(Time deadline) noexcept { return {deadline}; }

}  // namespace hyperframes
