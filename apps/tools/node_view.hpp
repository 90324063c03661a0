// What a node's page says, as the tools show it.
//
//   NodeView now = parse_node(PageReader("127.0.0.1:9464").get("/actors"));
//   add_rates(now, before);                           // messages a second, shares of a shard
//   for (const ActorView* actor : now.tree()) row(*actor, actor->level, waits_on(*actor));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools {

struct PlaceView {
  std::string function, file;
  unsigned line = 0;
};

struct ChainView {
  std::vector<PlaceView> places;
  std::uint64_t places_left_out = 0;
  std::vector<ChainView> branches;
  std::uint64_t branches_left_out = 0;
  bool ready = false;
};

struct TurnView {
  std::string kind, method;
  bool exclusive = false;
  double suspended_ms = 0;
  ChainView chain;
};

struct ActorView {
  std::string id, name, service, parent, state, last_failure;
  unsigned shard = 0;
  bool busy = false;
  std::uint64_t mailbox = 0, mailbox_limit = 0, waiting_senders = 0;
  std::uint64_t handled = 0, restarts = 0, busy_samples = 0;
  std::vector<TurnView> turns;
  std::uint64_t turns_left_out = 0;

  unsigned level = 0;                ///< In the tree.
  std::optional<double> rate;        ///< Messages a second.
  std::optional<double> busy_share;  ///< Of its shard, 0 to 1.
};

struct ShardView {
  unsigned index = 0;
  bool answered = false;
  std::string doing;
  std::uint64_t work = 0, busy_ns = 0, samples = 0, ready = 0, actors = 0, actors_left_out = 0;
  std::uint64_t mailbox_messages = 0, tasks = 0;
  std::optional<double> load;  ///< The share of time in turns that did work.
  std::optional<double> work_rate;
};

struct NodeView {
  std::string name, id;
  std::int64_t at_ns = 0;
  std::vector<ShardView> shards;
  std::vector<ActorView> actors;
  std::uint64_t sessions = 0;

  /// Parents before their children, which stand one level further in.
  std::vector<const ActorView*> tree();
};

/// Throws Errc::corrupt for what is no answer of a node.
NodeView parse_node(const std::string& json);
/// Fills in what can only be known from two looks.
void add_rates(NodeView& now, const NodeView& before);

/// "Server::run" of "hyperframes::Task<void> hyperframes::ps::(anonymous
/// namespace)::Server::run()".
std::string short_function(std::string_view function);
/// Its name, or a short form of its service and id.
std::string title(const ActorView& actor);
/// In a few words what its current turn waits on: "table_part.cpp:41 TablePart::pull"; empty if it
/// waits for nothing.
std::string waits_on(const ActorView& actor);
/// Its turns with their chains, a line each.
std::vector<std::string> chain_lines(const ActorView& actor);

}  // namespace hyperframes::tools
