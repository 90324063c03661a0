// The actors of a parameter shard as those who ask them see them, on simulated machines.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/detail/retry.hpp>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/apps/ps/model.hpp>
#include <hyperframes/apps/ps/parameter_shard.hpp>
#include <hyperframes/apps/ps/recovery.hpp>
#include <hyperframes/apps/ps/running_score.hpp>
#include <hyperframes/apps/ps/snapshot_codec.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>

using namespace hyperframes;
using namespace hyperframes::ps;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr NodeId server_id = 7;
constexpr std::uint32_t job = 1;

TableSpec table_of(TableId id, std::string name, std::uint32_t width = 2) {
  TableSpec spec;
  spec.id = id;
  spec.name = std::move(name);
  spec.width = width;
  spec.initializer = InitializerKind::normal;
  spec.initializer_scale = 0.1f;
  spec.seed = 5;
  return spec;
}

net::Network::Options network_of(SimNode& machine, SimWorld& world) {
  net::Network::Options options;
  options.node_id = server_id + machine.index();
  options.incarnation = machine.incarnation();
  options.boot_id = "simulated";
  options.insecure = true;
  auto* random = &world.random();
  options.random = [random](std::span<std::byte> bytes) {
    for (auto& byte : bytes) byte = static_cast<std::byte>(random->next());
  };
  return options;
}

struct Settings {
  std::uint64_t seed = 1;
  std::vector<TableSpec> tables{table_of(1, "t")};
  std::size_t num_shards = 1;  // this machine has all of them, and shard 0 is up
  std::uint32_t bound = 0;
  std::vector<WorkerEntry> workers{};
  std::string log_folder = "/w/shard-0000";
  std::uint64_t cluster = 0xa11;
  std::uint64_t least_record = 0;
};

/// A server's machine with parameter shard 0, and another one for those who are remote.
struct Cluster {
  struct Process {
    Process(SimNode& machine, SimWorld& world)
        : node(machine.runtime(), {.name = machine.name(), .network = network_of(machine, world)}) {
    }
    ViewFeed feed;
    Lease lease;
    Node node;  // last: its actors use what stands above
  };

  explicit Cluster(Settings with = {})
      : settings(std::move(with)),
        world({.seed = settings.seed}),
        machine(world.add_node({.name = "server"})),
        client_machine(world.add_node({.name = "client"})),
        client(&client_machine.emplace<Process>(client_machine, world).node) {
    log::set_sink([](log::Level, std::string_view) {});
    start();
  }
  ~Cluster() { log::set_sink({}); }

  void start() {
    server = &machine.emplace<Process>(machine, world);
    server->lease.extend_to(Time::max());
    world.run(machine, 0, [this](Runtime&) { return serve(); });
  }
  /// Ends the process and starts another one on what the disk holds.
  void restart(SimCrash what = SimCrash::kill()) {
    machine.crash(what);
    machine.restart();
    start();
  }
  Task<void> serve() {
    publish();
    ShardOptions options;
    options.log_folder = settings.log_folder;
    options.snapshot_folder = "/w/checkpoints/shard-0000";
    options.snapshot_interval = Duration::zero();
    options.least_record = settings.least_record;
    options.synced = &synced;
    SpawnOptions spawn{.name = "ps/shard/0"};
    spawn.restart = {.kind = Restart::permanent, .intensity = 5, .period = 60s};
    spawn.mailbox.messages = 65'536;
    co_await server->node.spawn<ParameterShard>(std::move(spawn), std::move(options), &server->feed,
                                                &server->lease);
    co_await server->node.listen(endpoint());
  }
  net::Endpoint endpoint() const {
    return net::Endpoint::parse("tcp://" + machine.address().host() + ":6000");
  }
  /// On the server's shard: the view as the settings are now.
  void publish() {
    auto view = std::make_shared<ClusterView>();
    view->cluster = settings.cluster;
    view->version = ++version;
    const NodeId nodes[] = {server_id};
    view->placement = PlacementMap::first(settings.num_shards, nodes);
    view->tables = settings.tables;
    view->workers = settings.workers;
    view->staleness_bound = settings.bound;
    server->feed.publish(std::move(view));
  }

  template <class Function>
  auto run(Function function) {
    return world.run(machine, 0,
                     [function = std::move(function)](Runtime&) mutable { return function(); });
  }
  template <class Function>
  auto run_remote(Function function) {
    return world.run(client_machine, 0,
                     [function = std::move(function)](Runtime&) mutable { return function(); });
  }

  protocol::TablePartRef part(const std::string& name = "t") {
    return server->node.find<protocol::TablePart>("ps/shard/0/" + name).value();
  }
  protocol::ParameterShardRef shard() {
    return server->node.find<protocol::ParameterShard>("ps/shard/0").value();
  }
  Task<protocol::TablePartRef> remote_part() {
    RemoteNode remote = co_await client->connect(endpoint());
    co_return co_await remote.find<protocol::TablePart>("ps/shard/0/t");
  }
  Task<protocol::ParameterShardRef> remote_shard() {
    RemoteNode remote = co_await client->connect(endpoint());
    co_return co_await remote.find<protocol::ParameterShard>("ps/shard/0");
  }
  /// The successor of that one, once the shard has started again.
  Task<protocol::TablePartRef> part_after(protocol::TablePartRef old) {
    while (true) {
      auto found = server->node.find<protocol::TablePart>("ps/shard/0/t");
      if (found && found->id() != old.id()) co_return *found;
      co_await sleep_for(5ms);
    }
  }
  Task<protocol::ShardStatus> status() { co_return co_await shard().status({}, within(60s)); }
  /// Of messages received from others and not destroyed yet.
  std::uint64_t held_bytes() {
    std::uint64_t held = 0;
    for (const auto& session : server->node.network().sessions()) {
      const auto stats = session->stats();
      for (const auto& lane : stats.lanes) held += lane.held_bytes;
    }
    return held;
  }

  Settings settings;
  SimWorld world;
  SimNode &machine, &client_machine;
  std::atomic<std::uint64_t> synced{0};  // the last record of shard 0
  Process* server = nullptr;
  Node* client;
  std::uint64_t version = 0;
};

/// As a bug in the actor's code would.
void crash(const ActorRef& actor) {
  actor.destination().cell->crash(std::make_exception_ptr(std::runtime_error("broken on purpose")),
                                  false);
}

/// Of rows and applied pushes. On the server's shard, while the actor is up.
std::uint64_t digest(const ActorRef& part) {
  return dynamic_cast<TablePart&>(*part.destination().cell->object).state().digest();
}

std::vector<std::uint64_t> by_slot(TableId table, std::vector<std::uint64_t> ids) {
  std::ranges::sort(ids, {}, [table](auto id) { return std::pair(slot_of(table, id), id); });
  return ids;
}

std::vector<std::uint64_t> first_ids(TableId table, std::size_t count, std::uint64_t from = 0) {
  std::vector<std::uint64_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = from + i;
  return by_slot(table, std::move(ids));
}

template <class T>
Buffer buffer_of(const std::vector<T>& values) {
  return Buffer::copy_of(std::as_bytes(std::span(values)));
}

Segments rows_of(const std::vector<std::uint64_t>& ids, const std::vector<float>& values) {
  Segments segments(buffer_of(ids));
  segments.push_back(buffer_of(values));
  return segments;
}

protocol::PushRequest::Fields request_of(const PushKey& key) {
  return {.map_version = 1,
          .epoch = key.epoch,
          .unit = key.unit,
          .batch = key.batch,
          .client = key.client,
          .incarnation = key.incarnation,
          .sequence = key.sequence};
}

/// Adds 1 to counters, and gives the other rows a gradient. Returns whether it was a duplicate.
Task<bool> push(protocol::TablePartRef part, TableSpec spec, PushKey key,
                std::vector<std::uint64_t> ids, float gradient = 0.5f, Within limit = within(60s)) {
  std::vector<float> values;
  for (const auto id : ids)
    values.insert(values.end(), spec.width, is_counter(id) ? 1.0f : gradient);
  auto segments = rows_of(ids, values);
  const auto answer = co_await part.push(request_of(key), std::move(segments), limit);
  co_return answer.duplicate();
}

protocol::WorkerClock clock_of(std::uint32_t worker, std::uint64_t clock) {
  return protocol::WorkerClock(
      protocol::WorkerClock::Fields{.worker = worker, .job = job, .clock = clock});
}

/// With a worker: as its pull for the step of its clock.
Task<std::vector<float>> pull(protocol::TablePartRef part, std::vector<std::uint64_t> ids,
                              std::optional<protocol::WorkerClock> worker = {},
                              Within limit = within(60s)) {
  protocol::PullRequest::Fields request{.map_version = 1, .worker = worker};
  if (worker) request.step = worker->clock();
  Segments segments(buffer_of(ids));
  const auto answer = co_await part.pull(request, std::move(segments), limit);
  const Buffer& rows = answer.segments[0];
  std::vector<float> values(rows.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), rows.data(), rows.size());
  co_return values;
}

template <class T>
Task<std::optional<Error>> error_of(Task<T> task) {
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    co_return error;
  }
  co_return std::nullopt;
}

Task<std::optional<Error>> push_error(protocol::TablePartRef part,
                                      protocol::PushRequest::Fields request, Segments segments) {
  try {
    co_await part.push(request, std::move(segments));
  } catch (const Error& error) {
    co_return error;
  }
  co_return std::nullopt;
}
Task<std::optional<Error>> pull_error(protocol::TablePartRef part, Segments segments) {
  try {
    co_await part.pull({.map_version = 1}, std::move(segments));
  } catch (const Error& error) {
    co_return error;
  }
  co_return std::nullopt;
}

std::uint64_t counter(std::uint64_t number) { return counter_bit | number; }

Task<void> note_error(Task<void> task, std::vector<std::optional<Error>>* into) {
  auto error = co_await error_of(std::move(task));
  into->push_back(std::move(error));
}
Task<void> pull_nothing(protocol::TablePartRef part, std::vector<std::uint64_t> ids,
                        std::optional<protocol::WorkerClock> worker, Within limit) {
  co_await pull(part, std::move(ids), worker, limit);
}
Task<void> push_nothing(protocol::TablePartRef part, TableSpec spec, PushKey key,
                        std::vector<std::uint64_t> ids) {
  co_await push(part, spec, key, std::move(ids));
}

std::size_t count_good(const std::vector<std::optional<Error>>& errors) {
  return static_cast<std::size_t>(
      std::ranges::count_if(errors, [](const auto& error) { return !error.has_value(); }));
}
std::size_t count_of(const std::vector<std::optional<Error>>& errors, Errc code) {
  return static_cast<std::size_t>(std::ranges::count_if(
      errors, [code](const auto& error) { return error && error->is(code); }));
}

}  // namespace

// ---- Requests -----------------------------------------------------------------------------------

TEST_CASE("a bad request is answered with what is wrong with it, and changes nothing") {
  Cluster cluster({.num_shards = 2});
  const TableSpec spec = cluster.settings.tables[0];
  cluster.run([&]() -> Task<void> {
    auto part = cluster.part();
    const NodeId nodes[] = {server_id};
    const auto map = PlacementMap::first(2, nodes);
    std::vector<std::uint64_t> own, foreign;
    for (std::uint64_t id = 0; own.size() < 3 || foreign.empty(); ++id)
      (map.shard_of(slot_of(1, id)) == 0 ? own : foreign).push_back(id);
    own = by_slot(1, {own[0], own[1], own[2]});
    const std::vector<float> values(6, 0.5f);
    const auto key = request_of(PushKey::leased(0, 3, 0));
    const auto check = [](const std::optional<Error>& error, Errc code, const char* text) {
      REQUIRE(error.has_value());
      INFO(error->what());
      CHECK(error->is(code));
      CHECK_THAT(error->what(), ContainsSubstring(text));
    };
    check(co_await pull_error(part, Segments()), Errc::invalid_argument, "0 segments");
    check(co_await pull_error(part, rows_of(own, values)), Errc::invalid_argument, "2 segments");
    check(co_await pull_error(part, Segments(Buffer::copy_of("seven b"))), Errc::invalid_argument,
          "7 bytes");
    check(co_await pull_error(part, Segments(buffer_of(foreign))), Errc::moved, "shard 1");

    check(co_await push_error(part, key, Segments()), Errc::invalid_argument, "0 segments");
    check(co_await push_error(part, key, Segments(buffer_of(own))), Errc::invalid_argument,
          "1 segments");
    auto three = rows_of(own, values);
    three.push_back(buffer_of(own));
    check(co_await push_error(part, key, std::move(three)), Errc::invalid_argument, "3 segments");
    auto odd = Segments(Buffer::copy_of("nine byte"));
    odd.push_back(buffer_of(values));
    check(co_await push_error(part, key, std::move(odd)), Errc::invalid_argument, "9 bytes");
    check(co_await push_error(part, key, rows_of(own, std::vector<float>(9))),
          Errc::invalid_argument, "2 floats");
    auto mixed = by_slot(1, {own[0], foreign[0], own[1]});
    check(co_await push_error(part, key, rows_of(mixed, values)), Errc::moved, "shard 1");
    for (const float wrong :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto poisoned = values;
      poisoned[3] = wrong;
      check(co_await push_error(part, key, rows_of(own, poisoned)), Errc::invalid_argument,
            "column 1");
    }
    auto greedy = key;
    greedy.forget_before = std::numeric_limits<std::uint64_t>::max();
    check(co_await push_error(part, greedy, rows_of(own, values)), Errc::invalid_argument,
          "forget");

    const auto before = co_await cluster.status();
    CHECK((before.rows() == 0 && before.pushes() == 0 && before.applied_lsn() == 0));
    const bool duplicate = co_await push(part, spec, PushKey::leased(0, 3, 0), own);
    CHECK_FALSE(duplicate);
    const auto after = co_await cluster.status();
    CHECK((after.rows() == 3 && after.pushes() == 1 && after.durable_lsn() == 1));
  });
}

TEST_CASE("a push that no log record can hold is refused before it takes effect") {
  const TableSpec spec = table_of(1, "t", 1u << 16);
  Cluster cluster({.tables = {spec}});
  const auto error = cluster.run([&]() -> Task<std::optional<Error>> {
    const auto ids = first_ids(1, 4096);
    Segments segments(buffer_of(ids));
    // Never written: 1 GiB that takes no memory.
    segments.push_back(Buffer::heap(ids.size() * spec.width * sizeof(float)));
    co_return co_await push_error(cluster.part(), request_of(PushKey::leased(0, 0, 0)),
                                  std::move(segments));
  });
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::too_large));
  CHECK(cluster.run([&] { return cluster.status(); }).rows() == 0);
}

TEST_CASE("a client whose number was taken over is told to stop, and does not try again") {
  Cluster cluster;
  const TableSpec spec = cluster.settings.tables[0];
  const auto error = cluster.run([&]() -> Task<std::optional<Error>> {
    auto part = cluster.part();
    co_await push(part, spec, PushKey::of_client(9, 2, 0), first_ids(1, 3));
    co_return co_await error_of(push(part, spec, PushKey::of_client(9, 1, 5), first_ids(1, 3)));
  });
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::fenced));
  CHECK_FALSE(ps::detail::worth_retrying(*error));
}

// ---- Waiting ------------------------------------------------------------------------------------

TEST_CASE("a pull waits for slower workers outside the mailbox, and pushes go on meanwhile") {
  Cluster cluster({.workers = {{1, job, 0}, {2, job, 0}}});
  const TableSpec spec = cluster.settings.tables[0];
  cluster.run([&]() -> Task<void> {
    auto part = cluster.part();
    Scope scope;
    std::vector<float> pulled;
    scope.spawn(co_invoke(
        [&]() -> Task<void> { pulled = co_await pull(part, {counter(1)}, clock_of(1, 1)); }));
    for (std::uint32_t batch = 0; batch < 50; ++batch)
      co_await push(part, spec, PushKey::leased(0, 0, batch), {counter(1)});
    const auto status = co_await cluster.status();
    CHECK(status.pulls_waiting() == 1);
    CHECK(pulled.empty());
    co_await cluster.shard().tick({.worker = 2, .job = job, .clock = 1});
    co_await scope.join();
    CHECK(pulled == std::vector<float>{50, 50});
  });
}

TEST_CASE("pulls whose askers gave up are dropped, and hold nothing that the network lent") {
  Cluster cluster({.workers = {{1, job, 0}, {2, job, 0}}});
  std::vector<std::optional<Error>> ends;
  auto asking = cluster.world.start(cluster.client_machine, 0, [&](Runtime&) {
    return co_invoke([&]() -> Task<void> {
      auto part = co_await cluster.remote_part();
      std::vector<Task<void>> pulls;
      for (std::uint64_t i = 0; i < 200; ++i)
        pulls.push_back(note_error(
            pull_nothing(part, first_ids(1, 600, i), clock_of(1, 1), within(3s)), &ends));
      co_await when_all(std::move(pulls));
    });
  });
  cluster.world.run_for(2s);
  CHECK(cluster.run([&] { return cluster.status(); }).pulls_waiting() == 200);
  // Of the 960 kB of ids, what has not been lent again yet: a quarter of a window.
  CHECK(cluster.run([&]() -> Task<std::uint64_t> { co_return cluster.held_bytes(); }) < 300'000);
  cluster.world.wait(asking);
  CHECK(count_of(ends, Errc::deadline_exceeded) == 200);
  cluster.world.run_for(2 * timing().heartbeat());
  CHECK(cluster.run([&] { return cluster.status(); }).pulls_waiting() == 0);
}

TEST_CASE("more pulls than may wait are refused, and none of those that nobody wants counts") {
  Cluster cluster({.workers = {{1, job, 0}, {2, job, 0}}});
  cluster.run([&]() -> Task<void> {
    auto part = cluster.part();
    std::vector<std::optional<Error>> ends, later;
    std::vector<Task<void>> pulls;
    for (std::size_t i = 0; i < TablePart::max_waiting_pulls + 5; ++i)
      pulls.push_back(note_error(pull_nothing(part, {1}, clock_of(1, 1), within(300ms)), &ends));
    co_await when_all(std::move(pulls));
    CHECK(ends.size() == TablePart::max_waiting_pulls + 5);
    CHECK(count_of(ends, Errc::deadline_exceeded) == TablePart::max_waiting_pulls);
    CHECK(count_of(ends, Errc::overloaded) == 5);
    // No heartbeat has passed: room is made for who asks.
    auto end = co_await error_of(pull(part, {1}, clock_of(1, 1), within(300ms)));
    CHECK((end && end->is(Errc::deadline_exceeded)));
  });
}

TEST_CASE("with bound 0 batches larger than the connection's window finish") {
  Cluster cluster({.workers = {{1, job, 0}, {2, job, 0}}});
  const TableSpec spec = cluster.settings.tables[0];
  std::vector<std::optional<Error>> pulled, pushed;
  cluster.run_remote([&]() -> Task<void> {
    auto part = co_await cluster.remote_part();
    auto shard = co_await cluster.remote_shard();
    // Pulls of the next step are sent first, and wait for pushes of this one.
    Scope scope;
    for (std::uint64_t i = 0; i < 4; ++i)
      scope.spawn(note_error(
          pull_nothing(part, first_ids(1, 50'000, i), clock_of(1, 1), within(20s)), &pulled));
    co_await sleep_for(1s);
    std::vector<Task<void>> pushes;
    for (std::uint32_t i = 0; i < 8; ++i)
      pushes.push_back(note_error(
          push_nothing(part, spec, PushKey::leased(0, 0, i), first_ids(1, 5'000)), &pushed));
    co_await when_all(std::move(pushes));
    co_await shard.tick({.worker = 2, .job = job, .clock = 1});
    co_await scope.join();
  });
  CHECK(count_good(pushed) == 8);
  CHECK(count_good(pulled) == 4);
}

TEST_CASE("no pull is answered beyond the staleness bound, and the histogram says how it was") {
  const std::uint32_t bound = GENERATE(0u, 2u);
  const std::uint64_t steps = 60;
  CAPTURE(bound);
  Cluster cluster({.bound = bound, .workers = {{1, job, 0}, {2, job, 0}, {3, job, 0}}});
  const TableSpec spec = cluster.settings.tables[0];
  std::map<std::uint32_t, std::uint64_t> completed{{1, 0}, {2, 0}, {3, 0}};
  std::uint64_t broken = 0;
  const auto work = [&](std::uint32_t worker) {
    return co_invoke([&, worker]() -> Task<void> {
      std::mt19937 random(worker);
      auto part = cluster.part();
      auto shard = cluster.shard();
      for (std::uint64_t step = 0; step < steps; ++step) {
        co_await pull(part, {worker}, clock_of(worker, step));
        for (const auto& [other, clock] : completed) broken += clock + bound < step;
        co_await sleep_for(std::chrono::microseconds(random() % 4000));
        co_await push(part, spec, PushKey::leased(0, worker, static_cast<std::uint32_t>(step)),
                      {counter(worker)});
        completed[worker] = step + 1;
        co_await shard.tick({.worker = worker, .job = job, .clock = step + 1});
      }
    });
  };
  const auto status = cluster.run([&]() -> Task<protocol::ShardStatus> {
    Scope scope;
    for (const auto& [worker, clock] : completed) scope.spawn(work(worker));
    co_await scope.join();
    co_return co_await cluster.status();
  });
  CHECK(broken == 0);
  const auto histogram = status.staleness();
  REQUIRE(histogram.size() == ClockTable::histogram_size);
  std::uint64_t answered = 0;
  for (std::size_t behind = 0; behind < histogram.size(); ++behind) {
    CAPTURE(behind);
    if (behind > bound) CHECK(histogram[behind] == 0);
    answered += histogram[behind];
  }
  CHECK(answered == 3 * steps);
  CHECK(histogram[bound] > 0);  // the bound was reached
}

// ---- The lease ----------------------------------------------------------------------------------

TEST_CASE("a lease is over when its time is, also within the turn in which it still held") {
  SimWorld world;
  SimNode& machine = world.add_node();
  world.run(machine, 0, [&](Runtime&) {
    return co_invoke([&]() -> Task<void> {
      Lease lease;
      CHECK_FALSE(lease.valid());
      lease.extend_to(Clock::now() + 1s);
      CHECK(lease.valid());
      machine.jump_clock(2s);  // the process was stopped
      CHECK_FALSE(lease.valid());
      co_return;
    });
  });
}

TEST_CASE("a server whose lease ran out acknowledges no push, which counts once all the same") {
  Cluster cluster;
  const TableSpec spec = cluster.settings.tables[0];
  cluster.run([&]() -> Task<void> {
    auto part = cluster.part();
    const auto key = PushKey::leased(0, 0, 0);
    cluster.server->lease.extend_to(Clock::now());
    const auto first = co_await error_of(push(part, spec, key, {counter(1)}));
    const auto again = co_await error_of(push(part, spec, key, {counter(1)}));
    for (const auto& error : {first, again}) {
      REQUIRE(error.has_value());
      CHECK(error->is(Errc::no_reply));
      CHECK_THAT(error->what(), ContainsSubstring("lease"));
      CHECK(ps::detail::worth_retrying(*error));
    }
    const auto status = co_await cluster.status();
    CHECK((status.pushes() == 1 && status.acknowledged() == 0));
    cluster.server->lease.extend_to(Time::max());
    const bool duplicate = co_await push(part, spec, key, {counter(1)});
    const auto counted = co_await pull(part, {counter(1)});
    CHECK(duplicate);
    CHECK(counted == std::vector<float>{1, 1});
  });
}

// ---- Crashes ------------------------------------------------------------------------------------

namespace {

/// More than `pieces` MiB of rows.
Task<void> fill(protocol::TablePartRef part, TableSpec spec, std::uint32_t pieces) {
  for (std::uint32_t i = 0; i < 2 * pieces; ++i)
    co_await push(part, spec, PushKey::leased(0, 900, i), first_ids(spec.id, 1024, i * 1024));
}

/// Pushes of rows that meet each other, retries among them.
Task<void> traffic(protocol::TablePartRef part, TableSpec spec, std::uint32_t unit, int pushes,
                   std::size_t rows = 20) {
  std::mt19937_64 random(unit);
  for (int i = 0; i < pushes; ++i) {
    auto ids = first_ids(spec.id, rows, random() % (5 * rows));
    ids.push_back(counter(unit << 16 | static_cast<unsigned>(i)));
    const auto key = PushKey::leased(0, unit, static_cast<std::uint32_t>(i));
    ids = by_slot(spec.id, std::move(ids));
    co_await push(part, spec, key, ids, static_cast<float>(random() % 100) / 64);
    if (i % 5 == 0) co_await push(part, spec, key, ids);
  }
}

}  // namespace

TEST_CASE("a table's actor that crashes comes back bit by bit, while the others go on") {
  Cluster cluster({.tables = {table_of(1, "t"), table_of(2, "u", 5)}});
  cluster.run([&]() -> Task<void> {
    auto part = cluster.part(), other = cluster.part("u");
    const auto& tables = cluster.settings.tables;
    co_await traffic(part, tables[0], 0, 20);
    co_await traffic(other, tables[1], 0, 20);
    co_await cluster.shard().checkpoint({}, within(60s));
    co_await traffic(part, tables[0], 1, 20);
    co_await traffic(other, tables[1], 1, 20);
    const auto before = digest(part), before_other = digest(other);
    crash(part);
    CHECK(digest(other) == before_other);
    bool duplicate = co_await push(other, tables[1], PushKey::leased(0, 2, 0), {counter(7)});
    CHECK_FALSE(duplicate);
    co_await pull(part, {1});  // the same reference: it waits until the actor is up again
    CHECK(digest(part) == before);
    // It knows what it was sent before.
    duplicate = co_await push(part, tables[0], PushKey::leased(0, 1, 3), {counter(1 << 16 | 3)});
    CHECK(duplicate);
    const auto status = co_await cluster.status();
    CHECK(status.durable_lsn() == status.applied_lsn());
  });
}

TEST_CASE("a table that crashes while a snapshot is being finished loses nothing") {
  const TableSpec spec = table_of(1, "t", 64);
  Cluster cluster({.tables = {spec}});
  cluster.run([&]() -> Task<void> {
    co_await fill(cluster.part(), spec, 4);
    co_await cluster.shard().checkpoint({}, within(60s));
  });
  // Reading the old snapshot takes longer than finishing the new one, which takes away the log
  // behind the old. A little later each time, the table reads between the two.
  cluster.machine.disk().timing() = {.transfer_min = 6ms,
                                     .transfer_max = 6ms,
                                     .sync_min = 12ms,
                                     .sync_max = 12ms,
                                     .name_min = 100us,
                                     .name_max = 200us};
  for (std::uint32_t round = 0; round < 5; ++round) {
    const auto delay = std::chrono::milliseconds(24 + 3 * round);
    CAPTURE(delay.count());
    cluster.run([&] { return traffic(cluster.part(), spec, 2 * round, 5); });
    cluster.restart();  // which begins a new segment
    cluster.run([&]() -> Task<void> {
      auto part = cluster.part();
      co_await traffic(part, spec, 2 * round + 1, 5);
      const auto before = digest(part);
      Scope scope;
      std::vector<std::optional<Error>> ends;
      scope.spawn(note_error(
          co_invoke([&]() -> Task<void> { co_await cluster.shard().checkpoint({}, within(60s)); }),
          &ends));
      co_await sleep_for(delay);
      crash(part);
      co_await pull(part, {1});
      CHECK(digest(part) == before);
      co_await scope.join();
    });
  }
}

TEST_CASE("a snapshot gives way to a table that crashed, and is written later") {
  const TableSpec small = table_of(1, "t"), large = table_of(2, "u", 64);
  Cluster cluster({.tables = {small, large}});
  cluster.run([&]() -> Task<void> {
    co_await traffic(cluster.part(), small, 0, 5);
    co_await fill(cluster.part("u"), large, 4);
  });
  cluster.machine.disk().timing().transfer_min = 20ms;
  cluster.machine.disk().timing().transfer_max = 20ms;
  cluster.run([&]() -> Task<void> {
    auto part = cluster.part();
    const auto before = digest(part);
    std::vector<std::optional<Error>> ends;
    Scope scope;
    scope.spawn(note_error(
        co_invoke([&]() -> Task<void> { co_await cluster.shard().checkpoint({}, within(60s)); }),
        &ends));
    co_await sleep_for(30ms);  // the small table is written, the large one is being written
    crash(part);
    co_await scope.join();
    CHECK(count_of(ends, Errc::actor_down) == 1);
    co_await pull(part, {1});
    CHECK(digest(part) == before);
    const auto status = co_await cluster.shard().checkpoint({}, within(60s));
    CHECK(status.snapshots() == 1);
  });
}

TEST_CASE("pulls that wait when their table's actor crashes fail at once") {
  Cluster cluster(
      {.tables = {table_of(1, "t"), table_of(2, "u")}, .workers = {{1, job, 0}, {2, job, 0}}});
  cluster.run([&]() -> Task<void> {
    auto part = cluster.part(), other = cluster.part("u");
    std::vector<std::optional<Error>> ends, other_ends;
    Scope scope;
    for (int i = 0; i < 10; ++i)
      scope.spawn(note_error(pull_nothing(part, {1}, clock_of(1, 1), within(1h)), &ends));
    scope.spawn(note_error(pull_nothing(other, {1}, clock_of(1, 1), within(1h)), &other_ends));
    co_await sleep_for(10ms);
    const Time crashed = Clock::now();
    crash(part);
    co_await pull(part, {1});
    CHECK(count_of(ends, Errc::actor_down) == 10);
    CHECK(Clock::now() - crashed < 1s);
    const auto status = co_await cluster.status();
    CHECK(status.pulls_waiting() == 1);  // the other table's
    co_await cluster.shard().tick({.worker = 2, .job = job, .clock = 1});
    co_await scope.join();
    CHECK(count_good(other_ends) == 1);
  });
}

TEST_CASE("a parameter shard that crashes comes back with its tables, and fails who waits") {
  Cluster cluster(
      {.tables = {table_of(1, "t"), table_of(2, "u", 5)}, .workers = {{1, job, 0}, {2, job, 0}}});
  const auto& tables = cluster.settings.tables;
  cluster.run([&]() -> Task<void> {
    co_await traffic(cluster.part(), tables[0], 0, 30);
    co_await traffic(cluster.part("u"), tables[1], 0, 30);
    co_await cluster.shard().checkpoint({}, within(60s));
    co_await traffic(cluster.part(), tables[0], 1, 30);
    const auto before = digest(cluster.part()), before_other = digest(cluster.part("u"));
    std::vector<std::optional<Error>> waiting, pushed;
    Scope scope;
    scope.spawn(
        note_error(pull_nothing(cluster.part(), {1}, clock_of(1, 1), within(1h)), &waiting));
    co_await sleep_for(10ms);
    auto part = cluster.part();
    crash(cluster.shard());
    part = co_await cluster.part_after(part);
    co_await pull(part, {1});
    CHECK(count_of(waiting, Errc::actor_down) == 1);
    CHECK(digest(part) == before);
    CHECK(digest(cluster.part("u")) == before_other);
    const auto status = co_await cluster.status();
    CHECK(status.pulls_waiting() == 0);

    // Pushes under way: acknowledged, or not; sent again they count once.
    for (std::uint32_t batch = 0; batch < 20; ++batch)
      scope.spawn(note_error(
          push_nothing(part, tables[0], PushKey::leased(0, 5, batch), {counter(5 << 16 | batch)}),
          &pushed));
    co_await sleep_for(100us);
    crash(cluster.shard());
    co_await scope.join();
    part = co_await cluster.part_after(part);
    std::vector<std::uint64_t> counters;
    for (std::uint32_t batch = 0; batch < 20; ++batch) {
      co_await push(part, tables[0], PushKey::leased(0, 5, batch), {counter(5 << 16 | batch)});
      counters.push_back(counter(5 << 16 | batch));
    }
    const auto counted = co_await pull(part, by_slot(1, counters));
    CHECK(counted == std::vector<float>(40, 1));
  });
}

// ---- Snapshots ----------------------------------------------------------------------------------

TEST_CASE("a snapshot takes memory for a piece at a time, and pushes are acknowledged meanwhile") {
  const TableSpec spec = table_of(1, "t", 64);  // 520 bytes a row in the file
  Cluster cluster({.tables = {spec}});
  cluster.run([&] { return fill(cluster.part(), spec, 8); });
  SimDisk& disk = cluster.machine.disk();
  disk.timing().sync_max = disk.timing().sync_min;  // so that many fit into a snapshot's time
  Event written;
  std::uint32_t acknowledged = 0;
  auto running = cluster.world.start(cluster.machine, 0, [&](Runtime&) {
    return co_invoke([&]() -> Task<void> {
      Scope scope;
      scope.spawn(co_invoke([&]() -> Task<void> {
        co_await cluster.shard().checkpoint({}, within(60s));
        written.set();
      }));
      for (std::uint32_t batch = 0; !written.is_set(); ++batch) {
        co_await push(cluster.part(), spec, PushKey::leased(0, 901, batch), {counter(batch % 7)});
        acknowledged += !written.is_set();
      }
      co_await scope.join();
    });
  });
  // What one step adds to the disk is what one write had in memory.
  std::uint64_t before = disk.used_bytes(), largest = 0, total = 0;
  REQUIRE(cluster.world.run_until(
      [&] {
        const std::uint64_t now = disk.used_bytes();
        if (now > before) {
          largest = std::max(largest, now - before);
          total += now - before;
        }
        before = now;
        return running.done();
      },
      600s));
  running.take();
  CHECK(total > 8u << 20);
  CHECK(largest < 5u << 19);  // a piece of 1 MiB, and what one group of rows adds
  CHECK(acknowledged >= 8);
  const auto digested =
      cluster.run([&]() -> Task<std::uint64_t> { co_return digest(cluster.part()); });
  cluster.restart(SimCrash::power_cut());
  CHECK(cluster.run([&]() -> Task<std::uint64_t> { co_return digest(cluster.part()); }) ==
        digested);
}

TEST_CASE("a table that is created while a snapshot is written need not wait for it") {
  const TableSpec spec = table_of(1, "t", 64), young = table_of(2, "u");
  Cluster cluster({.tables = {spec}});
  cluster.run([&]() -> Task<void> {
    co_await fill(cluster.part(), spec, 2);
    Scope scope;
    Event written;
    scope.spawn(co_invoke([&]() -> Task<void> {
      co_await cluster.shard().checkpoint({}, within(60s));
      written.set();
    }));
    co_await yield();
    cluster.settings.tables.push_back(young);
    cluster.publish();
    while (!cluster.server->node.find<protocol::TablePart>("ps/shard/0/u"))
      co_await sleep_for(100us);
    co_await push(cluster.part("u"), young, PushKey::leased(0, 0, 0), {counter(1)});
    CHECK_FALSE(written.is_set());
    co_await scope.join();
    // Its actor's crash and the shard's find what the log holds of it.
    crash(cluster.part("u"));
    const auto counted = co_await pull(cluster.part("u"), {counter(1)});
    CHECK(counted == std::vector<float>{1, 1});
  });
  cluster.restart(SimCrash::power_cut());
  const auto counted = cluster.run([&] { return pull(cluster.part("u"), {counter(1)}); });
  CHECK(counted == std::vector<float>{1, 1});
}

TEST_CASE("checkpoints asked for while one is written share the next, and have a bound") {
  const TableSpec spec = table_of(1, "t", 64);
  Cluster cluster({.tables = {spec}});
  cluster.run([&]() -> Task<void> {
    co_await fill(cluster.part(), spec, 2);
    std::vector<std::optional<Error>> ends;
    std::vector<Task<void>> asked;
    for (int i = 0; i < 100; ++i)
      asked.push_back(note_error(
          co_invoke([&]() -> Task<void> { co_await cluster.shard().checkpoint({}, within(60s)); }),
          &ends));
    co_await when_all(std::move(asked));
    const auto refused = count_of(ends, Errc::overloaded);
    CHECK(refused == 100 - 1 - ParameterShard::max_waiting_checkpoints);
    CHECK(count_good(ends) == 100 - refused);
    const auto shared = co_await cluster.status();
    CHECK(shared.snapshots() == 2);
    const auto next = co_await cluster.shard().checkpoint({}, within(60s));
    CHECK(next.snapshots() == 3);
  });
}

// ---- Starting -----------------------------------------------------------------------------------

namespace {

/// Why the shard does not start on what its disk holds.
std::optional<Error> failure_of_start(Cluster& cluster) {
  try {
    cluster.restart();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

Task<void> push_and_checkpoint(Cluster& cluster, bool checkpoint) {
  for (const TableSpec& spec : cluster.settings.tables)
    co_await push(cluster.part(spec.name), spec, PushKey::leased(0, 0, 0), first_ids(spec.id, 9));
  if (checkpoint) co_await cluster.shard().checkpoint({}, within(60s));
}

}  // namespace

TEST_CASE("a shard whose files hold a table that the view lacks names it, and does not start") {
  const bool in_snapshot = GENERATE(true, false);
  CAPTURE(in_snapshot);
  Cluster cluster({.tables = {table_of(1, "t"), table_of(23, "u")}});
  cluster.run([&] { return push_and_checkpoint(cluster, in_snapshot); });
  cluster.settings.tables.pop_back();
  const auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::not_found));
  CHECK_THAT(error->what(), ContainsSubstring("table 23"));
}

TEST_CASE("a shard whose files hold a table of another kind says how it differs") {
  Cluster cluster;
  cluster.run([&] { return push_and_checkpoint(cluster, true); });
  cluster.settings.tables = {table_of(1, "t", 3)};
  auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(), ContainsSubstring("width 2 instead of 3"));
  cluster.settings.tables = {table_of(1, "t")};
  cluster.settings.num_shards = 2;
  error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(), ContainsSubstring("--num_shards"));
  cluster.settings.num_shards = 1;
  CHECK_FALSE(failure_of_start(cluster).has_value());
}

namespace {

constexpr const char* snapshots = "/w/checkpoints/shard-0000";

/// What stands below a folder of the server's disk, by path; folders as null.
using Tree = std::map<std::string, std::optional<std::string>>;

Task<void> list_into(Cluster* cluster, std::string folder, Tree* tree) {
  for (const auto& name : co_await list_directory(folder)) {
    const std::string path = folder + "/" + name;
    (*tree)[path] = cluster->machine.disk().contents(path);
    if (!tree->at(path)) co_await list_into(cluster, path, tree);
  }
}
Tree tree_of(Cluster& cluster, std::string folder = "/") {
  Tree tree;
  cluster.run([&] { return list_into(&cluster, folder, &tree); });
  return tree;
}

/// The files, and nothing else, below that folder from now on.
void replace_tree(Cluster& cluster, const std::string& folder, const Tree& with) {
  for (const auto& [path, contents] : tree_of(cluster, folder))
    if (contents) cluster.run([&] { return remove_file(path); });
  for (const auto& [path, contents] : with)
    if (contents) cluster.machine.disk().put(path, *contents);
}

std::string name_of_snapshot(Cluster& cluster) {
  for (const auto& [path, contents] : tree_of(cluster, snapshots))
    if (path.ends_with(".snap")) return path;
  return {};
}

/// Pushes while a snapshot is written, so that it holds records behind its start.
Task<void> write_fuzzy_snapshot(Cluster* cluster, TableSpec spec) {
  co_await fill(cluster->part(), spec, 3);
  Scope scope;
  Event written;
  scope.spawn(co_invoke([&]() -> Task<void> {
    co_await cluster->shard().checkpoint({}, within(60s));
    written.set();
  }));
  for (std::uint32_t batch = 0; !written.is_set(); ++batch)
    co_await push(cluster->part(), spec, PushKey::leased(0, 901, batch), first_ids(1, 100));
  co_await scope.join();
}

/// Its bytes up to the given record.
std::string segment_before(const std::string& segment, std::uint64_t lsn) {
  std::size_t size = segment_header_bytes;
  scan_segment(
      std::as_bytes(std::span(segment)),
      [&](std::span<const std::byte> record) {
        if (decode_head(record).lsn < lsn) size += record.size();
      },
      "a segment");
  return segment.substr(0, size);
}

}  // namespace

TEST_CASE("a shard whose log ends before what its snapshot holds does not start") {
  const TableSpec spec = table_of(1, "t", 64);
  Cluster cluster({.tables = {spec}});
  cluster.run([&] { return write_fuzzy_snapshot(&cluster, spec); });
  const std::string folder = cluster.settings.log_folder;
  cluster.settings.log_folder = "/another/disk/was/not/mounted";
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto error = failure_of_start(cluster);
    REQUIRE(error.has_value());
    CHECK(error->is(Errc::corrupt));
    CHECK_THAT(error->what(),
               ContainsSubstring(cluster.settings.log_folder) && ContainsSubstring("snapshot-"));
  }
  cluster.settings.log_folder = folder;
  CHECK_FALSE(failure_of_start(cluster).has_value());
}

TEST_CASE("a shard whose log ends before what is known to have been durable does not start") {
  const TableSpec spec = table_of(1, "t");
  Cluster cluster({.tables = {spec}});
  cluster.run([&] { return fill(cluster.part(), spec, 3); });
  const std::uint64_t last = cluster.synced;
  REQUIRE(last > 0);
  const Tree before = tree_of(cluster, cluster.settings.log_folder);
  cluster.settings.least_record = last + 1;
  const auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(), ContainsSubstring(fmt::format("ends with record {}", last)) &&
                                ContainsSubstring("older copy") &&
                                ContainsSubstring("--accept_loss"));
  CHECK(tree_of(cluster, cluster.settings.log_folder) == before);
  cluster.settings.least_record = last;
  CHECK_FALSE(failure_of_start(cluster).has_value());
}

TEST_CASE("a log that ends within its snapshot is left alone, so that its rest can be restored") {
  const TableSpec spec = table_of(1, "t", 64);
  Cluster cluster({.tables = {spec}});
  cluster.run([&] { return write_fuzzy_snapshot(&cluster, spec); });
  const std::string snapshot = name_of_snapshot(cluster);
  const auto at = snapshot.rfind('-') + 1;
  const std::uint64_t start = std::stoull(snapshot.substr(at, 16), nullptr, 16);
  const std::string segment =
      cluster.settings.log_folder + "/token-0000000000000001/segment-0000000000000001.log";
  const std::string whole = cluster.machine.disk().contents(segment).value();
  cluster.machine.disk().put(segment, segment_before(whole, start));
  const Tree before = tree_of(cluster);
  auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  INFO(error->what());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(),
             ContainsSubstring(snapshot) && ContainsSubstring(cluster.settings.log_folder));
  CHECK(tree_of(cluster) == before);
  cluster.machine.disk().put(segment, whole);
  error = failure_of_start(cluster);
  INFO((error ? error->what() : ""));
  CHECK_FALSE(error.has_value());
}

TEST_CASE("a log that was restored too old is left alone, and its rest can be put beside it") {
  const TableSpec spec = table_of(1, "t");
  Cluster cluster;
  const auto push_three = [&](std::uint32_t unit) {
    for (std::uint32_t batch = 0; batch < 3; ++batch)
      cluster.run([&] {
        return push(cluster.part(), spec, PushKey::leased(0, unit, batch), first_ids(1, 5));
      });
  };
  push_three(0);
  cluster.restart();
  push_three(1);
  const Tree old = tree_of(cluster, cluster.settings.log_folder);
  cluster.restart();
  push_three(2);
  cluster.run([&] { return push_and_checkpoint(cluster, true); });
  const auto applied = cluster.run([&] { return cluster.status(); }).applied_lsn();
  const Tree right = tree_of(cluster, cluster.settings.log_folder);
  CHECK(right.size() < old.size());  // the snapshot has them
  replace_tree(cluster, cluster.settings.log_folder, old);
  const Tree before = tree_of(cluster);
  const auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  INFO(error->what());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(), ContainsSubstring(cluster.settings.log_folder));
  CHECK(tree_of(cluster) == before);
  for (const auto& [path, contents] : right)
    if (contents) cluster.machine.disk().put(path, *contents);
  REQUIRE_FALSE(failure_of_start(cluster).has_value());
  CHECK(cluster.run([&] { return cluster.status(); }).applied_lsn() == applied);
}

TEST_CASE("a snapshot without its log is refused, also when no record lies behind its start") {
  Cluster cluster;
  cluster.run([&] { return push_and_checkpoint(cluster, true); });
  const std::string folder = cluster.settings.log_folder;
  cluster.settings.log_folder = "/new/shard-0000";
  const Tree before = tree_of(cluster);
  const auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  INFO(error->what());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(), ContainsSubstring("'/new/shard-0000' is empty") &&
                                ContainsSubstring("snapshot-") &&
                                ContainsSubstring("--checkpoint_dir"));
  CHECK(tree_of(cluster) == before);
  cluster.settings.log_folder = folder;
  CHECK_FALSE(failure_of_start(cluster).has_value());
}

TEST_CASE("a folder with another cluster's snapshots is refused, and stays as it was") {
  Cluster cluster;
  cluster.run([&] { return push_and_checkpoint(cluster, true); });
  const Settings own = cluster.settings;
  cluster.settings.cluster = 0xb22;
  const bool with_log = GENERATE(true, false);
  CAPTURE(with_log);
  if (with_log) {  // of the very same records
    cluster.settings.log_folder = "/other/shard-0000";
    for (const auto& [path, contents] : tree_of(cluster, own.log_folder))
      if (contents)
        cluster.machine.disk().put("/other/shard-0000" + path.substr(own.log_folder.size()),
                                   *contents);
  } else {
    cluster.settings.log_folder = "/new/shard-0000";
  }
  const Tree before = tree_of(cluster);
  auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  INFO(error->what());
  CHECK(error->is(Errc::rejected));
  CHECK_THAT(error->what(), ContainsSubstring(snapshots) &&
                                ContainsSubstring("cluster 0000000000000a11") &&
                                ContainsSubstring("cluster 0000000000000b22") &&
                                ContainsSubstring("--checkpoint_dir"));
  CHECK(tree_of(cluster) == before);
  cluster.settings = own;
  CHECK_FALSE(failure_of_start(cluster).has_value());
  CHECK(cluster.run([&] { return cluster.status(); }).rows() == 9);
}

TEST_CASE(
    "a folder without snapshots yet is its first cluster's alone, whatever ends the process") {
  const auto how = GENERATE(0, 1);
  Cluster cluster;
  cluster.machine.crash(how ? SimCrash::power_cut() : SimCrash::kill());
  cluster.machine.restart();
  cluster.settings.cluster = 0xb22;
  cluster.settings.log_folder = "/other/shard-0000";
  const auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::rejected));
}

TEST_CASE(
    "snapshots that an older program left without a cluster's mark are taken with their log") {
  Cluster cluster;
  cluster.run([&] { return push_and_checkpoint(cluster, true); });
  const std::string mark = std::string(snapshots) + "/cluster-0000000000000a11";
  REQUIRE(cluster.machine.disk().contents(mark).has_value());
  cluster.run([&] { return remove_file(mark); });
  REQUIRE_FALSE(failure_of_start(cluster).has_value());
  CHECK(cluster.run([&] { return cluster.status(); }).rows() == 9);
  CHECK(cluster.machine.disk().contents(mark).has_value());
}

TEST_CASE("of two clusters that come to a new folder at once at most one stays") {
  int stayed = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& machine = world.add_node();
    const TableSpec specs[] = {table_of(1, "t")};
    const NodeId nodes[] = {server_id};
    const auto start = [&](std::uint64_t cluster) {
      ShardOptions options;
      options.log_folder = "/w/" + std::to_string(cluster);
      options.snapshot_folder = snapshots;
      auto& context = machine.emplace<ShardContext>(options, PlacementMap::first(1, nodes));
      context.cluster = cluster;
      return world.start(machine, 0, [&context, &specs](Runtime&) {
        return error_of(recover_shard(context, specs));
      });
    };
    auto first = start(1), second = start(2);
    std::optional<Error> errors[] = {world.wait(first), world.wait(second)};
    CHECK((errors[0] || errors[1]));
    for (const auto& error : errors) {
      if (error) CHECK(error->is(Errc::rejected));
      stayed += !error;
    }
    // Whoever stays may come again, and keeps the other one out.
    auto again = start(1), other = start(2);
    errors[0] = world.wait(again);
    errors[1] = world.wait(other);
    CHECK((errors[0] || errors[1]));
  }
  CHECK(stayed > 0);
}

TEST_CASE("a newer owner's snapshot is not for an older one, and a renamed one for nobody") {
  Cluster cluster;
  cluster.run([&] { return push_and_checkpoint(cluster, true); });
  const std::string path = name_of_snapshot(cluster);
  const std::string contents = cluster.machine.disk().contents(path).value();
  const std::string higher = std::string(snapshots) + "/snapshot-00000000000000ff.snap";
  cluster.machine.disk().put(higher, contents);
  auto error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::corrupt));
  CHECK_THAT(error->what(), ContainsSubstring(higher));
  cluster.run([&] { return remove_file(higher); });
  // A copy that an operator put there is no snapshot, and stays.
  const std::string kept = std::string(snapshots) + "/snapshot-before-upgrade.snap";
  cluster.machine.disk().put(kept, contents);
  REQUIRE_FALSE(failure_of_start(cluster).has_value());
  cluster.run([&] { return push_and_checkpoint(cluster, false); });
  cluster.run([&]() -> Task<void> {
    co_await push(cluster.part(), cluster.settings.tables[0], PushKey::leased(0, 7, 0),
                  first_ids(1, 3));
    co_await cluster.shard().checkpoint({}, within(60s));
  });
  const Tree tree = tree_of(cluster, snapshots);
  CHECK(tree.contains(kept));
  CHECK_FALSE(tree.contains(path));

  Bytes newer;
  SnapshotEncoder encoder;
  encoder.begin({.shard = 0, .token = 9, .start_lsn = 0xff}, newer);
  encoder.end(newer);
  cluster.machine.disk().put(
      higher, std::string_view(reinterpret_cast<const char*>(newer.data()), newer.size()));
  error = failure_of_start(cluster);
  REQUIRE(error.has_value());
  CHECK(error->is(Errc::fenced));
  CHECK_THAT(error->what(), ContainsSubstring("token 9"));
}

// ---- Learning -----------------------------------------------------------------------------------

namespace {

/// Users and items with weights of their own; a label is a draw with the probability that they
/// give.
class Clicks {
 public:
  explicit Clicks(const ModelConfig& config) : builder_(config) {
    std::normal_distribution<float> normal(0, 2);
    for (auto* weights : {&users_, &items_})
      for (int i = 0; i < 40; ++i) weights->push_back(normal(random_));
  }
  Batch next(std::size_t samples) {
    for (std::size_t i = 0; i < samples; ++i) {
      const auto user = random_() % users_.size(), item = random_() % items_.size();
      const float p = 1 / (1 + std::exp(-users_[user] - items_[item]));
      const std::string names[] = {std::to_string(user), std::to_string(item)};
      const std::string_view values[] = {names[0], names[1]};
      builder_.add(values, std::uniform_real_distribution<float>()(random_) < p ? 1.0f : 0.0f);
    }
    return builder_.take();
  }

 private:
  std::mt19937 random_{11};
  std::vector<float> users_, items_;
  BatchBuilder builder_;
};

std::vector<float> in_order_of(const std::vector<std::uint64_t>& wanted,
                               const std::vector<std::uint64_t>& ids,
                               const std::vector<float>& rows) {
  std::map<std::uint64_t, float> row_of;
  for (std::size_t i = 0; i < ids.size(); ++i) row_of[ids[i]] = rows[i];
  std::vector<float> ordered;
  for (const auto id : wanted) ordered.push_back(row_of.at(id));
  return ordered;
}

/// Rows of one float, in the order of the batch's ids.
Task<std::vector<float>> pull_batch(Cluster* cluster, const Batch* batch) {
  const auto ids = by_slot(1, batch->ids);
  const auto rows = co_await pull(cluster->part(), ids);
  co_return in_order_of(batch->ids, ids, rows);
}

/// Trains, with a crash of the table's actor and a checkpoint on the way if `disturbed`. Returns
/// what the table holds then.
Task<std::uint64_t> train(Cluster* cluster, const Model* model, RunningScore* score,
                          bool disturbed) {
  Clicks clicks(model->config());
  for (std::uint32_t step = 0; step < 150; ++step) {
    const Batch batch = clicks.next(64);
    const auto rows = co_await pull_batch(cluster, &batch);
    std::vector<float> gradients(rows.size()), predictions(batch.samples());
    const double loss = model->gradients(batch, rows, gradients, predictions);
    if (step >= 110) score->add(predictions, batch.labels, loss);
    const auto ids = by_slot(1, batch.ids);
    auto segments = rows_of(ids, in_order_of(ids, batch.ids, gradients));
    co_await cluster->part().push(request_of(PushKey::leased(0, 0, step)), std::move(segments),
                                  within(60s));
    if (disturbed && step == 60) co_await cluster->shard().checkpoint({}, within(60s));
    if (disturbed && step % 40 == 30) crash(cluster->part());
  }
  co_await pull(cluster->part(), {1});
  co_return digest(cluster->part());
}

}  // namespace

TEST_CASE("a logistic regression is learnt through the parameter shard, crashes or not") {
  const auto config = ModelConfig::parse(R"(
model: logistic_regression
label: clicked
epochs: 1
optimizer: {kind: adagrad, learning_rate: 0.5, initial_accumulator: 0.1}
fields:
  - {name: user, l2: 0.001}
  - {name: item, l2: 0.001}
)");
  REQUIRE(config.width() == 1);
  const Model model(config);
  TableSpec spec = table_of(1, "t", 1);
  spec.learning_rate = config.learning_rate;
  spec.initializer = InitializerKind::zero;
  std::map<bool, std::uint64_t> digests;
  for (const bool disturbed : {false, true}) {
    Cluster cluster({.tables = {spec}});
    RunningScore score(40 * 64);
    digests[disturbed] = cluster.run([&] { return train(&cluster, &model, &score, disturbed); });
    INFO("AUC " << score.auc() << ", logloss " << score.loss());
    CHECK(score.auc() > 0.85);
    CHECK(score.loss() < 0.5);
  }
  CHECK(digests[true] == digests[false]);
}
