#include <algorithm>
#include <hyperframes/net/channel/codec.hpp>
#include <hyperframes/net/channel/peer.hpp>
#include <hyperframes/net/flow_control.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::net::detail {
namespace {

// No window that a node lends is larger.
constexpr std::uint64_t largest_window = std::uint64_t{1} << 40;
constexpr std::size_t longest_text = 1024;

/// A peer's words, for people.
std::string text_of(const Buffer& body) {
  std::string text;
  for (const char c : body.text().substr(0, longest_text)) text += c >= ' ' && c < 127 ? c : '?';
  return text;
}

}  // namespace

ChannelPeer::ChannelPeer(Owner& owner, SessionRef session,
                         std::shared_ptr<const ChannelOptions> options, bool odd)
    : owner_(owner),
      session_(std::move(session)),
      options_(std::move(options)),
      parity_(odd ? 1 : 0),
      next_number_(odd ? 1 : 2) {}

ChannelPeer::~ChannelPeer() {
  if (flush_.queued) Shard::current()->unschedule(&flush_, Group::system);
}

ChannelRef ChannelPeer::begin_open() {
  const std::uint32_t link = session_->link();
  // They come round after two thousand million openings; 0 and the highest are none.
  while (next_number_ + 1 < 2 || channels_.contains(ChannelState::key_of(link, next_number_)))
    next_number_ += 2;
  ChannelRef state(
      new ChannelState(*this, session_, link, next_number_, ChannelState::Stage::opening));
  next_number_ += 2;
  channels_.emplace(state->key(), state);
  owe(*state);
  return state;
}

// ---- What the peer is told
// -----------------------------------------------------------------------

bool ChannelPeer::has_told(std::uint32_t link, Lane lane, const MessageType& type) const noexcept {
  return told_.contains(Told{type.id(), link, lane});
}

void ChannelPeer::tell(std::uint32_t link, Lane lane, const MessageType& type) {
  if (!told_.insert(Told{type.id(), link, lane}).second) return;
  types_told_.insert(type.id());
}

std::string ChannelPeer::type_fault(const MessageType& type) const {
  if (types_told_.size() < most_types || types_told_.contains(type.id())) return {};
  return "this session has used " + std::to_string(most_types) + " types, which is the limit";
}

void ChannelPeer::owe(ChannelState& state) noexcept {
  if (down_ || state.owing_.linked() || !(state.owes() || state.is_forgotten())) return;
  owing_.push_back(state.owing_);
  schedule();
}

// Not at once: this is called from where buffers end, which may be anywhere.
void ChannelPeer::schedule() noexcept {
  if (flush_.queued || pumping_) return;
  flush_.queued = true;
  Shard::current()->schedule(&flush_, Group::system);
}

void ChannelPeer::Flush::go(hyperframes::detail::Work* work) noexcept {
  auto& self = static_cast<Flush&>(*work);
  self.queued = false;
  self.peer.flush();
}

bool ChannelPeer::next_word(Message& word) {
  if (!refusals_.empty()) {
    const Refusal refusal = std::move(refusals_.front());
    refusals_.pop_front();
    word = {};
    word.envelope.channel = refusal.number;
    word.envelope.link = refusal.link;
    word.envelope.flags = static_cast<std::uint8_t>(ChannelOp::refused);
    word.envelope.context = static_cast<std::uint64_t>(Errc::exhausted);
    word.body = Buffer::copy_of(refusal.text);
    return true;
  }
  while (!owing_.empty()) {
    ChannelState& state = owing_.front().state;
    if (state.is_forgotten()) {
      forget(state);
    } else if (state.owes()) {
      word = state.next_word();
      if (!state.owes()) state.owing_.unlink();
      forget_if_over(state);
      return true;
    } else {
      state.owing_.unlink();
    }
  }
  return false;
}

void ChannelPeer::flush() noexcept {
  if (down_ || pumping_) return;
  const auto self = shared_from_this();
  Message word;
  while (next_word(word)) {
    if (session_->try_send(word, Lane::control)) continue;
    pumping_ = true;
    return Shard::current()->spawn(pump(self, std::move(word)), Group::system);
  }
}

/// Once the session makes this side wait.
Task<void> ChannelPeer::pump(std::shared_ptr<ChannelPeer> self, Message word) {
  try {
    do {
      co_await self->session_->send(std::move(word), Lane::control, no_deadline);
    } while (!self->down_ && self->next_word(word));
  } catch (const Error& error) {
    log::debug(error.what());  // the session has ended, or the runtime does
  }
  self->pumping_ = false;
}

// ---- What the peer says
// --------------------------------------------------------------------------

void ChannelPeer::broken(const std::string& found, const char* remedy) noexcept {
  const Error error(Errc::corrupt, "receive from " + session_->peer().address, found,
                    std::string("the session was closed; ") + remedy);
  log::warning(error.what());
  const SessionRef session = session_;
  went_down(error);
  session->close(found);
}

void ChannelPeer::on_message(Lane lane, Message message) noexcept {
  if (down_) return;
  const auto self = shared_from_this();
  if (message.envelope.channel == 0)
    return broken(
        "it sent a message for an actor, and a Messenger, which has channels only, is here",
        "let it connect to the address of a Node");
  if (std::string fault = obey(lane, message); !fault.empty())
    broken(fault, "run the same release on both ends");
}

/// What is wrong with it, or nothing.
std::string ChannelPeer::obey(Lane lane, Message& message) {
  const Envelope& envelope = message.envelope;
  if (envelope.kind != MessageKind::tell) return "a message on a channel asks or answers";
  const auto op = static_cast<ChannelOp>(envelope.flags);
  if (op == ChannelOp::open) return on_open(message);
  const auto found = channels_.find(ChannelState::key_of(envelope.link, envelope.channel));
  if (found == channels_.end())
    return "it sent on channel " + std::to_string(envelope.channel) + ", which is not open";
  const ChannelRef state = found->second;
  switch (op) {
    case ChannelOp::accepted: return on_accepted(*state, message);
    case ChannelOp::refused: return on_refused(*state, message);
    case ChannelOp::data: return on_data(*state, lane, message);
    case ChannelOp::credit: return state->take_credit(envelope.context);
    case ChannelOp::close: return on_close(*state, message);
    default: break;
  }
  return "it says something on a channel that this node does not know: " +
         std::to_string(envelope.flags);
}

std::string ChannelPeer::read_opening(const Message& message) {
  const std::uint64_t window = message.envelope.context;
  if (window == 0 || window > largest_window) return "a channel's window is out of range";
  auto keys = decode_opening(message.body.bytes());
  if (!keys) return keys.error().what();
  if (!keys_)
    keys_ = std::make_shared<const std::vector<std::string>>(std::move(*keys));
  else if (*keys_ != *keys)
    return "it declares other metadata keys than before";
  return {};
}

std::string ChannelPeer::on_open(const Message& message) {
  const std::uint32_t number = message.envelope.channel, link = message.envelope.link;
  if (number % 2 == parity_) return "it opened a channel with a number of this side's";
  if (channels_.contains(ChannelState::key_of(link, number)))
    return "it opened channel " + std::to_string(number) + " twice";
  if (std::string fault = read_opening(message); !fault.empty()) return fault;
  const bool too_many = opened_by_peer_ >= options_->max_channels;
  if (too_many || !owner_.may_open()) {
    if (refusals_.size() >= most_refusals) return "it opens channels without end";
    refusals_.push_back({link, number,
                         too_many ? "it has " + std::to_string(opened_by_peer_) +
                                        " channels of this peer open, which is its max_channels"
                                  : "too many channels wait there to be accepted"});
    schedule();
    return {};
  }
  ChannelRef state(new ChannelState(*this, session_, link, number, ChannelState::Stage::open));
  state->begin(message.envelope.context);
  channels_.emplace(state->key(), state);
  ++opened_by_peer_;
  owe(*state);
  owner_.on_opened(std::move(state));
  return {};
}

std::string ChannelPeer::on_accepted(ChannelState& state, const Message& message) {
  if (state.stage() != ChannelState::Stage::opening || state.owes_open_)
    return "it accepted a channel that it was not asked for";
  if (std::string fault = read_opening(message); !fault.empty()) return fault;
  state.begin(message.envelope.context);
  owe(state);  // it may have been closed meanwhile
  return {};
}

std::string ChannelPeer::on_refused(ChannelState& state, const Message& message) {
  if (state.stage() != ChannelState::Stage::opening || state.owes_open_)
    return "it refused a channel that it was not asked for";
  const bool known = message.envelope.context == static_cast<std::uint64_t>(Errc::exhausted);
  state.refuse(Error(known ? Errc::exhausted : Errc::rejected,
                     "open a channel with " + session_->peer().address,
                     "the peer refused it: " + text_of(message.body),
                     "close channels that are not used, or raise the peer's max_channels"));
  forget(state);
  return {};
}

/// The type that its id stands for, which the message itself may name, and its metadata.
std::string ChannelPeer::read_type(TypedMessage& into, const Message& message) {
  const std::uint64_t id = message.envelope.type_id;
  if (!message.metadata.empty()) {
    auto read = decode_metadata(message.metadata.bytes());
    if (!read) return read.error().what();
    into.metadata = std::move(read->metadata);
    for (const auto& [key, text] : into.metadata)
      if (!std::ranges::binary_search(options_->keys, key))
        return "its metadata has the key '" + key + "', which is not declared here";
    if (read->type) {
      if (read->type->id() != id) return "it names a type by the id of another one";
      const auto known = types_.find(id);
      if (known == types_.end()) {
        if (types_.size() >= most_types)
          return "it names more than " + std::to_string(most_types) + " types";
        types_.emplace(id, *read->type);
      } else if (known->second != *read->type) {
        return "it has two types with one id";
      }
    }
  }
  const auto known = types_.find(id);
  if (known == types_.end())
    return "it sent a message of type " + std::to_string(id) + ", which it has not named";
  into.type = known->second;
  return {};
}

std::string ChannelPeer::on_data(ChannelState& state, Lane lane, Message& message) {
  const std::uint64_t number = message.envelope.correlation;
  const std::uint64_t cost = credit_cost(wire::size_of(message));
  if (std::string fault = state.admit(number, lane); !fault.empty()) return fault;
  TypedMessage typed;
  if (std::string fault = read_type(typed, message); !fault.empty()) return fault;
  typed.body = std::move(message.body);
  typed.segments = std::move(message.segments);
  state.arrive(std::move(typed), number, lane, cost);
  forget_if_over(state);
  return {};
}

std::string ChannelPeer::on_close(ChannelState& state, const Message& message) {
  if (std::string fault = state.take_close(message.envelope.correlation, text_of(message.body));
      !fault.empty())
    return fault;
  owe(state);
  forget_if_over(state);
  return {};
}

// ---- Life
// ----------------------------------------------------------------------------------------

void ChannelPeer::forget_if_over(ChannelState& state) noexcept {
  if (state.is_over()) forget(state);
}

void ChannelPeer::forget(ChannelState& state) noexcept {
  const auto found = channels_.find(state.key());
  if (found == channels_.end()) return;
  const ChannelRef kept = std::move(found->second);
  channels_.erase(found);
  if (kept->number() % 2 != parity_) --opened_by_peer_;
  kept->detach(nullptr);
}

void ChannelPeer::went_down(const Error& reason) noexcept {
  if (std::exchange(down_, true)) return;
  const auto channels = std::move(channels_);
  channels_.clear();
  for (const auto& [key, channel] : channels) channel->detach(&reason);
  refusals_.clear();
}

}  // namespace hyperframes::net::detail
