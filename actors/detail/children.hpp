// The children of one actor, and what is done with them when one of them ends.
//
// A child's own cell counts its restarts, decides whether there is another one, and makes it. What
// only the supervisor can do is done here: ending and beginning several of them in order. All that
// takes time is one coroutine of the supervisor, which looks at what each child is and does the
// next step; whatever happens meanwhile changes what it sees.
#pragma once

#include <exception>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/restart_budget.hpp>
#include <hyperframes/actors/supervisor.hpp>
#include <hyperframes/runtime/event.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace hyperframes::detail {

struct Child;

/// What a child's cell tells its supervisor.
struct ChildNews {
  enum class What : std::uint8_t {
    born,    ///< It is about to start; without an address, there is none.
    began,   ///< It has started again.
    held,    ///< Its life has ended, as it was told, and it waits.
    failed,  ///< The same, but of itself: its siblings may have to go along.
    ended,   ///< For good.
  };
  What what = What::ended;
  std::weak_ptr<Child> place{};               ///< born
  Down down{};                                ///< ended
  std::vector<Cause> causes{};                ///< ended: what led to it, without itself
  std::vector<std::string> stragglers{};      ///< ended
  std::uint32_t restarts = 0;                 ///< ended: within
  Duration period{};                          ///< that
  std::unique_ptr<SupervisionEvent> event{};  ///< failed
};

/// A place among the children; kept over the lives of its actor, and over several actors if it has
/// a specification.
struct Child {
  enum class State : std::uint8_t {
    spawning,  ///< For the first time, or after an end; from `born` on with its address.
    running,
    ending,    ///< Was told to end, or to suspend.
    held,      ///< Waits to be revived.
    starting,  ///< Was revived.
    ended,
  };
  std::string name;
  Restart restart = Restart::temporary;
  std::optional<ChildSpec> spec;
  Address address{};
  State state = State::ended;
  bool announced = true;  ///< There was word of who it is, or that there is none (Birth).
  bool given_up = false;  ///< Who has asked for it is gone.
  bool in_round = false;  ///< Has to end, and then, unless it is temporary, to begin again.
  bool stopped = false;   ///< By hand: begins again by hand only.
  int by_hand = 0;        ///< So many have asked to restart it, and see to it.
  Down down{};            ///< How it ended.
  RestartBudget budget;   ///< Of starts after an end: it has no cell then that counts them.
  bool listed = false;    ///< Among its supervisor's children,
  std::list<std::shared_ptr<Child>>::iterator where{};  ///< there.
};

class Children {
 public:
  explicit Children(ActorCell& supervisor) noexcept : supervisor_(supervisor) {}
  Children(const Children&) = delete;
  ~Children() { forget_all(); }

  Strategy strategy() const noexcept { return strategy_; }
  void set_strategy(Strategy strategy);

  // ---- from spawning --------------------------------------------------------

  /// The youngest, which is about to be spawned.
  std::shared_ptr<Child> expect(const SpawnOptions& options);
  /// Its shard has made it, or, without an address, never will. Comes before all other news of it.
  void born(const std::shared_ptr<Child>& place, Address child) noexcept;
  /// It has started, or, without an address, has not, or who spawned it is gone. False if nobody
  /// waits for it any more.
  bool arrived(const std::shared_ptr<Child>& place, Address child) noexcept;

  // ---- from the cell --------------------------------------------------------

  /// That a child could not be kept.
  struct Failure {
    std::string text;
    std::vector<Cause> causes;
  };
  /// If there is a failure, the supervisor's, who destroys this.
  std::optional<Failure> take(Address child, ChildNews news) noexcept;
  /// At the supervisor's end: tells the youngest that has not ended to stop, or waits until it is
  /// known. False if there is none.
  bool stop_last() noexcept;
  void forget_all() noexcept {
    while (!places_.empty()) remove(*places_.back());
  }

  // ---- for SupervisorRef: turns of the supervisor ---------------------------

  Task<ActorRef> add(ChildSpec spec);
  Task<Down> stop(std::string name, bool forget);
  Task<ActorRef> restart(std::string name);
  std::vector<ChildState> list() const;

 private:
  using Place = std::shared_ptr<Child>;
  Place find(const std::string& name, const char* tried) const;
  Place find(Address address) const noexcept;
  void remove(Child& place) noexcept;
  void know(const Place& place, Address address);
  std::optional<Failure> take_end(const Place& place, ChildNews& news) noexcept;
  void take_failure(const Place& place, SupervisionEvent event) noexcept;
  void record_end(SupervisionEvent event) noexcept;
  void take_along(const Place& failed, SupervisionEvent event) noexcept;
  bool take_failed_start(const Place& place, const std::exception_ptr& failure);
  /// Throws if the supervisor ends: nobody begins any more.
  void require_alive(const std::string& tried) const;
  Task<Address> spawn(Place place);
  Task<ActorRef> start_again(Place place);
  Task<Address> spawn_by_hand(Place place);
  SupervisionEvent event_by_hand(const Child& place, Address actor) const;
  void record_by_hand(const Child& place, Address actor, Decision decision);
  void record_failed_start(const Child& place, const std::exception_ptr& failure);
  unsigned shard_of(const Child& place) const noexcept;

  /// Has it done, if it is not being done.
  void begin_round() noexcept;
  Task<void> run_round();
  Place last_to_end() const noexcept;
  Place first_to_begin() const noexcept;
  void tell_to_end(Child& place) noexcept;
  void revive(Child& place) noexcept;
  Task<bool> spawn_in_round(Place place);
  static bool is_beginning(const Child& place) noexcept;

  ActorCell& supervisor_;
  Strategy strategy_ = Strategy::one_for_one;
  std::list<Place> places_;                         ///< The oldest first.
  std::unordered_map<std::uint64_t, Place> by_id_;  ///< Those that have an actor.
  Event changed_;                                   ///< Pulsed when a place's state is another one.
  bool working_ = false;                            ///< `run_round` is under way.
  bool ending_ = false;                             ///< Those of the round end first.
  Duration pause_{};                                ///< Before they begin.
};

/// "'store'", or the id of an actor without a name.
std::string title_of(const std::string& name, std::uint64_t id);
/// "crashed: disk full", "ended".
std::string ended_text(ExitReason reason, const std::string& text);
/// "3 restarts in 5 s".
std::string restarts_text(std::uint32_t restarts, Duration period);
/// What an exception says.
std::string text_of(const std::exception_ptr& failure);
std::string destroyed_text(const std::vector<std::string>& stragglers);

/// Starts a child, in its place if it has one. Throws as Node::spawn.
Task<Address> spawn_child(NodeCore& core, SpawnOptions options, std::unique_ptr<Factory> factory,
                          Address parent, std::shared_ptr<Child> place);

}  // namespace hyperframes::detail
