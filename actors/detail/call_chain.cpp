#include <hyperframes/actors/detail/call_chain.hpp>

#ifndef NDEBUG

#include <algorithm>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace hyperframes::detail {
namespace {

/// Of the whole process, since letters travel between shards.
struct ChainTable {
  std::mutex mutex;
  std::map<const Letter*, Chain> of_letters;
  std::map<const PromiseBase*, Chain> of_turns;  ///< Suspended ones.
};
ChainTable& table() {
  static ChainTable table;
  return table;
}

/// What the next turn on this thread has to do with; a handler that is no coroutine has no turn, so
/// it is compared before it is believed.
struct Next {
  const ActorCell* cell = nullptr;
  Time deadline{};
  Chain chain;
};

// Set and read by code of one shard, on its thread, and never across a suspension.
thread_local RunningTurn* running_turn = nullptr;
thread_local Next next_turn;

// A turn that was suspended is found by the parents of what runs in it; one that was not is the
// innermost on the stack. Under the table's lock.
Chain chain_of(const PromiseBase& sender) {
  const PromiseBase* top = &sender;
  while (top->parent) top = top->parent;
  if (!top->is_turn) return running_turn ? running_turn->chain() : Chain();
  const auto known = table().of_turns.find(top);
  return known == table().of_turns.end() ? Chain() : known->second;
}

// Names are read here only for actors of this shard: those of others may change meanwhile.
std::string describe(const Chain& chain) {
  std::string text;
  for (const Address& address : chain) {
    const ActorCell& cell = *address.cell;
    const bool here = Shard::current() == &cell.home->shard && cell.id == address.id;
    text += here && !cell.name().empty() ? "'" + cell.name() + "'"
                                         : "actor " + std::to_string(address.id);
    text += " > ";
  }
  return text + "the same actor again";
}

}  // namespace

RunningTurn::RunningTurn(ActorCell& cell, bool holds, Time deadline) noexcept
    : outer_(std::exchange(running_turn, this)) {
  Next next = std::exchange(next_turn, {});
  if (next.cell == &cell && next.deadline == deadline) chain_ = std::move(next.chain);
  if (holds) chain_.push_back(cell.address());
}
RunningTurn::~RunningTurn() { running_turn = outer_; }

void RunningTurn::suspended(const PromiseBase& turn) noexcept {
  if (chain_.empty()) return;
  std::scoped_lock lock(table().mutex);
  table().of_turns[&turn] = std::move(chain_);
}

std::optional<Error> extend_chain(Letter& letter, const Destination& to,
                                  const PromiseBase& sender) {
  std::scoped_lock lock(table().mutex);
  Chain chain = chain_of(sender);
  if (chain.empty()) return std::nullopt;
  const auto same = std::ranges::find(chain, Address{to.cell, to.id});
  if (same != chain.end())
    return Error(
        Errc::would_deadlock, std::string("ask ") + letter.method->name,
        "its actor can't take it before this very ask has ended: " + describe({same, chain.end()}),
        "mark the method that asks `interleaved`, tell instead, or keep the Reply");
  table().of_letters[&letter] = std::move(chain);
  letter.chained = true;
  return std::nullopt;
}

void begin_chain(ActorCell& cell, Letter& letter) noexcept {
  next_turn = {&cell, letter.deadline, {}};
  if (!std::exchange(letter.chained, false)) return;
  std::scoped_lock lock(table().mutex);
  if (auto found = table().of_letters.extract(&letter)) next_turn.chain = std::move(found.mapped());
}

void begin_chain(ActorCell& cell, Time deadline, const PromiseBase& sender) noexcept {
  std::scoped_lock lock(table().mutex);
  next_turn = {&cell, deadline, chain_of(sender)};
}

void forget_chain(Letter& letter) noexcept {
  if (!std::exchange(letter.chained, false)) return;
  std::scoped_lock lock(table().mutex);
  table().of_letters.erase(&letter);
}

void forget_turn(const PromiseBase& turn) noexcept {
  std::scoped_lock lock(table().mutex);
  table().of_turns.erase(&turn);
}

}  // namespace hyperframes::detail

#endif
