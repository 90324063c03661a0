#include <hyperframes/actors/detail/letter.hpp>

#include <hyperframes/actors/detail/call_chain.hpp>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/method.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/receipt.hpp>
#include <hyperframes/actors/detail/remote.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <hyperframes/actors/detail/unwound.hpp>

namespace hyperframes::detail {
namespace {

void destroy_content(Letter& letter) noexcept {
  switch (letter.content) {
    case Letter::Content::nothing: return;
    case Letter::Content::failure: delete letter.content_as<Error*>(); break;
    default: letter.method->destroy_content(letter);
  }
  letter.content = Letter::Content::nothing;
}

// On the shard that the letter came from.
void came_home(Letter* letter) noexcept {
  if (letter->kind == Letter::Kind::remote_ask) return answer_peer(letter);
  if (letter->immediate) return;  // who asked looks at it now
  if (letter->waiting) return letter->waiting->came_back(letter);
  letter->origin->late.add();
  destroy(letter);
}

void came_home_from_elsewhere(Work* work) noexcept {
  auto* letter = static_cast<Letter*>(work);
  letter->origin->arrived();
  came_home(letter);
}

}  // namespace

void destroy(Letter* letter) noexcept {
  forget_chain(*letter);
  destroy_content(*letter);
  letter->~Letter();
  pool_release(letter);
}

void set_failure(Letter& letter, Error error) noexcept {
  destroy_content(letter);
  new (letter.payload<Error*>()) Error*(new Error(std::move(error)));
  letter.content = Letter::Content::failure;
}

void send_back(Letter* letter) noexcept {
  if (letter->kind == Letter::Kind::tell) return destroy(letter);
  forget_chain(*letter);
  NodeShard& here = *letter->cell->home;
  if (letter->origin == &here) return came_home(letter);
  if (letter->content == Letter::Content::answer) letter->method->detach(*letter);
  letter->run = &came_home_from_elsewhere;
  here.post(*letter->origin, letter, letter->system ? Group::system : Group::user);
}

void fail(Letter* letter, Error error) noexcept {
  if (letter->kind == Letter::Kind::tell) {
    if (letter->receipt) letter->receipt->send_home(*letter->cell->home, std::move(error));
    return destroy(letter);
  }
  set_failure(*letter, std::move(error));
  send_back(letter);
}

void drop_unanswered(Letter* letter) noexcept {
  if (letter->kind == Letter::Kind::tell) return destroy(letter);
  Unwound& unwound = letter->cell->home->unwound;
  if (unwound.takes()) return unwound.keep(letter);
  end_unanswered(letter);
}

void end_unanswered(Letter* letter) noexcept {
  if (const auto* reason = letter->cell->home->drop_reason) return fail(letter, reason->error());
  fail(letter, Error(Errc::no_reply, std::string("ask ") + letter->method->name,
                     "its handler ended without an answer"));
}

bool ReplyBase::wanted() const noexcept {
  if (!letter_ || letter_->kind == Letter::Kind::tell) return false;
  if (letter_->deadline <= letter_->cell->home->shard.now()) return false;
  const bool from_here =
      letter_->kind == Letter::Kind::ask && letter_->origin == letter_->cell->home;
  return !from_here || letter_->waiting || letter_->immediate;
}

void detach_segments(Segments& segments) {
  bool shared = false;
  for (const Buffer& buffer : segments) shared |= !buffer.unique();
  if (!shared) return;
  Segments detached;
  for (Buffer& buffer : segments)
    detached.push_back(buffer.unique() ? std::move(buffer) : buffer.proxy());
  segments = std::move(detached);
}

// ---- sending ----------------------------------------------------------------

namespace {

void arrive_at_cell(Work* work) noexcept {
  auto* letter = static_cast<Letter*>(work);
  letter->cell->home->arrived();
  letter->cell->arrive(letter);
}

void receipt_home(Work* work) noexcept {
  std::unique_ptr<Receipt> receipt(static_cast<Receipt*>(work));
  receipt->home->arrived();
  if (receipt->waiter) receipt->waiter->receipt_came(*receipt);
}

void address(Letter& letter, const Destination& to) noexcept {
  letter.cell = to.cell;
  letter.generation = actor_id::generation_of(to.id);
  letter.system = actor_id::group_of(to.id) == Group::system;
}

Error no_such_actor(const Letter& letter) {
  return Error(Errc::actor_down, std::string("send ") + letter.method->name, "the actor has ended",
               "find or start it again");
}

}  // namespace

void Receipt::send_home(NodeShard& from, std::optional<Error> error) noexcept {
  if (error) failure = std::make_unique<Error>(std::move(*error));
  run = &receipt_home;
  from.post(*home, this, Group::user);
}

const Duration default_ask_span = timing().default_deadline();

Time resolve(Within within) noexcept {
  return within.deadline == Time{} ? Clock::now() + default_ask_span : within.deadline;
}

void begin_immediate(Letter& letter, ActorCell& cell, Time deadline,
                     const PromiseBase& sender) noexcept {
  begin_chain(cell, letter, deadline, sender);
  letter.cell = &cell;
  letter.origin = cell.home;
  letter.generation = cell.generation;
  letter.system = cell.group() == Group::system;
  letter.deadline = deadline;
  letter.kind = Letter::Kind::ask;
  letter.immediate = true;
}

void abandon_immediate(Letter* letter) noexcept {
  if (letter->content != Letter::Content::nothing) return destroy(letter);
  letter->immediate = false;  // it will come back to nobody
  forget_chain(*letter);
}

Letter* checked_answer(Letter* letter) {
  if (letter->content == Letter::Content::answer) return letter;
  throw Error(*letter->content_as<Error*>());
}

bool SendWaiter::wait_for_answer(PromiseBase& promise) noexcept {
  letter_->immediate = false;
  letter_->waiting = this;
  state_ = State::waiting;
  return begin(promise);
}

bool SendWaiter::send(PromiseBase& promise) noexcept {
  auto* shard = static_cast<Shard*>(promise.core);
  if (!to_.id || !shard) {
    failure_ = std::make_unique<Error>(
        Errc::invalid_argument, std::string("send ") + letter_->method->name,
        shard ? "the reference is empty" : "the caller runs on no shard",
        shard ? "find or spawn the actor first" : "use Runtime::run");
    return false;
  }
  if (to_.peer) return send_to_peer(promise, *shard);
  if (asks()) {
    if (auto refusal = extend_chain(*letter_, to_, deadline_, promise)) {
      failure_ = std::make_unique<Error>(std::move(*refusal));
      return false;
    }
  }

  ActorCell& cell = *to_.cell;
  NodeShard& home = *cell.home;
  address(*letter_, to_);
  if (&home.shard != shard) return send_elsewhere(promise, *shard);
  letter_->origin = &home;
  if (asks()) return ask_here(promise);
  return tell_here(promise);
}

bool SendWaiter::ask_here(PromiseBase& promise) noexcept {
  letter_->waiting = this;
  letter_->deadline = deadline_;
  if (!begin(promise)) return false;
  ActorCell& cell = *to_.cell;
  if (cell.id != to_.id) [[unlikely]] {
    failure_ = std::make_unique<Error>(no_such_actor(*letter_));
    cell.home->note_dead(*letter_, nullptr, Errc::actor_down, "the actor has ended");
    wake();
    return true;
  }
  const auto taken = cell.offer(letter_);
  if (taken == ActorCell::Taken::yes) {
    state_ = State::waiting;
  } else if (taken == ActorCell::Taken::full) {
    cell.senders.push_back(*this);
  }
  return true;
}

bool SendWaiter::tell_here(PromiseBase& promise) noexcept {
  ActorCell& cell = *to_.cell;
  if (promise.cancel && promise.cancel->cancelled()) return begin(promise);
  if (cell.id != to_.id) {
    failure_ = std::make_unique<Error>(no_such_actor(*letter_));
    cell.home->note_dead(*letter_, nullptr, Errc::actor_down, "the actor has ended");
    return false;
  }
  std::optional<Error> refused;
  switch (cell.offer(letter_, &refused)) {
    case ActorCell::Taken::yes:
      letter_ = nullptr;
      // A loop that tells again and again lets others run now and then.
      if (promise.core->transfer_budget <= ActorCell::run_now_cost) {
        promise.schedule();
        return true;
      }
      --promise.core->transfer_budget;
      return false;
    case ActorCell::Taken::refused:
      letter_ = nullptr;
      if (refused) failure_ = std::make_unique<Error>(std::move(*refused));
      return false;
    case ActorCell::Taken::full: break;
  }
  if (!begin(promise)) return false;
  cell.senders.push_back(*this);
  return true;
}

bool SendWaiter::send_elsewhere(PromiseBase& promise, Shard& shard) noexcept {
  ActorCell& cell = *to_.cell;
  NodeShard& home = *cell.home;
  if (&shard.runtime() != &home.shard.runtime()) {
    failure_ = std::make_unique<Error>(Errc::invalid_argument,
                                       std::string("send ") + letter_->method->name,
                                       "the reference belongs to a node of another runtime");
    return false;
  }
  NodeShard& here = home.sibling(shard.index());
  const Group group = actor_id::group_of(to_.id);
  letter_->origin = &here;
  letter_->run = &arrive_at_cell;
  if (asks()) {
    letter_->waiting = this;
    letter_->deadline = deadline_;
    if (!begin(promise)) return false;
    letter_->method->detach(*letter_);
    state_ = State::waiting;
    here.post(home, letter_, group);
    return true;
  }
  if (promise.cancel && promise.cancel->cancelled()) return begin(promise);
  if (!cell.congested.load(std::memory_order_relaxed) && home.shard.has_ring_room()) {
    letter_->method->detach(*letter_);
    here.post(home, std::exchange(letter_, nullptr), group);
    return false;
  }
  if (!begin(promise)) return false;
  receipt_ = new Receipt(here, *this);
  letter_->receipt = receipt_;
  letter_->deadline = deadline_;
  letter_->method->detach(*letter_);
  state_ = State::receipt_out;
  here.post(home, std::exchange(letter_, nullptr), group);
  return true;
}

void SendWaiter::receipt_came(Receipt& receipt) noexcept {
  receipt_ = nullptr;
  state_ = State::ours;
  failure_ = std::move(receipt.failure);
  wake();
}

void SendWaiter::refused(Error error) noexcept {
  failure_ = std::make_unique<Error>(std::move(error));
  wake();
}

SendWaiter::~SendWaiter() {
  if (outgoing_) forget_outgoing(*outgoing_);
  if (state_ == State::waiting) {
    // It comes back to nobody; where a peer has it, nothing will come back.
    letter_->waiting = nullptr;
    give_up_chain(letter_);
    if (letter_->at_peer) {
      letter_->origin->forget_pending(*letter_);
      destroy(letter_);
    }
  } else if (state_ == State::receipt_out) {
    receipt_->waiter = nullptr;
  } else if (letter_) {
    destroy(letter_);
  }
}

void SendWaiter::throw_failure(const char* verb) {
  const std::string tried = std::string(verb) + " " + method_name();
  if (failure_) throw Error(std::move(*failure_));
  const bool taken = state_ == State::waiting;
  if (outcome() == Outcome::timed_out)
    throw Error(Errc::deadline_exceeded, tried,
                taken ? "no answer came in time" : "there was no room for it in time",
                "its actor is busy, stuck or far away; look at its mailbox, or wait longer");
  throw_unless_woken(tried.c_str());
  throw Error(Errc::internal, tried, "the wait ended without a result");
}

Letter* SendWaiter::take_answer() {
  const bool back = state_ == State::back && outcome() == Outcome::woken;
  if (failure_ || !back) throw_failure("ask");
  return checked_answer(letter_);
}

void SendWaiter::check_taken() {
  if (failure_ || (promise() && outcome() != Outcome::woken)) throw_failure("tell");
}

bool tell_now(const Destination& to, Letter* letter) noexcept {
  Shard* shard = Shard::current();
  if (!to.id || !shard) {
    destroy(letter);
    return false;
  }
  if (to.peer) return tell_peer_now(*to.peer, letter, to.id, *shard);
  ActorCell& cell = *to.cell;
  NodeShard& home = *cell.home;
  address(*letter, to);
  if (&home.shard == shard) {
    letter->origin = &home;
    if (cell.id == to.id) {
      std::optional<Error> refused;
      const auto taken = cell.offer(letter, &refused);
      if (taken == ActorCell::Taken::full) destroy(letter);
      return taken == ActorCell::Taken::yes;
    }
    home.note_dead(*letter, nullptr, Errc::actor_down, "the actor has ended");
  } else if (&shard->runtime() == &home.shard.runtime() &&
             !cell.congested.load(std::memory_order_relaxed) && home.shard.has_ring_room()) {
    NodeShard& here = home.sibling(shard->index());
    letter->origin = &here;
    letter->run = &arrive_at_cell;
    letter->method->detach(*letter);
    here.post(home, letter, actor_id::group_of(to.id));
    return true;
  }
  destroy(letter);
  return false;
}

}  // namespace hyperframes::detail
