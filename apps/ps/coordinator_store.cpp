#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <hyperframes/apps/ps/coordinator_store.hpp>
#include <hyperframes/apps/ps/detail/database.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

namespace hyperframes::ps {
namespace {

constexpr std::int64_t schema_version = 2;
constexpr std::uint32_t usual_num_shards = 16;
constexpr std::uint32_t kept_past_workers = 256;
constexpr std::size_t max_tables = 4096;

// A unit below its job's frontier that has no row is finished. Workers that ended keep their row,
// so that the state of a run can still be read.
constexpr const char* schema = R"sql(
  CREATE TABLE settings (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
  CREATE TABLE servers (
    number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, node_id INTEGER UNIQUE NOT NULL,
    incarnation INTEGER NOT NULL, endpoint TEXT NOT NULL);
  CREATE TABLE row_tables (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE NOT NULL, width INTEGER NOT NULL,
    optimizer INTEGER NOT NULL, learning_rate REAL NOT NULL, initial_accumulator REAL NOT NULL,
    l2 REAL NOT NULL, initializer INTEGER NOT NULL, initializer_scale REAL NOT NULL,
    initializer_from INTEGER NOT NULL, seed INTEGER NOT NULL);
  CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, samples INTEGER NOT NULL,
    dataset_hash INTEGER NOT NULL, model_hash INTEGER NOT NULL, batch_size INTEGER NOT NULL,
    unit_batches INTEGER NOT NULL,
    epochs INTEGER NOT NULL, seed INTEGER NOT NULL, frontier INTEGER NOT NULL DEFAULT 0);
  CREATE INDEX jobs_by_name ON jobs (name, id);
  CREATE TABLE units (
    job INTEGER NOT NULL, number INTEGER NOT NULL, worker INTEGER, first_batch INTEGER NOT NULL,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
  CREATE TABLE workers (
    id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, name TEXT NOT NULL,
    incarnation INTEGER NOT NULL, live INTEGER NOT NULL, parked INTEGER NOT NULL,
    joined_at_clock INTEGER NOT NULL, clock INTEGER NOT NULL, samples INTEGER NOT NULL,
    loss REAL, auc REAL);
)sql";
// A program that does not know these leaves them as they are, and they stay true: marks only grow.
constexpr const char* marks_schema = R"sql(
  CREATE TABLE IF NOT EXISTS shard_marks (shard INTEGER PRIMARY KEY, record INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS recovered_servers (
    node_id INTEGER PRIMARY KEY, incarnation INTEGER NOT NULL);
)sql";

double seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

std::string describe(const JobDefinition& definition, std::uint64_t number) {
  const UnitId id = definition.unit_at(number);
  return fmt::format("unit {} of epoch {}", id.unit, id.epoch);
}

void check_name(std::string_view what, std::string_view name,
                std::size_t limit = JobDefinition::max_name_bytes) {
  if (!name.empty() && name.size() <= limit) return;
  throw Error(Errc::invalid_argument, fmt::format("take the name of a {}", what),
              name.empty() ? "it is empty" : fmt::format("it has {} bytes", name.size()),
              fmt::format("choose one of 1 to {} bytes", limit));
}

/// Makes the write-ahead log durable as it was read. An earlier process may have ended after a sync
/// that failed: the kernel then shows, as clean, what the disk has not got, and SQLite takes it for
/// durable. What is committed behind that would go with it when the power fails.
void settle_log(Machine& machine, const std::string& path) {
  std::string log;
  std::int64_t result = read_all(machine, path, log);
  if (result == -ENOENT || (result >= 0 && log.empty())) return;
  if (result >= 0) {
    const MachineFile file(machine, path, O_WRONLY);
    result = file.number();
    for (std::size_t at = 0; result >= 0 && at < log.size();) {
      const auto rest = std::as_bytes(std::span(log.data() + at, log.size() - at));
      result = machine.write(file.number(), at, rest);
      if (result == 0) result = -ENOSPC;
      if (result > 0) at += static_cast<std::size_t>(result);
    }
    if (result >= 0) result = machine.sync(file.number());
  }
  if (result < 0)
    throw Error::system(static_cast<int>(-result), "make the log '" + path + "' durable", {},
                        "check the disk; nothing that was answered is lost");
}

std::string difference(const JobDefinition& old, const JobDefinition& wanted) {
  std::string text;
  const auto compare = [&](std::string_view what, auto had, auto wants) {
    if (had != wants && text.empty()) text = fmt::format("its {} is {}, not {}", what, had, wants);
  };
  compare("number of samples", old.samples, wanted.samples);
  compare("data set's hash", old.dataset_hash, wanted.dataset_hash);
  compare("model's hash", old.model_hash, wanted.model_hash);
  if (old.model_hash != wanted.model_hash && text.starts_with("its model's hash"))
    text += ": the model files differ in kind, latent, label, optimizer or fields";
  compare("batch size", old.batch_size, wanted.batch_size);
  compare("number of batches in a unit", old.unit_batches, wanted.unit_batches);
  compare("number of epochs", old.epochs, wanted.epochs);
  compare("seed", old.seed, wanted.seed);
  return text;
}

}  // namespace

struct CoordinatorStore::State {
  /// A worker that takes part. All but `last_heard` and what it reported since the last write is in
  /// the database too.
  struct Live {
    std::uint32_t job = 0;
    std::string name{};
    std::uint64_t incarnation = 0;
    std::uint64_t joined_at_clock = 0;
    bool parked = false;                  ///< Out of the clock table: it has no unit to work on.
    std::optional<std::uint64_t> unit{};  ///< The number of the one it holds.
    std::uint32_t first_batch = 0;        ///< Of that unit.
    WorkerReport report{};
    Time last_heard{};
    bool dirty = false;
  };
  struct Server {
    Time last_heard{};
    bool silent = false;
  };
  /// A number that only grows, and is written down after it has.
  struct Mark {
    std::uint64_t value = 0;
    bool dirty = false;
    void raise(std::uint64_t to) noexcept {
      dirty |= to > value;
      value = std::max(value, to);
    }
  };

  State(Options given, Time now)
      : options(std::move(given)),
        database(options.path, options.machine->database_files()),
        now(now) {}

  // Lifetime
  void open();
  void load();
  void check_num_shards();

  // Writing
  template <class Function>
  auto write(Function function) -> std::invoke_result_t<Function&>;
  void abandon() noexcept;
  void fail_at(std::string_view point) const {
    if (options.failpoint) options.failpoint(point);
  }
  void change_view();
  void write_reports();
  void write_marks();
  bool has_new_marks() const;

  // Servers
  void load_marks();
  void check_identity(const JoinRequest& request);
  void check_age(const JoinRequest& request) const;
  void forget_marks(NodeId node_id);
  void place_shards();
  std::optional<PlacementMap> placement();
  std::vector<ServerEntry> servers();
  std::string server_name(NodeId node_id);
  bool owns_shards(NodeId node_id);
  std::vector<TableSpec> tables();

  // Jobs
  std::optional<std::uint32_t> latest_job(const std::string& name);
  JobDefinition definition(std::uint32_t job);
  std::uint64_t frontier(std::uint32_t job);
  Terms job_for(std::optional<std::uint32_t> latest, const OpenRequest& request);
  JobState job_state(std::uint32_t job);

  // Workers and units
  Live* find(std::uint32_t worker);
  std::uint64_t entry_clock(std::uint32_t job) const;
  std::optional<Terms> replace_namesake(std::uint32_t job, const OpenRequest& request);
  Terms add_worker(Terms terms, const OpenRequest& request);
  void remove_worker(std::uint32_t worker, std::string_view why);
  void prune_past_workers();
  UnitGrant next_unit(std::uint32_t worker);
  UnitGrant give(std::uint32_t worker, std::uint64_t number, std::uint32_t first_batch);
  UnitGrant held(std::uint32_t worker);
  void park(std::uint32_t worker);
  void finish(Live& holder, std::uint64_t number);
  void forgive_own_pause();

  Options options;
  detail::Database database;
  Time now;  ///< Of the latest call.
  Time last_expire = now;
  std::uint64_t cluster = 0;
  std::uint64_t view_version = 0;
  std::map<std::uint32_t, Live> live;  // by worker
  std::map<NodeId, Server> heard;      // by server
  std::map<ShardId, Mark> marks;       // records that are durable
  std::map<NodeId, Mark> recovered;    // incarnations that had all their data
};

// ---- Opening ------------------------------------------------------------------------------------

void CoordinatorStore::State::open() {
  settle_log(*options.machine, database.path() + "-wal");
  std::int64_t version = 0;
  {
    auto row = database.query("PRAGMA user_version");
    if (row.next()) version = row.integer(0);
  }
  if (version != 0 && version != schema_version)
    throw Error(Errc::version_mismatch,
                fmt::format("open the coordinator's database '{}'", database.path()),
                fmt::format("its format is {}, and this program knows {}", version, schema_version),
                "use the program that wrote it, or begin anew in another folder");
  if (version != 0) database.execute(marks_schema);
  load();
  write([&] {
    if (version == 0) {
      database.execute(schema);
      database.execute(marks_schema);
      database.execute(fmt::format("PRAGMA user_version = {}", schema_version).c_str());
      database.run("INSERT INTO settings VALUES ('cluster', ?)", options.machine->random_number());
    }
    // Who was silent counts as up again, so the view may differ from the last one that was seen.
    change_view();
  });
  load();
  check_num_shards();
}

void CoordinatorStore::State::load() {
  const auto before = std::exchange(live, {});
  if (auto tables = database.query("SELECT 1 FROM sqlite_master WHERE name = 'units'");
      !tables.next())
    return;
  if (auto row = database.query("SELECT value FROM settings WHERE key = 'view_version'");
      row.next())
    view_version = row.natural(0);
  if (auto row = database.query("SELECT value FROM settings WHERE key = 'cluster'"); row.next())
    cluster = row.natural(0);
  for (auto row = database.query("SELECT node_id FROM servers"); row.next();)
    heard.try_emplace(row.natural(0), Server{.last_heard = now});
  for (auto row = database.query(
           "SELECT id, job, name, incarnation, parked, joined_at_clock, clock, samples, loss, auc "
           "FROM workers WHERE live");
       row.next();) {
    const auto not_a_number = std::numeric_limits<double>::quiet_NaN();
    const auto id = row.number(0);
    const auto known = before.find(id);
    live[id] = {.job = row.number(1),
                .name = row.text(2),
                .incarnation = row.natural(3),
                .joined_at_clock = row.natural(5),
                .parked = row.integer(4) != 0,
                .report = {.worker = id,
                           .clock = row.natural(6),
                           .samples = row.natural(7),
                           .loss = row.is_null(8) ? not_a_number : row.real(8),
                           .auc = row.is_null(9) ? not_a_number : row.real(9)},
                .last_heard = known == before.end() ? now : known->second.last_heard};
  }
  for (auto row = database.query("SELECT worker, number, first_batch FROM units "
                                 "WHERE worker IS NOT NULL");
       row.next();) {
    const auto holder = live.find(row.number(0));
    if (holder == live.end())
      throw Error(Errc::corrupt,
                  fmt::format("read the coordinator's database '{}'", database.path()),
                  fmt::format("unit {} belongs to worker {}, which is not there", row.natural(1),
                              row.number(0)),
                  "restore it from a copy, or move it away to begin anew");
    holder->second.unit = row.natural(1);
    holder->second.first_batch = row.number(2);
  }
  load_marks();
}

void CoordinatorStore::State::load_marks() {
  marks.clear();
  for (auto row = database.query("SELECT shard, record FROM shard_marks"); row.next();)
    marks[row.number(0)].value = row.natural(1);
  recovered.clear();
  for (auto row = database.query("SELECT node_id, incarnation FROM recovered_servers"); row.next();)
    recovered[row.natural(0)].value = row.natural(1);
}

void CoordinatorStore::State::check_num_shards() {
  const auto map = placement();
  if (options.num_shards == 0) options.num_shards = map ? map->shard_count() : usual_num_shards;
  if (!map || map->shard_count() == options.num_shards) return;
  throw Error(Errc::invalid_argument,
              fmt::format("coordinate {} parameter shards with the database '{}'",
                          options.num_shards, database.path()),
              fmt::format("its cluster was made with {}", map->shard_count()),
              fmt::format("start with --num_shards {}, or in an empty folder", map->shard_count()));
}

// ---- Writing ------------------------------------------------------------------------------------

template <class Function>
auto CoordinatorStore::State::write(Function function) -> std::invoke_result_t<Function&> {
  try {
    database.execute("BEGIN IMMEDIATE");
    const auto commit = [&] {
      fail_at("before commit");
      database.execute("COMMIT");
      fail_at("after commit");
    };
    if constexpr (std::is_void_v<std::invoke_result_t<Function&>>) {
      function();
      write_reports();
      commit();
    } else {
      auto result = function();
      write_reports();
      commit();
      return result;
    }
  } catch (...) {
    abandon();
    throw;
  }
}

/// Takes back what an unfinished call did, in the database and in memory.
void CoordinatorStore::State::abandon() noexcept {
  try {
    if (database.in_transaction()) database.execute("ROLLBACK");
    load();
  } catch (const std::exception& error) {
    // The next call meets the same trouble and reports it to its caller.
    log::error(
        fmt::format("the coordinator could not take back an unfinished change: {}", error.what()));
  }
}

void CoordinatorStore::State::change_view() {
  ++view_version;
  database.run("INSERT OR REPLACE INTO settings VALUES ('view_version', ?)", view_version);
}

void CoordinatorStore::State::write_reports() {
  for (auto& [id, worker] : live) {
    if (!std::exchange(worker.dirty, false)) continue;
    database.run("UPDATE workers SET clock = ?, samples = ?, loss = ?, auc = ? WHERE id = ?",
                 worker.report.clock, worker.report.samples, worker.report.loss, worker.report.auc,
                 id);
    if (worker.unit)
      database.run("UPDATE units SET first_batch = ? WHERE job = ? AND number = ?",
                   worker.first_batch, worker.job, *worker.unit);
  }
  write_marks();
}

void CoordinatorStore::State::write_marks() {
  for (auto& [shard, mark] : marks)
    if (std::exchange(mark.dirty, false))
      database.run("INSERT OR REPLACE INTO shard_marks VALUES (?, ?)", shard, mark.value);
  for (auto& [node, mark] : recovered)
    if (std::exchange(mark.dirty, false))
      database.run("INSERT OR REPLACE INTO recovered_servers VALUES (?, ?)", node, mark.value);
}

bool CoordinatorStore::State::has_new_marks() const {
  const auto dirty = [](const auto& entry) { return entry.second.dirty; };
  return std::ranges::any_of(marks, dirty) || std::ranges::any_of(recovered, dirty);
}

// ---- Servers and tables -------------------------------------------------------------------------

void CoordinatorStore::State::check_identity(const JoinRequest& request) {
  check_name("server", request.name);
  if (request.node_id == 0)
    throw Error(Errc::invalid_argument, fmt::format("let server '{}' join", request.name),
                "its node id is 0", "");
  if (request.cluster != 0 && request.cluster != cluster)
    throw Error(Errc::rejected, fmt::format("let server '{}' join", request.name),
                fmt::format("its work folder holds data of cluster {:016x}, and the coordinator's "
                            "database '{}' is the one of cluster {:016x}",
                            request.cluster, database.path(), cluster),
                "restore the coordinator's work folder, or begin anew with empty work folders");
  auto row = database.query("SELECT name, node_id FROM servers WHERE name = ? OR node_id = ?",
                            request.name, request.node_id);
  while (row.next()) {
    if (row.text(0) == request.name && row.natural(1) == request.node_id) continue;
    throw Error(
        Errc::already_exists,
        fmt::format("let server '{}' with node id {:x} join", request.name, request.node_id),
        fmt::format("'{}' with node id {:x} has joined before", row.text(0), row.natural(1)),
        "start it with the work folder it had, or give it another name and an empty folder");
  }
}

/// A folder that was copied, or put back, knows of no start after that. What was acknowledged since
/// is not in it, and nobody else would notice.
void CoordinatorStore::State::check_age(const JoinRequest& request) const {
  const auto last = recovered.find(request.node_id);
  if (last == recovered.end() || request.previous >= last->second.value ||
      request.incarnation == last->second.value || request.accept_loss)
    return;
  throw Error(
      Errc::rejected, fmt::format("let server '{}' join", request.name),
      fmt::format("its work folder is an older copy: it was last started as incarnation {}, "
                  "and this server has had all its shards as {} since",
                  request.previous, last->second.value),
      "start it with the newest folder; or, to lose what was acknowledged since that copy, "
      "start it once with --accept_loss");
}

void CoordinatorStore::State::forget_marks(NodeId node_id) {
  recovered.erase(node_id);
  database.run("DELETE FROM recovered_servers WHERE node_id = ?", node_id);
  if (const auto map = placement())
    for (const ShardId shard : map->shards_of(node_id)) {
      marks.erase(shard);
      database.run("DELETE FROM shard_marks WHERE shard = ?", shard);
    }
  log::warning(server_name(node_id) + " goes on with what its folder holds, whatever it lacks");
}

void CoordinatorStore::note_disk(NodeId node_id, bool recovered,
                                 const std::vector<ShardMark>& marks) {
  State& state = *state_;
  const auto map = state.placement();
  if (!map) return;
  const auto own = map->shards_of(node_id);
  for (const ShardMark& mark : marks)
    if (std::ranges::find(own, mark.shard) != own.end()) state.marks[mark.shard].raise(mark.record);
  if (!recovered) return;
  auto row = state.database.query("SELECT incarnation FROM servers WHERE node_id = ?", node_id);
  if (row.next()) state.recovered[node_id].raise(row.natural(0));
}

std::vector<ShardMark> CoordinatorStore::marks_of(NodeId node_id) {
  std::vector<ShardMark> result;
  if (const auto map = state_->placement())
    for (const ShardId shard : map->shards_of(node_id))
      if (const auto known = state_->marks.find(shard); known != state_->marks.end())
        result.push_back({shard, known->second.value});
  return result;
}

bool CoordinatorStore::join_server(const JoinRequest& request, Time now) {
  State& state = *state_;
  state.now = now;
  state.check_identity(request);
  state.check_age(request);
  std::optional<std::uint64_t> known;
  std::string endpoint;
  if (auto row = state.database.query("SELECT incarnation, endpoint FROM servers WHERE node_id = ?",
                                      request.node_id);
      row.next()) {
    known = row.natural(0);
    endpoint = row.text(1);
  }
  if (known && *known > request.incarnation) return false;
  const bool was_silent = known && state.heard.at(request.node_id).silent;
  if (!known || *known != request.incarnation || endpoint != request.endpoint || was_silent) {
    state.write([&] {
      state.database.run(
          "INSERT INTO servers (name, node_id, incarnation, endpoint) VALUES (?, ?, ?, ?) "
          "ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, "
          "endpoint = excluded.endpoint",
          request.name, request.node_id, request.incarnation, request.endpoint);
      if (request.accept_loss && known && *known != request.incarnation)
        state.forget_marks(request.node_id);
      state.place_shards();
      state.change_view();
    });
    log::info(fmt::format("server '{}' {} from {}", request.name, known ? "joined again" : "joined",
                          request.endpoint));
  }
  state.heard[request.node_id] = {.last_heard = now};
  return true;
}

/// Makes the first placement once enough servers are there.
void CoordinatorStore::State::place_shards() {
  const auto members = servers();
  if (placement()) {
    const auto map = placement();
    for (const auto& server : members)
      if (map->shards_of(server.node_id).empty())
        log::warning(
            fmt::format("server '{}' has no parameter shards: they were placed before it "
                        "joined",
                        server.name));
    return;
  }
  if (members.size() < options.num_servers) {
    log::info(
        fmt::format("{} of {} servers are here; the parameter shards are placed with the last",
                    members.size(), options.num_servers));
    return;
  }
  std::vector<NodeId> nodes;
  for (const auto& server : members) nodes.push_back(server.node_id);
  const auto map = PlacementMap::first(options.num_shards, nodes);
  database.run("INSERT INTO settings VALUES ('placement', ?)", map.encode());
  log::info(fmt::format("{} parameter shards are placed on {} server{}", map.shard_count(),
                        nodes.size(), nodes.size() == 1 ? "" : "s"));
}

std::optional<PlacementMap> CoordinatorStore::State::placement() {
  auto row = database.query("SELECT value FROM settings WHERE key = 'placement'");
  if (!row.next()) return std::nullopt;
  try {
    return PlacementMap::decode(row.blob(0));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("read the coordinator's database '{}'", database.path()),
                "in its placement map: " + error.found(),
                error.remedy().empty() ? "restore it from a copy" : error.remedy());
  }
}

std::vector<ServerEntry> CoordinatorStore::State::servers() {
  std::vector<ServerEntry> servers;
  for (auto row = database.query("SELECT node_id, name, endpoint, incarnation FROM servers "
                                 "ORDER BY number");
       row.next();) {
    const auto known = heard.find(row.natural(0));
    servers.push_back({.node_id = row.natural(0),
                       .name = row.text(1),
                       .endpoint = row.text(2),
                       .incarnation = row.natural(3),
                       .silent = known != heard.end() && known->second.silent});
  }
  return servers;
}

std::string CoordinatorStore::State::server_name(NodeId node_id) {
  auto row = database.query("SELECT name FROM servers WHERE node_id = ?", node_id);
  return row.next() ? fmt::format("server '{}'", row.text(0))
                    : fmt::format("the server with node id {:x}", node_id);
}

bool CoordinatorStore::State::owns_shards(NodeId node_id) {
  const auto map = placement();
  return map && !map->shards_of(node_id).empty();
}

bool CoordinatorStore::renew_lease(NodeId node_id, std::uint64_t incarnation, Time now) {
  State& state = *state_;
  state.now = now;
  std::uint64_t known = 0;
  {
    auto row = state.database.query("SELECT incarnation FROM servers WHERE node_id = ?", node_id);
    if (!row.next())
      throw Error(Errc::not_found, fmt::format("renew the lease of node {:x}", node_id),
                  "it has not joined this coordinator", "join first");
    known = row.natural(0);
  }
  if (known > incarnation) return false;
  if (known < incarnation)
    throw Error(Errc::not_found, fmt::format("renew the lease of node {:x}", node_id),
                "this incarnation of it has not joined", "join first");
  auto& server = state.heard[node_id];
  if (server.silent) {
    state.write([&] { state.change_view(); });
    log::info(state.server_name(node_id) + " is back");
  }
  server = {.last_heard = now};
  return true;
}

std::vector<TableSpec> CoordinatorStore::State::tables() {
  std::vector<TableSpec> tables;
  for (auto row =
           database.query("SELECT id, name, width, optimizer, learning_rate, initial_accumulator, "
                          "l2, initializer, "
                          "initializer_scale, initializer_from, seed FROM row_tables ORDER BY id");
       row.next();)
    tables.push_back({.id = row.number(0),
                      .name = row.text(1),
                      .width = row.number(2),
                      .optimizer = static_cast<OptimizerKind>(row.integer(3)),
                      .learning_rate = static_cast<float>(row.real(4)),
                      .initial_accumulator = static_cast<float>(row.real(5)),
                      .l2 = static_cast<float>(row.real(6)),
                      .initializer = static_cast<InitializerKind>(row.integer(7)),
                      .initializer_scale = static_cast<float>(row.real(8)),
                      .initializer_from = row.number(9),
                      .seed = row.natural(10)});
  return tables;
}

void CoordinatorStore::create_tables(const std::vector<TableSpec>& tables) {
  State& state = *state_;
  auto existing = state.tables();
  for (auto& table : existing) table.id = 0;  // given here; whoever asks does not know it
  std::vector<TableSpec> missing;
  for (const auto& table : tables) {
    auto wanted = table;
    wanted.id = 0;
    check_name("table", wanted.name, TableSpec::max_name_bytes);
    wanted.check();
    const auto same_name = [&](const TableSpec& other) { return other.name == wanted.name; };
    const auto* known = &existing;
    if (std::ranges::none_of(existing, same_name)) known = &missing;
    const auto old = std::ranges::find_if(*known, same_name);
    if (old == known->end()) {
      missing.push_back(wanted);
    } else if (const auto differs = wanted.differences(*old); !differs.empty()) {
      throw Error(Errc::already_exists, fmt::format("create table '{}'", wanted.name), differs,
                  "use the model file that it was made with, or another job name");
    }
  }
  if (existing.size() + missing.size() > max_tables)
    throw Error(Errc::too_large, fmt::format("create {} tables", missing.size()),
                fmt::format("there are {}, and {} are allowed", existing.size(), max_tables), "");
  if (missing.empty()) return;
  state.write([&] {
    for (const auto& table : missing)
      state.database.run(
          "INSERT INTO row_tables (name, width, optimizer, learning_rate, initial_accumulator, "
          "l2, initializer, initializer_scale, initializer_from, seed) VALUES "
          "(?,?,?,?,?,?,?,?,?,?)",
          table.name, table.width, static_cast<int>(table.optimizer), double{table.learning_rate},
          double{table.initial_accumulator}, double{table.l2}, static_cast<int>(table.initializer),
          double{table.initializer_scale}, table.initializer_from, table.seed);
    state.change_view();
  });
}

// ---- Jobs ---------------------------------------------------------------------------------------

std::optional<std::uint32_t> CoordinatorStore::State::latest_job(const std::string& name) {
  auto row = database.query("SELECT max(id) FROM jobs WHERE name = ?", name);
  if (!row.next() || row.is_null(0)) return std::nullopt;
  return row.number(0);
}

JobDefinition CoordinatorStore::State::definition(std::uint32_t job) {
  auto row = database.query(
      "SELECT name, samples, dataset_hash, batch_size, unit_batches, epochs, seed, model_hash "
      "FROM jobs WHERE id = ?",
      job);
  if (!row.next())
    throw Error(Errc::not_found, fmt::format("look up job {}", job), "there is no such job", "");
  return {.name = row.text(0),
          .samples = row.natural(1),
          .dataset_hash = row.natural(2),
          .model_hash = row.natural(7),
          .batch_size = row.number(3),
          .unit_batches = row.number(4),
          .epochs = row.number(5),
          .seed = row.natural(6)};
}

std::uint64_t CoordinatorStore::State::frontier(std::uint32_t job) {
  auto row = database.query("SELECT frontier FROM jobs WHERE id = ?", job);
  return row.next() ? row.natural(0) : 0;
}

/// The job that the request joins; makes it if need be. The worker is yet to come.
CoordinatorStore::Terms CoordinatorStore::State::job_for(std::optional<std::uint32_t> latest,
                                                         const OpenRequest& request) {
  const JobDefinition& wanted = request.definition;
  const bool others_work =
      std::ranges::any_of(live, [&](const auto& entry) { return entry.second.job == latest; });
  if (latest && (!request.restart || others_work)) {
    const auto differs = difference(definition(*latest), wanted);
    if (differs.empty()) return {.job = *latest, .kept = request.restart};
    throw Error(Errc::invalid_argument, fmt::format("join job '{}'", wanted.name), differs,
                "use the same options and data, choose another --job, or begin it anew with "
                "--checkpoint_resume none once no other worker is at work on it");
  }
  const std::uint64_t forgotten = latest ? job_state(*latest).samples_done : 0;
  database.run(
      "INSERT INTO jobs (name, samples, dataset_hash, model_hash, batch_size, unit_batches, "
      "epochs, "
      "seed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      wanted.name, wanted.samples, wanted.dataset_hash, wanted.model_hash, wanted.batch_size,
      wanted.unit_batches, wanted.epochs, wanted.seed);
  const auto job = database.last_id();
  log::info(fmt::format("job '{}' begins as number {}: {} epoch{} of {} samples in {} unit{}",
                        wanted.name, job, wanted.epochs, wanted.epochs == 1 ? "" : "s",
                        wanted.samples, wanted.units_per_epoch(),
                        wanted.units_per_epoch() == 1 ? "" : "s"));
  if (latest)
    log::info(fmt::format("the {} samples that were done as number {} are forgotten", forgotten,
                          *latest));
  return {.job = job, .forgotten_samples = forgotten};
}

std::optional<CoordinatorStore::Terms> CoordinatorStore::State::replace_namesake(
    std::uint32_t job, const OpenRequest& request) {
  const auto same = std::ranges::find_if(live, [&](const auto& entry) {
    return entry.second.job == job && entry.second.name == request.worker_name;
  });
  if (same == live.end()) return std::nullopt;
  Live& worker = same->second;
  if (worker.incarnation > request.incarnation)
    throw Error(
        Errc::fenced,
        fmt::format("let worker '{}' join job '{}'", request.worker_name, request.definition.name),
        "a newer process of that name has joined", "give each worker its own --name");
  if (worker.incarnation == request.incarnation) {
    worker.last_heard = now;
    return Terms{.job = job, .worker = same->first, .first_clock = worker.joined_at_clock};
  }
  remove_worker(same->first, "a newer process took its name");
  return std::nullopt;
}

/// Where a worker enters the clock table: as far as the slowest certainly is, so that nobody waits
/// for it. What is known of the others may be old, but none of them can be further behind the
/// fastest than the bound lets it get ahead. With nobody to wait for, where the last one was.
std::uint64_t CoordinatorStore::State::entry_clock(std::uint32_t job) const {
  std::optional<std::uint64_t> slowest;
  std::uint64_t fastest = 0, idle = 0;
  for (const auto& [id, worker] : live) {
    if (worker.job != job) continue;
    const std::uint64_t clock = worker.report.clock;
    idle = std::max(idle, clock);
    if (worker.parked) continue;
    slowest = std::min(slowest.value_or(clock), clock);
    fastest = std::max(fastest, clock);
  }
  if (!slowest) return idle;
  const std::uint64_t ahead = std::uint64_t{options.staleness_bound} + 1;  // its own step included
  return std::max(*slowest, fastest - std::min(fastest, ahead));
}

CoordinatorStore::Terms CoordinatorStore::State::add_worker(Terms terms,
                                                            const OpenRequest& request) {
  const std::uint32_t job = terms.job;
  const auto clock = entry_clock(job);
  database.run(
      "INSERT INTO workers (job, name, incarnation, live, parked, joined_at_clock, clock, samples) "
      "VALUES (?, ?, ?, 1, 0, ?, ?, 0)",
      job, request.worker_name, request.incarnation, clock, clock);
  const auto worker = database.last_id();
  live[worker] = {.job = job,
                  .name = request.worker_name,
                  .incarnation = request.incarnation,
                  .joined_at_clock = clock,
                  .report = {.worker = worker, .clock = clock},
                  .last_heard = now};
  prune_past_workers();
  change_view();
  log::info(fmt::format("worker {} ('{}') joined job '{}' at step {}", worker, request.worker_name,
                        request.definition.name, clock));
  terms.worker = worker;
  terms.first_clock = clock;
  return terms;
}

void CoordinatorStore::State::prune_past_workers() {
  database.run(
      "DELETE FROM workers WHERE NOT live AND id NOT IN "
      "(SELECT id FROM workers WHERE NOT live ORDER BY id DESC LIMIT ?)",
      kept_past_workers);
}

CoordinatorStore::Terms CoordinatorStore::open_job(const OpenRequest& request, Time now) {
  State& state = *state_;
  state.now = now;
  request.definition.check();
  check_name("worker", request.worker_name);
  return state.write([&] {
    const auto latest = state.latest_job(request.definition.name);
    if (latest)
      if (const auto known = state.replace_namesake(*latest, request)) return *known;
    return state.add_worker(state.job_for(latest, request), request);
  });
}

// ---- Units --------------------------------------------------------------------------------------

CoordinatorStore::State::Live* CoordinatorStore::State::find(std::uint32_t worker) {
  const auto found = live.find(worker);
  if (found == live.end()) return nullptr;
  found->second.last_heard = now;
  return &found->second;
}

/// What a worker that holds a unit is told of it.
UnitGrant CoordinatorStore::State::held(std::uint32_t worker) {
  const Live& holder = live.at(worker);
  std::uint64_t open = 0;
  {
    auto row = database.query("SELECT min(number) FROM units WHERE job = ?", holder.job);
    if (row.next()) open = row.natural(0);
  }
  return {.state = UnitGrant::State::granted,
          .unit = definition(holder.job).unit_at(*holder.unit),
          .first_batch = holder.first_batch,
          .forget_before = open,
          .clock = holder.report.clock};
}

UnitGrant CoordinatorStore::State::give(std::uint32_t worker, std::uint64_t number,
                                        std::uint32_t first_batch) {
  Live& holder = live.at(worker);
  if (holder.parked) {
    const auto clock = std::max(holder.report.clock, entry_clock(holder.job));
    holder.parked = false;
    holder.joined_at_clock = holder.report.clock = clock;
    database.run("UPDATE workers SET parked = 0, joined_at_clock = ?, clock = ? WHERE id = ?",
                 clock, clock, worker);
    change_view();
  }
  holder.unit = number;
  holder.first_batch = first_batch;
  database.run("INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?)", holder.job, number, worker,
               first_batch);
  return held(worker);
}

/// Takes a worker without work out of the clock table, so that nobody waits for it.
void CoordinatorStore::State::park(std::uint32_t worker) {
  Live& idle = live.at(worker);
  if (std::exchange(idle.parked, true)) return;
  database.run("UPDATE workers SET parked = 1 WHERE id = ?", worker);
  change_view();
}

UnitGrant CoordinatorStore::State::next_unit(std::uint32_t worker) {
  const std::uint32_t job = live.at(worker).job;
  if (live.at(worker).unit) return held(worker);
  std::optional<std::pair<std::uint64_t, std::uint32_t>> free;
  bool all_done = true;
  for (auto row = database.query(
           "SELECT number, first_batch, worker FROM units WHERE job = ? ORDER BY number", job);
       !free && row.next();) {
    all_done = false;
    if (row.is_null(2)) free = {row.natural(0), row.number(1)};
  }
  if (free) return give(worker, free->first, free->second);
  const auto next = frontier(job);
  const auto total = definition(job).units();
  if (next < total) {
    database.run("UPDATE jobs SET frontier = ? WHERE id = ?", next + 1, job);
    return give(worker, next, 0);
  }
  park(worker);
  return {.state = all_done ? UnitGrant::State::done : UnitGrant::State::wait,
          .forget_before = all_done ? total : 0,
          .clock = live.at(worker).report.clock};
}

void CoordinatorStore::State::finish(Live& holder, std::uint64_t number) {
  if (holder.unit != number) return;  // said before
  database.run("DELETE FROM units WHERE job = ? AND number = ?", holder.job, number);
  holder.unit.reset();
  holder.first_batch = 0;
}

UnitGrant CoordinatorStore::lease_unit(std::uint32_t worker, Time now) {
  State& state = *state_;
  state.now = now;
  const auto* asking = state.find(worker);
  if (asking == nullptr) return {.state = UnitGrant::State::evicted};
  return state.write([&] { return state.next_unit(worker); });
}

UnitGrant CoordinatorStore::finish_unit(std::uint32_t worker, UnitId unit, Time now) {
  State& state = *state_;
  state.now = now;
  auto* holder = state.find(worker);
  if (holder == nullptr) return {.state = UnitGrant::State::evicted};
  const auto definition = state.definition(holder->job);
  const auto number = definition.number_of(unit);
  if (unit.unit >= definition.units_per_epoch() || number >= state.frontier(holder->job))
    throw Error(Errc::invalid_argument,
                fmt::format("finish unit {} of epoch {} of job '{}'", unit.unit, unit.epoch,
                            definition.name),
                "it was never leased", "");
  return state.write([&] {
    state.finish(*holder, number);
    return state.next_unit(worker);
  });
}

void CoordinatorStore::note_clock(std::uint32_t worker, std::uint64_t clock) noexcept {
  const auto found = state_->live.find(worker);
  if (found == state_->live.end() || found->second.report.clock >= clock) return;
  found->second.report.clock = clock;
  found->second.dirty = true;
}

bool CoordinatorStore::report(const WorkerReport& report, Time now) {
  State& state = *state_;
  state.now = now;
  auto* worker = state.find(report.worker);
  if (worker == nullptr) return false;
  const auto clock = std::max(worker->report.clock, report.clock);
  worker->report = report;
  worker->report.clock = clock;
  worker->dirty = true;
  const auto definition = state.definition(worker->job);
  if (worker->unit && definition.unit_at(*worker->unit) == report.unit)
    worker->first_batch =
        std::clamp(report.batch, worker->first_batch,
                   std::max(worker->first_batch, definition.batches_of(*worker->unit)));
  return true;
}

/// Ends a worker; its unit becomes free from the first batch that is not known to be acknowledged.
void CoordinatorStore::State::remove_worker(std::uint32_t worker, std::string_view why) {
  write_reports();
  const Live gone = live.at(worker);
  live.erase(worker);
  database.run("UPDATE workers SET live = 0 WHERE id = ?", worker);
  std::string freed;
  if (gone.unit) {
    database.run("UPDATE units SET worker = NULL, first_batch = ? WHERE job = ? AND number = ?",
                 gone.first_batch, gone.job, *gone.unit);
    freed = fmt::format("; {} is free again from batch {}",
                        describe(definition(gone.job), *gone.unit), gone.first_batch);
  }
  change_view();
  log::info(fmt::format("worker {} ('{}') is out: {}{}", worker, gone.name, why, freed));
}

void CoordinatorStore::leave_job(std::uint32_t worker) {
  State& state = *state_;
  if (!state.live.contains(worker)) return;
  state.write([&] { state.remove_worker(worker, "it left"); });
}

/// Who could not be heard, because this process was stopped or starved, is not to blame.
void CoordinatorStore::State::forgive_own_pause() {
  const Duration gap = now - std::exchange(last_expire, now);
  if (gap <= timing().missed_heartbeats_until_down * timing().heartbeat()) return;
  for (auto& [id, worker] : live) worker.last_heard = std::min(now, worker.last_heard + gap);
  for (auto& [node, server] : heard) server.last_heard = std::min(now, server.last_heard + gap);
}

void CoordinatorStore::expire(Time now) {
  State& state = *state_;
  state.now = now;
  state.forgive_own_pause();
  std::vector<std::uint32_t> overdue;
  bool dirty = state.has_new_marks();
  for (const auto& [id, worker] : state.live) {
    dirty |= worker.dirty;
    if (now - worker.last_heard > state.options.heartbeat_timeout) overdue.push_back(id);
  }
  std::vector<NodeId> silent;
  for (const auto& [node, server] : state.heard)
    if (!server.silent && now - server.last_heard > state.options.server_lease)
      silent.push_back(node);
  if (overdue.empty() && silent.empty() && !dirty) return;
  const auto why =
      fmt::format("it was silent for more than {:g} s", seconds(state.options.heartbeat_timeout));
  state.write([&] {
    for (const auto worker : overdue) state.remove_worker(worker, why);
    if (!silent.empty()) state.change_view();
  });
  for (const auto node : silent) {
    state.heard[node].silent = true;
    log::warning(fmt::format("{} is silent{}", state.server_name(node),
                             state.owns_shards(node) ? "; its shards wait for it" : ""));
  }
}

// ---- Seeing -------------------------------------------------------------------------------------

CoordinatorStore::CoordinatorStore(Options options, Time now)
    : state_(std::make_unique<State>(std::move(options), now)) {
  state_->open();
}
CoordinatorStore::~CoordinatorStore() = default;

std::uint64_t CoordinatorStore::cluster() const noexcept { return state_->cluster; }
std::uint32_t CoordinatorStore::num_shards() const noexcept { return state_->options.num_shards; }
std::uint64_t CoordinatorStore::view_version() const noexcept { return state_->view_version; }

ClusterView CoordinatorStore::view() {
  ClusterView view{.cluster = state_->cluster,
                   .version = state_->view_version,
                   .placement = state_->placement(),
                   .servers = state_->servers(),
                   .tables = state_->tables(),
                   .workers = {},
                   .staleness_bound = state_->options.staleness_bound};
  for (const auto& [id, worker] : state_->live)
    if (!worker.parked)
      view.workers.push_back(
          {.worker = id, .job = worker.job, .joined_at_clock = worker.joined_at_clock});
  return view;
}

JobState CoordinatorStore::State::job_state(std::uint32_t job) {
  JobState result{.job = job, .definition = definition(job)};
  const auto next = frontier(job);
  result.units_done = next;
  result.samples_done = result.definition.samples_before(next);
  for (auto row =
           database.query("SELECT number, first_batch, worker FROM units WHERE job = ?", job);
       row.next();) {
    const auto number = row.natural(0);
    const auto holder = row.is_null(2) ? live.end() : live.find(row.number(2));
    const auto batches = holder == live.end() ? row.number(1) : holder->second.first_batch;
    --result.units_done;
    result.samples_done -= result.definition.samples_before(number + 1) -
                           result.definition.samples_before(number, batches);
  }
  return result;
}

std::vector<JobState> CoordinatorStore::jobs() {
  std::vector<std::uint32_t> latest;
  for (auto row = state_->database.query("SELECT max(id) FROM jobs GROUP BY name ORDER BY 1");
       row.next();)
    latest.push_back(row.number(0));
  std::vector<JobState> result;
  for (const auto job : latest) result.push_back(state_->job_state(job));
  return result;
}

std::vector<WorkerState> CoordinatorStore::workers() {
  std::vector<WorkerState> result;
  for (auto row = state_->database.query(
           "SELECT id, job, name, clock, samples, loss, auc FROM workers WHERE NOT live "
           "ORDER BY id");
       row.next();)
    result.push_back({.job = row.number(1),
                      .name = row.text(2),
                      .report = {.worker = row.number(0),
                                 .clock = row.natural(3),
                                 .samples = row.natural(4),
                                 .loss = row.real(5),
                                 .auc = row.is_null(6) ? std::numeric_limits<double>::quiet_NaN()
                                                       : row.real(6)}});
  for (const auto& [id, worker] : state_->live)
    result.push_back(
        {.job = worker.job, .name = worker.name, .report = worker.report, .live = true});
  return result;
}

}  // namespace hyperframes::ps
