// The parameter shard's actors on a simulated disk that forgets what was not synced.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/counter_row.hpp>
#include <hyperframes/apps/ps/parameter_shard.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <map>
#include <random>

using namespace hyperframes;
using namespace hyperframes::ps;

namespace {

constexpr NodeId node_id = 7;
constexpr TableId table_id = 1;
constexpr std::uint32_t width = 2;

std::shared_ptr<const ClusterView> view_of_one_shard() {
  auto view = std::make_shared<ClusterView>();
  view->version = 1;
  const NodeId nodes[] = {node_id};
  view->placement = PlacementMap::first(1, nodes);
  TableSpec spec;
  spec.id = table_id;
  spec.name = "t";
  spec.width = width;
  view->tables.push_back(spec);
  return view;
}

/// A server's process with one parameter shard.
struct Program {
  Program(SimNode& node, Durability durability) : node(node.runtime()) {
    lease.extend_to(Time::max());
    options.durability = durability;
    options.log_folder = "/w/shard-0000";
    options.snapshot_folder = "/w/checkpoints/shard-0000";
    options.snapshot_interval = Duration::zero();
  }
  Node node;
  ViewFeed feed;
  Lease lease;
  ShardOptions options;
};

Task<void> start_shard(Program* program) {
  program->feed.publish(view_of_one_shard());
  co_await program->node.spawn<ParameterShard>(SpawnOptions{.name = "ps/shard/0"}, program->options,
                                               &program->feed, &program->lease);
}

/// What is known of each push from outside: acknowledged, or perhaps applied.
using Known = std::map<std::uint32_t, bool>;

constexpr std::uint32_t unit_batches = 256;

std::uint64_t counter_of(std::uint32_t batch) {
  static const PlacementMap map = *view_of_one_shard()->placement;
  return counter_row(map, table_id, 0,
                     PushKey::leased(0, batch / unit_batches, batch % unit_batches));
}

Task<void> push_one(Program* program, std::uint32_t batch, Known* known) {
  const std::uint64_t ids[] = {batch % 17, counter_of(batch)};
  const float values[] = {0.5f, -0.25f, 1, 0};
  // Grouped by slot, in ascending order, as the schema demands.
  const bool swap = slot_of(table_id, ids[0]) > slot_of(table_id, ids[1]);
  const std::uint64_t sorted_ids[] = {ids[swap], ids[!swap]};
  const float sorted[] = {values[swap ? 2 : 0], values[swap ? 3 : 1], values[swap ? 0 : 2],
                          values[swap ? 1 : 3]};
  Segments segments;
  segments.push_back(Buffer::copy_of(std::as_bytes(std::span(sorted_ids))));
  segments.push_back(Buffer::copy_of(std::as_bytes(std::span(sorted))));
  known->emplace(batch, false);
  auto part = program->node.find<protocol::TablePart>("ps/shard/0/t").value();
  protocol::PushRequest::Fields request;
  request.map_version = 1;
  request.unit = batch / unit_batches;
  request.batch = batch % unit_batches;
  co_await part.push(request, std::move(segments), within(60s));
  (*known)[batch] = true;
}

Task<void> push_many(Program* program, std::uint32_t first, int count, Known* known) {
  // Several in flight, so that syncs cover groups of them.
  std::vector<Task<void>> pushes;
  for (int i = 0; i < count; ++i)
    pushes.push_back(push_one(program, first + static_cast<std::uint32_t>(i), known));
  co_await when_all(std::move(pushes));
}

/// First what is in doubt, again, as a worker would; then new ones.
Task<void> work(Program* program, std::uint32_t first, Known* known, bool checkpoint) {
  std::vector<Task<void>> again;
  for (const auto& [batch, acknowledged] : *known)
    if (!acknowledged) again.push_back(push_one(program, batch, known));
  co_await when_all(std::move(again));
  for (std::uint32_t round = 0; round < 20; ++round) {
    co_await push_many(program, first + round * 8, 8, known);
    if (checkpoint && round % 7 == 3) {
      auto shard = program->node.find<protocol::ParameterShard>("ps/shard/0").value();
      co_await shard.checkpoint({}, within(60s));
    }
  }
}

Task<std::map<std::uint32_t, float>> read_counters(Program* program,
                                                   std::vector<std::uint32_t> batches) {
  std::map<std::uint64_t, std::uint32_t> batch_of;
  for (const std::uint32_t batch : batches) batch_of[counter_of(batch)] = batch;
  std::vector<std::uint64_t> ids;
  for (const auto& [id, batch] : batch_of) ids.push_back(id);
  auto part = program->node.find<protocol::TablePart>("ps/shard/0/t").value();
  const auto answer = co_await part.pull(
      {.map_version = 1}, Segments(Buffer::copy_of(std::as_bytes(std::span(ids)))), within(60s));
  std::map<std::uint32_t, float> counts;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    float value = 0;
    std::memcpy(&value, answer.segments[0].data() + i * width * sizeof(float), sizeof value);
    counts[batch_of[ids[i]]] = value;
  }
  co_return counts;
}

/// What may be read of a push: with `push`, an acknowledged one is there; without, the last ones
/// may be missing, and everything may be once the power was cut. Never twice.
bool allowed(float count, bool acknowledged, Durability durability) {
  if (count == 1) return true;
  return count == 0 && !(acknowledged && durability == Durability::push);
}

/// Ends the process `cuts` times at random moments, mostly by a power cut; it must start each time,
/// and read what it may.
void survive(std::uint64_t seed, int cuts, Durability durability) {
  INFO("seed " << seed << ", durability " << name(durability));
  SimWorld world({.seed = seed});
  SimNode& node = world.add_node();
  std::mt19937_64 random(seed);
  Known known;
  std::uint32_t next = 0;
  for (int round = 0; round <= cuts; ++round) {
    Program& program = node.emplace<Program>(node, durability);
    world.run(node, 0, [&](Runtime&) { return start_shard(&program); });
    std::vector<std::uint32_t> batches;
    for (const auto& [batch, acknowledged] : known) batches.push_back(batch);
    const auto counts =
        world.run(node, 0, [&](Runtime&) { return read_counters(&program, batches); });
    for (const auto& [batch, count] : counts) {
      INFO("push " << batch << " reads " << count << " after " << round << " cuts");
      REQUIRE(allowed(count, known[batch], durability));
    }
    if (round == cuts) return;
    const bool kill = random() % 4 == 0;
    node.crash_at_disk_operation(1 + random() % 60,
                                 kill ? SimCrash::kill() : SimCrash::power_cut());
    auto pending = world.start(
        node, 0, [&](Runtime&) { return work(&program, next, &known, round % 2 == 0); });
    world.run_until([&] { return !node.is_up() || pending.done(); }, 600s);
    if (node.is_up()) node.crash(SimCrash::power_cut());
    node.restart();
    next += 1000;
  }
}

constexpr Durability policies[] = {Durability::push, Durability::interval, Durability::none};

}  // namespace

TEST_CASE("fifty power cuts lose no acknowledged push and apply none twice", "[long]") {
  const auto seed = std::random_device{}();
  for (const Durability durability : policies)
    for (std::uint64_t world = 0; world < 10; ++world) survive(seed + world, 5, durability);
}

TEST_CASE("power cuts of known seeds lose no acknowledged push, and keep no server from starting") {
  for (const Durability durability : policies)
    for (std::uint64_t seed = 1; seed <= 4; ++seed) survive(seed, 4, durability);
}
