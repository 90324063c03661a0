#include <hyperframes/actors/supervisor.hpp>

#include <hyperframes/actors/detail/children.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <optional>
#include <set>
#include <variant>

namespace hyperframes {
namespace detail {
namespace {

const ServiceInfo supervisor_service{
    .id = Supervisor::service_id, .name = "hyperframes.Supervisor", .methods = {}};

/// What a supervisor was asked for, and what became of it; of its shard.
template <class Value>
struct Answer {
  std::optional<Value> value;
  std::exception_ptr failure;
  Event given;
};

/// Gives the answer when the supervisor's turn is over, also if it was destroyed.
template <class Value>
class Answering {
 public:
  Answering(std::shared_ptr<Answer<Value>> answer, std::string tried) noexcept
      : answer_(std::move(answer)), tried_(std::move(tried)) {}
  Answering(Answering&&) noexcept = default;
  ~Answering() {
    if (!answer_) return;
    if (!answer_->value && !answer_->failure)
      answer_->failure = std::make_exception_ptr(
          Error(Errc::actor_down, tried_, "the supervisor ended, or was restarted, meanwhile"));
    answer_->given.set();
  }
  Answer<Value>* operator->() const noexcept { return answer_.get(); }

 private:
  std::shared_ptr<Answer<Value>> answer_;
  std::string tried_;
};

template <class Value, class Function>
Task<void> carry_out(ActorCell* supervisor, Function function, Answering<Value> answer) {
  try {
    answer->value.emplace(co_await function(supervisor->children()));
  } catch (...) {
    const bool ending = !supervisor->accepts();
    if (!ending) answer->failure = std::current_exception();
  }
}

template <class Value, class Function>
Task<Value> ask_here(Address to, Function function, std::string tried, Time deadline) {
  ActorCell& cell = *to.cell;
  const bool there = cell.id == to.id && (cell.phase == ActorCell::Phase::open ||
                                          cell.phase == ActorCell::Phase::starting);
  if (!there)
    throw Error(Errc::actor_down, tried, "the supervisor has ended, or is being restarted",
                "find it again, or wait for its restart");
  if (const ServiceInfo* service = cell.service();
      !service || service->id != Supervisor::service_id)
    throw Error(Errc::invalid_argument, tried,
                "actor " + cell.who() + " is no supervisor" +
                    (service ? ", but has service " + std::string(service->name) : ""),
                "ask one that was spawned as hf::Supervisor");
  const auto answer = std::make_shared<Answer<Value>>();
  cell.start_background(carry_out<Value>(&cell, std::move(function), {answer, tried}));
  co_await answer->given.wait(deadline);
  if (answer->failure) std::rethrow_exception(answer->failure);
  co_return std::move(*answer->value);
}

/// Calls `function(children)`, which returns a Task, as a turn of the supervisor.
template <class Value, class Function>
Task<Value> ask(ActorRef supervisor, std::string tried, Within within, Function function) {
  const Destination to = supervisor.destination();
  if (!to.cell)
    throw Error(Errc::invalid_argument, tried,
                to.id ? "the supervisor runs in another process" : "the reference is empty",
                "ask a supervisor of this process");
  const Time deadline = resolve(within);
  try {
    co_return co_await call_on(
        to.cell->home->shard,
        [to = Address{to.cell, to.id}, function = std::move(function), tried, deadline] {
          return ask_here<Value>(to, function, tried, deadline);
        },
        deadline);
  } catch (const Error& error) {
    // What a child's start threw may say the same, of a wait of its own.
    if (!error.is(Errc::deadline_exceeded) || Clock::now() < deadline) throw;
  }
  throw Error(Errc::deadline_exceeded, tried, "it was not done when the deadline passed",
              "it goes on; give more time where a child's start or end takes longer");
}

Task<std::vector<ChildState>> list(Children* children) { co_return children->list(); }

const ChildSpec& checked(const ChildSpec& spec) {
  if (!spec.options().name.empty()) return spec;
  throw Error(Errc::invalid_argument, "supervise a child", "it has no name",
              "give each child of a supervisor a name");
}

}  // namespace
}  // namespace detail

// ---- SupervisorRef ----------------------------------------------------------

Task<ActorRef> SupervisorRef::add(ChildSpec spec, Within within) const {
  detail::checked(spec);
  return detail::ask<ActorRef>(*this, "add child '" + spec.options().name + "' to a supervisor",
                               within,
                               [spec](detail::Children& children) { return children.add(spec); });
}

Task<Down> SupervisorRef::stop(std::string name, Within within) const {
  return detail::ask<Down>(
      *this, "stop child '" + name + "' of a supervisor", within,
      [name](detail::Children& children) { return children.stop(name, false); });
}

Task<Down> SupervisorRef::remove(std::string name, Within within) const {
  return detail::ask<Down>(
      *this, "remove child '" + name + "' of a supervisor", within,
      [name](detail::Children& children) { return children.stop(name, true); });
}

Task<ActorRef> SupervisorRef::restart(std::string name, Within within) const {
  return detail::ask<ActorRef>(
      *this, "restart child '" + name + "' of a supervisor", within,
      [name](detail::Children& children) { return children.restart(name); });
}

Task<std::vector<ChildState>> SupervisorRef::children(Within within) const {
  return detail::ask<std::vector<ChildState>>(
      *this, "look at a supervisor's children", within,
      [](detail::Children& children) { return detail::list(&children); });
}

// ---- Supervisor -------------------------------------------------------------

Supervisor::Supervisor(Supervision plan) : plan_(std::move(plan)) {
  std::set<std::string> names;
  for (const ChildSpec& spec : plan_.children)
    if (const std::string& name = detail::checked(spec).options().name; !names.insert(name).second)
      throw Error(Errc::invalid_argument, "supervise child '" + name + "'",
                  "another one has that name", "give each child its own name");
  supervise(plan_.strategy);
}

Task<void> Supervisor::started() {
  detail::Children& children = reference().destination().cell->children();
  for (ChildSpec& spec : plan_.children) co_await children.add(std::move(spec));
}

const detail::ServiceInfo& Supervisor::service() const noexcept {
  return detail::supervisor_service;
}

}  // namespace hyperframes
