#include <algorithm>
#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/link.hpp>
#include <hyperframes/runtime/log.hpp>
#include <utility>

namespace hyperframes::net::detail {
namespace {

/// Ticks again: a process that sleeps while its link is broken loses no more than one of them.
Duration window_step(Duration left) noexcept { return std::min(left, timing().heartbeat() / 8); }

}  // namespace

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

}  // namespace hyperframes::net::detail
