#include <hyperframes/apps/tools/node_view.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/runtime/error.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>

namespace hyperframes::tools {
namespace {

using nlohmann::json;

// What a node of another version leaves out has its usual value; what it adds is not looked at.
template <class T>
void read(const json& from, const char* key, T& into) {
  const auto found = from.find(key);
  if (found != from.end() && !found->is_null()) into = found->get<T>();
}

ChainView chain_of(const json& from, unsigned level = 0) {
  constexpr unsigned deepest = 16;
  ChainView chain;
  for (const json& place : from.value("places", json::array())) {
    PlaceView& view = chain.places.emplace_back();
    read(place, "function", view.function);
    read(place, "file", view.file);
    read(place, "line", view.line);
  }
  read(from, "places_left_out", chain.places_left_out);
  read(from, "branches_left_out", chain.branches_left_out);
  read(from, "ready", chain.ready);
  if (level < deepest)
    for (const json& branch : from.value("branches", json::array()))
      chain.branches.push_back(chain_of(branch, level + 1));
  return chain;
}

TurnView turn_of(const json& from) {
  TurnView turn;
  read(from, "kind", turn.kind);
  read(from, "method", turn.method);
  read(from, "exclusive", turn.exclusive);
  read(from, "suspended_ms", turn.suspended_ms);
  turn.chain = chain_of(from.at("chain"));
  return turn;
}

ActorView actor_of(const json& from) {
  ActorView actor;
  actor.id = from.at("id").get<std::string>();
  read(from, "name", actor.name);
  read(from, "service", actor.service);
  read(from, "parent", actor.parent);
  read(from, "state", actor.state);
  read(from, "last_failure", actor.last_failure);
  read(from, "shard", actor.shard);
  read(from, "busy", actor.busy);
  read(from, "handled", actor.handled);
  read(from, "restarts", actor.restarts);
  read(from, "busy_samples", actor.busy_samples);
  read(from, "turns_left_out", actor.turns_left_out);
  const json mailbox = from.value("mailbox", json::object());
  read(mailbox, "messages", actor.mailbox);
  read(mailbox, "limit", actor.mailbox_limit);
  read(mailbox, "waiting_senders", actor.waiting_senders);
  for (const json& turn : from.value("turns", json::array())) actor.turns.push_back(turn_of(turn));
  return actor;
}

ShardView shard_of(const json& from) {
  ShardView shard;
  shard.index = from.at("shard").get<unsigned>();
  read(from, "answered", shard.answered);
  read(from, "doing", shard.doing);
  read(from, "work", shard.work);
  read(from, "busy_ns", shard.busy_ns);
  read(from, "samples", shard.samples);
  read(from, "ready", shard.ready);
  read(from, "actors", shard.actors);
  read(from, "actors_left_out", shard.actors_left_out);
  read(from, "mailbox_messages", shard.mailbox_messages);
  read(from, "tasks_left_out", shard.tasks);
  shard.tasks += from.value("tasks", json::array()).size();
  return shard;
}

/// The turn that keeps others waiting; else the one of an inbox; else the first.
const TurnView* main_turn(const ActorView& actor) {
  if (actor.turns.empty()) return nullptr;
  const auto exclusive = std::ranges::find(actor.turns, true, &TurnView::exclusive);
  if (exclusive != actor.turns.end()) return &*exclusive;
  const auto inbox = std::ranges::find(actor.turns, "inbox", &TurnView::kind);
  return inbox != actor.turns.end() ? &*inbox : &actor.turns.front();
}

std::string place_text(const PlaceView& place) {
  return fmt::format("{}:{} {}", place.file, place.line, short_function(place.function));
}

void add_chain(std::vector<std::string>& lines, const ChainView& chain, std::size_t indent) {
  const std::string space(indent, ' ');
  if (chain.places.empty() && chain.branches.empty()) lines.push_back(space + "has not begun");
  for (std::size_t i = 0; i < chain.places.size(); ++i) {
    if (chain.places_left_out > 0 && i == chain.places.size() / 2)
      lines.push_back(fmt::format("{}... {} more ...", space, chain.places_left_out));
    lines.push_back(space + place_text(chain.places[i]));
  }
  for (std::size_t i = 0; i < chain.branches.size(); ++i) {
    lines.push_back(fmt::format("{}task {} of {}", space, i + 1,
                                chain.branches.size() + chain.branches_left_out));
    add_chain(lines, chain.branches[i], indent + 2);
  }
  if (chain.branches_left_out > 0)
    lines.push_back(fmt::format("{}and {} more tasks", space, chain.branches_left_out));
  if (chain.ready) lines.push_back(space + "(ready to run)");
}

/// Cuts off a trailing "[with T = int]" or "[T = int]", and what stands behind the parameters.
std::string_view without_parameters(std::string_view function) {
  if (const auto with = function.rfind(" ["); function.ends_with(']') && with != function.npos)
    function = function.substr(0, with);
  const auto close = function.rfind(')');
  if (close == function.npos) return function;
  std::size_t at = close + 1;
  for (int depth = 0; at-- > 0;) {
    depth += function[at] == ')' ? 1 : function[at] == '(' ? -1 : 0;
    if (depth == 0) return function.substr(0, at);
  }
  return function;
}

}  // namespace

std::string short_function(std::string_view function) {
  function = without_parameters(function);
  std::vector<std::string> parts(1);
  int depth = 0;  // inside <> and (): template arguments, "(anonymous namespace)", "(lambda ...)"
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (c == '>' || c == ')') --depth;
    if (depth == 0 && c == ' ') {
      parts.assign(1, "");  // what stood before was the type of the result
    } else if (depth == 0 && function.substr(i).starts_with("::")) {
      parts.emplace_back();
      ++i;
    } else if (depth == 0 && c != '>' && c != ')' && c != '<' && c != '(') {
      parts.back() += c;
    }
    if (c == '<' || c == '(') ++depth;
  }
  std::erase(parts, "");
  std::string text;
  const std::size_t first = parts.size() > 2 ? parts.size() - 2 : 0;
  for (std::size_t i = first; i < parts.size(); ++i) text += (i > first ? "::" : "") + parts[i];
  return text.empty() ? "a lambda" : text;
}

NodeView parse_node(const std::string& text) try {
  const json object = json::parse(text);
  NodeView node;
  node.name = object.at("node").get<std::string>();
  read(object, "id", node.id);
  read(object, "at_ns", node.at_ns);
  for (const json& shard : object.at("shards")) node.shards.push_back(shard_of(shard));
  for (const json& actor : object.at("actors")) node.actors.push_back(actor_of(actor));
  node.sessions = object.value("sessions", json::array()).size();
  return node;
} catch (const json::exception& error) {
  throw Error(Errc::corrupt, "read what a node says of its actors", error.what(),
              "check that the address is a node's HTTP page (--http_addr), of the same version");
}

std::vector<const ActorView*> NodeView::tree() {
  std::set<std::string_view> ids;
  for (const ActorView& actor : actors) ids.insert(actor.id);
  std::map<std::string_view, std::vector<ActorView*>> children;
  for (ActorView& actor : actors)
    children[ids.contains(actor.parent) ? std::string_view(actor.parent) : ""].push_back(&actor);
  // Without recursion: a chain of actors may be as long as there are actors.
  std::vector<const ActorView*> order;
  std::vector<ActorView*> left;  // the next one last
  const auto add_children = [&](std::string_view parent, unsigned level) {
    const auto found = children.find(parent);
    if (found == children.end()) return;
    for (ActorView* child : std::views::reverse(found->second)) {
      child->level = level;
      left.push_back(child);
    }
  };
  add_children("", 0);
  while (!left.empty()) {
    ActorView* const actor = left.back();
    left.pop_back();
    order.push_back(actor);
    add_children(actor->id, actor->level + 1);
  }
  return order;
}

void add_rates(NodeView& now, const NodeView& before) {
  const double seconds =
      (static_cast<double>(now.at_ns) - static_cast<double>(before.at_ns)) * 1e-9;
  if (seconds <= 0 || now.id != before.id) return;
  const auto growth = [](std::uint64_t later, std::uint64_t earlier) {
    return later >= earlier ? static_cast<double>(later - earlier) : 0;
  };
  std::map<unsigned, double> samples;
  for (ShardView& shard : now.shards) {
    const auto old = std::ranges::find(before.shards, shard.index, &ShardView::index);
    if (old == before.shards.end() || !shard.answered || !old->answered) continue;
    shard.load = std::min(1.0, growth(shard.busy_ns, old->busy_ns) * 1e-9 / seconds);
    shard.work_rate = growth(shard.work, old->work) / seconds;
    samples[shard.index] = growth(shard.samples, old->samples);
  }
  std::map<std::string_view, const ActorView*> earlier;
  for (const ActorView& actor : before.actors) earlier[actor.id] = &actor;
  for (ActorView& actor : now.actors) {
    const auto old = earlier.find(actor.id);
    if (old == earlier.end()) continue;
    actor.rate = growth(actor.handled, old->second->handled) / seconds;
    const double of = samples[actor.shard];
    if (of > 0)
      actor.busy_share = std::min(1.0, growth(actor.busy_samples, old->second->busy_samples) / of);
  }
}

std::string title(const ActorView& actor) {
  if (!actor.name.empty()) return actor.name;
  const auto dot = actor.service.rfind('.');
  const std::string service =
      dot == std::string::npos ? actor.service : actor.service.substr(dot + 1);
  const auto zeros = std::min(actor.id.find_first_not_of('0'), actor.id.size());
  return fmt::format("{} {}", service.empty() ? "actor" : service, actor.id.substr(zeros));
}

std::string waits_on(const ActorView& actor) {
  if (actor.state == "pausing") return "waits to be restarted";
  const TurnView* const turn = main_turn(actor);
  if (!turn) return {};
  if (turn->chain.places.empty()) return "has not begun";
  std::string text = place_text(turn->chain.places.back());
  if (const auto tasks = turn->chain.branches.size() + turn->chain.branches_left_out; tasks > 0)
    text += fmt::format(" ({} tasks)", tasks);
  if (turn->chain.ready) text += " (ready to run)";
  return text;
}

std::vector<std::string> chain_lines(const ActorView& actor) {
  std::vector<std::string> lines;
  if (!actor.last_failure.empty()) lines.push_back("last crash: " + actor.last_failure);
  for (const TurnView& turn : actor.turns) {
    lines.push_back(turn.kind + (turn.method.empty() ? "" : " " + turn.method));
    if (turn.suspended_ms > 0)
      lines.back() += fmt::format(", begun {:.1f} s ago", turn.suspended_ms / 1000);
    add_chain(lines, turn.chain, 2);
  }
  if (actor.turns_left_out > 0)
    lines.push_back(fmt::format("and {} more turns", actor.turns_left_out));
  if (actor.turns.empty())
    lines.push_back(actor.mailbox > 0 ? "its next letter is ready to run" : "waits for letters");
  return lines;
}

}  // namespace hyperframes::tools
