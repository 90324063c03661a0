#include <algorithm>
#include <cassert>
#include <cstring>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/link.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <iterator>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::net::detail {
namespace {

// Parts up to this size are copied into staging: cheaper than one more piece in the send.
constexpr std::size_t copy_limit = 4096;
static_assert(FrameHeader::size + 2 * copy_limit < Transport::least_payload);
constexpr std::size_t staging_bytes = 64 << 10;
constexpr std::uint64_t batch_bytes = 256 << 10;
// With so many bytes of small messages queued on a lane, a sender that can wait does: until they
// are on their way, still warm in the caches, and the peer has something to do meanwhile.
constexpr std::uint64_t pace_bytes = 64 << 10;
// Bulk goes ahead once after this many batches that had no place for it.
constexpr unsigned bulk_patience = 8;
constexpr Duration retry_delay = 1ms;
// Requests of the peer that wait to be answered; more is an attack on our memory.
constexpr std::size_t control_limit = 1024;

/// A reference of this shard to memory whose count may belong to another: so that fragments of it
/// can be cut here, and end here.
struct Held : hyperframes::detail::Block {
  Buffer parent;
  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Held*>(block);
    self->~Held();
    hyperframes::detail::pool_release(self);
  }
};

}  // namespace

Buffer Link::hold_here(Buffer buffer) {
  auto* block = new (hyperframes::detail::pool_allocate(sizeof(Held))) Held;
  block->kind = buffer.kind();
  block->home = Shard::current();
  block->data = buffer.data();
  block->capacity = buffer.size();
  block->dispose = &Held::end;
  const std::size_t size = buffer.size();
  block->parent = std::move(buffer);
  return Buffer::adopt(block, block->data, size);
}

// ---- Into the queues

/// What of the asker's room an answer sets free again.
std::uint64_t Link::room_for_answer(const Envelope& envelope) noexcept {
  return is_answer(envelope.kind) && envelope.reply_room ? credit_cost(envelope.reply_room) : 0;
}

bool Link::is_prepaid(const Envelope& envelope, std::uint64_t total) const noexcept {
  return is_answer(envelope.kind) && envelope.reply_room && total <= envelope.reply_room;
}

bool Link::take_room(Envelope& envelope, std::uint64_t total, LaneOut& lane) noexcept {
  const std::uint64_t cost = credit_cost(total);
  if (lane.credit < cost || !acknowledges()) return false;
  if (!staging_has(std::min<std::uint64_t>(FrameHeader::size + total, 2 * copy_limit))) {
    // Nothing tells when the shard's send pool has room again, so ask again soon.
    if (!retry_timer_.running()) shard_.start_timer(retry_timer_, after(retry_delay));
    return false;
  }
  if (!promise_room(envelope)) return false;
  lane.credit -= cost;
  return true;
}

/// What an ask keeps free for its answer.
std::uint32_t Link::answer_room(const Envelope& envelope) const noexcept {
  return std::min(envelope.reply_room ? envelope.reply_room : settings_.reply_room,
                  account_->largest_reply_room());
}

/// An ask keeps the room of its answer free from now on. False: it has to wait for that.
bool Link::promise_room(Envelope& envelope) noexcept {
  if (envelope.kind != MessageKind::ask) return true;
  const std::uint32_t room = answer_room(envelope);
  if (!account_->promise_reply(room)) return false;
  envelope.reply_room = room;
  return true;
}

Link::Room Link::try_send(Message& message, std::uint64_t total, Lane lane, bool may_wait) {
  LaneOut& to = out(lane);
  if (is_prepaid(message.envelope, total)) {
    queue(message, total, lane, ++to.last_message, frame_flag::prepaid);
    return Room::taken;
  }
  if (to.anybody_waits() || to.announced || (may_wait && to.staged >= pace_bytes) ||
      credit_cost(total) > to.window / 2 || !take_room(message.envelope, total, to))
    return Room::none;
  queue(message, total, lane, ++to.last_message);
  return Room::taken;
}

void Link::wait(Session::SendAwaiter& awaiter) noexcept {
  LaneOut& lane = out(awaiter.lane_);
  const bool answer = is_answer(awaiter.message_.envelope.kind);
  awaiter.arrival_ = ++lane.arrivals;
  (answer ? lane.waiting_answers : lane.waiting).push_back(awaiter);
  pump(awaiter.lane_);
}

void Link::leave(Session::SendAwaiter& awaiter) noexcept {
  LaneOut& lane = out(awaiter.lane_);
  if (awaiter.announced_) {
    if (lane.announced == awaiter.announced_) {  // else it was refused just now
      withdraw(awaiter.lane_, lane.announced);
      lane.announced = 0;
      lane.granted = false;
    }
    unpromise_room(awaiter.message_.envelope);
  }
  pump(awaiter.lane_);
}

void Link::unpromise_room(const Envelope& envelope) noexcept {
  if (envelope.kind != MessageKind::ask) return;
  account_->unpromise_reply(envelope.reply_room);
  on_reply_room();
}

// If the announcement has not left yet, the peer needs to know of neither.
void Link::withdraw(Lane lane, std::uint64_t message) noexcept {
  const auto announced = std::ranges::find_if(controls_, [&](const Control& control) {
    return control.header.kind == FrameKind::announce && control.header.lane == lane &&
           control.header.message == message;
  });
  if (announced == controls_.end()) return control(FrameKind::withdraw, lane, message, 0);
  controls_.erase(announced);
}

// The first that came, but for one case: an ask for whose answer there is no room lets answers by.
// They make room at the peer, which may hold back those that would make room here.
Session::SendAwaiter* Link::next_to_go(LaneOut& lane) noexcept {
  Session::SendAwaiter* const first = lane.waiting.empty() ? nullptr : &lane.waiting.front();
  Session::SendAwaiter* const answer =
      lane.waiting_answers.empty() ? nullptr : &lane.waiting_answers.front();
  if (!first || !answer) return first ? first : answer;
  if (lane.announced) return answer->announced_ == lane.announced ? answer : first;
  if (answer->arrival_ < first->arrival_) return answer;
  const Envelope& envelope = first->message_.envelope;
  const bool stuck =
      envelope.kind == MessageKind::ask && !account_->has_reply_room(answer_room(envelope));
  return stuck ? answer : first;
}

// Those who wait go in order. The first of them may need a grant; then all wait for that.
void Link::pump(Lane name) noexcept {
  LaneOut& lane = out(name);
  while (lane.anybody_waits() && !refusal_) {
    Session::SendAwaiter& first = *next_to_go(lane);
    const bool granted = first.announced_ && first.announced_ == lane.announced && lane.granted;
    if (!granted) {
      if (lane.announced || lane.window == 0 || lane.staged >= pace_bytes) return;
      if (credit_cost(first.total_) > lane.window / 2) {
        // Requests overtake what is queued, so the peer would hear of two granted messages at once.
        if (lane.not_begun || !acknowledges()) return;
        // Once granted it goes at once: the peer keeps memory for it.
        if (!promise_room(first.message_.envelope)) return;
        lane.announced = first.announced_ = ++lane.last_message;
        control(FrameKind::announce, name, lane.announced, first.total_);
        return;
      }
    }
    if (!granted && !take_room(first.message_.envelope, first.total_, lane)) return;
    std::uint64_t number = first.announced_;
    if (granted) {
      lane.announced = first.announced_ = 0;
      lane.granted = false;
      lane.not_begun = number;
    } else {
      number = ++lane.last_message;
    }
    queue(first.message_, first.total_, name, number);
    first.wake();
  }
}

void Link::pump_all() noexcept {
  for (const Lane lane : all_lanes) pump(lane);
}
void Link::retry() { pump_all(); }
void Link::pump_asks() { pump_all(); }

void Link::queue(Message& message, std::uint64_t total, Lane lane, std::uint64_t number,
                 std::uint8_t flags) {
  const std::uint64_t answers = room_for_answer(message.envelope);
  if (total <= copy_limit && out(lane).not_begun != number) {
    queue_small(message, total, lane, number, flags);
  } else {
    queue_large(message, total, lane, number, flags);
  }
  message.metadata.reset();
  message.body.reset();
  message.segments.clear();
  LaneOut& to = out(lane);
  to.queue.back().answers += answers;
  ++to.frames;
  ++to.sent;
  queued_bytes_ += total;
  later(flush_later_);
}

void Link::queue_small(const Message& message, std::uint64_t total, Lane lane, std::uint64_t number,
                       std::uint8_t flags) {
  const std::size_t size = FrameHeader::size + total;
  std::byte* const frame = stage(size);
  FrameHeader header;
  header.lane = lane;
  header.flags = flags;
  header.channel = message.envelope.channel;
  header.message = number;
  header.length = header.total = total;
  header.encode_unfinished(frame);

  std::byte* const begin = frame + FrameHeader::size;
  wire::encode_head(message, std::span<std::byte, wire::envelope_size>(begin, 64));
  std::byte* at = begin + wire::envelope_size;
  for (const Buffer& segment : message.segments) {
    store_little(at, std::uint64_t{segment.size()});
    at += sizeof(std::uint64_t);
  }
  const auto put = [&](const Buffer& part) {
    if (part.empty()) return;
    std::byte* const aligned = begin + wire::align_part(static_cast<std::uint64_t>(at - begin));
    if (at != aligned) std::memset(at, 0, static_cast<std::size_t>(aligned - at));
    std::memcpy(aligned, part.data(), part.size());
    at = aligned + part.size();
  };
  put(message.metadata);
  put(message.body);
  for (const Buffer& segment : message.segments) put(segment);

  LaneOut& to = out(lane);
  to.staged += size;
  auto& queue = to.queue;
  if (!queue.empty()) {
    Outgoing& last = queue.back();
    const bool fits = last.size + size < Transport::least_payload;
    if (!last.large() && last.begin + last.size == frame && fits) {
      last.size += size;
      ++last.frames;
      return;
    }
  }
  Outgoing& run = queue.emplace_back();
  run.owner = staging_;
  run.begin = frame;
  run.size = size;
  run.frames = 1;
}

void Link::queue_large(Message& message, std::uint64_t total, Lane lane, std::uint64_t number,
                       std::uint8_t flags) {
  Outgoing large;
  large.total = total;
  large.message = number;
  large.channel = message.envelope.channel;
  large.flags = flags;

  const std::size_t prefix = wire::envelope_size + message.segments.count() * sizeof(std::uint64_t);
  std::byte* const head = stage(prefix);
  wire::encode_head(message, std::span<std::byte, wire::envelope_size>(head, 64));
  for (std::size_t i = 0; i < message.segments.count(); ++i)
    store_little(head + wire::envelope_size + i * sizeof(std::uint64_t),
                 std::uint64_t{message.segments[i].size()});
  large.pieces.push_back(staging_.slice(static_cast<std::size_t>(head - staging_.data()), prefix));

  std::uint64_t end = prefix;
  const auto add = [&](Buffer part) {
    if (part.empty()) return;
    const std::size_t pad = wire::align_part(end) - end;
    const bool copies = part.size() <= copy_limit && !transport_->would_lend(part);
    const std::size_t copied = copies ? part.size() : 0;
    if (pad + copied) {
      std::byte* const at = stage(pad + copied);
      std::memset(at, 0, pad);
      if (copied) std::memcpy(at + pad, part.data(), copied);
      large.pieces.push_back(
          staging_.slice(static_cast<std::size_t>(at - staging_.data()), pad + copied));
    }
    end += pad + part.size();
    if (!copies) large.pieces.push_back(hold_here(std::move(part)));
  };
  add(std::move(message.metadata));
  add(std::move(message.body));
  for (Buffer& segment : message.segments) add(std::move(segment));
  assert(end == total);
  out(lane).queue.push_back(std::move(large));
}

void Link::control(FrameKind kind, Lane lane, std::uint64_t message, std::uint64_t total,
                   std::uint8_t flags, std::string text) {
  if (end_ || close_sent_) return;
  const bool answers = kind == FrameKind::grant || kind == FrameKind::refuse;
  if (answers && controls_.size() >= control_limit)
    return corrupt("more requests than can be answered");
  if (answers && retained_bytes_ >= 2 * unacknowledged_limit_)
    return corrupt("it acknowledges nothing of what answers its requests");
  Control& control = controls_.emplace_back();
  control.header.kind = kind;
  control.header.lane = lane;
  control.header.message = message;
  control.header.total = total;
  control.header.flags = flags;
  control.text = std::move(text);
  later(flush_later_);
}

// ---- Out of the queues

bool Link::staging_has(std::size_t size) noexcept {
  if (!staging_.empty() && staging_.unique()) staged_ = 0;
  if (!staging_.empty() && staging_.size() - staged_ >= size) return true;
  auto block = shard_.send_pool().try_allocate(staging_bytes);
  if (!block) return false;
  staging_ = std::move(*block);
  staged_ = 0;
  return true;
}

// Controls must go out, and what was granted is bounded by its credit: so where the pool has
// nothing, the heap gives.
std::byte* Link::stage(std::size_t size) {
  if (!staging_has(size)) {
    staging_ = Buffer::heap(std::max(size, staging_bytes));
    staged_ = 0;
  }
  std::byte* const at = staging_.data() + staged_;
  staged_ += size;
  return at;
}

bool Link::queues_empty() const noexcept {
  return controls_.empty() &&
         std::ranges::all_of(out_, [](const LaneOut& lane) { return lane.queue.empty(); });
}

void Link::flush() {
  if (!started_ || sending_ || end_) return;
  if (resend_next_ < resend_last_) return send_again();
  Segments batch;
  if (!spare_.empty()) {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  batch_lent_ = 0;
  compose(batch);
  if (batch.empty()) {
    recycle(batch);
    return check_closed();
  }
  sending_ = sending_new_ = true;
  owes_ack_ = false;
  ack_sent_ = delivered_;
  unacked_bytes_ = 0;
  batch_last_ = sequence_;
  bytes_sent_ += batch.size_bytes();
  ++batches_;
  transport_->send(std::move(batch));
  pump_all();  // those who waited for something to leave
}

void Link::compose(Segments& batch) {
  compose_controls(batch);
  const bool bulk_waits = !out(Lane::bulk).queue.empty();
  const bool bulk_first = bulk_waits && without_bulk_ >= bulk_patience;
  const std::size_t bulk_left = out(Lane::bulk).queue.size();
  const std::uint64_t bulk_offset = bulk_waits ? out(Lane::bulk).queue.front().offset : 0;
  if (bulk_first) compose_lane(out(Lane::bulk), Lane::bulk, batch);
  for (const Lane lane : all_lanes) compose_lane(out(lane), lane, batch);
  const bool bulk_went = out(Lane::bulk).queue.size() != bulk_left ||
                         (bulk_waits && !out(Lane::bulk).queue.empty() &&
                          out(Lane::bulk).queue.front().offset != bulk_offset);
  without_bulk_ = bulk_waits && !bulk_went ? without_bulk_ + 1 : 0;

  if (closing_ && !close_sent_ && queues_empty()) {
    FrameHeader header;
    header.kind = FrameKind::close;
    emit_frame(header, {}, batch);
    close_sent_ = true;
  }
  if (batch.empty() && owes_ack_) {
    FrameHeader header;
    header.kind = FrameKind::acknowledge;
    emit_frame(header, {}, batch);
  }
}

void Link::compose_controls(Segments& batch) {
  FrameHeader header;
  if (owes_heartbeat_) {
    header.kind = FrameKind::heartbeat;
    header.message = static_cast<std::uint64_t>(shard_.now().time_since_epoch().count());
    emit_frame(header, {}, batch);
    if (!probe_) probe_ = Probe{header.message, sequence_};
    owes_heartbeat_ = false;
  }
  if (echo_) {
    header.kind = FrameKind::heartbeat_reply;
    header.message = *echo_;
    emit_frame(header, {}, batch);
    echo_.reset();
  }
  if (close_sent_) return;
  if (owes_credit_ || owes_all_credit_) {
    for (const Lane lane : all_lanes) {
      header = FrameHeader();
      header.kind = FrameKind::credit;
      header.lane = lane;
      header.total = account_->take_owed(lane, owes_all_credit_);
      if (header.total) emit_frame(header, {}, batch);
    }
    owes_credit_ = owes_all_credit_ = false;
  }
  std::size_t count = 0;
  while (count < controls_.size() && batch.count() < Transport::batch_pieces / 2) {
    emit_frame(controls_[count].header, controls_[count].text, batch);
    ++count;
  }
  controls_.erase(controls_.begin(), controls_.begin() + static_cast<std::ptrdiff_t>(count));
}

void Link::compose_lane(LaneOut& lane, Lane name, Segments& batch) {
  if (!acknowledges()) return;
  while (!lane.queue.empty() && batch.size_bytes() < batch_bytes &&
         batch.count() + 2 <= Transport::batch_pieces) {
    Outgoing& next = lane.queue.front();
    const std::uint64_t first = sequence_ + 1;
    if (next.large()) {
      if (!emit_fragment(next, name, batch)) return;  // the rest waits for the next batch
      --lane.frames;
    } else {
      lane.frames -= next.frames;
      emit_run(lane, next, batch);
    }
    const bool goes_on =
        !left_.empty() && left_.back().lane == name && left_.back().last + 1 == first;
    if (goes_on && !next.large()) {
      left_.back().last = sequence_;
    } else {
      left_.push_back({next.large() ? sequence_ : first, sequence_, name});
    }
    asked_ -= std::min(asked_, next.answers);
    lane.queue.pop_front();
  }
}

void Link::emit_frame(const FrameHeader& header, std::string_view text, Segments& batch) {
  const std::size_t size = FrameHeader::size + text.size();
  assert(size < Transport::least_payload);
  std::byte* const at = stage(size);
  FrameHeader complete = header;
  complete.length = text.size();
  complete.sequence = is_sequenced(header.kind) ? ++sequence_ : 0;
  complete.acknowledgement = delivered_;
  complete.encode(at);
  if (!text.empty()) std::memcpy(at + FrameHeader::size, text.data(), text.size());
  batch.push_back(staging_.slice(static_cast<std::size_t>(at - staging_.data()), size));
}

void Link::emit_run(LaneOut& lane, Outgoing& run, Segments& batch) {
  for (std::byte *at = run.begin, *end = run.begin + run.size; at != end;) {
    finish_encoded(at, ++sequence_, delivered_);
    at += FrameHeader::size + encoded_length(at);
  }
  lane.staged -= run.size;
  queued_bytes_ -= run.size - run.frames * FrameHeader::size;
  batch.push_back(
      run.owner.slice(static_cast<std::size_t>(run.begin - run.owner.data()), run.size));
}

/// What of `rest` goes into a fragment that has `length` bytes already, `copied` of them to be
/// moved. Lent bytes are not moved, so only what a frame may have limits them; they are cut so that
/// each part can be lent as well.
std::uint64_t Link::length_of_next(const Buffer& rest, std::uint64_t length,
                                   std::uint64_t copied) const noexcept {
  if (!transport_->would_lend(rest)) {
    const std::uint64_t limit =
        std::min<std::uint64_t>(settings_.fragment_bytes, limits_.payload_bytes - length + copied);
    return std::min<std::uint64_t>(rest.size(), limit - std::min(limit, copied));
  }
  const std::uint64_t room = limits_.payload_bytes - length;
  if (rest.size() <= room) return rest.size();
  std::uint64_t part = room;
  if (rest.size() - part < Transport::least_loan) part = rest.size() - Transport::least_loan;
  part -= part % wire::part_alignment;
  return part < Transport::least_loan ? 0 : part;
}

/// Cuts the next fragment off. True if it was the last.
bool Link::emit_fragment(Outgoing& message, Lane lane, Segments& batch) {
  std::byte* const at = stage(FrameHeader::size);
  batch.push_back(
      staging_.slice(static_cast<std::size_t>(at - staging_.data()), FrameHeader::size));
  FrameHeader header;
  header.lane = lane;
  header.flags = message.flags;
  header.channel = message.channel;
  header.message = message.message;
  header.offset = message.offset;
  header.total = message.total;
  if (out(lane).not_begun == message.message) out(lane).not_begun = 0;
  std::uint64_t copied = 0;
  while (message.piece < message.pieces.count() && batch.count() < Transport::batch_pieces) {
    Buffer& piece = message.pieces[message.piece];
    Buffer part = piece.slice(message.piece_offset, piece.size() - message.piece_offset);
    const std::uint64_t size = length_of_next(part, header.length, copied);
    if (size == 0) break;
    part.resize_down(size);
    (transport_->would_lend(part) ? batch_lent_ : copied) += size;
    batch.push_back(std::move(part));
    header.length += size;
    message.piece_offset += size;
    if (message.piece_offset == piece.size()) {
      piece = Buffer();
      ++message.piece;
      message.piece_offset = 0;
    }
  }
  header.sequence = ++sequence_;
  header.acknowledgement = delivered_;
  header.encode(at);
  message.offset += header.length;
  queued_bytes_ -= header.length;
  return message.offset == message.total;
}

void Link::on_sent(Segments batch) noexcept {
  sending_ = false;
  if (std::exchange(sending_new_, false)) retain(std::move(batch));
  flush();
  check_closed();
}

/// Until the peer has acknowledged all of it.
void Link::retain(Segments batch) {
  if (acknowledged_ >= batch_last_) return recycle(batch);
  const std::uint64_t bytes = batch.size_bytes() - batch_lent_;
  retained_bytes_ += bytes;
  retained_.push_back({batch_last_, std::move(batch), bytes});
}

void Link::acknowledged(std::uint64_t sequence) noexcept {
  if (sequence <= acknowledged_) return;
  carried_something_ = true;
  acknowledged_ = sequence;
  const bool was_full = !acknowledges();
  while (!retained_.empty() && retained_.front().last_sequence <= sequence) {
    retained_bytes_ -= retained_.front().bytes;
    recycle(retained_.front().batch);
    retained_.pop_front();
  }
  while (!left_.empty() && left_.front().first <= sequence) {
    Left& front = left_.front();
    const std::uint64_t end = std::min(front.last, sequence) + 1;
    out(front.lane).acknowledged += end - front.first;
    front.first = end;
    if (front.first > front.last) left_.pop_front();
  }
  if (was_full && acknowledges()) {
    later(flush_later_);
    later(pump_later_);
  }
}

// Keeps the list's memory for the next batch.
void Link::recycle(Segments& batch) noexcept {
  batch.clear();
  if (spare_.size() < 4) spare_.push_back(std::move(batch));
}

}  // namespace hyperframes::net::detail
