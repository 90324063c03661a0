#include <algorithm>
#include <hyperframes/net/channel/codec.hpp>
#include <hyperframes/net/channel/peer.hpp>
#include <hyperframes/net/channel/state.hpp>
#include <hyperframes/net/flow_control.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>
#include <utility>

namespace hyperframes::net::detail {
namespace {

// From so many bytes on a message goes by the bulk lane, so that small ones of others pass it.
constexpr std::size_t bulk_limit = 64 << 10;

std::string came_twice(std::uint64_t number) {
  return "it sent message " + std::to_string(number) + " of a channel twice";
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

}  // namespace

ChannelRef::ChannelRef(ChannelState* state) noexcept : state_(state) {
  if (state_) ++state_->references_;
}

ChannelRef::~ChannelRef() {
  if (state_ && --state_->references_ == 0) delete state_;
}

ChannelWatch::ChannelWatch(ChannelState& channel, const TypeFilter& filter, Event& event) noexcept
    : filter_(filter), event_(event) {
  channel.watches_.push_back(*this);
}

void* Arrived::operator new(std::size_t size) { return hyperframes::detail::pool_allocate(size); }
void Arrived::operator delete(void* memory) noexcept { hyperframes::detail::pool_release(memory); }

ChannelState::ChannelState(ChannelPeer& peer, SessionRef session, std::uint32_t link,
                           std::uint32_t number, Stage stage)
    : peer_(&peer),
      options_(peer.options()),
      session_(std::move(session)),
      link_(link),
      number_(number),
      stage_(stage) {
  owes_open_ = stage == Stage::opening;
  owes_accept_ = stage == Stage::open;
}

// What it has received refers to it: that was dropped, by `close`, before the last reference.
ChannelState::~ChannelState() { detach(nullptr); }

std::string ChannelState::name() const {
  return "channel " + std::to_string(number_) + " with " + session_->peer().address;
}

// ---- Sending
// -------------------------------------------------------------------------------------

/// Hands one message over to the session, and knows whether that took it: also if the frame that
/// waits for it is destroyed.
class ChannelState::HandOver {
 public:
  HandOver(ChannelState& state, Message message, MessageType type, Lane lane, Time deadline)
      : state_(state),
        type_(std::move(type)),
        lane_(lane),
        cost_(credit_cost(wire::size_of(message))),
        sending_(*state.session_, std::move(message), lane, deadline) {
    state_.handing_over_ = true;
  }
  HandOver(const HandOver&) = delete;
  ~HandOver() {
    const bool left_alone = !resumed_ && sending_.promise();
    const bool taken = sending_.outcome() == Session::SendAwaiter::Outcome::woken;
    if (went_ || (left_alone && taken)) state_.sent(cost_, type_, lane_);
    state_.handing_over_ = false;
    if (state_.peer_) state_.peer_->owe(state_);  // such as a close that has waited for this
  }

  bool await_ready() { return sending_.await_ready(); }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return sending_.await_suspend(handle);
  }
  void await_resume() {
    resumed_ = true;
    sending_.await_resume();
    went_ = true;
  }

 private:
  ChannelState& state_;
  MessageType type_;
  Lane lane_;
  std::uint64_t cost_;
  bool resumed_ = false, went_ = false;
  Session::SendAwaiter sending_;
};

Task<void> ChannelState::until_open(Time deadline) {
  const Time until = deadline == Time{} ? after(timing().default_deadline()) : deadline;
  bool late = false;
  while (stage_ == Stage::opening && sends() && !late) {
    try {
      co_await changed_.wait(until);
    } catch (const Error& error) {
      if (!error.is(Errc::deadline_exceeded)) throw;
      late = true;
    }
  }
  if (stage_ == Stage::open && sends()) co_return;
  throw_unless_sends("open ");
  throw no_room();
}

Task<void> ChannelState::send(ChannelRef self, TypedMessage message, Time deadline) {
  self->throw_unless_sends("send on ");
  self->check(message);
  const Time until = deadline == Time{} ? after(timing().default_deadline()) : deadline;
  Semaphore::Permit turn;
  bool late = false;
  try {
    turn = co_await self->turn_.acquire(1, until);
    while (self->sends() && !self->has_room()) co_await self->changed_.wait(until);
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) throw;
    late = true;
  }
  self->throw_unless_sends("send on ");
  if (late) throw self->no_room();
  const Lane lane = lane_for(message);
  const MessageType type = message.type;
  HandOver hand_over(*self, self->compose(std::move(message), lane), type, lane, until);
  co_await hand_over;
}

Result<void> ChannelState::try_send(TypedMessage& message) {
  try {
    throw_unless_sends("send on ");
    check(message);
    if (!has_room() || !turn_.try_take(1)) return no_room(Errc::exhausted);
    const Semaphore::Permit turn(turn_, 1);
    const Lane lane = lane_for(message);
    Message wire = compose(message, lane);
    const std::uint64_t cost = credit_cost(wire::size_of(wire));
    if (auto taken = session_->try_send(wire, lane); !taken) return taken;
    sent(cost, message.type, lane);
  } catch (const Error& error) {
    return error;
  }
  message = {};
  return {};
}

bool ChannelState::sends() const noexcept {
  return peer_ && !closed_ && !peer_sent_ && stage_ != Stage::refused;
}

void ChannelState::throw_unless_sends(const char* tried) const {
  if (!sends()) throw ended(tried, "");
}

Error ChannelState::ended(const char* tried, const std::string& found) const {
  const std::string what = tried + name();
  const std::string more = found.empty() ? "" : "; " + found;
  if (closed_)
    return Error(Errc::closed, what,
                 "this end closed it" + (why_closed_ ? ": " + *why_closed_ : "") + more);
  if (failure_) return Error(failure_->code(), what, failure_->found() + more, failure_->remedy());
  return Error(Errc::closed, what,
               "the peer closed it" + (why_peer_closed_ ? ": " + *why_peer_closed_ : "") + more);
}

Error ChannelState::no_room(Errc code) const {
  const std::string tried = "send on " + name();
  if (stage_ == Stage::opening) return Error(code, tried, "the peer has not accepted it yet");
  if (credit_ > 0) return Error(code, tried, "others that send on it were not done in time");
  const std::int64_t waiting = static_cast<std::int64_t>(peer_window_) - credit_;
  return Error(code, tried,
               "the peer holds " + std::to_string(waiting) + " bytes of it, its window is " +
                   std::to_string(peer_window_),
               "see that the peer receives, and lets go of what it received; or raise its "
               "window_bytes");
}

void ChannelState::check(const TypedMessage& message) const {
  if (!message.type)
    throw Error(Errc::invalid_argument, "send on " + name(), "the message has no type",
                "give it one, such as ml.splitter.batch");
  const auto refuse = [&](const std::string& key, const std::string& found,
                          const std::string& remedy) {
    throw Error(Errc::invalid_argument, "send a message " + std::string(message.type.name()),
                "its metadata has the key '" + key + "', " + found, remedy);
  };
  for (const auto& [key, text] : message.metadata) {
    if (!std::ranges::binary_search(options().keys, key))
      refuse(key, "which is not declared; declared are: " + listed(options().keys),
             "declare it in Messenger::Options::keys, at both ends");
    const auto* theirs = peer_->keys();
    if (theirs && !std::ranges::binary_search(*theirs, key))
      refuse(key, "which the peer does not declare; it declares: " + listed(*theirs),
             "declare it in Messenger::Options::keys of the peer too");
  }
  if (const auto fault = peer_->type_fault(message.type); !fault.empty())
    throw Error(Errc::exhausted, "send a message " + std::string(message.type.name()), fault,
                "put what varies into the metadata, not into the type");
}

Lane ChannelState::lane_for(const TypedMessage& message) noexcept {
  return message.body.size() + message.segments.size_bytes() < bulk_limit ? Lane::normal
                                                                          : Lane::bulk;
}

Message ChannelState::compose(TypedMessage message, Lane lane) const {
  const bool named = !peer_->has_told(link_, lane, message.type);
  Message wire;
  wire.envelope.type_id = message.type.id();
  wire.envelope.correlation = sent_ + 1;
  wire.envelope.flags = static_cast<std::uint8_t>(ChannelOp::data);
  wire.envelope.channel = number_;
  wire.envelope.link = link_;
  wire.metadata = encode_metadata(named ? &message.type : nullptr, message.metadata);
  wire.body = std::move(message.body);
  wire.segments = std::move(message.segments);
  return wire;
}

void ChannelState::sent(std::uint64_t cost, const MessageType& type, Lane lane) noexcept {
  ++sent_;
  credit_ -= static_cast<std::int64_t>(cost);
  if (peer_) peer_->tell(link_, lane, type);
}

// ---- Receiving
// -----------------------------------------------------------------------------------

/// One received message, while anything refers to a part of it. The parts may lie in memory of
/// their own: what is lent does.
struct ChannelState::Charged : hyperframes::detail::Block {
  ChannelRef channel;
  std::uint64_t cost = 0;
  Buffer body;
  Segments segments;

  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Charged*>(block);
    const ChannelRef channel = std::move(self->channel);
    const std::uint64_t cost = self->cost;
    self->~Charged();
    hyperframes::detail::pool_release(self);
    channel->freed(cost);
  }
};

/// Its parts become references to one block, which keeps all of them. An empty body is one too, so
/// that there always is one.
void ChannelState::charge(TypedMessage& message, std::uint64_t cost) {
  auto* block = new (hyperframes::detail::pool_allocate(sizeof(Charged))) Charged;
  block->kind = message.body.kind();
  block->home = Shard::current();
  block->data = message.body.data();
  block->capacity = message.body.size();
  block->dispose = &Charged::end;
  block->channel = ChannelRef(this);
  block->cost = cost;
  block->body = std::move(message.body);
  block->segments = std::exchange(message.segments, Segments());
  message.body = Buffer::adopt(block, block->body.data(), block->body.size());
  for (const Buffer& part : block->segments) {
    if (!part.empty()) hyperframes::detail::retain(block);
    message.segments.push_back(part.empty() ? Buffer()
                                            : Buffer::adopt(block, part.data(), part.size()));
  }
}

void ChannelState::freed(std::uint64_t cost) noexcept {
  owed_ += cost;
  listen();
  if (peer_ && owes()) peer_->owe(*this);
}

// Buffers may be destroyed on other shards: this one is woken for that while the peer may wait.
void ChannelState::listen() noexcept {
  const bool wanted = peer_ && !closed_ && used_ - owed_ >= options().window_bytes / 2;
  Shard* const shard = Shard::current();
  if (wanted == listening_ || !shard) return;
  listening_ = wanted;
  if (wanted) {
    shard->begin_memory_wait();
  } else {
    shard->end_memory_wait();
  }
}

std::string ChannelState::admit(std::uint64_t number, Lane lane) {
  if (number == 0) return "it sent a message without a number on a channel";
  if (lane == Lane::control) return "it sent a message of a channel by the lane control";
  const std::uint64_t before = from(lane).highest;
  if (number == before || number <= delivered_) return came_twice(number);
  if (number < before)
    return "it sent message " + std::to_string(number) + " of a channel after message " +
           std::to_string(before) + " by one lane";
  if (peer_sent_ && number > *peer_sent_)
    return "it sent a message after it had closed the channel";
  if (used_ >= options().window_bytes && !closed_)
    return "it sent more on a channel than it had credit for";
  return {};
}

void ChannelState::arrive(TypedMessage message, std::uint64_t number, Lane lane,
                          std::uint64_t cost) {
  ++arrived_;
  from(lane).highest = number;
  if (closed_) return;
  used_ += cost;
  listen();
  charge(message, cost);
  auto* arrived = new Arrived;
  arrived->message = std::move(message);
  arrived->number = number;
  arrived->cost = cost;
  if (number == delivered_ + 1) {
    deliver(*arrived);
    return deliver_early();
  }
  from(lane).early.push_back(*arrived);
}

void ChannelState::deliver(Arrived& arrived) noexcept {
  delivered_ = arrived.number;
  held_ += arrived.cost;
  count(arrived.message.type);
  queue_.push_back(arrived);
  wake_matching(arrived.message.type);
}

// What passed others on the way and need not wait for them any more. Each lane's are in order, so a
// number can't be first in both: what it waits for would have come by one of them, and before.
void ChannelState::deliver_early() noexcept {
  while (true) {
    Arrived* next = nullptr;
    for (auto* early : {&small_.early, &large_.early}) {
      if (!early->empty() && early->front().number == delivered_ + 1) next = &early->front();
    }
    if (!next) return;
    next->unlink();
    deliver(*next);
  }
}

void ChannelState::count(const MessageType& type) {
  for (Arrival& arrival : arrivals_) {
    if (arrival.type != type) continue;
    ++arrival.count;
    return;
  }
  if (arrivals_.size() < most_arrivals) {
    arrivals_.push_back({type, 1});
  } else {
    ++other_arrivals_;
  }
}

void ChannelState::wake_matching(const MessageType& type) noexcept {
  watches_.for_each([&](ChannelWatch& watch) {
    if (watch.filter_.matches(type)) watch.event_.set();
  });
}

void ChannelState::wake_all() noexcept {
  changed_.pulse();
  watches_.for_each([](ChannelWatch& watch) { watch.event_.set(); });
}

bool ChannelState::has(const TypeFilter& filter) const noexcept {
  bool found = false;
  const_cast<hyperframes::detail::List<Arrived>&>(queue_).visit_while([&](Arrived& arrived) {
    found = filter.matches(arrived.message.type);
    return !found;
  });
  return found;
}

std::optional<TypedMessage> ChannelState::take(const TypeFilter& filter) {
  Arrived* first = nullptr;
  queue_.visit_while([&](Arrived& arrived) {
    if (filter.matches(arrived.message.type)) first = &arrived;
    return !first;
  });
  if (!first) return std::nullopt;
  const std::unique_ptr<Arrived> taken(first);
  taken->unlink();
  held_ -= taken->cost;
  return std::move(taken->message);
}

bool ChannelState::is_finished() const noexcept {
  return closed_ || failure_ || (peer_sent_ && delivered_ == *peer_sent_);
}

void ChannelState::throw_if_over(const TypeFilter& filter) const {
  if (!is_finished()) return;
  throw ended("receive on ", queue_.empty() ? ""
                                            : "no '" + std::string(filter.pattern()) +
                                                  "' came, but " + arrivals_text());
}

std::string ChannelState::arrivals_text() const {
  if (arrivals_.empty()) return "nothing at all";
  std::string text;
  for (const Arrival& arrival : arrivals_)
    text += (text.empty() ? "" : ", ") + std::string(arrival.type.name()) + " (" +
            std::to_string(arrival.count) + ")";
  if (other_arrivals_) text += ", and " + std::to_string(other_arrivals_) + " of other types";
  return text;
}

Error ChannelState::unmatched(const TypeFilter& filter) const {
  const std::string tried = "receive '" + std::string(filter.pattern()) + "' on " + name();
  if (queue_.empty())
    return Error(Errc::deadline_exceeded, tried, "nothing waits; so far came " + arrivals_text());
  return Error(Errc::deadline_exceeded, tried,
               "nothing that came matches it; so far came " + arrivals_text() + "; " +
                   std::to_string(held_) + " bytes wait to be received, the window is " +
                   std::to_string(options().window_bytes),
               "compare the filter with these types, and receive the others too: when the window "
               "is full, the sender waits");
}

Task<TypedMessage> ChannelState::receive(ChannelRef self, TypeFilter filter, Time deadline) {
  if (auto next = self->take(filter)) co_return std::move(*next);
  Event come;
  const ChannelWatch watch(*self, filter, come);
  Duration patience = self->options().report_unmatched_after;
  Time report = after(patience);
  while (true) {
    if (auto next = self->take(filter)) co_return std::move(*next);
    self->throw_if_over(filter);
    come.reset();
    const Time until = std::min(deadline, report);
    bool late = false;
    try {
      co_await come.wait(until);
    } catch (const Error& error) {
      // Another deadline, of those that wait for this, ends it as well.
      if (!error.is(Errc::deadline_exceeded) || Clock::now() < until) throw;
      late = true;
    }
    if (!late) continue;
    if (Clock::now() >= deadline) throw self->unmatched(filter);
    if (self->holds_unmatched()) log::warning(self->unmatched(filter).what());
    report = after(patience *= 2);
  }
}

// ---- Life
// ----------------------------------------------------------------------------------------

void ChannelState::close(std::string why) noexcept {
  if (closed_) return;
  closed_ = true;
  if (!why.empty()) why_closed_ = std::make_unique<std::string>(std::move(why));
  drop_received();
  listen();
  wake_all();
  if (peer_) peer_->owe(*this);
}

void ChannelState::clear(hyperframes::detail::List<Arrived>& list) noexcept {
  while (Arrived* arrived = list.pop_front()) delete arrived;
}

// Each of them ends in `freed`.
void ChannelState::drop_received() noexcept {
  clear(queue_);
  clear(small_.early);
  clear(large_.early);
  held_ = 0;
}

void ChannelState::begin(std::uint64_t credit) noexcept {
  stage_ = Stage::open;
  credit_ = static_cast<std::int64_t>(credit);
  peer_window_ = credit;
  changed_.pulse();
}

void ChannelState::refuse(Error why) noexcept {
  stage_ = Stage::refused;
  failure_ = std::make_unique<Error>(std::move(why));
  wake_all();
}

std::string ChannelState::take_credit(std::uint64_t bytes) noexcept {
  const std::int64_t most = static_cast<std::int64_t>(peer_window_) - credit_;
  if (stage_ != Stage::open || bytes == 0 || bytes > static_cast<std::uint64_t>(most))
    return "it returned more credit than it had lent";
  credit_ += static_cast<std::int64_t>(bytes);
  changed_.pulse();
  return {};
}

std::string ChannelState::take_close(std::uint64_t sent, std::string why) noexcept {
  if (stage_ != Stage::open || peer_sent_) return "it closed a channel that is not open";
  if (sent < std::max(small_.highest, large_.highest))
    return "it closed a channel after fewer messages than came";
  peer_sent_ = sent;
  if (!why.empty()) why_peer_closed_ = std::make_unique<std::string>(std::move(why));
  wake_all();
  return {};
}

bool ChannelState::owes() const noexcept {
  if (stage_ == Stage::opening) return owes_open_;
  if (stage_ == Stage::refused || close_said_) return false;
  const bool closes = closed_ || peer_sent_;
  return owes_accept_ || (closes && !handing_over_) ||
         (!closes && owed_ >= std::max<std::uint64_t>(options().window_bytes / 4, 1));
}

Message ChannelState::next_word() {
  Message word;
  word.envelope.channel = number_;
  word.envelope.link = link_;
  ChannelOp op = ChannelOp::credit;
  if (owes_open_ || owes_accept_) {
    op = owes_open_ ? ChannelOp::open : ChannelOp::accepted;
    owes_open_ = owes_accept_ = false;
    word.envelope.context = options().window_bytes;
    word.body = encode_opening(options().keys);
  } else if (closed_ || peer_sent_) {
    op = ChannelOp::close;
    close_said_ = true;
    word.envelope.correlation = sent_;
    if (why_closed_) word.body = Buffer::copy_of(std::string_view(*why_closed_).substr(0, 1024));
  } else {
    word.envelope.context = owed_;
    used_ -= std::exchange(owed_, 0);
  }
  word.envelope.flags = static_cast<std::uint8_t>(op);
  return word;
}

bool ChannelState::is_over() const noexcept {
  return close_said_ && peer_sent_ && arrived_ == *peer_sent_;
}

void ChannelState::detach(const Error* reason) noexcept {
  owing_.unlink();
  peer_ = nullptr;
  for (auto* early : {&small_.early, &large_.early}) clear(*early);  // what they wait for is lost
  if (reason && !failure_) failure_ = std::make_unique<Error>(*reason);
  listen();
  wake_all();
}

ChannelStats ChannelState::stats() const {
  ChannelStats stats;
  stats.sent = sent_;
  stats.received = delivered_;
  stats.unreceived_bytes = held_;
  stats.unreceived_messages = queue_.size();
  stats.held_bytes = used_ - owed_;
  stats.window_bytes = options().window_bytes;
  stats.credit_bytes = credit_;
  return stats;
}

}  // namespace hyperframes::net::detail
