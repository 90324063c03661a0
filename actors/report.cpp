#include <hyperframes/actors/report.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/actors/detail/event_json.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>

namespace hyperframes {
namespace {

using nlohmann::json;

std::string seconds_text(Duration span) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(span).count());
}

double in_ms(Duration span) { return std::chrono::duration<double, std::milli>(span).count(); }

// Programs read them in languages that have no 64-bit integers.
std::string id_text(std::uint64_t id) { return fmt::format("{:016x}", id); }

std::string turn_text(const TurnReport& turn) {
  std::string text = turn.kind + (turn.method.empty() ? "" : " " + turn.method);
  if (turn.suspended_for > Duration::zero())
    text += ", begun " + seconds_text(turn.suspended_for) + " ago";
  return text + ": " + turn.chain.to_string();
}

std::string actor_text(const ActorReport& actor, const std::string& indent) {
  std::string text = fmt::format("{}{}: {}{}, mailbox {} of {}, handled {}", indent, actor.title(),
                                 actor.state, actor.busy ? ", busy" : "", actor.mailbox_messages,
                                 actor.mailbox_limit, actor.handled);
  if (actor.waiting_senders > 0)
    text += fmt::format(", {} senders wait for room", actor.waiting_senders);
  if (actor.restarts > 0) text += fmt::format(", restarts {}", actor.restarts);
  if (!actor.last_failure.empty()) text += ", last crash: " + actor.last_failure;
  for (const TurnReport& turn : actor.turns) text += "\n" + indent + "  " + turn_text(turn);
  if (actor.turns_left_out > 0)
    text += fmt::format("\n{}  and {} more turns", indent, actor.turns_left_out);
  return text;
}

std::string shard_text(const ShardReport& shard) {
  if (!shard.answered)
    return fmt::format("shard {} did not answer: {}\n", shard.index, shard.doing);
  std::string text = fmt::format(
      "shard {}: {} actors, {} messages in mailboxes, {} tasks, {} ready items\n", shard.index,
      shard.actors, shard.mailbox_messages, shard.tasks.size() + shard.tasks_left_out,
      shard.load.ready_system + shard.load.ready_user);
  for (const auto& task : shard.tasks) text += "  " + task.to_string() + "\n";
  if (shard.tasks_left_out > 0) text += fmt::format("  and {} more tasks\n", shard.tasks_left_out);
  if (shard.actors_left_out > 0)
    text += fmt::format("  {} of its actors are left out below\n", shard.actors_left_out);
  if (shard.sessions_left_out > 0)
    text += fmt::format("  {} of its sessions are left out below\n", shard.sessions_left_out);
  return text;
}

json chain_json(const AwaitChain& chain) {
  json places = json::array();
  for (const AwaitPlace& place : chain.places)
    places.push_back({{"function", place.function}, {"file", place.file}, {"line", place.line}});
  json object = {{"places", std::move(places)},
                 {"places_left_out", chain.places_left_out},
                 {"ready", chain.ready}};
  if (chain.branches.empty() && chain.branches_left_out == 0) return object;
  json branches = json::array();
  for (const AwaitChain& branch : chain.branches) branches.push_back(chain_json(branch));
  object["branches"] = std::move(branches);
  object["branches_left_out"] = chain.branches_left_out;
  return object;
}

json actor_json(const ActorReport& actor) {
  json turns = json::array();
  for (const TurnReport& turn : actor.turns)
    turns.push_back({{"kind", turn.kind},
                     {"method", turn.method},
                     {"exclusive", turn.exclusive},
                     {"suspended_ms", in_ms(turn.suspended_for)},
                     {"chain", chain_json(turn.chain)}});
  return {{"id", id_text(actor.id)},
          {"name", actor.name},
          {"service", actor.service},
          {"shard", actor.shard},
          {"parent", actor.parent ? json(id_text(actor.parent)) : json()},
          {"state", actor.state},
          {"busy", actor.busy},
          {"mailbox",
           {{"messages", actor.mailbox_messages},
            {"bytes", actor.mailbox_bytes},
            {"limit", actor.mailbox_limit},
            {"waiting_senders", actor.waiting_senders}}},
          {"handled", actor.handled},
          {"restarts", actor.restarts},
          {"busy_samples", actor.busy_samples},
          {"last_failure", actor.last_failure},
          {"turns", std::move(turns)},
          {"turns_left_out", actor.turns_left_out}};
}

json shard_json(const ShardReport& shard) {
  if (!shard.answered) return {{"shard", shard.index}, {"answered", false}, {"doing", shard.doing}};
  json tasks = json::array();
  for (const auto& task : shard.tasks)
    tasks.push_back(
        {{"spawned_at", fmt::format("{}:{}", task.spawned_at.file, task.spawned_at.line)},
         {"chain", chain_json(task.chain)}});
  return {{"shard", shard.index},
          {"answered", true},
          {"turns", shard.load.turns},
          {"work", shard.load.work_run},
          {"sleeps", shard.load.sleeps},
          {"busy_ns", shard.load.busy_ns},
          {"samples", shard.samples},
          {"ready", shard.load.ready_system + shard.load.ready_user},
          {"actors", shard.actors},
          {"actors_left_out", shard.actors_left_out},
          {"sessions_left_out", shard.sessions_left_out},
          {"mailbox_messages", shard.mailbox_messages},
          {"tasks", std::move(tasks)},
          {"tasks_left_out", shard.tasks_left_out}};
}

json session_json(const SessionReport& session) {
  json lanes = json::object();
  for (std::size_t i = 0; i < net::lane_count; ++i) {
    const auto& stats = session.stats.lanes[i];
    lanes[std::string(net::name(static_cast<net::Lane>(i)))] = {
        {"sent", stats.messages_sent},
        {"received", stats.messages_received},
        {"acknowledged", stats.messages_acknowledged},
        {"credit_bytes", stats.credit_bytes},
        {"waiting_senders", stats.waiting_senders},
        {"held_bytes", stats.held_bytes}};
  }
  return {{"peer", id_text(session.node_id)},
          {"address", session.address},
          {"shard", session.shard},
          {"transport", session.stats.transport},
          {"bytes_sent", session.stats.bytes_sent},
          {"bytes_received", session.stats.bytes_received},
          {"queued_bytes", session.stats.queued_bytes},
          {"unacknowledged_bytes", session.stats.unacknowledged_bytes},
          {"round_trip_ms", in_ms(session.stats.round_trip)},
          {"resuming_links", session.stats.resuming_links},
          {"resumes", session.stats.resumes},
          {"lanes", std::move(lanes)}};
}

/// The actors as a tree: those whose supervisor is not in the report stand at the top.
class Tree {
 public:
  explicit Tree(const std::vector<ActorReport>& actors) {
    std::set<std::uint64_t> ids;
    for (const ActorReport& actor : actors) ids.insert(actor.id);
    for (const ActorReport& actor : actors)
      children_[ids.contains(actor.parent) ? actor.parent : 0].push_back(&actor);
  }
  // Without recursion: a chain of actors may be as long as there are actors.
  std::string text() const {
    std::string text;
    std::vector<std::pair<const ActorReport*, std::size_t>> left;  // the next one last
    const auto add_children = [&](std::uint64_t parent, std::size_t depth) {
      const auto found = children_.find(parent);
      if (found == children_.end()) return;
      for (const ActorReport* child : std::views::reverse(found->second))
        left.emplace_back(child, depth);
    };
    add_children(0, 0);
    while (!left.empty()) {
      const auto [actor, depth] = left.back();
      left.pop_back();
      text += actor_text(*actor, std::string(2 * std::min(depth, deepest), ' ')) + "\n";
      add_children(actor->id, depth + 1);
    }
    return text;
  }

 private:
  static constexpr std::size_t deepest = 16;  // of what is shown further in
  std::map<std::uint64_t, std::vector<const ActorReport*>> children_;
};

}  // namespace

std::string ActorReport::title() const {
  const std::string of = service.empty() ? "an actor that has not begun" : service;
  return name.empty() ? fmt::format("{} {}", of, id_text(id)) : fmt::format("{} ({})", name, of);
}

std::string ActorReport::to_string() const { return actor_text(*this, ""); }

std::string NodeReport::to_string() const {
  std::string text = fmt::format("node '{}'\n", node);
  for (const ShardReport& shard : shards) text += shard_text(shard);
  text += Tree(actors).text();
  for (const SessionReport& session : sessions)
    text += fmt::format("session with {} on shard {} ({}): {} bytes queued, {} unacknowledged\n",
                        session.address, session.shard, session.stats.transport,
                        session.stats.queued_bytes, session.stats.unacknowledged_bytes);
  for (const SupervisionEvent& event : events)
    text += fmt::format("{} ago: {}\n", seconds_text(at - event.at), event.to_string());
  return text;
}

std::string NodeReport::to_json() const {
  json object = {{"node", node},
                 {"id", id_text(id)},
                 {"at_ns", at.time_since_epoch().count()},
                 {"shards", json::array()},
                 {"actors", json::array()},
                 {"sessions", json::array()},
                 {"events", json::array()}};
  for (const ShardReport& shard : shards) object["shards"].push_back(shard_json(shard));
  for (const ActorReport& actor : actors) object["actors"].push_back(actor_json(actor));
  for (const SessionReport& session : sessions) object["sessions"].push_back(session_json(session));
  for (const SupervisionEvent& event : events)
    object["events"].push_back(detail::event_json(event));
  // Names may be any bytes.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace hyperframes
