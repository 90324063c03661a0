// Finding asks that wait on themselves: in debug builds, an ask knows which actors wait for it.
//
// An actor that handles a letter takes no other one until its handler has ended. An ask that such
// a handler makes, to its own actor or to one that waits for it in the same way, can only end by
// its deadline. So each ask that is made in such a turn carries the actors on whose turns it
// weighs; the actor that handles it adds itself. They weigh no more once the ask was answered, also
// if its handler goes on, or once who made it gave it up. Chains end at the border of the process:
// to go on there, every ask of a debug build would have to carry them over the wire.
//
// Chains lie in a table beside the letters, so that a release build and a debug build agree on
// what a letter is. Only the library's own sources include this.
#pragma once

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/letter.hpp>
#include <optional>

namespace hyperframes::detail {

#ifdef NDEBUG

struct RunningTurn {
  RunningTurn(ActorCell&, bool, bool) noexcept {}
  void suspended(const PromiseBase&) noexcept {}
};
inline std::optional<Error> extend_chain(Letter&, const Destination&, Time, const PromiseBase&) {
  return std::nullopt;
}
inline void begin_chain(ActorCell&, Letter&) noexcept {}
inline void begin_chain(ActorCell&, Letter&, Time, const PromiseBase&) noexcept {}
inline void forget_chain(Letter&) noexcept {}
inline void give_up_chain(const Letter*) noexcept {}
inline void forget_turn(const PromiseBase&) noexcept {}

#else

/// What the asks that a turn makes weigh on.
struct TurnOrigin {
  const Letter* letter = nullptr;  ///< What it handles, if that has a chain; compared, never read.
  std::uint64_t number = 0;        ///< That chain's.
  Address held;                    ///< Its actor, if that handles no other letter meanwhile.
};

/// While in scope, a turn of that actor is on the stack, and has not been suspended yet.
class RunningTurn {
 public:
  /// `holds`: until the turn has ended, the actor handles no other letter. `of_letter`: the one
  /// that `begin_chain` was told of.
  RunningTurn(ActorCell& cell, bool holds, bool of_letter) noexcept;
  RunningTurn(const RunningTurn&) = delete;
  ~RunningTurn();
  /// From now on the turn is known by the promise that its handler continues with.
  void suspended(const PromiseBase& turn) noexcept;
  const TurnOrigin& origin() const noexcept { return origin_; }

 private:
  TurnOrigin origin_;
  RunningTurn* outer_;
};

/// An ask that `sender` makes: gives it its chain, or says that it would wait on itself.
std::optional<Error> extend_chain(Letter& letter, const Destination& to, Time deadline,
                                  const PromiseBase& sender);
/// The next turn of `cell` handles that letter.
void begin_chain(ActorCell& cell, Letter& letter) noexcept;
/// The same for what `sender` asks it at once; the letter is for the answer.
void begin_chain(ActorCell& cell, Letter& letter, Time deadline,
                 const PromiseBase& sender) noexcept;
/// The letter is answered, or ends. For its owner.
void forget_chain(Letter& letter) noexcept;
/// Who asked waits no longer; the letter may belong to another shard.
void give_up_chain(const Letter* letter) noexcept;
void forget_turn(const PromiseBase& turn) noexcept;

#endif

}  // namespace hyperframes::detail
