// What a node's actors do at this moment: a copy, to look at, print or send.
//
//   hf::NodeReport report = co_await node.inspect();
//   for (const hf::ActorReport& actor : report.actors) std::puts(actor.to_string().c_str());
//   std::puts(report.to_string().c_str());         // or report.to_json()
//
// Each shard describes its own actors when it comes to it, a thousand cells at a time with a pause
// for others' work in between: so the parts of a report are a little apart in time. A report is
// bounded: it counts what it leaves out, and keeps what works or waits rather than what is idle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/actors/supervision_event.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/await_chain.hpp>
#include <hyperframes/runtime/metrics.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/time.hpp>
#include <string>
#include <vector>

namespace hyperframes {

/// How much is copied; what is over it is counted.
struct InspectOptions {
  std::size_t actors_per_shard = 1000;
  std::size_t turns_per_actor = 8;
  std::size_t tasks_per_shard = 100;     ///< Of the shard's own, not of actors.
  std::size_t sessions_per_shard = 256;  ///< Sessions with other processes.
  std::size_t events = 100;              ///< Decisions of supervisors, the latest.
  bool metrics = false;                  ///< Copy the shards' metrics too.
  Duration patience = 2s;                ///< For shards that do not answer.
};

/// A handler, or another coroutine of an actor, that is suspended.
struct TurnReport {
  /// letter, inbox, started, stopping, down or background; task: of a Scope that the actor has not
  /// joined yet.
  const char* kind = "";
  std::string method;        ///< "demo.Counter.Add", of a letter's handler.
  bool exclusive = false;    ///< No other letter is handled before it has ended.
  Duration suspended_for{};  ///< Since it was suspended for the first time; 0 for a task.
  AwaitChain chain;
};

struct ActorReport {
  std::uint64_t id = 0;
  std::string name;  ///< May be empty.
  std::string service;
  unsigned shard = 0;
  std::uint64_t parent = 0;  ///< Its supervisor's id; 0: it has none.
  const char* state = "";    ///< starting, open, stopping, closing or pausing (before a restart).
  bool busy = false;         ///< A handler that no other may interrupt is suspended.
  std::uint64_t mailbox_messages = 0, mailbox_bytes = 0, mailbox_limit = 0;
  std::uint64_t waiting_senders = 0;  ///< The mailbox is full for them.
  std::uint64_t handled = 0;          ///< Letters, over all its lives.
  std::uint64_t restarts = 0;         ///< So far, of all kinds: its own, with a sibling, by hand.
  std::string last_failure;           ///< What the last crash said; empty if there was none.
  std::uint32_t owner = 0;            ///< Its coroutines' owner number (runtime/witness.hpp).
  std::uint64_t busy_samples = 0;     ///< How often it was seen at work: see ShardReport::samples.
  std::vector<TurnReport> turns;
  std::size_t turns_left_out = 0;

  /// Its name, or its service and id.
  std::string title() const;
  /// One line, and one for each suspended turn.
  std::string to_string() const;
};

struct SessionReport {
  std::uint64_t node_id = 0;
  std::string address;
  unsigned shard = 0;
  net::Session::Stats stats;
};

struct ShardReport {
  unsigned index = 0;
  bool answered = false;  ///< False: the rest is empty.
  std::string doing;      ///< Where it is stuck, if it did not answer.
  Shard::Load load{};
  std::uint64_t actors = 0;  ///< All of them.
  std::uint64_t mailbox_messages = 0;
  /// How often the shard was looked at, while somebody watches the node's HTTP pages: 1,000 times a
  /// second. An actor's share of the shard is what its busy_samples grow by, of what these do.
  std::uint64_t samples = 0;
  std::size_t actors_left_out = 0, sessions_left_out = 0;
  std::vector<Shard::TaskState> tasks;
  std::size_t tasks_left_out = 0;
  Metrics metrics;
};

struct NodeReport {
  std::string node;  ///< Its name.
  std::uint64_t id = 0;
  Time at{};  ///< When it was complete, by the shards' clock (no time of day).
  std::vector<ShardReport> shards;
  std::vector<ActorReport> actors;  ///< By shard, then by id.
  std::vector<SessionReport> sessions;
  std::vector<SupervisionEvent> events;  ///< The latest InspectOptions::events, the oldest first.

  /// For people: the tree of actors, each with the lines it waits on.
  std::string to_string() const;
  /// For programs; docs/reference/seeing.md lists the fields.
  std::string to_json() const;
};

}  // namespace hyperframes
