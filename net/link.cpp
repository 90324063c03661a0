#include <algorithm>
#include <cassert>
#include <cstring>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/link.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/log.hpp>
#include <iterator>
#include <new>

namespace hyperframes::net::detail {
namespace {

// Parts up to this size are copied into staging: cheaper than one more piece in the send.
constexpr std::size_t copy_limit = 4096;
constexpr std::size_t staging_bytes = 64 << 10;
constexpr std::uint64_t batch_bytes = 256 << 10;
// With so many bytes of small messages queued on a lane, a sender that can wait does: until they
// are on their way, still warm in the caches, and the peer has something to do meanwhile.
constexpr std::uint64_t pace_bytes = 64 << 10;
// Bulk goes ahead once after this many batches that had no place for it.
constexpr unsigned bulk_patience = 8;
// From this much on, bytes are received straight into the message's memory.
constexpr std::uint64_t direct_limit = 32 << 10;
// What is received is acknowledged at the latest after so much, or so long.
constexpr std::uint64_t ack_bytes = 256 << 10, ack_frames = 2048;
constexpr Duration ack_delay = 20ms;
constexpr Duration retry_delay = 1ms;
// Requests of the peer that wait to be answered; more is an attack on our memory.
constexpr std::size_t control_limit = 1024;
// A message above this size from a peer that lends gets memory for its head only, until something
// comes that is not lent and does not fit: often nothing does.
constexpr std::uint64_t sparse_limit = 64 << 10;
constexpr std::size_t head_bytes = 16 << 10;
// No node lends more than that on a lane, or for answers; what a peer says beyond it is refused.
constexpr std::uint64_t largest_window = 64 << 20;
// What a peer may leave unacknowledged before it gets no more: a share of the send pool, since
// that is what it keeps from others.
constexpr std::uint64_t unacknowledged_most = 16 << 20, unacknowledged_least = 1 << 20;
constexpr std::size_t send_pool_share = 8;
// A peer is slow, not stuck, while so much comes with each heartbeat.
constexpr std::uint64_t progress_bytes = 4 << 10;
// Heartbeats without progress after which the peer has to go: with a granted message while others
// wait for its memory, or in any case.
constexpr int patience_for_others = 5, patience = 30;

constexpr Lane all_lanes[lane_count] = {Lane::control, Lane::normal, Lane::bulk};

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

Buffer hold_here(Buffer buffer) {
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

/// Memory that several buffers lie in, one behind the other, or that one does while another one
/// keeps what pays for it.
struct Joined : hyperframes::detail::Block {
  Buffer first, payment;
  std::vector<Buffer> others;
  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Joined*>(block);
    self->~Joined();
    hyperframes::detail::pool_release(self);
  }
};

Buffer join(Buffer first, std::vector<Buffer> others, std::size_t size, Buffer payment) {
  auto* block = new (hyperframes::detail::pool_allocate(sizeof(Joined))) Joined;
  block->kind = first.kind();
  block->home = Shard::current();
  block->data = first.data();
  block->capacity = size;
  block->dispose = &Joined::end;
  block->first = std::move(first);
  block->others = std::move(others);
  block->payment = std::move(payment);
  return Buffer::adopt(block, block->data, size);
}

/// Ticks again: a process that sleeps while its link is broken loses no more than one of them.
Duration window_step(Duration left) noexcept { return std::min(left, timing().heartbeat() / 8); }

bool is_answer(MessageKind kind) noexcept {
  return kind == MessageKind::reply || kind == MessageKind::failure;
}

}  // namespace

Link::Link(LinkOwner& owner, Session& session, std::unique_ptr<Transport> transport,
           std::shared_ptr<ReceiveBudget> budget, LinkSettings settings)
    : owner_(owner),
      session_(session),
      shard_(*Shard::current()),
      transport_(std::move(transport)),
      budget_(std::move(budget)),
      settings_(settings),
      account_(ReceiveAccount::open(budget_, *this)),
      unacknowledged_limit_(
          std::clamp<std::uint64_t>(shard_.send_pool().usage().quota_bytes / send_pool_share,
                                    unacknowledged_least, unacknowledged_most)),
      carry_(Buffer::heap(FrameHeader::size)) {
  limits_.channels = settings_.channels;
  for (const Lane lane : all_lanes) {
    in(lane).grant.link = this;
    in(lane).grant.lane = lane;
  }
}

Link::~Link() {
  transport_->stop();
  drop_grants();
  account_->close();
  auto& ready = shard_.ready[static_cast<std::size_t>(Group::system)];
  if (flush_later_.queued) ready.remove(&flush_later_);
  if (report_later_.queued) ready.remove(&report_later_);
  if (pump_later_.queued) ready.remove(&pump_later_);
  if (go_on_later_.queued) ready.remove(&go_on_later_);
}

// All of them leave the budget's queue before it serves others from what they had.
void Link::drop_grants() noexcept {
  std::uint64_t bytes = 0;
  for (LaneIn& lane : in_) {
    lane.grant.unlink();
    lane.grant.message = 0;
    if (std::exchange(lane.grant.granted, false)) bytes += lane.grant.bytes;
  }
  budget_->give_back(bytes);
  for (LaneIn& lane : in_) drop_message(lane);
}

template <class Work>
void Link::later(Work& work) noexcept {
  if (work.queued) return;
  work.queued = true;
  shard_.schedule(&work, Group::system);
}

void Link::start(Buffer first) {
  start_transport(std::move(first));
  for (const Lane lane : all_lanes)
    control(FrameKind::credit, lane, lane == Lane::control ? account_->reply_window() : 0,
            account_->window(lane), frame_flag::window);
}

void Link::start_transport(Buffer first) {
  started_ = true;
  heard();  // in the handshake
  shard_.start_timer(heartbeat_timer_, after(timing().heartbeat()));
  transport_->start(*this, settings_.unsent_backlog_bytes);
  if (first.empty()) return;
  Segments batch;
  batch.push_back(hold_here(std::move(first)));
  sending_ = true;
  transport_->send(std::move(batch));
}

// ---- Sending: into the queues
// --------------------------------------------------------------------

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
    if (!last.large() && last.begin + last.size == frame && last.size < staging_bytes) {
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

// ---- Sending: out of the queues
// ------------------------------------------------------------------

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

// ---- Receiving
// -----------------------------------------------------------------------------------

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

// ---- Receiving: what is lent

// Nobody has a reason to lend anything but payload of one frame, so nothing else is parsed out of
// loans: a peer could have it done over and over for the price of a descriptor. What is too short
// to be worth a loan is copied, unless it is the end of one.
std::size_t Link::on_loan(Buffer piece) noexcept {
  if (end_) return 0;
  heard();
  expects_large_ = false;
  const std::size_t size = piece.size();
  bytes_received_ += size;
  copied_of_loans_ = 0;
  const std::uint64_t payload = frame_.kind == FrameKind::data ? remaining_ : 0;
  if (size > payload) {
    corrupt("it lent " + std::to_string(size) + " bytes where " + std::to_string(payload) +
            " of a message have to come");
  } else if (settings_.take_loans &&
             (size >= Transport::least_loan || goes_on(in(frame_.lane), piece))) {
    note_loan(std::move(piece));
  } else {
    copy_in(in(frame_.lane), piece.data(), size);
    copied_of_loans_ = size;
    advance(size);
  }
  after_receive();
  return copied_of_loans_;
}

/// Whether it lies right behind what was lent of the message last, in the message and in memory.
bool Link::goes_on(const LaneIn& lane, const Buffer& piece) noexcept {
  if (lane.lent.empty()) return false;
  const Lent& last = lane.lent.back();
  return last.end() == lane.received && last.piece.data() + last.piece.size() == piece.data();
}

void Link::note_loan(Buffer piece) {
  LaneIn& lane = in(frame_.lane);
  const std::size_t size = piece.size();
  // What follows lies as it does in the message: on the same place of a line.
  if (lane.sparse) lane.copied += (lane.received + size - lane.copied) % wire::part_alignment;
  lane.lent.push_back({lane.received, lane.copied, std::move(piece)});
  advance(size);
}

void Link::drop_message(LaneIn& lane) noexcept {
  lane.memory = Buffer();
  lane.lent.clear();
  lane.sparse = false;
}

void Link::copy_in(LaneIn& lane, const std::byte* at, std::size_t size) {
  if (lane.sparse && lane.copied + size > lane.memory.size()) make_dense(lane);
  std::byte* const into = lane.memory.data() + (lane.sparse ? lane.copied : lane.received);
  std::memcpy(into, at, size);
  if (lane.sparse) lane.copied += size;
}

/// Where in the lane's memory a byte is that was copied, or where it would go.
std::size_t Link::place_of(const LaneIn& lane, std::uint64_t offset) noexcept {
  if (!lane.sparse) return offset;
  const auto next = std::ranges::upper_bound(lane.lent, offset, {}, &Lent::offset);
  if (next == lane.lent.begin()) return offset;
  const Lent& before = *std::prev(next);
  return before.copied + (offset - before.end());
}

/// Gets the message the memory that one has of which nothing is lent. The head's stays, for what it
/// pays.
void Link::make_dense(LaneIn& lane) {
  Buffer whole = account_->allocate(lane.charge, 0, lane.total);
  const auto copy = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    std::memcpy(whole.data() + begin, lane.memory.data() + place_of(lane, begin), end - begin);
  };
  std::uint64_t begin = 0;
  for (const Lent& lent : lane.lent) {
    copy(begin, lent.offset);
    begin = lent.end();
  }
  copy(begin, lane.received);
  lane.memory = join(std::move(whole), {}, lane.total, std::move(lane.memory));
  lane.sparse = false;
}

/// A message of which something is lent. Only segments are left where they are.
Result<Message> Link::assemble(LaneIn& lane) {
  if (lane.total < wire::envelope_size) return wire::decode(gather(lane, 0, lane.total));
  const Buffer envelope = part_of(lane, 0, wire::envelope_size, false);
  auto head = wire::decode_head(
      std::span<const std::byte, wire::envelope_size>(envelope.data(), wire::envelope_size),
      lane.total);
  if (!head) return head.error();
  const Buffer prefix = part_of(lane, 0, head->prefix_size(), false);
  return wire::decode_scattered(*head, lane.total, prefix.data() + wire::envelope_size,
                                [&](std::uint64_t begin, std::uint64_t size, bool is_segment) {
                                  return part_of(lane, begin, size, is_segment);
                                });
}

/// In place if it was copied as a whole, or if it may be and loans are exactly that part, on an
/// address that parts begin on; else in memory of its own. Each keeps what the message is charged.
Buffer Link::part_of(LaneIn& lane, std::uint64_t begin, std::uint64_t size, bool may_be_lent) {
  const auto first = std::ranges::upper_bound(lane.lent, begin, {}, &Lent::end);
  if (first == lane.lent.end() || first->offset >= begin + size)
    return lane.memory.slice(place_of(lane, begin), size);
  const auto address = reinterpret_cast<std::uintptr_t>(first->piece.data());
  const bool fits = first->offset == begin && address % wire::part_alignment == 0;
  if (!may_be_lent || !fits) return gather(lane, begin, size);
  // One loan, or several of memory that lies side by side.
  std::vector<Buffer> others;
  std::uint64_t end = first->end();
  for (auto next = first + 1; end < begin + size; ++next) {
    const bool adjoins = next != lane.lent.end() && next->offset == end &&
                         next->piece.data() == first->piece.data() + (end - begin);
    if (!adjoins) return gather(lane, begin, size);
    others.push_back(next->piece);
    end = next->end();
  }
  if (end != begin + size) return gather(lane, begin, size);
  return join(first->piece, std::move(others), size, lane.memory);
}

/// Copies what is lent of it, to where the rest is if there is a place for all of it.
Buffer Link::gather(LaneIn& lane, std::uint64_t begin, std::uint64_t size) {
  const std::uint64_t end = begin + size;
  Buffer into = lane.sparse ? join(account_->allocate(lane.charge, 0, size), {}, size, lane.memory)
                            : lane.memory.slice(begin, size);
  const auto copy_rest = [&](std::uint64_t from, std::uint64_t to) {
    if (!lane.sparse || from >= to) return;
    std::memcpy(into.data() + (from - begin), lane.memory.data() + place_of(lane, from), to - from);
  };
  std::uint64_t at = begin;
  for (auto lent = std::ranges::upper_bound(lane.lent, begin, {}, &Lent::end);
       lent != lane.lent.end() && lent->offset < end; ++lent) {
    copy_rest(at, lent->offset);
    const std::uint64_t from = std::max(lent->offset, begin), to = std::min(lent->end(), end);
    std::memcpy(into.data() + (from - begin), lent->piece.data() + (from - lent->offset),
                to - from);
    copied_of_loans_ += to - from;
    at = to;
  }
  copy_rest(at, end);
  return into;
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

// ---- Over another transport
// -----------------------------------------------------------------------

void Link::lose_transport(Error reason) noexcept {
  // Both have said that they close, and the peer has all of it: how its connection ends tells
  // nothing more. Else it may be waiting to hear that, if it can still.
  const bool heard_all = close_sent_ && acknowledged_ == sequence_;
  if (peer_closed_ && unacknowledged() == 0 && (heard_all || !can_resume())) return fail(*refusal_);
  if (can_resume()) {
    break_off(std::move(reason));
  } else {
    fail(std::move(reason));
  }
}

bool Link::can_resume() const noexcept {
  return settings_.resumable && transport_->can_be_abandoned();
}

/// Since something came, but for what this process slept through: of that no more than a heartbeat.
Duration Link::silence() const noexcept {
  return std::min(shard_.now() - heard_, (silent_ticks_ + 1) * timing().heartbeat());
}

// What was to leave once more stays retained, like all that is not acknowledged; so does the batch
// that was on its way. What is owed without a sequence is owed to a connection that is no more.
void Link::break_off(Error reason) noexcept {
  Segments batch = transport_->abandon();
  started_ = sending_ = false;
  if (std::exchange(sending_new_, false)) retain(std::move(batch));
  forget_partial_frame();
  echo_.reset();
  probe_.reset();
  owes_ack_ = owes_heartbeat_ = false;
  heartbeat_timer_.stop();
  ack_timer_.stop();
  next_ = {};
  ++breaks_;
  log::warning("link " + std::to_string(index()) + " to " + transport_->peer() +
               " broke: " + text_of(reason) + "; " + std::to_string(unacknowledged()) +
               " messages wait for it to be taken up again");
  broken_ = std::move(reason);
  last_attempt_.clear();
  if (!count_break())
    return give_up(Error(Errc::peer_lost, "take the link up again",
                         "it breaks each time before anything gets through"));
  shard_.start_timer(resume_timer_, after(window_step(window_left_)));
  owner_.on_link_broken(*this);
}

// A connection over which nothing gets through (a path that takes only small packets, say) opens no
// new window: it costs the old one its time, and not less than an eighth of a heartbeat.
bool Link::count_break() noexcept {
  const Duration beat = timing().heartbeat();
  if (std::exchange(carried_something_, false)) {
    window_left_ = std::max(beat, timing().down_after() - silence());
  } else {
    window_left_ -= std::max(silence(), beat / 8);
  }
  return window_left_ > 0ns;
}

// A message whose first frame came in part has its memory, and what pays for that, already: the
// frame will come again and find both.
void Link::forget_partial_frame() noexcept {
  if (remaining_ && frame_.kind == FrameKind::data) {
    LaneIn& lane = in(frame_.lane);
    while (!lane.lent.empty() && lane.lent.back().offset >= frame_.offset) lane.lent.pop_back();
    lane.received = frame_.offset;
    lane.copied = place_of(lane, frame_.offset);
  }
  remaining_ = 0;
  carried_ = 0;
  text_.clear();
  expects_large_ = false;
}

Result<std::uint64_t> Link::prepare_resume(std::uint64_t peer_delivered) {
  if (end_) return *end_;
  if (!broken_ && !can_resume())
    return Error(Errc::unsupported, "take up link " + std::to_string(index()) + " again",
                 "its transport can't be given up for another one", "begin a new session");
  if (peer_delivered < acknowledged_ || peer_delivered > sequence_)
    return Error(Errc::corrupt, "take up link " + std::to_string(index()) + " again",
                 "frame " + std::to_string(peer_delivered) +
                     " can't be the last that the peer has: it was sent 1 to " +
                     std::to_string(sequence_) + ", and has acknowledged " +
                     std::to_string(acknowledged_));
  if (!broken_)
    break_off(Error(Errc::peer_lost, "use the link to " + transport_->peer(),
                    "the peer has lost the connection, and makes another one"));
  if (end_) return *end_;
  return delivered_;
}

void Link::resume(std::unique_ptr<Transport> transport, Buffer first,
                  std::uint64_t peer_delivered) {
  resume_timer_.stop();
  next_ = {std::move(transport), std::move(first), peer_delivered};
  if (transport_->is_released()) later(go_on_later_);
}

// Until here the system could still write into the memory of a message that comes in.
void Link::on_released() noexcept {
  if (next_.transport) later(go_on_later_);
}

void Link::go_on() {
  if (end_ || !next_.transport) return;
  Next next = std::move(next_);
  transport_ = std::move(next.transport);
  broken_.reset();
  ++resumes_;
  // What the peer has got over the connection before counts for that one.
  if (next.peer_delivered > acknowledged_) window_left_ = timing().down_after();
  acknowledged(next.peer_delivered);
  carried_something_ = false;
  resend_next_ = next.peer_delivered;
  resend_last_ = sequence_;
  // The peer was told, on its way here or in `first`.
  ack_sent_ = delivered_;
  unacked_bytes_ = 0;
  // What the peer holds up, it holds up longer still.
  bytes_at_start_ = bytes_at_tick_ = bytes_received_;
  owes_all_credit_ = true;
  log::info("link " + std::to_string(index()) + " goes on over " + transport_->peer() + ": " +
            std::to_string(resend_last_ - resend_next_) + " frames are sent again");
  start_transport(std::move(next.first));
  later(flush_later_);
}

/// The next of the batches that have left before, without what the peer has of it.
void Link::send_again() {
  const auto next = std::ranges::upper_bound(retained_, resend_next_, {}, &Retained::last_sequence);
  if (next == retained_.end()) {
    resend_next_ = resend_last_;
    return flush();
  }
  Segments batch = frames_after(next->batch, resend_next_);
  resend_next_ = next->last_sequence;
  if (delivered_ != ack_sent_ && batch.count() < Transport::batch_pieces) {
    FrameHeader header;
    header.kind = FrameKind::acknowledge;
    emit_frame(header, {}, batch);
    owes_ack_ = false;
    ack_sent_ = delivered_;
    unacked_bytes_ = 0;
  }
  sending_ = true;
  bytes_sent_ += batch.size_bytes();
  ++batches_;
  transport_->send(std::move(batch));
}

/// The same memory, cut to the sequenced frames that come after `sequence`. A header lies in one
/// piece.
Segments Link::frames_after(const Segments& batch, std::uint64_t sequence) {
  Segments rest;
  std::uint64_t payload = 0;  // that is still to come of the frame
  bool wanted = false;
  for (const Buffer& piece : batch) {
    std::size_t begin = 0, at = 0;  // [begin, at) is wanted, or empty
    const auto cut = [&] {
      if (at != begin) rest.push_back(piece.slice(begin, at - begin));
    };
    while (at < piece.size()) {
      std::uint64_t step = payload;
      if (payload == 0) {
        wanted = encoded_sequence(piece.data() + at) > sequence;
        payload = encoded_length(piece.data() + at);
        step = FrameHeader::size;
      } else {
        step = std::min<std::uint64_t>(payload, piece.size() - at);
        payload -= step;
      }
      if (!wanted) {
        cut();
        begin = at + step;
      }
      at += step;
    }
    cut();
  }
  return rest;
}

void Link::count_window() {
  window_left_ -= window_step(window_left_);
  if (window_left_ > 0ns)
    return shard_.start_timer(resume_timer_, after(window_step(window_left_)));
  give_up(Error(Errc::deadline_exceeded, "take the link up again",
                "it was not heard of within " +
                    std::to_string(timing().missed_heartbeats_until_down) + " heartbeats" +
                    (last_attempt_.empty() ? "" : "; the last attempt: " + last_attempt_)));
}

void Link::note_attempt(const Error& cause) noexcept {
  if (broken_) last_attempt_ = cause.tried() + ": " + text_of(cause);
}

// The peer that has closed may have ended since, and have all of it.
void Link::give_up(const Error& cause) noexcept {
  if (!broken_) return;
  if (peer_closed_) return fail(*refusal_);
  fail(Error(Errc::peer_lost, broken_->tried(), broken_->found() + "; then: " + text_of(cause),
             acknowledged_text()));
}

// ---- Life
// ----------------------------------------------------------------------------------------

void Link::on_credit_owed() noexcept {
  owes_credit_ = true;
  later(flush_later_);
}

void Link::on_reply_room() noexcept {
  for (const LaneOut& lane : out_)
    if (lane.anybody_waits()) return later(pump_later_);
}

void Link::acknowledge_now() {
  if (delivered_ == ack_sent_) return;
  owes_ack_ = owes_all_credit_ = true;
  flush();
}

// Ticks are counted, not time: what this process slept through itself is no silence of the peer's.
void Link::heartbeat() {
  const int most = can_resume() ? timing().missed_heartbeats_until_broken
                                : timing().missed_heartbeats_until_down;
  if (hyperframes::detail::planted("heartbeat-hides-silence")) silent_ticks_ = 0;
  if (++silent_ticks_ >= most)
    return lose_transport(
        Error(Errc::peer_lost, "hear from " + transport_->peer(),
              "it sent nothing for " + std::to_string(silent_ticks_) + " heartbeats",
              "its process or host stopped, or the network drops packets; " + acknowledged_text()));
  if (!watch_progress()) return;
  shard_.start_timer(heartbeat_timer_, after(timing().heartbeat()));
  owes_heartbeat_ = owes_all_credit_ = true;
  flush();
}

// A peer that is alive and yet moves nothing keeps memory from others: what was sent to it and not
// acknowledged, and what was granted to it.
bool Link::watch_progress() noexcept {
  const bool acknowledges_something =
      retained_.empty() || std::exchange(acknowledged_at_tick_, acknowledged_) != acknowledged_;
  unacknowledged_ticks_ = acknowledges_something ? 0 : unacknowledged_ticks_ + 1;
  if (unacknowledged_ticks_ >= patience) {
    fail(Error(Errc::peer_lost, "send to " + transport_->peer(),
               "it acknowledged nothing for " + std::to_string(patience) + " heartbeats",
               "the network is far too slow, or the peer does not keep to the protocol"));
    return false;
  }
  const bool brings =
      bytes_received_ - std::exchange(bytes_at_tick_, bytes_received_) >= progress_bytes;
  idle_ticks_ = brings ? 0 : idle_ticks_ + 1;
  for (LaneIn& lane : in_) {
    const bool lent = lane.grant.granted || (lane.active() && lane.granted);
    const bool moves = std::exchange(lane.progress, 0) >= progress_bytes;
    lane.idle_ticks = lent && !moves ? lane.idle_ticks + 1 : 0;
    const bool in_the_way =
        budget_->is_contended() && std::min(lane.idle_ticks, idle_ticks_) >= patience_for_others;
    if (!in_the_way && lane.idle_ticks < patience) continue;
    fail(Error(Errc::peer_lost, "receive from " + transport_->peer(),
               "it was granted a large message and did not send it for " +
                   std::to_string(lane.idle_ticks) + " heartbeats",
               "the network is far too slow, or the peer does not keep to the protocol"));
    return false;
  }
  return true;
}

void Link::begin_close(Error reason) noexcept {
  if (closing_ || end_) return;
  closing_ = true;
  refusal_ = std::move(reason);
  fail_waiting(*refusal_);
  later(flush_later_);
}

void Link::check_closed() noexcept {
  if (!close_sent_ || !peer_closed_ || sending_ || acknowledged_ != sequence_ ||
      ack_sent_ != delivered_)
    return;
  fail(*refusal_);
}

void Link::on_ended(Error reason) noexcept {
  // Of a transport that both ends take part in, such as shared memory.
  if (reason.is(Errc::corrupt)) return fail(std::move(reason));
  const bool in_order = reason.is(Errc::closed);
  if (peer_closed_ && in_order) return fail(*refusal_);
  Error lost(Errc::peer_lost, "use the link to " + transport_->peer(),
             in_order ? "the peer's process ended, or closed the connection without a word"
                      : reason.what(),
             acknowledged_text());
  // A connection that ends before it brought anything is one that the peer has given up meanwhile.
  const bool unused = resumes_ && bytes_received_ == bytes_at_start_;
  // What this shard takes back itself, as it stops, did not break: its peers shall see an end.
  const bool stops = reason.code() == std::errc::operation_canceled;
  if (stops || (in_order && !unused)) return fail(std::move(lost));
  lose_transport(std::move(lost));
}

/// What a sender may rely on: in each lane a prefix of what it handed over.
std::string Link::acknowledged_text() const {
  std::string text;
  for (const Lane lane : all_lanes) {
    const LaneOut& of = out_[static_cast<std::size_t>(lane)];
    if (of.sent == of.acknowledged) continue;
    text += (text.empty() ? "it has acknowledged the first " : ", the first ") +
            std::to_string(of.acknowledged) + " of " + std::to_string(of.sent) +
            " messages on lane '" + std::string(name(lane)) + "'";
  }
  return text.empty() ? "it has acknowledged every message" : text;
}

void Link::corrupt(std::string found) {
  fail(Error(Errc::corrupt, "receive from " + transport_->peer(), std::move(found),
             "the connection was closed; run the same release on both ends"));
}

void Link::fail(Error reason) noexcept {
  if (end_) return;
  if (!refusal_) refusal_ = reason;
  end_ = std::move(reason);
  transport_->stop();
  next_ = {};
  heartbeat_timer_.stop();
  ack_timer_.stop();
  retry_timer_.stop();
  resume_timer_.stop();
  drop_grants();
  fail_waiting(*refusal_);
  later(report_later_);
}

void Link::fail_waiting(const Error& reason) noexcept {
  for (LaneOut& lane : out_) {
    lane.announced = 0;
    for (auto* waiting : {&lane.waiting, &lane.waiting_answers}) {
      while (Session::SendAwaiter* awaiter = waiting->pop_front()) {
        awaiter->announced_ = 0;
        awaiter->failure_ = std::make_unique<Error>(reason);
        awaiter->wake();
      }
    }
  }
}

void Link::report() { owner_.on_link_ended(*this, *end_); }

std::uint64_t Link::unacknowledged(Lane first) const noexcept {
  std::uint64_t messages = 0;
  for (auto i = static_cast<std::size_t>(first); i < lane_count; ++i)
    messages += out_[i].sent - out_[i].acknowledged;
  return messages;
}

void Link::add_stats(Session::Stats& stats) const {
  for (std::size_t i = 0; i < lane_count; ++i) {
    stats.lanes[i].messages_sent += out_[i].sent;
    stats.lanes[i].messages_acknowledged += out_[i].acknowledged;
    stats.lanes[i].messages_received += in_[i].received_count;
    stats.lanes[i].credit_bytes += out_[i].credit;
    stats.lanes[i].waiting_senders += out_[i].waiting.size() + out_[i].waiting_answers.size();
    stats.lanes[i].held_bytes += account_->used(all_lanes[i]);
  }
  stats.bytes_sent += bytes_sent_;
  stats.bytes_received += bytes_received_;
  stats.sends += batches_;
  stats.queued_bytes += queued_bytes_;
  stats.unacknowledged_bytes += retained_bytes_;
  stats.sent_frames += sequence_;
  stats.acknowledged_frames += acknowledged_;
  stats.round_trip = round_trip_;
  stats.transport = transport_->name();
  stats.resuming_links += broken_ && !end_ ? 1 : 0;
  stats.resumes += resumes_;
}

}  // namespace hyperframes::net::detail
