// One shard's part of a node: its actors, and the asks that went to other processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <hyperframes/actors/detail/birth.hpp>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/letter.hpp>
#include <hyperframes/actors/detail/slot_table.hpp>
#include <hyperframes/actors/detail/unwound.hpp>
#include <hyperframes/actors/spawn_options.hpp>
#include <hyperframes/runtime/metrics.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/task.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyperframes::detail {

class NodeCore;
class StreamEnd;

/// The cell whose actor is being constructed on this thread.
ActorCell* cell_being_constructed() noexcept;
/// The shard whose ask a correlation belongs to.
unsigned shard_of_correlation(std::uint64_t correlation) noexcept;

/// All of it on one shard.
class NodeShard {
 public:
  NodeShard(NodeCore& core, Shard& shard);
  NodeShard(const NodeShard&) = delete;
  ~NodeShard();

  NodeCore& core;
  Shard& shard;

  // ---- actors ---------------------------------------------------------------

  struct SpawnRequest {
    SpawnOptions options;
    std::unique_ptr<Factory> factory;
    Address parent;
    Strategy strategy = Strategy::one_for_one;  ///< The parent's.
    Birth birth{};                              ///< Tells the parent.
  };
  /// Starts an actor here and waits until it has started.
  Task<Address> spawn(SpawnRequest request);
  /// The actor with that id, or null if it has ended.
  ActorCell* find(std::uint64_t id) noexcept;
  void free_cell(ActorCell& cell) noexcept;
  /// The same for an actor that starts at once, from outside any coroutine.
  void start_now(SpawnRequest request);
  /// Tells all actors to stop that have no parent, the latest first. Returns who they are.
  std::vector<std::pair<Address, std::string>> stop_all();
  /// Constructs a cell's actor.
  Actor* make(ActorCell& cell, Factory& factory);
  std::size_t actor_count() const noexcept { return actor_count_; }
  /// Ends every actor at once, without grace. Nothing can be spawned afterwards.
  void destroy_actors() noexcept;
  bool closed() const noexcept { return closed_; }
  /// The owner number of the coroutines of the actor in that slot; 0 where there is none.
  std::uint32_t owner_of(std::uint32_t slot) const noexcept;
  /// Cells are numbered below this.
  std::uint32_t slot_count() const noexcept { return next_slot_; }
  /// Null if the cell is free.
  ActorCell* cell_in(std::uint32_t slot) noexcept {
    ActorCell& cell = cell_at(slot);
    return cell.phase == ActorCell::Phase::free ? nullptr : &cell;
  }

  template <class Visit>
  void for_each_cell(Visit&& visit) {
    for (std::uint32_t slot = 0; slot < next_slot_; ++slot)
      if (ActorCell& cell = cell_at(slot); cell.phase != ActorCell::Phase::free) visit(cell);
  }

  // ---- between shards -------------------------------------------------------

  /// Posts to another part of this node; `arrived` is called where it arrives. Both are counted, so
  /// that a node knows when nothing of it is under way any more.
  void post(NodeShard& to, Work* work, Group group) noexcept {
    ++posted;
    to.shard.post(work, group);
  }
  void arrived() noexcept { ++received; }
  /// The node's part on another shard.
  NodeShard& sibling(unsigned shard_index) noexcept;
  std::uint64_t posted = 0, received = 0;

  void tell_to_stop(Address actor) noexcept;
  /// Asks `other` for its half of a link with `actor` of this shard, or to give that up.
  void tell_to_link(const Destination& other, ActorCell& actor, bool link) noexcept;
  /// A linked actor of `actor` has ended: says so to it, but not from within that one's end.
  void report_broken_link(Address actor, Down down) noexcept;

  // ---- watches of actors of other processes ----------------------------------

  /// The number under which their ends will be reported.
  std::uint64_t add_watch(Watch& watch);
  void forget_watch(std::uint64_t number) noexcept;
  /// The watch, taken out, or null if there is none (any more), or not of an actor of that peer.
  Watch* take_watch(std::uint64_t number, const RemotePeer& from) noexcept;
  /// Tells all who watch actors of that peer that it is lost.
  void fail_watches(RemotePeer& peer, const Error& reason) noexcept;
  void report_to_parent(Address parent, Address child, ChildNews news) noexcept;
  /// Has a child end its life and wait, or go on.
  void tell_to_suspend(Address actor) noexcept;
  void tell_to_revive(Address actor) noexcept;

  // ---- asks that wait for another process -----------------------------------

  std::uint64_t add_pending(Letter* letter);
  /// The letter, taken out, or null if nothing is waited for (any more) under that number, or not
  /// from that peer.
  Letter* take_pending(std::uint64_t correlation, const RemotePeer& from) noexcept;
  void forget_pending(Letter& letter) noexcept;
  /// Fails all that was asked of that peer.
  void fail_pending(RemotePeer& peer, const Error& reason) noexcept;

  // ---- streams --------------------------------------------------------------

  std::uint64_t add_stream(StreamEnd& end);
  void forget_stream(std::uint64_t number) noexcept;
  /// Null if it has ended, or never was.
  StreamEnd* find_stream(std::uint64_t number) noexcept;
  void fail_streams(RemotePeer& peer, const Error& reason) noexcept;
  std::size_t stream_ends() const noexcept { return streams_.size(); }

  // ---- dead letters ---------------------------------------------------------

  /// Counts and reports a letter that no handler gets.
  void note_dead(const Letter& letter, const ActorCell* cell, Errc cause,
                 std::string_view why) noexcept;
  /// The same for a peer's message to an actor that has ended.
  void note_dead(std::uint64_t target) noexcept;
  /// What a Reply that is being destroyed answers with; made when there is one.
  class DropReason {
   public:
    virtual Error error() const = 0;

   protected:
    ~DropReason() = default;
  };
  const DropReason* drop_reason = nullptr;  ///< Null: Errc::no_reply.
  Unwound unwound{*this};
  /// Where a start that fails at once puts its exception.
  std::exception_ptr* start_failure = nullptr;
  /// Calls of foreign threads that have not ended; they may outlive the node.
  const std::shared_ptr<std::atomic<std::uint32_t>> foreign_calls =
      std::make_shared<std::atomic<std::uint32_t>>(0);
  /// Of the actor of this shard that a letter is for.
  std::uint64_t id_of(const Letter& letter) const noexcept;

  Counter& delivered;
  Counter& expired;
  Counter& dead;
  Counter& dropped;
  Counter& late;
  Counter& restarts;
  Counter& crashes;
  Counter& refused_input;

 private:
  class Chunk;
  ActorCell& cell_at(std::uint32_t slot) noexcept;
  ActorCell& allocate_cell(Group group);
  void prepare(ActorCell& cell, SpawnRequest& request);

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<ActorCell*> free_cells_;
  std::uint32_t next_slot_ = 0;
  std::size_t actor_count_ = 0;
  bool closed_ = false;

  SlotTable<StreamEnd> streams_;
  std::map<std::uint64_t, Watch*> watches_;
  std::uint64_t next_watch_ = 0;
  SlotTable<Letter> pending_;
};

}  // namespace hyperframes::detail
