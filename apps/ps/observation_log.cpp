#include <hyperframes/apps/ps/observation_log.hpp>
//
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <hyperframes/apps/ps/cluster_view.hpp>
#include <hyperframes/apps/ps/machine.hpp>
#include <hyperframes/apps/ps/shard_context.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/time.hpp>
#include <type_traits>

namespace hyperframes::ps {
namespace {

static_assert(std::is_trivially_copyable_v<Observation>);  // a record is its bytes

using Kind = Observation::Kind;

void set_key(Observation& into, const PushKey& key) {
  into.epoch = key.epoch;
  into.unit = key.unit;
  into.batch = key.batch;
}

}  // namespace

float read_counter(const TableState& state, std::uint64_t counter) {
  std::vector<float> row(state.spec().width);
  state.pull(std::as_bytes(std::span(&counter, 1)), std::as_writable_bytes(std::span(row)));
  return row[0];
}

std::uint64_t counter_of(const PushBody& push) {
  for (std::uint32_t i = 0; i < push.count; ++i) {
    std::uint64_t id = 0;
    std::memcpy(&id, push.ids + i * sizeof id, sizeof id);
    if (is_counter(id)) return id;
  }
  return 0;
}

ObservationLog::ObservationLog(const std::string& path)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_ < 0)
    throw Error::system(errno, "open the observations '" + path + "'", {},
                        "name a file in a folder that this user may write");
  // The last process may have been killed in the middle of a record.
  const auto end = ::lseek(file_, 0, SEEK_END);
  [[maybe_unused]] const int cut =
      ::ftruncate(file_, end - end % static_cast<off_t>(sizeof(Observation)));
  write({.kind = Kind::started});
}

std::unique_ptr<ObservationLog> ObservationLog::from_environment() {
  const char* path = std::getenv("HYPERFRAMES_OBSERVATIONS");
  return path && *path ? std::make_unique<ObservationLog>(path) : nullptr;
}

ObservationLog::~ObservationLog() { ::close(file_); }

// In one piece, so that neither a kill nor another core shard gets in between. An observer may not
// throw: a file that takes no more is found too short by whoever checks it.
void ObservationLog::write(std::span<Observation> observations) noexcept {
  const std::int64_t now = Clock::read_system().time_since_epoch().count();
  for (Observation& each : observations) each.time_ns = now;
  [[maybe_unused]] const ssize_t written =
      ::write(file_, observations.data(), observations.size_bytes());
}

void ObservationLog::opened(const ShardContext& context) {
  write({.kind = Kind::opened, .shard = context.options.shard, .token = context.options.token});
}

void ObservationLog::recovered(const ShardContext& context, const TableState& state) {
  const Observation base = {
      .kind = Kind::counted, .table = state.spec().id, .shard = context.options.shard};
  std::vector<Observation> all;
  for (const auto& [counter, count] : state.counters()) {
    all.push_back(base);
    all.back().counter = counter;
    all.back().count = count;
  }
  all.push_back(base);
  all.back().kind = Kind::recovered;
  write(all);
}

void ObservationLog::pushed(const ShardContext& context, const TableState& state,
                            const PushBody& push, bool fresh) {
  Observation seen = {.kind = Kind::pushed,
                      .fresh = fresh,
                      .table = state.spec().id,
                      .shard = context.options.shard,
                      .token = context.options.token,
                      .counter = counter_of(push)};
  if (seen.counter != 0) seen.count = read_counter(state, seen.counter);
  set_key(seen, push.key);
  write(seen);
}

void ObservationLog::pull_answered(const ShardContext& context, std::uint32_t job,
                                   std::uint64_t step) {
  write({.kind = Kind::pull_answered, .shard = context.options.shard, .job = job, .step = step});
}

void ObservationLog::view_adopted(const ShardContext& context, const ClusterView& view) {
  std::vector<Observation> all;
  for (const auto& each : view.workers)
    all.push_back({.kind = Kind::live,
                   .shard = context.options.shard,
                   .job = each.job,
                   .worker = each.worker,
                   .step = each.joined_at_clock});
  all.push_back({.kind = Kind::view_adopted, .shard = context.options.shard});
  write(all);
}

void ObservationLog::acknowledged(TableId table, ShardId shard, const PushKey& key,
                                  std::uint64_t counter) {
  Observation seen = {
      .kind = Kind::acknowledged, .table = table, .shard = shard, .counter = counter};
  set_key(seen, key);
  write(seen);
}

void ObservationLog::clock_set(std::uint32_t job, std::uint32_t worker, std::uint64_t clock) {
  write({.kind = Kind::clock_set, .job = job, .worker = worker, .step = clock});
}

std::vector<Observation> read_observations(const std::string& path) {
  std::string text;
  if (const auto result = read_all(Machine::real(), path, text); result < 0)
    throw Error::system(static_cast<int>(-result), "read the observations '" + path + "'");
  std::vector<Observation> all(text.size() / sizeof(Observation));
  if (!all.empty()) std::memcpy(all.data(), text.data(), all.size() * sizeof(Observation));
  return all;
}

}  // namespace hyperframes::ps
