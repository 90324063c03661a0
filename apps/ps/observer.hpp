// Sees what parameter servers and their clients do, at the moment they do it: for checks that are
// too fine for what a request can show.
//
//   struct Counts final : hf::ps::Observer {
//     void pushed(const ShardContext&, const TableState&, const PushBody&, bool) override { ++n; }
//   };
//   shard_options.observer = &counts;         // or PsClient::Options::observer
//
// Programs have none; the simulator's checker is one. It is called on the core shard where the
// thing happens, must neither throw nor suspend, and outlives whoever calls it.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/slots.hpp>

namespace hyperframes::ps {

struct ClusterView;
struct PushBody;
struct PushKey;
struct ShardContext;
class TableState;

class Observer {
 public:
  virtual ~Observer() = default;

  // ---- A parameter shard
  /// It has recovered, and is about to take requests: under the token of its options.
  virtual void opened(const ShardContext&) {}
  /// A table's rows are there: what snapshot and log hold.
  virtual void recovered(const ShardContext&, const TableState&) {}
  /// A push was applied, or (`fresh` false) found to have been; not durable yet.
  virtual void pushed(const ShardContext&, const TableState&, const PushBody&,
                      [[maybe_unused]] bool fresh) {}
  /// A worker's pull for `step` is answered now.
  virtual void pull_answered(const ShardContext&, [[maybe_unused]] std::uint32_t job,
                             [[maybe_unused]] std::uint64_t step) {}
  virtual void view_adopted(const ShardContext&, const ClusterView&) {}

  // ---- A client
  /// One message of a push is acknowledged. `counter`: the id of its counter row, or 0.
  virtual void acknowledged(TableId, ShardId, const PushKey&,
                            [[maybe_unused]] std::uint64_t counter) {}
  /// From now on the worker says that it has completed so many steps.
  virtual void clock_set([[maybe_unused]] std::uint32_t job, [[maybe_unused]] std::uint32_t worker,
                         [[maybe_unused]] std::uint64_t clock) {}
};

}  // namespace hyperframes::ps
