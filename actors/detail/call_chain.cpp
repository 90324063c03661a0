#include <hyperframes/actors/detail/call_chain.hpp>

#ifndef NDEBUG

#include <algorithm>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::detail {
namespace {

/// An actor that can take no letter before an ask that it made has ended.
struct Held {
  Address actor;
  Time until;  ///< The ask's deadline.
};
using Chain = std::vector<Held>;

/// Of the whole process, since letters travel between shards.
struct ChainTable {
  struct OfLetter {
    std::uint64_t number;
    Chain chain;
  };
  std::mutex mutex;
  std::uint64_t last_number = 0;
  std::map<const Letter*, OfLetter> of_letters;       ///< Not answered yet.
  std::map<const PromiseBase*, TurnOrigin> of_turns;  ///< Suspended ones.
};
ChainTable& table() {
  static ChainTable table;
  return table;
}

/// What the next turn on this thread has to do with; a handler that is no coroutine has no turn, so
/// it is compared before it is believed.
struct Next {
  const ActorCell* cell = nullptr;
  std::uint64_t handled = 0;  ///< By the cell, with this one.
  const Letter* letter = nullptr;
  std::uint64_t number = 0;
};

// Set and read by code of one shard, on its thread, and never across a suspension.
thread_local RunningTurn* running_turn = nullptr;
thread_local Next next_turn;

// A turn that was suspended is found by the parents of what runs in it; one that was not is the
// innermost on the stack. Under the table's lock.
TurnOrigin origin_of(const PromiseBase& sender) {
  const PromiseBase* top = &sender;
  while (top->parent) top = top->parent;
  if (!top->is_turn) return running_turn ? running_turn->origin() : TurnOrigin();
  const auto known = table().of_turns.find(top);
  return known == table().of_turns.end() ? TurnOrigin() : known->second;
}

// Of an ask with that deadline. Under the table's lock.
Chain chain_for(const PromiseBase& sender, Time deadline) {
  const TurnOrigin origin = origin_of(sender);
  Chain chain;
  const auto handled = table().of_letters.find(origin.letter);
  if (handled != table().of_letters.end() && handled->second.number == origin.number) {
    const Time now = Clock::now();
    std::ranges::copy_if(handled->second.chain, std::back_inserter(chain),
                         [&](const Held& held) { return held.until > now; });
  }
  if (origin.held.cell) chain.push_back({origin.held, deadline});
  return chain;
}

// Under the table's lock. Returns the chain's number.
std::uint64_t put(Letter& letter, Chain chain) {
  if (chain.empty()) return 0;
  letter.chained = true;
  const std::uint64_t number = ++table().last_number;
  table().of_letters[&letter] = {number, std::move(chain)};
  return number;
}

// Names are read here only for actors of this shard: those of others may change meanwhile.
std::string describe(const Chain& chain) {
  std::string text;
  for (const auto& [address, until] : chain) {
    const ActorCell& cell = *address.cell;
    const bool here = Shard::current() == &cell.home->shard && cell.id == address.id;
    text += here && !cell.name().empty() ? "'" + cell.name() + "'"
                                         : "actor " + std::to_string(address.id);
    text += " > ";
  }
  return text + "the same actor again";
}

}  // namespace

RunningTurn::RunningTurn(ActorCell& cell, bool holds, bool of_letter) noexcept
    : outer_(std::exchange(running_turn, this)) {
  const Next next = std::exchange(next_turn, {});
  if (of_letter && next.cell == &cell && next.handled == cell.handled) {
    origin_.letter = next.letter;
    origin_.number = next.number;
  }
  if (holds) origin_.held = cell.address();
}
RunningTurn::~RunningTurn() { running_turn = outer_; }

void RunningTurn::suspended(const PromiseBase& turn) noexcept {
  if (!origin_.letter && !origin_.held.cell) return;
  std::scoped_lock lock(table().mutex);
  table().of_turns[&turn] = origin_;
}

std::optional<Error> extend_chain(Letter& letter, const Destination& to, Time deadline,
                                  const PromiseBase& sender) {
  std::scoped_lock lock(table().mutex);
  Chain chain = chain_for(sender, deadline);
  const auto same = std::ranges::find(chain, Address{to.cell, to.id}, &Held::actor);
  if (same != chain.end())
    return Error(
        Errc::would_deadlock, std::string("ask ") + letter.method->name,
        "its actor can't take it before this very ask has ended: " + describe({same, chain.end()}),
        "mark the method that asks `interleaved`, tell instead, or keep the Reply");
  put(letter, std::move(chain));
  return std::nullopt;
}

void begin_chain(ActorCell& cell, Letter& letter) noexcept {
  next_turn = {&cell, cell.handled, nullptr, 0};
  if (!letter.chained) return;
  // What opens a stream is answered before its handler begins.
  if (letter.method->streams) return forget_chain(letter);
  std::scoped_lock lock(table().mutex);
  const auto found = table().of_letters.find(&letter);
  if (found == table().of_letters.end()) return;  // given up
  next_turn.letter = &letter;
  next_turn.number = found->second.number;
}

void begin_chain(ActorCell& cell, Letter& letter, Time deadline,
                 const PromiseBase& sender) noexcept {
  std::scoped_lock lock(table().mutex);
  const std::uint64_t number = put(letter, chain_for(sender, deadline));
  next_turn = {&cell, cell.handled + 1, number ? &letter : nullptr, number};
}

void forget_chain(Letter& letter) noexcept {
  if (std::exchange(letter.chained, false)) give_up_chain(&letter);
}

void give_up_chain(const Letter* letter) noexcept {
  std::scoped_lock lock(table().mutex);
  table().of_letters.erase(letter);
}

void forget_turn(const PromiseBase& turn) noexcept {
  std::scoped_lock lock(table().mutex);
  table().of_turns.erase(&turn);
}

}  // namespace hyperframes::detail

#endif
