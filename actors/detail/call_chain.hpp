// Finding asks that wait on themselves: in debug builds, an ask knows which actors wait for it.
//
// An actor that handles a letter takes no other one until its handler has ended. An ask that such
// a handler makes, to its own actor or to one that waits for it in the same way, can only end by
// its deadline. So each ask that is made in such a turn carries the actors on whose turns it
// weighs; the actor that handles it adds itself. Chains end at the border of the process: to go on
// there, every ask of a debug build would have to carry them over the wire.
//
// Chains lie in a table beside the letters, so that a release build and a debug build agree on
// what a letter is. Only the library's own sources include this.
#pragma once

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/letter.hpp>
#include <optional>
#include <vector>

namespace hyperframes::detail {

#ifdef NDEBUG

struct RunningTurn {
  RunningTurn(ActorCell&, bool, Time) noexcept {}
  void suspended(const PromiseBase&) noexcept {}
};
inline std::optional<Error> extend_chain(Letter&, const Destination&, const PromiseBase&) {
  return std::nullopt;
}
inline void begin_chain(ActorCell&, Letter&) noexcept {}
inline void begin_chain(ActorCell&, Time, const PromiseBase&) noexcept {}
inline void forget_chain(Letter&) noexcept {}
inline void forget_turn(const PromiseBase&) noexcept {}

#else

/// The actors that can take no letter before a certain ask has ended.
using Chain = std::vector<Address>;

/// While in scope, a turn of that actor is on the stack, and has not been suspended yet.
class RunningTurn {
 public:
  /// `holds`: until the turn has ended, the actor handles no other letter.
  RunningTurn(ActorCell& cell, bool holds, Time deadline) noexcept;
  RunningTurn(const RunningTurn&) = delete;
  ~RunningTurn();
  /// From now on the turn is known by the promise that its handler continues with.
  void suspended(const PromiseBase& turn) noexcept;
  const Chain& chain() const noexcept { return chain_; }

 private:
  Chain chain_;
  RunningTurn* outer_;
};

/// An ask that `sender` makes: gives it its chain, or says that it would wait on itself.
std::optional<Error> extend_chain(Letter& letter, const Destination& to, const PromiseBase& sender);
/// The next turn of `cell` handles that letter, or what `sender` asks it at once.
void begin_chain(ActorCell& cell, Letter& letter) noexcept;
void begin_chain(ActorCell& cell, Time deadline, const PromiseBase& sender) noexcept;
/// The letter ends, or leaves the process.
void forget_chain(Letter& letter) noexcept;
void forget_turn(const PromiseBase& turn) noexcept;

#endif

}  // namespace hyperframes::detail
