#include <algorithm>
#include <hyperframes/net/link.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <string>
#include <utility>

namespace hyperframes::net::detail {
namespace {

// What a peer may leave unacknowledged before it gets no more: a share of the send pool, since
// that is what it keeps from others.
constexpr std::uint64_t unacknowledged_most = 16 << 20, unacknowledged_least = 1 << 20;
constexpr std::size_t send_pool_share = 8;
// A peer is slow, not stuck, while so much comes with each heartbeat.
constexpr std::uint64_t progress_bytes = 4 << 10;
// Heartbeats without progress after which the peer has to go: with a granted message while others
// wait for its memory, or in any case.
constexpr int patience_for_others = 5, patience = 30;

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

void Link::start(Buffer first) {
  start_transport(std::move(first));
  for (const Lane lane : all_lanes)
    control(FrameKind::credit, lane, lane == Lane::control ? account_->reply_window() : 0,
            account_->window(lane), frame_flag::window);
}

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
