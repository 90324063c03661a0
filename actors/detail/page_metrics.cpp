#include <hyperframes/actors/detail/page_metrics.hpp>

#include <fmt/format.h>

#include <hyperframes/runtime/exposition.hpp>

namespace hyperframes::detail {
namespace {

constexpr std::size_t most_actors = 1000;

void add_shard(Exposition& page, const ShardReport& shard) {
  const Exposition::Labels labels = {{"shard", std::to_string(shard.index)}};
  page.gauge("hyperframes_shard_up", "Whether the shard answered in time", labels,
             shard.answered ? 1 : 0);
  if (!shard.answered) return;
  page.add(shard.metrics, labels);
  page.gauge("hyperframes_frames", "Coroutine frames and letters in use", labels,
             static_cast<double>(shard.load.frames));
  page.gauge("hyperframes_actors", "Actors that have not ended", labels,
             static_cast<double>(shard.actors));
  page.gauge("hyperframes_mailbox_messages", "Messages that wait in mailboxes", labels,
             static_cast<double>(shard.mailbox_messages));
}

void add_actor(Exposition& page, const ActorReport& actor) {
  const Exposition::Labels labels = {
      {"actor", actor.name}, {"service", actor.service}, {"shard", std::to_string(actor.shard)}};
  page.gauge("hyperframes_actor_mailbox_messages", "Messages that wait in an actor's mailbox",
             labels, static_cast<double>(actor.mailbox_messages));
  page.counter("hyperframes_actor_handled_total", "Messages that an actor has handled", labels,
               static_cast<double>(actor.handled));
  page.counter("hyperframes_actor_restarts_total", "Times that an actor was restarted", labels,
               static_cast<double>(actor.restarts));
  page.gauge("hyperframes_actor_suspended_turns", "Handlers of an actor that are suspended", labels,
             static_cast<double>(actor.turns.size() + actor.turns_left_out));
}

void add_lane(Exposition& page, Exposition::Labels labels, net::Lane lane,
              const net::Session::LaneStats& stats) {
  labels.emplace_back("lane", net::name(lane));
  page.gauge("hyperframes_session_credit_bytes", "What may be sent to a peer now", labels,
             static_cast<double>(stats.credit_bytes));
  page.gauge("hyperframes_session_waiting_senders", "Senders that wait for a peer's credit", labels,
             static_cast<double>(stats.waiting_senders));
  page.gauge("hyperframes_session_held_bytes", "Received from a peer, and not destroyed yet",
             labels, static_cast<double>(stats.held_bytes));
  page.counter("hyperframes_session_messages_sent_total", "Messages sent to a peer", labels,
               static_cast<double>(stats.messages_sent));
  page.counter("hyperframes_session_messages_received_total", "Messages received from a peer",
               labels, static_cast<double>(stats.messages_received));
}

void add_session(Exposition& page, const SessionReport& session) {
  const Exposition::Labels labels = {{"peer", fmt::format("{:016x}", session.node_id)},
                                     {"shard", std::to_string(session.shard)}};
  Exposition::Labels described = labels;
  described.emplace_back("address", session.address);
  described.emplace_back("transport", session.stats.transport);
  page.gauge("hyperframes_session_info", "Sessions with other processes, and how they travel",
             described, 1);
  page.counter("hyperframes_session_sent_bytes_total", "Bytes sent to a peer", labels,
               static_cast<double>(session.stats.bytes_sent));
  page.counter("hyperframes_session_received_bytes_total", "Bytes received from a peer", labels,
               static_cast<double>(session.stats.bytes_received));
  page.gauge("hyperframes_session_queued_bytes", "Handed over, not given to the transport yet",
             labels, static_cast<double>(session.stats.queued_bytes));
  page.gauge("hyperframes_session_unacknowledged_bytes", "Sent, and not acknowledged yet", labels,
             static_cast<double>(session.stats.unacknowledged_bytes));
  page.gauge("hyperframes_session_round_trip_seconds",
             "Of the latest heartbeat; 0 before the first", labels,
             std::chrono::duration<double>(session.stats.round_trip).count());
  for (std::size_t i = 0; i < net::lane_count; ++i)
    add_lane(page, labels, static_cast<net::Lane>(i), session.stats.lanes[i]);
}

}  // namespace

std::string metrics_text(const NodeReport& report) {
  Exposition page;
  page.gauge("hyperframes_node_info", "The node that these are of",
             {{"node", report.node}, {"id", fmt::format("{:016x}", report.id)}}, 1);
  for (const ShardReport& shard : report.shards) add_shard(page, shard);
  std::size_t shown = 0;
  for (const ActorReport& actor : report.actors)
    if (!actor.name.empty() && ++shown <= most_actors) add_actor(page, actor);
  for (const SessionReport& session : report.sessions) add_session(page, session);
  return page.text();
}

}  // namespace hyperframes::detail
