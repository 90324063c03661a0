#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/coordinator.hpp>
#include <hyperframes/apps/ps/counter_row.hpp>
#include <hyperframes/apps/ps/detail/retry.hpp>
#include <hyperframes/apps/ps/observer.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <list>
#include <map>
#include <span>
#include <type_traits>
#include <utility>

namespace hyperframes::ps {
namespace {

constexpr Duration watch_span = 20s;
constexpr Duration waiting_after = 1s;
constexpr Duration explanation_span = 500ms;
constexpr Duration log_pause = 5s;

// Longer than an attempt to connect.
Duration failure_memory() noexcept { return 2 * detail::connect_span() + 1s; }

/// Rows that belong to one parameter shard: indices into the caller's ids, by slot.
struct Group {
  ShardId shard = 0;
  std::vector<std::uint32_t> rows;
};

// Slots are few, so the rows are counted into place: comparing them took a quarter of a pull.
std::vector<Group> group_rows(const PlacementMap& map, TableId table,
                              std::span<const std::uint64_t> ids) {
  std::vector<Slot> slots(ids.size());
  std::vector<std::uint32_t> begin(slot_count + 1);  // where each slot's rows begin
  for (std::size_t row = 0; row < ids.size(); ++row) {
    slots[row] = slot_of(table, ids[row]);
    ++begin[slots[row] + 1u];
  }
  std::map<ShardId, Group> by_shard;
  std::vector<Group*> group_of(slot_count);
  for (std::uint32_t slot = 0; slot < slot_count; ++slot) {
    const std::uint32_t count = begin[slot + 1];
    begin[slot + 1] += begin[slot];
    if (count == 0) continue;
    const ShardId shard = map.shard_of(static_cast<Slot>(slot));
    group_of[slot] = &by_shard.try_emplace(shard, Group{.shard = shard, .rows = {}}).first->second;
  }
  std::vector<std::uint32_t> rows(ids.size());
  std::vector<std::uint32_t> next(begin);
  for (std::uint32_t row = 0; row < ids.size(); ++row) rows[next[slots[row]]++] = row;
  for (std::uint32_t slot = 0; slot < slot_count; ++slot)
    if (group_of[slot] != nullptr)
      group_of[slot]->rows.insert(group_of[slot]->rows.end(), rows.begin() + begin[slot],
                                  rows.begin() + next[slot]);
  std::vector<Group> groups;
  for (auto& [shard, group] : by_shard) groups.push_back(std::move(group));
  return groups;
}

std::span<const std::uint64_t> ids_of(const Buffer& buffer) noexcept {
  // Blocks of pools and of the heap are aligned for numbers.
  return {reinterpret_cast<const std::uint64_t*>(buffer.data()),
          buffer.size() / sizeof(std::uint64_t)};
}

Task<void> run_all(std::vector<Task<void>> tasks) {
  if (tasks.size() == 1) {
    co_await std::move(tasks.front());
  } else {
    co_await when_all(std::move(tasks));
  }
}

Task<Buffer> send_memory(std::size_t size) {
  co_return co_await Shard::current()->send_pool().allocate(size);
}

}  // namespace

std::vector<LedgerEntry> PreparedPush::ledger_entries(std::uint32_t job) const {
  std::vector<LedgerEntry> entries;
  for (const auto& message : messages_)
    if (message.counter != 0)
      entries.push_back({.job = job,
                         .epoch = key_.epoch,
                         .unit = key_.unit,
                         .batch = key_.batch,
                         .table = table_,
                         .shard = message.shard,
                         .counter = message.counter});
  return entries;
}

struct PsClient::State {
  /// A call under way, for waiting().
  class Wait {
   public:
    Wait(State& state, std::string what)
        : what(std::move(what)), since(Clock::now()), state_(state) {
      place_ = state_.waits.insert(state_.waits.end(), this);
    }
    Wait(const Wait&) = delete;
    ~Wait() { state_.waits.erase(place_); }

    std::string what;
    std::string cause;  // of the latest failure
    Time since;
    Time failed{};         // when that came
    bool patient = false;  // it is meant to take long, and hinders only while it fails

   private:
    State& state_;
    std::list<Wait*>::iterator place_;
  };
  struct PushTerms {
    PushKey key;
    std::uint64_t step;
    std::uint64_t forget_before;
  };
  using Message = PreparedPush::Message;

  State(Node& node, Options options) : node(node), options(std::move(options)) {}

  using Judge = bool (*)(const Error&) noexcept;  // whether to try again
  template <class Attempt>
  auto retry(std::string what, Attempt attempt, Judge judge = &detail::worth_retrying,
             bool patient = false) -> std::invoke_result_t<Attempt&>;
  void note_failure(Wait& wait, const Error& error);
  void require_start(const char* tried) const;
  Task<void> pause(Duration span);
  void fail(const Error& error);

  template <class Call>
  auto ask_coordinator(std::string what, Call call, bool patient = false)
      -> Task<typename std::invoke_result_t<Call&, protocol::CoordinatorRef>::value_type>;
  template <class Call>
  auto ask_coordinator_once(Call call)
      -> Task<typename std::invoke_result_t<Call&, protocol::CoordinatorRef>::value_type>;
  Task<protocol::CoordinatorRef> find_coordinator();
  Task<void> follow();
  void publish(const protocol::ClusterView& message);
  Task<std::uint64_t> newer_map(std::uint64_t version);

  template <class Service>
  Task<typename Service::Ref> find_at(ShardId shard, std::string name);
  Task<protocol::TablePartRef> find_part(TableSpec table, ShardId shard);
  Task<protocol::ParameterShardRef> find_shard(ShardId shard);
  std::string owner_name(ShardId shard) const;

  std::optional<protocol::WorkerClock> clock_fields() const;
  Task<void> pull_group(TableSpec table, std::span<const std::uint64_t> ids, Group group,
                        std::uint64_t step, float* into);
  Task<void> pull_from(TableSpec table, ShardId shard, Buffer ids, std::uint64_t step, float* into,
                       const Group* group);
  Task<void> explain_silence(ShardId shard, std::uint64_t step);
  Task<void> push_message(TableSpec table, Message message, PushTerms terms);
  Task<void> push_to(TableSpec table, Message message, PushTerms terms);
  Task<std::vector<Message>> divide(TableSpec table, Message message);
  Task<protocol::ShardStatus> ask_shard_status(ShardId shard);

  Task<void> keep_ticking(ShardId shard);
  Task<bool> tick_once(ShardId shard, WorkerClock clock);

  Node& node;
  Options options;
  std::shared_ptr<const ClusterView> view;
  std::optional<Error> failure;  // what trying again can't mend
  std::optional<protocol::CoordinatorRef> coordinator;
  std::map<std::pair<TableId, ShardId>, protocol::TablePartRef> parts;
  std::map<ShardId, protocol::ParameterShardRef> shards;
  std::optional<WorkerClock> clock;
  std::size_t ticking = 0;  // shards that have a task which tells them the clock
  std::list<Wait*> waits;
  detail::Every log_due{log_pause};
  Event view_changed, clock_changed;
  Scope scope;  // last: its tasks use what stands above
};

// ---- Trying again -------------------------------------------------------------------------------

/// Runs `attempt()`, which returns a task, until it succeeds. A failure that can't be mended is
/// thrown; so is the cancellation of this chain, by the pause between attempts.
template <class Attempt>
auto PsClient::State::retry(std::string what, Attempt attempt, Judge judge, bool patient)
    -> std::invoke_result_t<Attempt&> {
  Wait wait(*this, std::move(what));
  wait.patient = patient;
  detail::Backoff backoff(options.backoff_min, options.backoff_max);
  while (true) {
    if (failure) throw *failure;
    std::optional<Error> failed;
    try {
      co_return co_await attempt();
    } catch (const Error& error) {
      failed = error;
    }
    if (!judge(*failed)) throw *failed;
    co_await yield();  // throws if it is this chain that was cancelled
    note_failure(wait, *failed);
    co_await pause(backoff.next());
  }
}

void PsClient::State::note_failure(Wait& wait, const Error& error) {
  wait.cause = error.found().empty() ? error.what() : error.found();
  wait.failed = Clock::now();
  const bool lasting = Clock::now() - wait.since >= waiting_after;
  if (lasting && log_due.due())
    log::warning(fmt::format("{}: {}; trying again", wait.what, error.what()));
}

void PsClient::State::require_start(const char* tried) const {
  if (!view || !view->placement)
    throw Error(Errc::invalid_argument, tried, "the cluster is not known yet",
                "await the client's start() first");
}

/// Ends early when the view changes: what is asked for may have come back elsewhere.
Task<void> PsClient::State::pause(Duration span) {
  try {
    co_await view_changed.wait(after(span));
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) throw;
  }
  co_await yield();  // the deadline may have been the caller's own
}

void PsClient::State::fail(const Error& error) {
  failure = error;
  view_changed.pulse();
}

// ---- The coordinator ----------------------------------------------------------------------------

Task<protocol::CoordinatorRef> PsClient::State::find_coordinator() {
  if (!coordinator) {
    RemoteNode remote = co_await node.connect(options.coordinator, within(detail::connect_span()));
    try {
      coordinator = co_await remote.find<protocol::Coordinator>(coordinator_name,
                                                                within(detail::connect_span()));
    } catch (const Error& error) {
      if (!error.is(Errc::not_found)) throw;
      throw Error(Errc::not_found, "find the coordinator",
                  "no coordinator runs at " + options.coordinator.to_string(),
                  "give the coordinator's address (--coordinator_addr), not a server's");
    }
  }
  co_return *coordinator;
}

template <class Call>
auto PsClient::State::ask_coordinator_once(Call call)
    -> Task<typename std::invoke_result_t<Call&, protocol::CoordinatorRef>::value_type> {
  protocol::CoordinatorRef ref = co_await find_coordinator();
  try {
    co_return co_await call(ref);
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) coordinator.reset();
    throw;
  }
}

template <class Call>
auto PsClient::State::ask_coordinator(std::string what, Call call, bool patient)
    -> Task<typename std::invoke_result_t<Call&, protocol::CoordinatorRef>::value_type> {
  what += " (coordinator " + options.coordinator.to_string() + ")";
  co_return co_await retry(
      std::move(what), [this, &call] { return ask_coordinator_once(call); }, detail::worth_retrying,
      patient);
}

Task<void> PsClient::State::follow() {
  try {
    while (true) {
      const std::uint64_t known = view ? view->version : 0;
      auto message = co_await ask_coordinator(
          "follow the cluster",
          [known](protocol::CoordinatorRef ref) {
            return ref.watch({.known_version = known}, within(watch_span));
          },
          /*patient=*/true);
      if (message.version() != known) publish(message);
    }
  } catch (const Error& error) {
    if (!error.is(Errc::cancelled) && !error.is(Errc::shutting_down)) fail(error);
  }
}

void PsClient::State::publish(const protocol::ClusterView& message) {
  if (view && message.cluster() != view->cluster)
    throw Error(Errc::rejected,
                fmt::format("follow the cluster (coordinator {})", options.coordinator.to_string()),
                fmt::format("it was cluster {:016x} and is cluster {:016x} now: its database is "
                            "another one",
                            view->cluster, message.cluster()),
                "start again, if the new cluster is the one that is meant");
  view = std::make_shared<const ClusterView>(ClusterView::decode(message));
  const std::size_t shard_count = view->placement ? view->placement->shard_count() : 0;
  for (; ticking < shard_count; ++ticking) scope.spawn(keep_ticking(static_cast<ShardId>(ticking)));
  view_changed.pulse();
}

/// Waits a while for a placement newer than `version`; a server may also have been behind us.
Task<std::uint64_t> PsClient::State::newer_map(std::uint64_t version) {
  const Time limit = after(options.backoff_max);
  while (view->placement->version() <= version && Clock::now() < limit)
    co_await pause(options.backoff_max);
  co_return view->placement->version();
}

// ---- Finding actors -----------------------------------------------------------------------------

std::string PsClient::State::owner_name(ShardId shard) const {
  const auto* server = view ? view->server_of(shard) : nullptr;
  return server == nullptr ? "no server" : fmt::format("server '{}'", server->name);
}

template <class Service>
Task<typename Service::Ref> PsClient::State::find_at(ShardId shard, std::string name) {
  const auto* server = view->server_of(shard);
  if (server == nullptr)
    throw Error(Errc::not_found, fmt::format("find the owner of parameter shard {}", shard),
                "the coordinator has placed no such shard yet", "start the missing servers");
  const NodeId wanted = server->node_id;
  const auto endpoint = net::Endpoint::parse(server->endpoint);
  RemoteNode remote = co_await node.connect(endpoint, within(detail::connect_span()));
  if (remote.id() != wanted)
    throw Error(Errc::unreachable, fmt::format("reach the owner of parameter shard {}", shard),
                fmt::format("another node answers at {}", endpoint.to_string()),
                "the owner tells the coordinator its new address when it is back");
  try {
    co_return co_await remote.find<Service>(std::move(name), within(detail::connect_span()));
  } catch (const Error& error) {
    if (!error.is(Errc::not_found)) throw;
    throw Error(Errc::not_found, error.tried(),
                fmt::format("parameter shard {} is not up there: it recovers, or is started again "
                            "after a failure",
                            shard),
                fmt::format("the log of {} says what hinders it", owner_name(shard)));
  }
}

Task<protocol::TablePartRef> PsClient::State::find_part(TableSpec table, ShardId shard) {
  const std::pair key(table.id, shard);
  if (const auto known = parts.find(key); known != parts.end()) co_return known->second;
  auto name = fmt::format("ps/shard/{}/{}", shard, table.name);
  auto ref = co_await find_at<protocol::TablePart>(shard, std::move(name));
  parts.insert_or_assign(key, ref);
  co_return ref;
}

Task<protocol::ParameterShardRef> PsClient::State::find_shard(ShardId shard) {
  if (const auto known = shards.find(shard); known != shards.end()) co_return known->second;
  auto ref = co_await find_at<protocol::ParameterShard>(shard, fmt::format("ps/shard/{}", shard));
  shards.insert_or_assign(shard, ref);
  co_return ref;
}

// ---- Pulling ------------------------------------------------------------------------------------

std::optional<protocol::WorkerClock> PsClient::State::clock_fields() const {
  if (!clock) return std::nullopt;
  return protocol::WorkerClock(protocol::WorkerClock::Fields{
      .worker = clock->worker, .job = clock->job, .clock = clock->clock});
}

/// A pull was not answered in time. If the shard answers at all and holds pulls back, it is slower
/// workers that it waits for: says so. If not, the caller's own error stands.
Task<void> PsClient::State::explain_silence(ShardId shard, std::uint64_t step) {
  if (!clock || view->staleness_bound >= step) co_return;
  std::uint64_t waiting = 0;
  try {
    auto ref = co_await find_shard(shard);
    const auto status = co_await ref.status({}, within(explanation_span));
    waiting = status.pulls_waiting();
  } catch (const Error&) {
    // Then it is not the workers.
  }
  if (waiting == 0) co_return;
  throw Error(
      Errc::deadline_exceeded, fmt::format("pull for step {}", step),
      fmt::format("it waits for a slower worker (staleness bound {})", view->staleness_bound),
      "a worker that stays silent is given up after the server's --heartbeat_timeout");
}

/// `into`: `width` floats for each of `ids`, of which the group's are filled in. Both outlive it.
Task<void> PsClient::State::pull_group(TableSpec table, std::span<const std::uint64_t> ids,
                                       Group group, std::uint64_t step, float* into) {
  const std::uint64_t map_version = view->placement->version();
  Buffer packed = co_await send_memory(group.rows.size() * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < group.rows.size(); ++i)
    std::memcpy(packed.data() + i * sizeof(std::uint64_t), &ids[group.rows[i]],
                sizeof(std::uint64_t));
  bool moved = false;
  try {
    const auto what = fmt::format("pull from '{}' on parameter shard {} of {} for step {}",
                                  table.name, group.shard, owner_name(group.shard), step);
    co_await retry(what, [&] { return pull_from(table, group.shard, packed, step, into, &group); });
  } catch (const Error& error) {
    if (!error.is(Errc::moved)) throw;
    moved = true;
  }
  if (!moved) co_return;
  co_await newer_map(map_version);
  std::vector<std::uint64_t> own;
  for (const auto row : group.rows) own.push_back(ids[row]);
  std::vector<Task<void>> tasks;
  for (auto& part : group_rows(*view->placement, table.id, own)) {
    for (auto& row : part.rows) row = group.rows[row];
    tasks.push_back(pull_group(table, ids, std::move(part), step, into));
  }
  co_await run_all(std::move(tasks));
}

Task<void> PsClient::State::pull_from(TableSpec table, ShardId shard, Buffer ids,
                                      std::uint64_t step, float* into, const Group* group) {
  auto part = co_await find_part(table, shard);
  const protocol::PullRequest::Fields fields{
      .map_version = view->placement->version(), .worker = clock_fields(), .step = step};
  std::optional<Error> unanswered;
  try {
    auto rows = co_await part.pull(fields, Segments(std::move(ids)), within(options.attempt));
    const std::size_t row_bytes = table.width * sizeof(float);
    if (rows.segments.count() != 1 || rows.segments[0].size() != group->rows.size() * row_bytes)
      throw Error(Errc::corrupt, fmt::format("read rows of '{}' from a server", table.name),
                  fmt::format("{} bytes came for {} rows of {} floats", rows.segments.size_bytes(),
                              group->rows.size(), table.width),
                  "run the same version on all processes");
    const std::byte* from = rows.segments[0].data();
    for (std::size_t i = 0; i < group->rows.size(); ++i)
      std::memcpy(into + std::size_t{group->rows[i]} * table.width, from + i * row_bytes,
                  row_bytes);
    co_return;
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) parts.erase({table.id, shard});
    // A pull that waits is dropped there about when it is given up here.
    if (!error.is(Errc::deadline_exceeded) && !error.is(Errc::no_reply)) throw;
    unanswered = error;
  }
  co_await yield();  // throws if it is this chain whose deadline has passed
  co_await explain_silence(shard, step);
  throw *unanswered;
}

Task<std::vector<float>> PsClient::pull(TableSpec table, std::vector<std::uint64_t> ids,
                                        std::uint64_t step) {
  State& state = *state_;
  state.require_start("pull rows");
  std::vector<float> rows(ids.size() * table.width);
  std::vector<Task<void>> tasks;
  for (auto& group : group_rows(*state.view->placement, table.id, ids))
    tasks.push_back(state.pull_group(table, ids, std::move(group), step, rows.data()));
  if (!tasks.empty()) co_await run_all(std::move(tasks));
  co_return rows;
}

// ---- Pushing ------------------------------------------------------------------------------------

namespace {

/// Where a counter row of slot `slot` belongs among rows that are ordered by slot.
std::size_t place_of_counter(TableId table, std::span<const std::uint64_t> ids, const Group& group,
                             Slot slot) {
  const auto place = std::ranges::find_if(
      group.rows, [&](std::uint32_t row) { return slot_of(table, ids[row]) > slot; });
  return static_cast<std::size_t>(place - group.rows.begin());
}

struct RowWriter {
  std::byte* ids;
  std::byte* values;
  std::size_t row_bytes;

  void add(std::uint64_t id, const float* row) noexcept {
    std::memcpy(ids, &id, sizeof id);
    std::memcpy(values, row, row_bytes);
    ids += sizeof id;
    values += row_bytes;
  }
};

/// `rows`: `width` floats for each of `ids`.
Task<PreparedPush::Message> make_message(TableSpec table, std::span<const std::uint64_t> ids,
                                         const float* rows, Group group, std::uint64_t counter) {
  const std::size_t count = group.rows.size() + (counter != 0);
  const std::size_t row_bytes = table.width * sizeof(float);
  PreparedPush::Message message{.shard = group.shard, .counter = counter};
  message.ids = co_await send_memory(count * sizeof(std::uint64_t));
  message.values = co_await send_memory(count * row_bytes);
  RowWriter writer{message.ids.data(), message.values.data(), row_bytes};
  std::vector<float> one(table.width);
  one[0] = 1;
  const std::size_t place =
      counter == 0 ? count : place_of_counter(table.id, ids, group, slot_of(table.id, counter));
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    if (i == place) writer.add(counter, one.data());
    writer.add(ids[group.rows[i]], rows + std::size_t{group.rows[i]} * table.width);
  }
  if (counter != 0 && place == group.rows.size()) writer.add(counter, one.data());
  assert(writer.ids == message.ids.data() + message.ids.size());
  co_return message;
}

}  // namespace

Task<PreparedPush> PsClient::prepare_push(TableSpec table, PushKey key,
                                          std::vector<std::uint64_t> ids,
                                          std::vector<float> gradients, bool counted) {
  state_->require_start("prepare a push");
  if (gradients.size() != ids.size() * table.width)
    throw Error(Errc::invalid_argument, "prepare a push to table '" + table.name + "'",
                std::to_string(gradients.size()) + " floats were given for " +
                    std::to_string(ids.size()) + " rows of " + std::to_string(table.width),
                "give the gradients of each row, in the order of the ids");
  const auto view = state_->view;
  PreparedPush prepared;
  prepared.table_ = table.id;
  prepared.key_ = key;
  for (auto& group : group_rows(*view->placement, table.id, ids)) {
    const bool wanted = counted && key.is_leased();
    const std::uint64_t counter =
        wanted ? counter_row(*view->placement, table.id, group.shard, key) : 0;
    prepared.messages_.push_back(
        co_await make_message(table, ids, gradients.data(), std::move(group), counter));
  }
  co_return prepared;
}

Task<void> PsClient::push(PreparedPush prepared, std::uint64_t step, std::uint64_t forget_before) {
  State& state = *state_;
  state.require_start("push a prepared push");
  const TableSpec* table = state.view->table(prepared.table_);
  if (table == nullptr)
    throw Error(Errc::invalid_argument, "push a prepared push",
                fmt::format("there is no table {}", prepared.table_),
                "prepare it with this client");
  const State::PushTerms terms{prepared.key_, step, forget_before};
  std::vector<Task<void>> tasks;
  for (auto& message : prepared.messages_)
    tasks.push_back(state.push_message(*table, std::move(message), terms));
  if (!tasks.empty()) co_await run_all(std::move(tasks));
}

Task<void> PsClient::State::push_message(TableSpec table, Message message, PushTerms terms) {
  const std::uint64_t map_version = view->placement->version();
  bool moved = false;
  try {
    const auto what = fmt::format(
        "push of epoch {}, unit {}, batch {} to '{}' on parameter shard {} of {}", terms.key.epoch,
        terms.key.unit, terms.key.batch, table.name, message.shard, owner_name(message.shard));
    co_await retry(what, [&] { return push_to(table, message, terms); });
  } catch (const Error& error) {
    if (!error.is(Errc::moved)) throw;
    moved = true;
  }
  if (!moved) co_return;
  co_await newer_map(map_version);
  auto divided = co_await divide(table, std::move(message));
  std::vector<Task<void>> tasks;
  for (auto& part : divided) tasks.push_back(push_message(table, std::move(part), terms));
  co_await run_all(std::move(tasks));
}

Task<void> PsClient::State::push_to(TableSpec table, Message message, PushTerms terms) {
  auto part = co_await find_part(table, message.shard);
  const protocol::PushRequest::Fields fields{.map_version = view->placement->version(),
                                             .worker = clock_fields(),
                                             .step = terms.step,
                                             .epoch = terms.key.epoch,
                                             .unit = terms.key.unit,
                                             .batch = terms.key.batch,
                                             .client = terms.key.client,
                                             .incarnation = terms.key.incarnation,
                                             .sequence = terms.key.sequence,
                                             .forget_before = terms.forget_before};
  Segments segments;
  segments.push_back(std::move(message.ids));
  segments.push_back(std::move(message.values));
  try {
    co_await part.push(fields, std::move(segments), within(options.attempt));
    if (options.observer)
      options.observer->acknowledged(table.id, message.shard, terms.key, message.counter);
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) parts.erase({table.id, message.shard});
    throw;
  }
}

/// A message's rows under the current map. The counter row stays what it is, and goes where its
/// slot went.
Task<std::vector<PreparedPush::Message>> PsClient::State::divide(TableSpec table, Message message) {
  const auto ids = ids_of(message.ids);
  const auto* rows = reinterpret_cast<const float*>(message.values.data());
  std::vector<Message> divided;
  for (auto& group : group_rows(*view->placement, table.id, ids)) {
    const bool counted = std::ranges::any_of(
        group.rows, [&](std::uint32_t row) { return ids[row] == message.counter; });
    divided.push_back(co_await make_message(table, ids, rows, std::move(group), 0));
    if (counted) divided.back().counter = message.counter;
  }
  co_return divided;
}

// ---- The clock ----------------------------------------------------------------------------------

void PsClient::set_clock(std::optional<WorkerClock> clock) {
  state_->clock = clock;
  if (clock && state_->options.observer)
    state_->options.observer->clock_set(clock->job, clock->worker, clock->clock);
  state_->clock_changed.pulse();
}

Task<bool> PsClient::State::tick_once(ShardId shard, WorkerClock clock) {
  try {
    auto ref = co_await find_shard(shard);
    co_await ref.tick({.worker = clock.worker, .job = clock.job, .clock = clock.clock},
                      within(timing().heartbeat()));
    co_return true;
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) shards.erase(shard);
    co_return false;
  }
}

/// Tells one shard each new clock, and the old one again each heartbeat. A shard that can't be
/// reached delays nobody else.
Task<void> PsClient::State::keep_ticking(ShardId shard) {
  detail::Backoff backoff(options.backoff_min, options.backoff_max);
  while (true) {
    if (!clock) {
      co_await clock_changed.wait();
      continue;
    }
    const WorkerClock sent = *clock;
    const bool taken = co_await tick_once(shard, sent);
    if (!taken) {
      co_await pause(backoff.next());
      continue;
    }
    backoff.reset();
    if (!clock || clock->worker != sent.worker || clock->clock != sent.clock) continue;
    try {
      co_await clock_changed.wait(after(timing().heartbeat()));
    } catch (const Error& error) {
      if (!error.is(Errc::deadline_exceeded)) throw;
    }
  }
}

// ---- What is called -----------------------------------------------------------------------------

PsClient::PsClient(Node& node, Options options)
    : state_(std::make_unique<State>(node, std::move(options))) {}
PsClient::~PsClient() = default;

Task<void> PsClient::start() {
  State& state = *state_;
  state.scope.spawn(state.follow());
  State::Wait wait(state, "the servers that the parameter shards wait for");
  while (!state.view || !state.view->placement) {
    if (state.failure) throw *state.failure;
    co_await state.pause(waiting_after);
    if (state.view && !state.view->placement && state.log_due.due())
      log::info("waits for more servers: the parameter shards are not placed yet");
  }
}

Task<void> PsClient::close() {
  state_->scope.cancel();
  try {
    co_await state_->scope.join();
  } catch (const Error& error) {
    if (!error.is(Errc::cancelled)) throw;
  }
}

const std::shared_ptr<const ClusterView>& PsClient::view() const noexcept { return state_->view; }

Task<TableSpec> PsClient::table(std::string name) {
  State& state = *state_;
  state.require_start("look for a table");
  State::Wait wait(state, "table '" + name + "'");
  while (true) {
    if (state.failure) throw *state.failure;
    if (const auto* found = state.view->table(name)) co_return *found;
    co_await state.view_changed.wait();
  }
}

Task<void> PsClient::create_tables(std::vector<TableSpec> tables) {
  protocol::CreateTables::Fields fields;
  for (const auto& table : tables) fields.tables.push_back(encode_table_spec(table));
  co_await state_->ask_coordinator("create tables", [&](protocol::CoordinatorRef ref) {
    return ref.create_tables(fields, within(state_->options.attempt));
  });
}

Task<protocol::JobTerms> PsClient::open_job(protocol::OpenJob::Fields request) {
  const auto what = fmt::format("join job '{}'", request.name);
  co_return co_await state_->ask_coordinator(what, [&](protocol::CoordinatorRef ref) {
    return ref.open_job(request, within(state_->options.attempt));
  });
}

Task<protocol::UnitLease> PsClient::lease_unit(protocol::LeaseUnit::Fields request) {
  co_return co_await state_->ask_coordinator(
      "lease a work unit", [&](protocol::CoordinatorRef ref) {
        return ref.lease_unit(request, within(state_->options.attempt));
      });
}

Task<protocol::UnitLease> PsClient::finish_unit(protocol::FinishUnit::Fields request) {
  const auto what = fmt::format("finish unit {} of epoch {}", request.unit, request.epoch);
  co_return co_await state_->ask_coordinator(what, [&](protocol::CoordinatorRef ref) {
    return ref.finish_unit(request, within(state_->options.attempt));
  });
}

Task<protocol::WorkerOrders> PsClient::progress(protocol::WorkerProgress::Fields request) {
  co_return co_await state_->ask_coordinator("report progress", [&](protocol::CoordinatorRef ref) {
    return ref.progress(request, within(state_->options.attempt));
  });
}

Task<void> PsClient::leave_job(protocol::LeaveJob::Fields request) {
  co_await state_->ask_coordinator("leave the job", [&](protocol::CoordinatorRef ref) {
    return ref.leave_job(request, within(state_->options.attempt));
  });
}

Task<protocol::ClusterStatus> PsClient::status() {
  co_return co_await state_->ask_coordinator(
      "ask for the status", [&](protocol::CoordinatorRef ref) {
        return ref.status({}, within(state_->options.attempt));
      });
}

Task<protocol::ShardStatus> PsClient::State::ask_shard_status(ShardId shard) {
  auto ref = co_await find_shard(shard);
  try {
    co_return co_await ref.status({}, within(options.attempt));
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) shards.erase(shard);
    throw;
  }
}

Task<protocol::ShardStatus> PsClient::shard_status(ShardId shard) {
  state_->require_start("ask a parameter shard for its status");
  const auto what =
      fmt::format("ask parameter shard {} of {} for its status", shard, state_->owner_name(shard));
  co_return co_await state_->retry(what, [&] { return state_->ask_shard_status(shard); });
}

std::string PsClient::waiting() const {
  const Time since = Clock::now() - waiting_after;
  const Time recently = Clock::now() - failure_memory();
  for (const auto* wait : state_->waits) {  // oldest first
    if (wait->since > since) continue;
    if (wait->patient && (wait->cause.empty() || wait->failed < recently)) continue;
    return wait->cause.empty() ? wait->what : wait->what + ": " + wait->cause;
  }
  return {};
}

}  // namespace hyperframes::ps
