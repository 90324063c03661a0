#include <algorithm>
#include <cassert>
#include <cstring>
#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/link.hpp>
#include <string>
#include <utility>

namespace hyperframes::net::detail {
namespace {

// From this much on, bytes are received straight into the message's memory.
constexpr std::uint64_t direct_limit = 32 << 10;
// What is received is acknowledged at the latest after so much, or so long.
constexpr std::uint64_t ack_bytes = 256 << 10, ack_frames = 2048;
constexpr Duration ack_delay = 20ms;
// A message above this size from a peer that lends gets memory for its head only, until something
// comes that is not lent and does not fit: often nothing does.
constexpr std::uint64_t sparse_limit = 64 << 10;
constexpr std::size_t head_bytes = 16 << 10;
// No node lends more than that on a lane, or for answers; what a peer says beyond it is refused.
constexpr std::uint64_t largest_window = 64 << 20;

}  // namespace

bool Link::in_bulk() const noexcept {
  return std::ranges::any_of(in_, [](const LaneIn& lane) {
    return lane.active() && lane.total - lane.received >= direct_limit;
  });
}

Buffer Link::receive_target() noexcept {
  if (end_) return {};
  if (remaining_) {
    // A stream of chunks, once begun for the tail, would take much of the next message along.
    const bool small = remaining_ < direct_limit && !in_bulk() && !expects_large_;
    if (frame_.kind != FrameKind::data || small) return {};
    const LaneIn& lane = in(frame_.lane);
    if (lane.sparse) return {};
    // The header of the next frame comes along: it lands where the next fragment's bytes will.
    const bool is_last = lane.total - lane.received - remaining_ < FrameHeader::size;
    return lane.memory.slice(lane.received, remaining_ + (is_last ? 0 : FrameHeader::size));
  }
  if (in_bulk() || expects_large_) return carry_.slice(carried_, FrameHeader::size - carried_);
  return {};
}

void Link::on_chunk(Buffer chunk) noexcept {
  heard();
  expects_large_ = false;
  bytes_received_ += chunk.size();
  consume(chunk.data(), chunk.size());
  after_receive();
}

void Link::on_filled(std::size_t size) noexcept {
  heard();
  bytes_received_ += size;
  if (remaining_) {
    const std::size_t payload = std::min<std::uint64_t>(size, remaining_);
    const LaneIn& lane = in(frame_.lane);
    carried_ = size - payload;
    std::memcpy(carry_.data(), lane.memory.data() + lane.received + payload, carried_);
    advance(payload);
  } else {
    carried_ += size;
  }
  if (!end_ && carried_ == FrameHeader::size) {
    carried_ = 0;
    if (begin_frame(carry_.data()) && (frame_.kind != FrameKind::data || begin_data())) {
      remaining_ = frame_.length;
      if (!remaining_) finish_frame();
    }
  }
  if (frame_.kind == FrameKind::data) expects_large_ = frame_.total >= direct_limit;
  after_receive();
}

void Link::consume(const std::byte* at, std::size_t size) {
  while (size && !end_) {
    if (remaining_) {
      const std::size_t part = std::min<std::uint64_t>(size, remaining_);
      if (frame_.kind == FrameKind::data) {
        copy_in(in(frame_.lane), at, part);
      } else {
        text_.append(reinterpret_cast<const char*>(at), part);
      }
      at += part;
      size -= part;
      advance(part);
      continue;
    }
    const std::byte* header = at;
    if (carried_ || size < FrameHeader::size) {
      const std::size_t part = std::min(size, FrameHeader::size - carried_);
      std::memcpy(carry_.data() + carried_, at, part);
      carried_ += part;
      at += part;
      size -= part;
      if (carried_ < FrameHeader::size) return;
      carried_ = 0;
      header = carry_.data();
    } else {
      at += FrameHeader::size;
      size -= FrameHeader::size;
    }
    if (!begin_frame(header)) return;
    if (frame_.kind == FrameKind::data) {
      if (frame_.length == frame_.total && frame_.length <= size && !in(frame_.lane).active() &&
          in(frame_.lane).grant.message != frame_.message) {
        if (!deliver_at_once(at)) return;
        at += frame_.length;
        size -= frame_.length;
        continue;
      }
      if (!begin_data()) return;
    }
    remaining_ = frame_.length;
    if (!remaining_) finish_frame();
  }
}

bool Link::begin_frame(const std::byte* header) {
  const std::span<const std::byte, FrameHeader::size> bytes(header, FrameHeader::size);
  const FrameFault fault = decode(bytes, limits_, frame_);
  if (fault != FrameFault::none) {
    fail(frame_error(fault, bytes));
    return false;
  }
  if (frame_.sequence ? frame_.sequence != delivered_ + 1 : frame_.kind >= FrameKind::hello) {
    corrupt("frame " + std::to_string(frame_.sequence) + " (" + std::string(name(frame_.kind)) +
            ") came after frame " + std::to_string(delivered_));
    return false;
  }
  if (frame_.acknowledgement > sequence_) {
    corrupt("it acknowledged frame " + std::to_string(frame_.acknowledgement) + " of " +
            std::to_string(sequence_));
    return false;
  }
  acknowledged(frame_.acknowledgement);
  text_.clear();
  return true;
}

// The common case: all of a small message lies in the chunk.
bool Link::deliver_at_once(const std::byte* payload) {
  LaneIn& lane = in(frame_.lane);
  if (frame_.message <= lane.last_message) {
    corrupt("message " + std::to_string(frame_.message) + " is out of order");
    return false;
  }
  const std::span<const std::byte, wire::envelope_size> bytes(payload, wire::envelope_size);
  wire::MessageHead head;
  if (!wire::read_head(bytes, frame_.total, head)) {
    fail(wire::decode_head(bytes, frame_.total).error());
    return false;
  }
  const std::uint64_t cost = credit_cost(frame_.total);
  const bool prepaid = frame_.flags & frame_flag::prepaid;
  if (!(prepaid ? account_->begin_reply(frame_.total) : account_->charge(frame_.lane, cost))) {
    corrupt("it sent more than it had credit for");
    return false;
  }
  const auto charge = prepaid ? ReceiveAccount::Charge::reply : charge_for(cost);
  const std::size_t size = frame_.total - wire::envelope_size;
  Buffer rest = account_->allocate(charge, cost, size);
  if (size) std::memcpy(rest.data(), payload + wire::envelope_size, size);
  lane.last_message = frame_.message;
  delivered_ = frame_.sequence;
  unacked_bytes_ += FrameHeader::size + frame_.length;
  head.envelope.link = settings_.index;
  head.envelope.channel = frame_.channel;
  if (head.only_body(frame_.total)) {
    if (!settle(head.envelope, frame_.total, frame_.flags)) return false;
    ++lane.received_count;
    // Built where the handler takes it: each move on the way would cost as much as the copy above.
    owner_.handler().on_message(
        session_, frame_.lane,
        Message{
            .envelope = head.envelope, .metadata = {}, .body = std::move(rest), .segments = {}});
    return !end_;
  }
  auto message = wire::decode_parts(head, std::move(rest));
  if (!message) {
    fail(message.error());
    return false;
  }
  deliver(frame_.lane, std::move(*message), frame_.total, frame_.flags);
  return !end_;
}

// A fragment, or a message that is not here as a whole yet: it gets its memory now.
bool Link::begin_data() {
  LaneIn& lane = in(frame_.lane);
  // From its first byte as well: a connection may have broken within its first frame.
  const bool goes_on = lane.active() && lane.message == frame_.message &&
                       lane.total == frame_.total && lane.received == frame_.offset &&
                       lane.channel == frame_.channel && lane.flags == frame_.flags;
  if (goes_on) return true;
  if (frame_.offset) {
    corrupt("a fragment of message " + std::to_string(frame_.message) + " does not fit");
    return false;
  }
  // Answers may have passed it while it waited for its grant.
  const bool prepaid = frame_.flags & frame_flag::prepaid;
  const bool granted = !prepaid && lane.grant.granted && lane.grant.message == frame_.message;
  if (lane.active() || (!granted && frame_.message <= lane.last_message)) {
    corrupt("message " + std::to_string(frame_.message) + " is out of order");
    return false;
  }
  const std::uint64_t cost = credit_cost(frame_.total);
  auto charge = ReceiveAccount::charge_of(frame_.lane);
  bool paid;
  if (prepaid) {
    charge = ReceiveAccount::Charge::reply;
    paid = account_->begin_reply(frame_.total);
  } else if (granted) {
    charge = ReceiveAccount::Charge::granted;
    paid = lane.grant.total == frame_.total;
    if (paid) {
      lane.grant.granted = false;
      lane.grant.message = 0;
    }
  } else {
    paid = account_->charge(frame_.lane, cost);
    if (paid) charge = charge_for(cost);
  }
  if (!paid) {
    corrupt("it sent more than it had credit for");
    return false;
  }
  lane.channel = frame_.channel;
  lane.message = frame_.message;
  lane.total = frame_.total;
  lane.received = 0;
  lane.flags = frame_.flags;
  lane.granted = granted;
  lane.charge = charge;
  lane.sparse =
      frame_.total > sparse_limit && settings_.take_loans && transport_->may_bring_loans();
  lane.copied = 0;
  lane.memory = account_->allocate(charge, cost, lane.sparse ? head_bytes : frame_.total);
  return true;
}

void Link::advance(std::size_t size) {
  remaining_ -= size;
  if (frame_.kind == FrameKind::data) {
    in(frame_.lane).received += size;
    in(frame_.lane).progress += size;
  }
  if (!remaining_) finish_frame();
}

void Link::finish_frame() {
  if (frame_.sequence) {
    delivered_ = frame_.sequence;
    carried_something_ = true;
    unacked_bytes_ += FrameHeader::size + frame_.length;
  }
  if (frame_.kind != FrameKind::data) return obey();
  LaneIn& lane = in(frame_.lane);
  if (lane.received == lane.total) finish_message(lane);
}

void Link::finish_message(LaneIn& lane) {
  lane.last_message = std::max(lane.last_message, lane.message);
  auto message =
      lane.lent.empty() ? wire::decode(std::exchange(lane.memory, Buffer())) : assemble(lane);
  const std::uint64_t total = std::exchange(lane.total, 0);
  drop_message(lane);
  if (!message) return fail(message.error());
  deliver(frame_.lane, std::move(*message), total, lane.flags);
}

// A channel has credit of its own. What it holds is no credit of its lane's as long as there is
// memory: so one that nobody receives from stops none of the others.
ReceiveAccount::Charge Link::charge_for(std::uint64_t cost) noexcept {
  return frame_.channel ? account_->move_to_budget(frame_.lane, cost)
                        : ReceiveAccount::charge_of(frame_.lane);
}

// The room that an ask has kept for its answer is taken by that, or free again; and what the peer's
// asks keep free is no more than it has.
bool Link::settle(const Envelope& envelope, std::uint64_t total, std::uint8_t flags) {
  const bool prepaid = flags & frame_flag::prepaid;
  const bool has_room = is_answer(envelope.kind) && envelope.reply_room != 0;
  const bool fits = !has_room ? !prepaid
                    : prepaid ? account_->finish_reply(envelope.reply_room, total)
                              : account_->release_reply(envelope.reply_room);
  if (!fits) {
    corrupt("it answered more than it was asked");
    return false;
  }
  if (envelope.kind != MessageKind::ask || !envelope.reply_room) return true;
  const std::uint64_t room = credit_cost(envelope.reply_room);
  if (room > peer_reply_window_ - asked_) {
    corrupt("it asked for more than it has room for answers");
    return false;
  }
  asked_ += room;
  return true;
}

void Link::deliver(Lane lane, Message message, std::uint64_t total, std::uint8_t flags) {
  if (!settle(message.envelope, total, flags)) return;
  ++in(lane).received_count;
  message.envelope.link = settings_.index;
  message.envelope.channel = frame_.channel;
  owner_.handler().on_message(session_, lane, std::move(message));
}

void Link::obey() {
  LaneOut& lane = out(frame_.lane);
  switch (frame_.kind) {
    case FrameKind::announce: return obey_announce();
    case FrameKind::grant:
      if (lane.announced != frame_.message) return;  // it was withdrawn meanwhile
      lane.granted = true;
      return pump(frame_.lane);
    case FrameKind::refuse:
      if (lane.announced != frame_.message) return;
      if (lane.anybody_waits() && next_to_go(lane)->announced_ == frame_.message) {
        Session::SendAwaiter& first = *next_to_go(lane);
        first.announced_ = 0;
        unpromise_room(first.message_.envelope);
        first.failure_ = std::make_unique<Error>(
            Errc::too_large, "send a message of " + std::to_string(first.total_) + " bytes",
            "the peer refused it: " + printable(text_),
            "raise the receiver's budget or split the message");
        first.wake();
      }
      lane.announced = 0;
      return pump(frame_.lane);
    case FrameKind::withdraw: {
      Grant& grant = in(frame_.lane).grant;
      if (grant.message != frame_.message) return;
      grant.message = 0;
      if (std::exchange(grant.granted, false)) {
        budget_->give_back(grant.bytes);
      } else {
        budget_->forget(grant);
      }
      return;
    }
    case FrameKind::credit:
      if (frame_.flags & frame_flag::window) {
        lane.window += frame_.total;
        if (frame_.lane == Lane::control)
          peer_reply_window_ = std::max(peer_reply_window_, frame_.message);
        if (lane.window > largest_window || peer_reply_window_ > largest_window)
          return corrupt("it lent more than any node has");
      }
      lane.credit += frame_.total;
      if (lane.credit > lane.window) return corrupt("it returned more credit than it had lent");
      return pump(frame_.lane);
    case FrameKind::heartbeat: echo_ = frame_.message; return later(flush_later_);
    case FrameKind::heartbeat_reply: {
      // The number is the time when it left: only this side's own counts.
      if (!probe_ || probe_->message != frame_.message) return;
      carried_something_ = true;
      round_trip_ = Duration(shard_.now().time_since_epoch().count() -
                             static_cast<std::int64_t>(frame_.message));
      // What was sent before a heartbeat has come when that is answered.
      if (frame_.acknowledgement < std::exchange(probe_, std::nullopt)->sequence)
        corrupt("it does not acknowledge what it has received");
      return;
    }
    case FrameKind::close:
      peer_closed_ = true;
      owes_ack_ = true;
      later(flush_later_);
      return begin_close(
          Error(Errc::closed, "use the session with " + transport_->peer(),
                "the peer closed it" + (text_.empty() ? "" : ": " + printable(text_))));
    default: return;
  }
}

void Link::obey_announce() {
  Grant& grant = in(frame_.lane).grant;
  if (grant.message) return corrupt("it announced a message before the last one went");
  const std::uint64_t cost = credit_cost(frame_.total);
  if (cost > budget_->largest_grant())
    return control(
        FrameKind::refuse, frame_.lane, frame_.message, 0, 0,
        "it can take at most " + std::to_string(budget_->largest_grant()) + " bytes at once");
  grant.message = frame_.message;
  grant.total = frame_.total;
  grant.bytes = cost;
  budget_->wait(grant);
}

void Link::Grant::on_granted() noexcept {
  granted = true;
  link->control(FrameKind::grant, lane, message, 0);
}

void Link::after_receive() {
  if (end_) return;
  if (const std::uint64_t frames = delivered_ - ack_sent_) {
    if (frames >= ack_frames || unacked_bytes_ >= ack_bytes) {
      owes_ack_ = true;
      later(flush_later_);
    } else if (!ack_timer_.running()) {
      shard_.start_timer(ack_timer_, after(ack_delay));
    }
  }
  check_closed();
}

}  // namespace hyperframes::net::detail
